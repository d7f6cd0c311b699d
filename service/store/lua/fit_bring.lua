-- A piece of a fit's points. They wait under a name of their own, with the second they came, until the fit is opened.
-- KEYS  state, fit_points
-- ARGV  name, number of the piece, piece, time to live
-- Reply 1 · 0 the session is gone
local state, fit_points = unpack(KEYS)
local name, number, piece, ttl = unpack(ARGV)
if redis.call('EXISTS', state) == 0 then return 0 end
redis.call('HSET', fit_points, name, redis.call('TIME')[1], name .. ':' .. number, piece)
if tonumber(ttl) > 0 then redis.call('EXPIRE', fit_points, ttl) end
return 1
