-- A new session, under an id that was never used. An imported one brings a first entry of its log along; one that came
-- in pieces has all but its state under staged keys, which are renamed.
-- KEYS  born, then every key of the session, then the staged keys: log, blocks, block_order, fits, fit_models
-- ARGV  time to live or 0; id of the first entry; a digit for each staged key, 1 if it must be there; lengths of three
--       lists, then the lists: state fields, entry fields, fields of `blocks` that the entry refers to
-- Reply OPENED · TAKEN the id was used before · NO_BLOCK a block that the entry refers to, or a staged key, is not there
local born, state, log, blocks, block_order = unpack(KEYS, 1, 5)
local targets, first_staged = {log, blocks, block_order, KEYS[12], KEYS[13]}, 14
local ttl, id, staged = ARGV[1], ARGV[2], ARGV[3]
local fields, entry = 7 + ARGV[4], 7 + ARGV[4] + ARGV[5]
local function is_staged(i) return string.sub(staged, i, i) == '1' end
if redis.call('EXISTS', born) == 1 then return TAKEN end
for i = 1, #staged do
  if is_staged(i) and redis.call('EXISTS', KEYS[first_staged + i]) == 0 then return NO_BLOCK end
end
for i = entry, #ARGV do
  if redis.call('HEXISTS', is_staged(2) and KEYS[first_staged + 2] or blocks, ARGV[i]) == 0 then return NO_BLOCK end
end
redis.call('SET', born, 1)
for i = 1, #staged do
  if is_staged(i) then
    redis.call('RENAME', KEYS[first_staged + i], targets[i])
    redis.call('PERSIST', targets[i])
  end
end
if fields < entry then redis.call('XADD', log, id, unpack(ARGV, fields, entry - 1)) end
for i = entry, #ARGV do redis.call('RPUSH', block_order, string.match(id, '^%d+') .. ' ' .. ARGV[i]) end
redis.call('HSET', state, unpack(ARGV, 7, fields - 1))
if tonumber(ttl) > 0 then
  for i = 2, first_staged do redis.call('EXPIRE', KEYS[i], ttl) end
end
return OPENED
