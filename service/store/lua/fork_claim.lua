-- Take a fork that waits, or whose lease has run out.
-- KEYS  forks
-- ARGV  now, until when the lease goes
-- Reply session id, or nothing
local forks = KEYS[1]
local now, lease = unpack(ARGV)
local due = redis.call('ZRANGEBYSCORE', forks, '-inf', now, 'LIMIT', 0, 1)[1]
if due then redis.call('ZADD', forks, lease, due) end
return due
