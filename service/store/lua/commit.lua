-- The one writer of learned state. Writes all that a commit changes, if nobody committed since `expected`.
--
-- It takes effect with one write, the HSET of the state with its new revision. What is written before that names the
-- entry's number, and counts only once the state has come to that number: a script that stops in the middle leaves
-- nothing that is believed, and the next one sees the entry that it left. What comes after only tidies up.
--
-- It may be sent again when its reply was lost: the entry carries the commit's id.
--
-- KEYS  every key of the session; the first seven will do if no ids are learned and the time to live is 0
-- ARGV  commit id; expected revision; id of the newest entry known to the sender; 1 if it was sent before;
--       points learned after it; positions before which entries may go, and blocks; time to live (0 as it is, -1 none);
--       how many settled ids to remember; 1 if the learner is among the state fields; 1 if the entry carries a checkpoint; ids of
--       the checkpoints that stay beside it; lengths of four lists; names of state fields that go; then the lists: state
--       fields, entry fields, fields of `blocks` that the entry refers to, ids whose late labels are learned; then
--       idempotency keys and answers
-- Reply number of the newest entry: committed · {REPLAYED, position, answer, ...} these requests were answered before
--       {CONFLICT} · {GONE} · {AMBIGUOUS} sent before, and what became of it can no longer be told
--       {NO_BLOCK} a block that the entry refers to is not there · {STOPPED} one before it was, in the middle: repair first
--       {DAMAGED} what is stored contradicts itself
local state, log, _, answers_0, answers_1, blocks, block_order, ids, waiting, settled = unpack(KEYS, 1, 10)
local commit_id, expected, known, again, observed, entries_floor, blocks_floor, ttl, keep_ids = unpack(ARGV, 1, 9)
local stores_learner, checkpointed, checkpoints = unpack(ARGV, 10, 12)

-- Where the lists begin. They are not copied into tables: that costs as much as a small write.
local first_field, first_entry = 18, 18 + ARGV[13]
local first_block = first_entry + ARGV[14]
local first_learned = first_block + ARGV[15]
local first_answer = first_learned + ARGV[16]
local has_entry = first_block > first_entry

local now = redis.call('HMGET', state, 'revision', 'entries', 'head', 'answers', 'recent', 'blocks', 'check')
local revision, entries, head = now[1], tonumber(now[2]), now[3]
if not revision then
  for i = first_block, first_learned - 1 do redis.call('HDEL', blocks, ARGV[i]) end -- sent before it, for nothing
  return {GONE}
end
if now[7] and now[7] ~= check_of(revision, now[2], now[4], now[5]) then return {DAMAGED} end
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
    if first == commit_id then return number_of(entry[1]) end
    if first then break end
  end
  if has_entry and not first and next_number <= entries then return {AMBIGUOUS} end
end

-- Two generations of answers take turns: "which is current, since when, its bytes, whether the other has any"
local which, since, bytes, both = string.match(now[4] or '0 0 0 0', '^(%d) (%d+) (%d+) (%d)$')
local replayed
for i = first_answer, #ARGV, 2 do
  local found = redis.call('HGET', which == '0' and answers_0 or answers_1, ARGV[i])
  if not found and both == '1' then found = redis.call('HGET', which == '0' and answers_1 or answers_0, ARGV[i]) end
  if found then
    -- "number~number~" before a sealed answer, "number " before one that was stored before there were checksums
    local number, again, answer = string.match(found, '^(%d+)~(%d+)(~.*)$')
    if not number then number, answer = string.match(found, '^(%d+)( .*)$') end
    if not number or (again and again ~= number) then return {DAMAGED} end
    if tonumber(number) <= entries then
      replayed = replayed or {REPLAYED}
      replayed[#replayed + 1] = (i - first_answer) / 2
      replayed[#replayed + 1] = answer
    end
  end
end
if replayed then return replayed end
if revision ~= expected then return {CONFLICT} end
if observed_of(head) ~= string.match(known, '^%d+') then return {DAMAGED} end
for i = first_block, first_learned - 1 do
  if redis.call('HEXISTS', blocks, ARGV[i]) == 0 then return {NO_BLOCK} end
end
if was_stopped(log, newest) then return {STOPPED} end

local answers, recent = now[4], now[5]
local more -- state fields beside those that were sent
local function put(name, value)
  more = more or {}
  more[#more + 1] = name
  more[#more + 1] = value
end

-- From here on it writes.
local number = entries
if has_entry then
  number = entries + 1
  local id = observed .. '-' .. number
  -- At least the newest 64 entries stay, also when they hold no retained points: `recent` is "older newer", the
  -- positions of the entries at the last two multiples of 64.
  local older, newer = string.match(now[5] or '0 0', '^(%d+) (%d+)$')
  if number % 64 == 0 then
    recent = newer .. ' ' .. observed
    put('recent', recent)
  end
  local minid = math.min(tonumber(entries_floor), tonumber(older)) .. '-0'
  redis.call('XADD', log, 'MINID', '~', minid, id, unpack(ARGV, first_entry, first_block - 1))
  for i = first_block, first_learned - 1 do redis.call('RPUSH', block_order, observed .. ' ' .. ARGV[i]) end
  if first_learned > first_block and now[6] ~= '1' then put('blocks', '1') end
  if stores_learner == '1' then put('learner_at', id) end
  if checkpointed == '1' then put('checkpoints', checkpoints .. id .. ' ') end
end

-- Late labels: P with the number of the entry means learned, once the state has come to that number.
for i = first_learned, first_answer - 1 do
  local stamp = struct.pack('>I4I4', math.floor(number / 4294967296), number % 4294967296)
  local entry = redis.call('HGET', ids, ARGV[i])
  if entry then
    local rest = string.sub(entry, string.sub(entry, 1, 1) == 'P' and 18 or 10)
    redis.call('HSET', ids, ARGV[i], 'P' .. string.sub(entry, 2, 9) .. stamp .. rest)
  end
end

-- The older generation of answers goes when the newer one is old or large enough.
if #ARGV >= first_answer then
  local seconds = tonumber(redis.call('TIME')[1])
  if since == '0' then since = seconds end
  local more_bytes = 0
  for i = first_answer, #ARGV do more_bytes = more_bytes + #ARGV[i] + KEY_OVERHEAD / 2 end
  if seconds - since >= KEY_SECONDS or tonumber(bytes) + more_bytes > KEY_BYTES / 2 then
    which, since, bytes, both = which == '0' and '1' or '0', seconds, 0, '1'
    redis.call('UNLINK', which == '0' and answers_0 or answers_1)
  end
  local current = which == '0' and answers_0 or answers_1
  for i = first_answer, #ARGV, 2 do
    redis.call('HSET', current, ARGV[i], number .. '~' .. number .. '~' .. ARGV[i + 1])
  end
  bytes = string.format('%.0f', bytes + more_bytes)
  answers = which .. ' ' .. since .. ' ' .. bytes .. ' ' .. both
  put('answers', answers)
end

local check = check_of(revision + 1, number, answers, recent)
if more then
  for i = first_field, first_entry - 1 do more[#more + 1] = ARGV[i] end
  redis.call('HSET', state, 'revision', revision + 1, 'entries', number, 'check', check, unpack(more))
else
  redis.call(
    'HSET', state, 'revision', revision + 1, 'entries', number, 'check', check, unpack(ARGV, first_field, first_entry - 1)
  )
end

-- Committed. The rest tidies up.
for name in string.gmatch(ARGV[17], '%S+') do redis.call('HDEL', state, name) end
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
if now[6] == '1' or first_learned > first_block then
  local function oldest_block() return string.match(redis.call('LINDEX', block_order, 0) or '', '^(%d+) (.*)$') end
  local position, name = oldest_block()
  while name and tonumber(position) < tonumber(blocks_floor) do
    redis.call('HDEL', blocks, name)
    redis.call('LPOP', block_order)
    position, name = oldest_block()
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
return number
