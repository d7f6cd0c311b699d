-- End a session; that its id was used stays known.
-- KEYS  born, then every key of the session
-- Reply 2 ended · 1 it had ended before · 0 it never was
if redis.call('EXISTS', KEYS[2]) == 0 then return redis.call('EXISTS', KEYS[1]) end
redis.call('UNLINK', unpack(KEYS, 2))
return 2
