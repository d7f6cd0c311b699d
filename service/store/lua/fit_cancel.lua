-- End a fit that is under way; forget one that has ended. One that was cancelled stays so: a request may come twice.
-- KEYS  fits, state, log, fit_points, fit_models
-- ARGV  fit
-- Reply 2 cancelled · 1 it had ended, and is forgotten · 0 it never was
local fit_models = KEYS[5]
local status = get('status')
if not status then return 0 end
if status == 'cancelled' then return 2 end
if status == 'queued' or status == 'running' then
  enter('cancelled', {'finished', now()})
  drop(get('points'))
  return 2
end
drop(get('points'))
redis.call('HDEL', fit_models, fit)
for _, field in ipairs(redis.call('HKEYS', fits)) do
  if string.sub(field, 1, #fit + 1) == fit .. ':' then redis.call('HDEL', fits, field) end
end
local order = {}
for id in string.gmatch(redis.call('HGET', fits, 'order') or '', '%S+') do
  if id ~= fit then order[#order + 1] = id end
end
redis.call('HSET', fits, 'order', table.concat(order, ' '))
return 1
