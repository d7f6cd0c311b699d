-- What became of these ids.
-- KEYS  state, ids
-- ARGV  ids
-- Reply {now in ms, number of the newest log entry, entry of `ids` or false, ...}
local time = redis.call('TIME')
local entries = tonumber(redis.call('HGET', KEYS[1], 'entries') or 0)
local found = {time[1] * 1000 + math.floor(time[2] / 1000), entries}
for i, id in ipairs(ARGV) do found[i + 2] = redis.call('HGET', KEYS[2], id) end
return found
