-- Renew a lease.
-- KEYS  fits, state, log, fit_points
-- ARGV  fit, owner, lease (ms), progress
-- Reply 1 go on · 0 stop: it is cancelled, or another's
local _, owner, lease, progress = unpack(ARGV)
if get('status') ~= 'running' or get('owner') ~= owner then return 0 end
set('lease', now() + lease)
set('progress', progress)
return 1
