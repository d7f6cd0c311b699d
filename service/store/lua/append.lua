-- Included before the scripts that write to the log.

-- Append an entry with this id, and let go of those before `minid` (whole nodes of the stream, so a few more stay).
-- `newest` is the id of the newest entry that counts. A script that was stopped right after its XADD leaves an entry
-- behind that: then the log is written anew without it, under the key `spare`, and put in its place in one step.
local function append(log, spare, newest, id, minid, fields)
  local added = redis.pcall('XADD', log, 'MINID', '~', minid, id, unpack(fields))
  if type(added) ~= 'table' or not added.err then return end
  if not string.find(added.err, 'equal or smaller') then error(added.err) end
  redis.call('DEL', spare)
  for _, entry in ipairs(redis.call('XRANGE', log, '-', newest)) do
    redis.call('XADD', spare, entry[1], unpack(entry[2]))
  end
  redis.call('XADD', spare, id, unpack(fields))
  redis.call('RENAME', spare, log)
end

-- The points learned, as the state's head says: "observed mistakes updates version status"
local function observed_of(head) return string.match(head, '^%d+') end
