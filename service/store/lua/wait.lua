-- Points that wait for their labels, by id. An entry of `ids` is a letter and the point's fingerprint (8 bytes); then
--   W  when it expires (8 bytes, ms), the point
--   P  the number of the log entry that learned it (8 bytes), then as W: learned if the log has come to that number
--   L  learned
--   E  expired
-- An id that is asked for again waits anew, unless it was learned.
--
-- KEYS  state, ids, waiting, settled
-- ARGV  time to live of the points (ms); limit; ids to remember; time to live of the session; then id, fingerprint, point
-- Reply 1 they wait · 0 the session is gone · {position} that id was given to another point · -1 too many wait
local state, ids, waiting, settled = unpack(KEYS)
local ttl, limit, keep_ids, session_ttl = unpack(ARGV, 1, 4)
local entries = tonumber(redis.call('HGET', state, 'entries'))
if not entries then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function letter(entry)
  local first = string.sub(entry, 1, 1)
  if first ~= 'P' then return first end
  local high, low = struct.unpack('>I4I4', string.sub(entry, 10, 17))
  return high * 4294967296 + low <= entries and 'L' or 'W'
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', waiting, '-inf', now, 'LIMIT', 0, 10000)) do
  local entry = redis.call('HGET', ids, id)
  if entry and letter(entry) == 'W' then redis.call('HSET', ids, id, 'E' .. string.sub(entry, 2, 9)) end
  redis.call('ZREM', waiting, id)
  redis.call('ZADD', settled, time[1], id)
end
while redis.call('ZCARD', settled) > tonumber(keep_ids) do
  redis.call('HDEL', ids, redis.call('ZPOPMIN', settled)[1])
end
local new, more = {}, 0
for i = 5, #ARGV, 3 do
  local entry = redis.call('HGET', ids, ARGV[i])
  if entry and string.sub(entry, 2, 9) ~= ARGV[i + 1] then return {(i - 5) / 3} end
  local found = entry and letter(entry)
  if found ~= 'L' then new[#new + 1] = i end
  if not entry or found == 'E' then more = more + 1 end
end
if redis.call('ZCARD', waiting) + more > tonumber(limit) then return -1 end
local expires = now + ttl
local stamp = struct.pack('>I4I4', math.floor(expires / 4294967296), expires % 4294967296)
for _, i in ipairs(new) do
  redis.call('HSET', ids, ARGV[i], 'W' .. ARGV[i + 1] .. stamp .. ARGV[i + 2])
  redis.call('ZADD', waiting, expires, ARGV[i])
  redis.call('ZREM', settled, ARGV[i])
end
if tonumber(session_ttl) > 0 then
  for i = 1, #KEYS do redis.call('EXPIRE', KEYS[i], session_ttl) end
end
return 1
