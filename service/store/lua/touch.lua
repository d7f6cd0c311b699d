-- The session was used: its idle time begins anew.
-- KEYS  every key of the session
-- ARGV  time to live
for i = 1, #KEYS do redis.call('EXPIRE', KEYS[i], ARGV[1]) end
return 1
