"""The Lua that runs inside the store. Each script checks first and writes after: Redis does not roll back.

All keys of a session share one hash tag, so every script touches one slot and a cluster runs it unchanged.
"""

from __future__ import annotations

from hashlib import sha1

#: KEYS: born session state · ARGV: ttl, state, then field/value pairs → 1 opened, 0 the id was used before
OPEN = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('SET', KEYS[1], 1)
redis.call('HSET', KEYS[2], unpack(ARGV, 3))
redis.call('SET', KEYS[3], ARGV[2])
if tonumber(ARGV[1]) > 0 then
  redis.call('EXPIRE', KEYS[2], ARGV[1])
  redis.call('EXPIRE', KEYS[3], ARGV[1])
end
return 1
"""

#: KEYS: born session state · ARGV: known revision → {fields, state or '' when the revision is the known one}
LOAD = """
local fields = redis.call('HGETALL', KEYS[2])
if #fields == 0 then return redis.call('EXISTS', KEYS[1]) end
if redis.call('HGET', KEYS[2], 'revision') == ARGV[1] then return {fields, ''} end
return {fields, redis.call('GET', KEYS[3]) or ''}
"""

#: KEYS: born, session keys… → 2 ended, 1 ended before, 0 never there
END = """
if redis.call('EXISTS', KEYS[2]) == 0 then return redis.call('EXISTS', KEYS[1]) end
redis.call('DEL', unpack(KEYS, 2))
return 2
"""

#: KEYS: session keys… · ARGV: ttl — the session was used: its idle time begins anew
TOUCH = """
for i = 1, #KEYS do redis.call('EXPIRE', KEYS[i], ARGV[1]) end
return 1
"""

#: The one writer of learned state. Idempotent twice over: by the keys of its requests, and by its own id, so that it
#: may be sent again when only its reply was lost.
#: KEYS: session state keys order points events commits rows
#: ARGV: commit id, expected revision, state, observed, mistakes, updates, version, event, keep_events,
#:       block of points, rows in it, keep_points, keep_keys, ttl, then key/answer pairs
#: → {1} committed · {2, position, answer, …} these requests were answered before · {3} someone was first · {4} gone
#:   {5} so many were first that this commit's id, had it been written, may be forgotten
COMMIT = """
if redis.call('EXISTS', KEYS[1]) == 0 then return {4} end
for _, id in ipairs(redis.call('LRANGE', KEYS[7], 0, -1)) do
  if id == ARGV[1] then return {1} end
end
if redis.call('HGET', KEYS[1], 'revision') - ARGV[2] > 64 then return {5} end
local replayed = {2}
for i = 15, #ARGV, 2 do
  local answer = redis.call('HGET', KEYS[3], ARGV[i])
  if answer then
    replayed[#replayed + 1] = (i - 15) / 2
    replayed[#replayed + 1] = answer
  end
end
if #replayed > 1 then return replayed end
if redis.call('HGET', KEYS[1], 'revision') ~= ARGV[2] then return {3} end

redis.call('HSET', KEYS[1], 'observed', ARGV[4], 'mistakes', ARGV[5], 'updates', ARGV[6], 'version', ARGV[7])
redis.call('HINCRBY', KEYS[1], 'revision', 1)
redis.call('SET', KEYS[2], ARGV[3])
redis.call('LPUSH', KEYS[7], ARGV[1])
redis.call('LTRIM', KEYS[7], 0, 63)
for i = 15, #ARGV, 2 do
  redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
  redis.call('RPUSH', KEYS[4], ARGV[i])
end
while redis.call('LLEN', KEYS[4]) > tonumber(ARGV[13]) do
  redis.call('HDEL', KEYS[3], redis.call('LPOP', KEYS[4]))
end
if tonumber(ARGV[11]) > 0 then
  redis.call('RPUSH', KEYS[5], ARGV[10])
  redis.call('RPUSH', KEYS[8], ARGV[11])
  local kept, keep = redis.call('HINCRBY', KEYS[1], 'kept', ARGV[11]), tonumber(ARGV[12])
  while kept - redis.call('LINDEX', KEYS[8], 0) >= keep do
    kept = redis.call('HINCRBY', KEYS[1], 'kept', -redis.call('LPOP', KEYS[8]))
    redis.call('LTRIM', KEYS[5], 1, -1)
  end
end
if tonumber(ARGV[9]) > 0 then
  redis.call('XADD', KEYS[6], 'MAXLEN', '~', ARGV[9], '*', 'commit', ARGV[8])
end
if tonumber(ARGV[14]) > 0 then
  for i = 1, #KEYS do redis.call('EXPIRE', KEYS[i], ARGV[14]) end
end
return {1}
"""

#: KEYS: epoch, of which server · ARGV: this server's run id → the epoch: it grows when another server answers
EPOCH = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  redis.call('INCR', KEYS[1])
  redis.call('SET', KEYS[2], ARGV[1])
end
return tonumber(redis.call('GET', KEYS[1]))
"""


def digest(script: str) -> str:
    return sha1(script.encode(), usedforsecurity=False).hexdigest()


DIGESTS = {script: digest(script) for script in (OPEN, LOAD, END, TOUCH, COMMIT, EPOCH)}
