-- Say what a fit came to, or give it back to the queue.
-- KEYS  fits, state, log, fit_points, fit_models
-- ARGV  fit, owner, status, field, value, model
-- Reply 1 · 0 it is not yours
local fit_models = KEYS[5]
local _, owner, status, field, value, model = unpack(ARGV)
if get('status') ~= 'running' or get('owner') ~= owner then return 0 end
if status == 'queued' then
  enter('queued', {'lease', 0})
  return 1
end
local known = {field, value, 'finished', now()}
if status == 'done' then
  redis.call('HSET', fit_models, fit, model)
  local left = redis.call('PTTL', fits)
  if left > 0 then redis.call('PEXPIRE', fit_models, left) end
  known = {field, value, 'finished', now(), 'progress', 1}
end
enter(status, known)
drop(get('points'))
return 1
