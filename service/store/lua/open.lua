-- A new session, under an id that was never used. An imported one brings a first entry of its log along.
-- KEYS  born, then every key of the session
-- ARGV  time to live or 0; id of the first entry; lengths of three lists, then the lists: state fields, entry fields,
--       fields of `blocks` that the entry refers to
-- Reply OPENED · TAKEN the id was used before · NO_BLOCK a block that the entry refers to is not there
local born, state, log, blocks, block_order = KEYS[1], KEYS[2], KEYS[3], KEYS[7], KEYS[8]
local ttl, id = ARGV[1], ARGV[2]
local fields, entry = 6 + ARGV[3], 6 + ARGV[3] + ARGV[4]
if redis.call('EXISTS', born) == 1 then return TAKEN end
for i = entry, #ARGV do
  if redis.call('HEXISTS', blocks, ARGV[i]) == 0 then return NO_BLOCK end
end
redis.call('SET', born, 1)
if fields < entry then redis.call('XADD', log, id, unpack(ARGV, fields, entry - 1)) end
for i = entry, #ARGV do redis.call('RPUSH', block_order, string.match(id, '^%d+') .. ' ' .. ARGV[i]) end
redis.call('HSET', state, unpack(ARGV, 6, fields - 1))
if tonumber(ttl) > 0 then
  for i = 2, #KEYS do redis.call('EXPIRE', KEYS[i], ttl) end
end
return OPENED
