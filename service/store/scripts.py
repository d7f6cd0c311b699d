"""The Lua that runs inside the store. Each script checks first and writes after: Redis does not roll back.

All keys of a session share one hash tag, so every script touches one slot and a cluster runs it unchanged.
"""

from __future__ import annotations

from hashlib import sha1

#: An idempotency key is kept this long at least, and longer while it is among the newest, unless the answers of a
#: session have more bytes than that.
KEY_SECONDS, KEY_BYTES = 600, 64 << 20
#: How long the points of a fit may stand by before it is opened.
BRING_SECONDS = 600

#: KEYS: born session state points rows confusion log · ARGV: ttl, state, block of points, rows in it, length of the
#: fields, of the confusion's cells; the fields, the cells, the log → 1 opened, 0 the id was used before
OPEN = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('SET', KEYS[1], 1)
local cells = 7 + ARGV[5]
local log = cells + ARGV[6]
redis.call('HSET', KEYS[2], unpack(ARGV, 7, cells - 1))
redis.call('SET', KEYS[3], ARGV[2])
if tonumber(ARGV[4]) > 0 then
  redis.call('RPUSH', KEYS[4], ARGV[3])
  redis.call('RPUSH', KEYS[5], ARGV[4])
end
for i = cells, log - 1, 4000 do redis.call('HSET', KEYS[6], unpack(ARGV, i, math.min(i + 3999, log - 1))) end
for i = log, #ARGV do redis.call('RPUSH', KEYS[7], ARGV[i]) end
if tonumber(ARGV[1]) > 0 then
  for i = 2, #KEYS do redis.call('EXPIRE', KEYS[i], ARGV[1]) end
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

#: The one writer of learned state, of what a session is and of what is counted. Idempotent twice over: by the keys of
#: its requests, and by its own id, so that it may be sent again when only its reply was lost.
#: KEYS: session state keys order points events commits rows confusion log ids waiting settled
#: ARGV: commit id, expected revision, state, keep_events, keep_points, keep_keys, keep_ids, ttl (0 as it is, −1 none),
#:       block of points, rows in it, the lengths of five lists, and the lists: fields of the session hash, events
#:       (name, JSON), cells of the confusion matrix (name, count), entries of the log, ids learned now; then
#:       key/answer pairs
#: → {1} committed · {2, position, answer, …} these requests were answered before · {3} someone was first · {4} gone
#:   {5} so many were first that this commit's id, had it been written, may be forgotten
COMMIT = """
if redis.call('EXISTS', KEYS[1]) == 0 then return {4} end
for _, id in ipairs(redis.call('LRANGE', KEYS[7], 0, -1)) do
  if id == ARGV[1] then return {1} end
end
local revision = redis.call('HGET', KEYS[1], 'revision')
if revision - ARGV[2] > 64 then return {5} end
local fields = 16
local events = fields + ARGV[11]
local cells = events + ARGV[12]
local entries = cells + ARGV[13]
local learned = entries + ARGV[14]
local answers = learned + ARGV[15]
local replayed = {2}
for i = answers, #ARGV, 2 do
  local answer = redis.call('HGET', KEYS[3], ARGV[i])
  if answer then
    replayed[#replayed + 1] = (i - answers) / 2
    replayed[#replayed + 1] = answer
  end
end
if #replayed > 1 then return replayed end
if revision ~= ARGV[2] then return {3} end

redis.call('HSET', KEYS[1], 'revision', revision + 1, unpack(ARGV, fields, events - 1))
redis.call('SET', KEYS[2], ARGV[3])
redis.call('LPUSH', KEYS[7], ARGV[1])
redis.call('LTRIM', KEYS[7], 0, 63)
if #ARGV > answers then
  local now, bytes = tonumber(redis.call('TIME')[1]), 0
  for i = answers, #ARGV, 2 do
    redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1])
    redis.call('RPUSH', KEYS[4], now .. ' ' .. #ARGV[i + 1] .. ' ' .. ARGV[i])
    bytes = bytes + #ARGV[i + 1]
  end
  bytes = redis.call('HINCRBY', KEYS[1], 'answer_bytes', bytes)
  while redis.call('LLEN', KEYS[4]) > tonumber(ARGV[6]) do
    local since, size, key = string.match(redis.call('LINDEX', KEYS[4], 0), '^(%d+) (%d+) (.*)$')
    if now - since < KEY_SECONDS and bytes <= KEY_BYTES then break end
    redis.call('LPOP', KEYS[4])
    redis.call('HDEL', KEYS[3], key)
    bytes = redis.call('HINCRBY', KEYS[1], 'answer_bytes', -size)
  end
end
if tonumber(ARGV[10]) > 0 then
  redis.call('RPUSH', KEYS[5], ARGV[9])
  redis.call('RPUSH', KEYS[8], ARGV[10])
end
local kept = redis.call('HINCRBY', KEYS[1], 'kept', ARGV[10])
local oldest = redis.call('LINDEX', KEYS[8], 0)
while oldest and kept - oldest >= tonumber(ARGV[5]) do
  kept = redis.call('HINCRBY', KEYS[1], 'kept', -redis.call('LPOP', KEYS[8]))
  redis.call('LTRIM', KEYS[5], 1, -1)
  oldest = redis.call('LINDEX', KEYS[8], 0)
end
for i = events, cells - 1, 2 do
  if tonumber(ARGV[4]) > 0 then
    local number = redis.call('HINCRBY', KEYS[1], 'events', 1)
    redis.call('XADD', KEYS[6], 'MAXLEN', '~', ARGV[4], '*', ARGV[i], ARGV[i + 1], 'number', number)
  end
end
for i = cells, entries - 1, 2 do redis.call('HINCRBY', KEYS[9], ARGV[i], ARGV[i + 1]) end
for i = entries, learned - 1 do redis.call('RPUSH', KEYS[10], ARGV[i]) end
if learned > entries then redis.call('LTRIM', KEYS[10], -1000, -1) end
if answers > learned then
  local now = redis.call('TIME')[1]
  for i = learned, answers - 1 do
    local entry = redis.call('HGET', KEYS[11], ARGV[i])
    if entry then redis.call('HSET', KEYS[11], ARGV[i], 'L' .. string.sub(entry, 2, 9)) end
    redis.call('ZREM', KEYS[12], ARGV[i])
    redis.call('ZADD', KEYS[13], now, ARGV[i])
  end
  while redis.call('ZCARD', KEYS[13]) > tonumber(ARGV[7]) do
    redis.call('HDEL', KEYS[11], redis.call('ZPOPMIN', KEYS[13])[1])
  end
end
if tonumber(ARGV[8]) > 0 then
  for i = 1, #KEYS do redis.call('EXPIRE', KEYS[i], ARGV[8]) end
elseif tonumber(ARGV[8]) < 0 then
  for i = 1, #KEYS do redis.call('PERSIST', KEYS[i]) end
end
return {1}
""".replace("KEY_SECONDS", str(KEY_SECONDS)).replace("KEY_BYTES", str(KEY_BYTES))

#: Points that wait for their labels. An entry is a letter (W waits, L learned, E expired), the fingerprint of the point
#: (8 bytes), and, while it waits, its end (8 bytes, ms) and the point. Asked again it waits anew, unless it was learned
#: KEYS: session ids waiting settled · ARGV: ttl (ms), limit, keep_ids, session ttl, then id, fingerprint, point…
#: → 1 they wait · 0 gone · {position} that id was given to another point · -1 too many wait
WAIT = """
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, 10000)) do
  redis.call('HSET', KEYS[2], id, 'E' .. string.sub(redis.call('HGET', KEYS[2], id), 2, 9))
  redis.call('ZREM', KEYS[3], id)
  redis.call('ZADD', KEYS[4], time[1], id)
end
while redis.call('ZCARD', KEYS[4]) > tonumber(ARGV[3]) do
  redis.call('HDEL', KEYS[2], redis.call('ZPOPMIN', KEYS[4])[1])
end
local new, more = {}, 0
for i = 5, #ARGV, 3 do
  local entry = redis.call('HGET', KEYS[2], ARGV[i])
  if entry and string.sub(entry, 2, 9) ~= ARGV[i + 1] then return {(i - 5) / 3} end
  local letter = entry and string.sub(entry, 1, 1)
  if letter ~= 'L' then new[#new + 1] = i end
  if not entry or letter == 'E' then more = more + 1 end
end
if redis.call('ZCARD', KEYS[3]) + more > tonumber(ARGV[2]) then return -1 end
local expires = now + ARGV[1]
local stamp = struct.pack('>I4I4', math.floor(expires / 4294967296), expires % 4294967296)
for _, i in ipairs(new) do
  redis.call('HSET', KEYS[2], ARGV[i], 'W' .. ARGV[i + 1] .. stamp .. ARGV[i + 2])
  redis.call('ZADD', KEYS[3], expires, ARGV[i])
  redis.call('ZREM', KEYS[4], ARGV[i])
end
if tonumber(ARGV[4]) > 0 then
  for i = 1, #KEYS do redis.call('EXPIRE', KEYS[i], ARGV[4]) end
end
return 1
"""

#: KEYS: ids · ARGV: ids → {now in ms, entry or false, …}
WAITING = """
local time = redis.call('TIME')
local found = {time[1] * 1000 + math.floor(time[2] / 1000)}
for i, id in ipairs(ARGV) do found[i + 1] = redis.call('HGET', KEYS[1], id) end
return found
"""

#: All that a snapshot has, at one moment. KEYS: born session state points confusion log · ARGV: 1 with the points
#: → {fields, state, blocks, confusion, log}, or whether the session ever was
SNAPSHOT = """
local fields = redis.call('HGETALL', KEYS[2])
if #fields == 0 then return redis.call('EXISTS', KEYS[1]) end
local blocks = ARGV[1] == '1' and redis.call('LRANGE', KEYS[4], 0, -1) or {}
return {fields, redis.call('GET', KEYS[3]) or '', blocks, redis.call('HGETALL', KEYS[5]),
        redis.call('LRANGE', KEYS[6], 0, -1)}
"""

#: Where the stream of events stands. KEYS: born session state events · ARGV: the last event a client saw, or ''
#: → {fields, state, id of the newest event or '0-0', that client's event or {}}, or whether the session ever was
HEAD = """
local fields = redis.call('HGETALL', KEYS[2])
if #fields == 0 then return redis.call('EXISTS', KEYS[1]) end
local newest = redis.call('XREVRANGE', KEYS[4], '+', '-', 'COUNT', 1)
local seen = ARGV[1] ~= '' and redis.call('XRANGE', KEYS[4], ARGV[1], ARGV[1]) or {}
return {fields, redis.call('GET', KEYS[3]) or '', newest[1] and newest[1][1] or '0-0', seen}
"""

#: The points of a fit, piece by piece, so that nobody waits long for one: they stand by under a name of their own, with
#: the second they came, until the fit is opened.
#: KEYS: session points · ARGV: name, number of the piece, piece, ttl → 1 · 0 gone
FIT_BRING = """
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HSET', KEYS[2], ARGV[1], redis.call('TIME')[1], ARGV[1] .. ':' .. ARGV[2], ARGV[3])
if tonumber(ARGV[4]) > 0 then redis.call('EXPIRE', KEYS[2], ARGV[4]) end
return 1
"""

#: What a fit's scripts share: KEYS[1] the fits, KEYS[2] the session, KEYS[3] the events, KEYS[4] the points; ARGV[1]
#: the fit.
_FIT = """
local fit = ARGV[1]
local function get(field) return redis.call('HGET', KEYS[1], fit .. ':' .. field) end
local function set(field, value) redis.call('HSET', KEYS[1], fit .. ':' .. field, value) end
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function drop(points)
  local i = 0
  while points and redis.call('HDEL', KEYS[4], points, points .. ':' .. i) > 0 do i = i + 1 end
end
local function enter(status)
  set('status', status)
  local keep = tonumber(get('keep_events'))
  if keep > 0 then
    local number = redis.call('HINCRBY', KEYS[2], 'events', 1)
    local told = '{"fit":"' .. fit .. '","status":"' .. status .. '"}'
    redis.call('XADD', KEYS[3], 'MAXLEN', '~', keep, '*', 'fit', told, 'number', number)
  end
end
"""

#: KEYS: fits session events points models, all of the session
#: ARGV: fit, fingerprint, recipe, keep_events, most fits, ttl, name of its points, how many pieces
#: → 1 it waits · 2 it was asked for before · 3 with another body · 0 gone · -1 too many are unfinished
#:   -2 its points stood by for too long: they, and any that nobody came for, are gone
FIT_OPEN = (
    _FIT
    + """
if redis.call('EXISTS', KEYS[2]) == 0 then return 0 end
for _, name in ipairs(redis.call('HKEYS', KEYS[4])) do
  if not string.find(name, ':') and now() / 1000 - redis.call('HGET', KEYS[4], name) > BRING_SECONDS then drop(name) end
end
local before = get('fingerprint')
if before then
  drop(ARGV[7])
  return before == ARGV[2] and 2 or 3
end
if redis.call('HDEL', KEYS[4], ARGV[7]) == 0 then return -2 end
local order = {}
for id in string.gmatch(redis.call('HGET', KEYS[1], 'order') or '', '%S+') do order[#order + 1] = id end
if #order >= tonumber(ARGV[5]) then
  local oldest
  for i, id in ipairs(order) do
    local status = redis.call('HGET', KEYS[1], id .. ':status')
    if status ~= 'queued' and status ~= 'running' then oldest = i break end
  end
  if not oldest then
    drop(ARGV[7])
    return -1
  end
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if string.sub(field, 1, #order[oldest] + 1) == order[oldest] .. ':' then redis.call('HDEL', KEYS[1], field) end
  end
  redis.call('HDEL', KEYS[5], order[oldest])
  table.remove(order, oldest)
end
order[#order + 1] = fit
redis.call('HSET', KEYS[1], 'order', table.concat(order, ' '))
set('fingerprint', ARGV[2])
set('recipe', ARGV[3])
set('keep_events', ARGV[4])
set('created', now())
set('attempts', 0)
set('progress', 0)
set('points', ARGV[7])
set('pieces', ARGV[8])
enter('queued')
if tonumber(ARGV[6]) > 0 then
  for i = 1, #KEYS do redis.call('EXPIRE', KEYS[i], ARGV[6]) end
end
return 1
""".replace("BRING_SECONDS", str(BRING_SECONDS))
)

#: KEYS: fits session events points · ARGV: fit, owner, lease (ms), most attempts
#: → {recipe, name of its points, pieces} it is yours · 0 it has ended, or its session has
#:   -1 it is not there, perhaps not yet
#:   ms to wait: it is another's
FIT_CLAIM = (
    _FIT
    + """
local status = get('status')
if not status then return -redis.call('EXISTS', KEYS[2]) end
if status ~= 'queued' and status ~= 'running' then return 0 end
local left = status == 'running' and get('lease') - now() or 0
if left > 0 then return left end
if redis.call('HINCRBY', KEYS[1], fit .. ':attempts', 1) > tonumber(ARGV[4]) then
  set('failure', '{"type":"/problems/fit-failed","detail":"its worker died ' .. ARGV[4] .. ' times"}')
  set('finished', now())
  drop(get('points'))
  enter('failed')
  return 0
end
set('owner', ARGV[2])
set('lease', now() + ARGV[3])
set('started', now())
set('progress', 0)
enter('running')
return {get('recipe'), get('points'), get('pieces')}
"""
)

#: KEYS: fits · ARGV: fit, owner, lease (ms), progress → 1 go on · 0 stop: it is cancelled, or another's
FIT_BEAT = (
    _FIT
    + """
if get('status') ~= 'running' or get('owner') ~= ARGV[2] then return 0 end
set('lease', now() + ARGV[3])
set('progress', ARGV[4])
return 1
"""
)

#: KEYS: fits session events points models · ARGV: fit, owner, status, field, value, model → 1 · 0 it is not yours
FIT_SETTLE = (
    _FIT
    + """
if get('status') ~= 'running' or get('owner') ~= ARGV[2] then return 0 end
if ARGV[3] == 'queued' then
  set('lease', 0)
  enter('queued')
  return 1
end
set(ARGV[4], ARGV[5])
set('finished', now())
if ARGV[3] == 'done' then
  set('progress', 1)
  redis.call('HSET', KEYS[5], fit, ARGV[6])
  local left = redis.call('PTTL', KEYS[1])
  if left > 0 then redis.call('PEXPIRE', KEYS[5], left) end
end
drop(get('points'))
enter(ARGV[3])
return 1
"""
)

#: KEYS: fits session events points models · ARGV: fit → 2 cancelled · 1 it had ended, and is forgotten · 0 never there
#: A fit that was cancelled stays so: the same request may come twice.
FIT_CANCEL = (
    _FIT
    + """
local status = get('status')
if not status then return 0 end
if status == 'cancelled' then return 2 end
drop(get('points'))
if status == 'queued' or status == 'running' then
  set('finished', now())
  enter('cancelled')
  return 2
end
redis.call('HDEL', KEYS[5], fit)
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, #fit + 1) == fit .. ':' then redis.call('HDEL', KEYS[1], field) end
end
local order = {}
for id in string.gmatch(redis.call('HGET', KEYS[1], 'order') or '', '%S+') do
  if id ~= fit then order[#order + 1] = id end
end
redis.call('HSET', KEYS[1], 'order', table.concat(order, ' '))
return 1
"""
)

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


FITS = (FIT_BRING, FIT_OPEN, FIT_CLAIM, FIT_BEAT, FIT_SETTLE, FIT_CANCEL)
SESSIONS = (OPEN, LOAD, END, TOUCH, COMMIT, WAIT, WAITING, SNAPSHOT, HEAD, EPOCH)
DIGESTS = {script: digest(script) for script in (*SESSIONS, *FITS)}
