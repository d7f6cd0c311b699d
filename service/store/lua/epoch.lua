-- A number that grows when another server answers.
-- KEYS  epoch, server
-- ARGV  this server's run id
-- Reply the epoch
local epoch, server = unpack(KEYS)
if redis.call('GET', server) ~= ARGV[1] then
  redis.call('INCR', epoch)
  redis.call('SET', server, ARGV[1])
end
return tonumber(redis.call('GET', epoch))
