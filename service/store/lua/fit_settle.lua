-- Say what a fit came to, or give it back to the queue.
-- KEYS  fits, state, log, fit_points, fit_models
-- ARGV  fit, owner, status, field, value, model
-- Reply 1 · 0 it is not yours
local fit_models = KEYS[5]
local _, owner, status, field, value, model = unpack(ARGV)
if get('status') ~= 'running' or get('owner') ~= owner then return 0 end
if status == 'queued' then
  set('lease', 0)
  enter('queued')
  return 1
end
set(field, value)
set('finished', now())
if status == 'done' then
  set('progress', 1)
  redis.call('HSET', fit_models, fit, model)
  local left = redis.call('PTTL', fits)
  if left > 0 then redis.call('PEXPIRE', fit_models, left) end
end
drop(get('points'))
enter(status)
return 1
