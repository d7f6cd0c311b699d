-- Undo what a script left behind that was stopped in the middle, before its HSET of the state: answers and late labels
-- that name an entry the state has not come to, and the entry itself. The entry goes last, since it tells that there is
-- something to undo; the log is written anew without it (a deleted entry's id could not be used again) and put in its
-- place in one step.
-- KEYS  every key of the session
local state, log, _, _, answers_0, answers_1, spare, ids = unpack(KEYS, 1, 8)
local head, entries = unpack(redis.call('HMGET', state, 'head', 'entries'))
if not head then return 0 end
local newest = observed_of(head) .. '-' .. entries
if not was_stopped(log, newest) then return 0 end
entries = tonumber(entries)
for _, answers in ipairs({answers_0, answers_1}) do
  local found = redis.call('HGETALL', answers)
  for i = 1, #found, 2 do
    if tonumber(string.match(found[i + 1], '^%d+') or 0) > entries then redis.call('HDEL', answers, found[i]) end
  end
end
local found = redis.call('HGETALL', ids)
for i = 1, #found, 2 do
  local entry = found[i + 1]
  if string.sub(entry, 1, 1) == 'P' then
    local high, low = struct.unpack('>I4I4', string.sub(entry, 10, 17))
    if high * 4294967296 + low > entries then
      redis.call('HSET', ids, found[i], 'W' .. string.sub(entry, 2, 9) .. string.sub(entry, 18))
    end
  end
end
redis.call('DEL', spare)
for _, entry in ipairs(redis.call('XRANGE', log, '-', newest)) do
  redis.call('XADD', spare, entry[1], unpack(entry[2]))
end
if redis.call('EXISTS', spare) == 0 then
  redis.call('DEL', log)
else
  local left = redis.call('PTTL', log)
  redis.call('RENAME', spare, log)
  if left > 0 then redis.call('PEXPIRE', log, left) end
end
return 1
