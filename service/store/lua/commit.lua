-- The one writer of learned state. Writes all that a commit changes, if nobody committed since `expected`.
--
-- It takes effect with one write, the HSET of the state with its new revision. What is written before that names the
-- entry's number, and counts only once the state has come to that number: a script that stops in the middle leaves
-- nothing that is believed, and the next one sees the entry that it left. What comes after only tidies up.
--
-- It may be sent again when its reply was lost: the entry carries the commit's id.
--
-- KEYS  every key of the session; the first four will do, or the first six if there are answers, as long as no ids are
--       learned and the time to live is 0
-- ARGV  expected revision, and the one after it; points learned and number of the newest entry, as known to the sender,
--       and the number after that; points learned after this commit; positions before which entries may go, and blocks;
--       where these lists begin: the entry's fields, answers, state fields
--       then options, if the entry's fields do not begin at 12: 1 if it was sent before; time to live (0 as it is, -1 none);
--       how many settled ids to remember; ids of the checkpoints that stay beside its own, or - if it has none; names of
--       state fields that go; where the block names begin, and the learned ids
--       then the lists: entry fields; fields of `blocks` that the entry refers to; ids whose late labels are learned;
--       idempotency keys and answers; state fields, the learner first if it is among them
-- Reply number of the newest entry: committed · {REPLAYED, position, answer, ...} these requests were answered before
--       {CONFLICT} · {GONE} · {AMBIGUOUS} sent before, and what became of it can no longer be told
--       {NO_BLOCK} a block that the entry refers to is not there · {STOPPED} one before it was, in the middle: repair first
--       {DAMAGED} what is stored contradicts itself
--
-- Numbers come as text where they are stored as text: to write a number out costs Lua as much as a small read.
local state, log, blocks, block_order, answers_0, answers_1, _, ids, waiting, settled = unpack(KEYS, 1, 10)
local expected, new_revision, known_observed, known_number, new_number, observed, entries_floor, blocks_floor =
  unpack(ARGV, 1, 8)

-- The lists are not copied into tables: that costs as much as a small write.
local first_entry, first_answer, first_field = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])
local first_block, first_learned = first_answer, first_answer
local again, ttl, keep_ids, checkpoints, dropped
if first_entry > 12 then
  again, ttl, keep_ids, checkpoints, dropped, first_block, first_learned = unpack(ARGV, 12, 18)
  first_block, first_learned = tonumber(first_block), tonumber(first_learned)
end
local has_entry = first_block > first_entry

local now = redis.call('HMGET', state, 'revision', 'entries', 'head', 'answers', 'recent', 'blocks', 'check')
local revision, entries, head, answers, recent, has_blocks, check = unpack(now, 1, 7)
if not revision then
  for i = first_block, first_learned - 1 do redis.call('HDEL', blocks, ARGV[i]) end -- sent before it, for nothing
  return {GONE}
end
if check and check ~= check_of(revision, entries, answers, recent) then return {DAMAGED} end

-- Was it this very commit that came between? Then it is the first after `known` that changed the revision.
if again == '1' and revision ~= expected then
  local function number_of(id) return tonumber(string.match(id, '%d+$')) end
  local next_number, first = known_number + 1, nil
  local known, newest = known_observed .. '-' .. known_number, observed_of(head) .. '-' .. entries
  for _, entry in ipairs(redis.call('XRANGE', log, '(' .. known, newest, 'COUNT', 64)) do
    if number_of(entry[1]) ~= next_number then break end -- what came between is no longer kept
    next_number = next_number + 1
    for i = 1, #entry[2], 2 do -- an entry of a fit's status has no commit, and does not change the revision
      if entry[2][i] == 'commit' then first = entry[2][i + 1] end
    end
    if has_entry and first == ARGV[first_entry + 3] then return number_of(entry[1]) end
    if first then break end
  end
  if has_entry and not first and next_number <= tonumber(entries) then return {AMBIGUOUS} end
end

-- Two generations of answers take turns: "which is current, since when, its bytes, whether the other has any"
local which, since, bytes, both, current, other
if first_field > first_answer then
  which, since, bytes, both = string.match(answers or '0 0 0 0', '^(%d) (%d+) (%d+) (%d)$')
  if which == '0' then current, other = answers_0, answers_1 else current, other = answers_1, answers_0 end
  local replayed
  for first = first_answer, first_field - 1, 2 * TOGETHER do
    local keys = {}
    for i = first, math.min(first + 2 * TOGETHER, first_field) - 1, 2 do keys[#keys + 1] = ARGV[i] end
    local found = redis.call('HMGET', current, unpack(keys))
    local older = both == '1' and redis.call('HMGET', other, unpack(keys)) or {}
    for i = 1, #keys do
      local stored = found[i] or older[i]
      if stored then
        -- "number~number~" before a sealed answer, "number " before one that was stored before there were checksums
        local number, twice, answer = string.match(stored, '^(%d+)~(%d+)(~.*)$')
        if not number then number, answer = string.match(stored, '^(%d+)( .*)$') end
        if not number or (twice and twice ~= number) then return {DAMAGED} end
        if tonumber(number) <= tonumber(entries) then
          replayed = replayed or {REPLAYED}
          replayed[#replayed + 1] = (first - first_answer) / 2 + i - 1
          replayed[#replayed + 1] = answer
        end
      end
    end
  end
  if replayed then return replayed end
end
if revision ~= expected then return {CONFLICT} end
if string.find(head or '', known_observed .. ' ', 1, true) ~= 1 then return {DAMAGED} end
for i = first_block, first_learned - 1 do
  if redis.call('HEXISTS', blocks, ARGV[i]) == 0 then return {NO_BLOCK} end
end
if was_stopped(log, known_observed .. '-' .. entries) then return {STOPPED} end

-- From here on it writes. State fields beside those that were sent are appended to them.
local last = #ARGV
local function put(name, value)
  ARGV[last + 1], ARGV[last + 2] = name, value
  last = last + 2
end
local number, referred = entries, nil
if has_entry then
  -- A fit's status may have come between: it is an entry, and leaves the revision as it is.
  number = entries == known_number and new_number or string.format('%.0f', entries + 1)
  local id = observed .. '-' .. number
  -- At least the newest 64 entries stay, also when they hold no retained points: `recent` is "older newer", the
  -- positions of the entries at the last two multiples of 64.
  local minid = string.match(recent or '0', '^%d+')
  if tonumber(entries_floor) < tonumber(minid) then minid = entries_floor end
  if number % 64 == 0 then
    recent = string.match(recent or '0', '%d+$') .. ' ' .. observed
    put('recent', recent)
  end
  redis.call('XADD', log, 'MINID', '~', minid, id, unpack(ARGV, first_entry, first_block - 1))
  if first_learned > first_block then
    for i = first_block, first_learned - 1 do ARGV[i] = observed .. ' ' .. ARGV[i] end
    referred = redis.call('RPUSH', block_order, unpack(ARGV, first_block, first_learned - 1))
    if has_blocks ~= '1' then put('blocks', '1') end
  end
  if ARGV[first_field] == 'learner' then put('learner_at', id) end
  if checkpoints and checkpoints ~= '-' then put('checkpoints', checkpoints .. id .. ' ') end
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

-- The older generation of answers goes when the newer one is old or large enough. The clock is asked now and then.
if first_field > first_answer then
  local size = tonumber(bytes)
  for i = first_answer, first_field - 1 do size = size + #ARGV[i] + KEY_OVERHEAD / 2 end
  if since == '0' or number % 16 == 0 or size > KEY_BYTES / 2 then
    local seconds = redis.call('TIME')[1]
    if since == '0' then since = seconds end
    if seconds - since >= KEY_SECONDS or size > KEY_BYTES / 2 then
      which, since, size, both = which == '0' and '1' or '0', seconds, size - bytes, '1'
      current = other
      redis.call('UNLINK', current)
    end
  end
  for i = first_answer + 1, first_field - 1, 2 do ARGV[i] = number .. '~' .. number .. '~' .. ARGV[i] end
  for first = first_answer, first_field - 1, 2 * TOGETHER do
    redis.call('HSET', current, unpack(ARGV, first, math.min(first + 2 * TOGETHER, first_field) - 1))
  end
  answers = which .. ' ' .. since .. ' ' .. string.format('%.0f', size) .. ' ' .. both
  put('answers', answers)
end

check = check_of(new_revision, number, answers, recent)
redis.call('HSET', state, 'revision', new_revision, 'entries', number, 'check', check, unpack(ARGV, first_field, last))

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
if has_blocks == '1' or referred then
  -- The points of an entry end at its position, so that those at the very floor may go, too.
  local floor, gone = tonumber(blocks_floor), 0
  repeat
    local names = {}
    for _, each in ipairs(redis.call('LRANGE', block_order, 0, TOGETHER - 1)) do
      local position, name = string.match(each, '^(%d+) (.*)$')
      position = tonumber(position)
      if not position or position > floor or (position == floor and string.sub(name, -4) ~= 'rows') then break end
      names[#names + 1] = name
    end
    if names[1] then
      redis.call('HDEL', blocks, unpack(names))
      redis.call('LPOP', block_order, #names)
      gone = gone + #names
    end
  until #names < TOGETHER
  -- Blocks whose commit never came. Their names begin with the second they were sent in.
  if referred and redis.call('HLEN', blocks) > referred - gone + STRAY_BLOCKS then
    local is_referred, seconds = {}, tonumber(redis.call('TIME')[1])
    for _, each in ipairs(redis.call('LRANGE', block_order, 0, -1)) do is_referred[string.match(each, ' (.*)$')] = true end
    for _, name in ipairs(redis.call('HKEYS', blocks)) do
      if not is_referred[name] and seconds - (string.match(name, '^%d+') or 0) > STRAY_SECONDS then
        redis.call('HDEL', blocks, name)
      end
    end
  end
end
if first_entry > 12 then
  for name in string.gmatch(dropped, '%S+') do redis.call('HDEL', state, name) end
  if tonumber(ttl) > 0 then
    for i = 1, #KEYS do redis.call('EXPIRE', KEYS[i], ttl) end
  elseif tonumber(ttl) < 0 then
    for i = 1, #KEYS do redis.call('PERSIST', KEYS[i]) end
  end
end
return tonumber(number)
