-- A session as it is now.
-- KEYS  born, state, log
-- ARGV  revision that the caller has, or -1
-- Reply {} it is still that · {state fields, entries since the stored learner} · 1 it has ended · 0 it never was
local born, state, log = unpack(KEYS)
local now = redis.call('HMGET', state, 'revision', 'entries', 'learner_at', 'answers', 'recent', 'check')
local revision, entries, learner_at = unpack(now, 1, 3)
if not revision then return redis.call('EXISTS', born) end
if revision == ARGV[1] and (not now[6] or now[6] == check_of(revision, entries, now[4], now[5])) then return {} end
local fields, since = redis.call('HGETALL', state), {}
local numbers = string.match(learner_at or '', '^%d+%-%d+$') and string.match(entries or '', '^%d+$') -- else: damaged
if numbers and string.match(learner_at, '%d+$') ~= entries then
  local newest = observed_of(redis.call('HGET', state, 'head')) .. '-' .. entries
  since = redis.call('XRANGE', log, '(' .. learner_at, newest)
end
return {fields, since}
