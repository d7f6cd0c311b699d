-- Take a fork that waits, or whose lease has run out. What lies further ahead than a lease was entered by a clock that
-- was ahead of the caller's: it is taken, too.
-- KEYS  forks
-- ARGV  now, until when the lease goes
-- Reply session id, or nothing
local forks = KEYS[1]
local now, lease = unpack(ARGV)
local due = redis.call('ZRANGEBYSCORE', forks, '-inf', now, 'LIMIT', 0, 1)[1]
if not due then due = redis.call('ZRANGEBYSCORE', forks, 2 * lease - now, '+inf', 'LIMIT', 0, 1)[1] end
if due then redis.call('ZADD', forks, lease, due) end
return due
