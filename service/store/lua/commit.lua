-- The one writer of learned state. Writes all that a commit changes, if nobody committed since `expected`.
--
-- It takes effect with one write, the HSET of the state with its new revision. What is written before that names the
-- entry's number, and counts only once the state has come to that number: a script that stops in the middle leaves
-- nothing that is believed. What comes after only tidies up.
--
-- It may be sent again when its reply was lost: the entry carries the commit's id.
--
-- KEYS  every key of the session
-- ARGV  commit id; expected revision; id of the newest entry known to the sender; 1 if it was sent before;
--       points learned after it; position behind which entries may go; time to live (0 as it is, -1 none); how many
--       settled ids to remember; 1 if the learner is among the state fields; 1 if the entry carries a checkpoint; ids of
--       the checkpoints that stay beside it; lengths of four lists, then the lists: state fields, entry fields, fields
--       of `blocks` that the entry refers to, ids whose late labels are learned; then idempotency keys and answers
-- Reply {COMMITTED, number of the entry} · {REPLAYED, position, answer, ...} these requests were answered before
--       {CONFLICT} · {GONE} · {AMBIGUOUS} sent before, and what became of it can no longer be told
--       {NO_BLOCK} a block that the entry refers to is not there
local state, log, spare, answers_0, answers_1, blocks, block_order, ids, waiting, settled = unpack(KEYS, 1, 10)
local commit_id, expected, known, again, observed, floor, ttl, keep_ids = unpack(ARGV, 1, 8)
local stores_learner, checkpointed, checkpoints = unpack(ARGV, 9, 11)

local at = 16
local function list(length)
  local found = {unpack(ARGV, at, at + length - 1)}
  at = at + length
  return found
end
local state_fields, entry_fields, entry_blocks = list(ARGV[12]), list(ARGV[13]), list(ARGV[14])
local first_learned = at -- there may be more of them than unpack takes
local first_answer = at + ARGV[15]

local now = redis.call('HMGET', state, 'revision', 'entries', 'head', 'answers', 'recent')
local revision, entries, head = now[1], tonumber(now[2]), now[3]
if not revision then return {GONE} end
local newest = observed_of(head) .. '-' .. entries

-- Was it this very commit that came between? Then it is the first after `known` that changed the revision.
if again == '1' and revision ~= expected then
  local function number_of(id) return tonumber(string.match(id, '%d+$')) end
  local next_number, first = number_of(known) + 1, nil
  for _, entry in ipairs(redis.call('XRANGE', log, '(' .. known, newest, 'COUNT', 64)) do
    if number_of(entry[1]) ~= next_number then break end -- what came between is no longer kept
    next_number = next_number + 1
    for i = 1, #entry[2], 2 do -- an entry of a fit's status has no commit, and does not change the revision
      if entry[2][i] == 'commit' then first = entry[2][i + 1] end
    end
    if first == commit_id then return {COMMITTED, number_of(entry[1])} end
    if first then break end
  end
  if #entry_fields > 0 and not first and next_number <= entries then return {AMBIGUOUS} end
end

local function answered(key)
  for _, generation in ipairs({answers_0, answers_1}) do
    local found = redis.call('HGET', generation, key)
    if found then
      local number, answer = string.match(found, '^(%d+) (.*)$')
      if tonumber(number) <= entries then return answer end
    end
  end
end
local replayed = {REPLAYED}
for i = first_answer, #ARGV, 2 do
  local answer = answered(ARGV[i])
  if answer then
    replayed[#replayed + 1] = (i - first_answer) / 2
    replayed[#replayed + 1] = answer
  end
end
if #replayed > 1 then return replayed end
if revision ~= expected then return {CONFLICT} end
for _, name in ipairs(entry_blocks) do
  if redis.call('HEXISTS', blocks, name) == 0 then return {NO_BLOCK} end
end

local function put(name, value)
  state_fields[#state_fields + 1] = name
  state_fields[#state_fields + 1] = value
end

-- From here on it writes.
local number = entries
if #entry_fields > 0 then
  number = entries + 1
  local id = observed .. '-' .. number
  -- At least the newest 64 entries stay, also when they hold no retained points: `recent` is "older newer", the
  -- positions of the entries at the last two multiples of 64.
  local older, newer = string.match(now[5] or '0 0', '^(%d+) (%d+)$')
  if number % 64 == 0 then put('recent', newer .. ' ' .. observed) end
  local minid = math.min(tonumber(floor), tonumber(older)) .. '-0'
  append(log, spare, newest, id, minid, entry_fields)
  for _, name in ipairs(entry_blocks) do redis.call('RPUSH', block_order, observed .. ' ' .. name) end
  if stores_learner == '1' then put('learner_at', id) end
  if checkpointed == '1' then put('checkpoints', checkpoints .. id .. ' ') end
end

-- Late labels: P with the number of the entry means learned, once the state has come to that number.
local stamp = struct.pack('>I4I4', math.floor(number / 4294967296), number % 4294967296)
for i = first_learned, first_answer - 1 do
  local entry = redis.call('HGET', ids, ARGV[i])
  if entry then
    local rest = string.sub(entry, string.sub(entry, 1, 1) == 'P' and 18 or 10)
    redis.call('HSET', ids, ARGV[i], 'P' .. string.sub(entry, 2, 9) .. stamp .. rest)
  end
end

-- Two generations of answers: the older one goes when the newer one is old or large enough. "which since bytes"
if #ARGV >= first_answer then
  local which, since, bytes = string.match(now[4] or '0 0 0', '^(%d) (%d+) (%d+)$')
  local seconds = tonumber(redis.call('TIME')[1])
  if since == '0' then since = seconds end
  if seconds - since >= KEY_SECONDS or tonumber(bytes) >= KEY_BYTES / 2 then
    which, since, bytes = which == '0' and '1' or '0', seconds, 0
    redis.call('UNLINK', which == '0' and answers_0 or answers_1)
  end
  local current = which == '0' and answers_0 or answers_1
  for i = first_answer, #ARGV, 2 do
    redis.call('HSET', current, ARGV[i], number .. ' ' .. ARGV[i + 1])
    bytes = bytes + #ARGV[i] + #ARGV[i + 1]
  end
  put('answers', which .. ' ' .. since .. ' ' .. bytes)
end

redis.call('HSET', state, 'revision', revision + 1, 'entries', number, unpack(state_fields))

-- Committed. The rest tidies up.
if first_answer > first_learned then
  local seconds = redis.call('TIME')[1]
  for i = first_learned, first_answer - 1 do
    local entry = redis.call('HGET', ids, ARGV[i])
    if entry then redis.call('HSET', ids, ARGV[i], 'L' .. string.sub(entry, 2, 9)) end
    redis.call('ZREM', waiting, ARGV[i])
    redis.call('ZADD', settled, seconds, ARGV[i])
  end
  while redis.call('ZCARD', settled) > tonumber(keep_ids) do
    redis.call('HDEL', ids, redis.call('ZPOPMIN', settled)[1])
  end
end
if redis.call('EXISTS', block_order) == 1 then
  local oldest = redis.call('LINDEX', block_order, 0)
  while oldest and tonumber(observed_of(oldest)) < tonumber(floor) do
    redis.call('HDEL', blocks, string.match(oldest, ' (.*)$'))
    redis.call('LPOP', block_order)
    oldest = redis.call('LINDEX', block_order, 0)
  end
  -- Blocks whose commit never came. Their names begin with the second they were sent in.
  if redis.call('HLEN', blocks) > redis.call('LLEN', block_order) + STRAY_BLOCKS then
    local referred, seconds = {}, tonumber(redis.call('TIME')[1])
    for _, each in ipairs(redis.call('LRANGE', block_order, 0, -1)) do referred[string.match(each, ' (.*)$')] = true end
    for _, name in ipairs(redis.call('HKEYS', blocks)) do
      if not referred[name] and seconds - (string.match(name, '^%d+') or 0) > STRAY_SECONDS then
        redis.call('HDEL', blocks, name)
      end
    end
  end
end
if tonumber(ttl) > 0 then
  for i = 1, #KEYS do redis.call('EXPIRE', KEYS[i], ttl) end
elseif tonumber(ttl) < 0 then
  for i = 1, #KEYS do redis.call('PERSIST', KEYS[i]) end
end
return {COMMITTED, number}
