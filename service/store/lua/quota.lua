-- Rates of one key, as a leaky bucket each (GCRA): a field holds when the bucket will be empty, in microseconds. A cost
-- beyond a second's worth is taken when the bucket is empty, and is then paid off. All are charged, or none. Field@ is
-- when it was last charged: a clock that went back since does not fill the bucket.
-- KEYS  the key's hash
-- ARGV  name, rate a second, cost; ...
-- Reply {1 or 0: whether it may pass, microseconds to wait, then for each: how many are left}
local time = redis.call('TIME')
local now, second, wait, left, full = time[1] * 1000000 + time[2], 1000000, 0, {}, {}
for i = 1, #ARGV, 3 do
  local rate, cost = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local last = tonumber(redis.call('HGET', KEYS[1], ARGV[i] .. '@')) or now
  local until_empty = math.max((tonumber(redis.call('HGET', KEYS[1], ARGV[i])) or 0) - math.max(now, last), 0)
  local took = cost / rate * second
  wait = math.max(wait, until_empty - math.max(second - took, 0))
  full[i] = string.format('%.0f', now + until_empty + took)
  left[#left + 1] = math.max(math.floor((second - until_empty - took) * rate / second), 0)
end
if wait > 0 then return {0, math.ceil(wait), unpack(left)} end
for i = 1, #ARGV, 3 do
  redis.call('HSET', KEYS[1], ARGV[i], full[i], ARGV[i] .. '@', string.format('%.0f', now))
end
redis.call('EXPIRE', KEYS[1], 86400)
return {1, 0, unpack(left)}
