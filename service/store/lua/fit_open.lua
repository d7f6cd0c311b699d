-- Queue a fit.
-- KEYS  fits, state, log, fit_points, fit_models, then every key of the session
-- ARGV  fit, fingerprint, recipe, most fits, time to live, name of its points, how many pieces
-- Reply QUEUED · ASKED_BEFORE · KEY_REUSED asked before with another body · GONE the session · TOO_MANY are unfinished
--       POINTS_GONE they waited for too long
local fit_models = KEYS[5]
local _, fingerprint, recipe, most, ttl, points, pieces = unpack(ARGV)
if redis.call('EXISTS', state) == 0 then return GONE end
for _, name in ipairs(redis.call('HKEYS', fit_points)) do
  local stray = not string.find(name, ':') and now() / 1000 - redis.call('HGET', fit_points, name) > BRING_SECONDS
  if stray then drop(name) end
end
local before = get('fingerprint')
if before then
  drop(points)
  return before == fingerprint and ASKED_BEFORE or KEY_REUSED
end
if tonumber(pieces) > 0 and redis.call('HDEL', fit_points, points) == 0 then return POINTS_GONE end
local order = {}
for id in string.gmatch(redis.call('HGET', fits, 'order') or '', '%S+') do order[#order + 1] = id end
if #order >= tonumber(most) then
  local oldest
  for i, id in ipairs(order) do
    local status = redis.call('HGET', fits, id .. ':status')
    if status ~= 'queued' and status ~= 'running' then oldest = i break end
  end
  if not oldest then
    drop(points)
    return TOO_MANY
  end
  for _, field in ipairs(redis.call('HKEYS', fits)) do
    if string.sub(field, 1, #order[oldest] + 1) == order[oldest] .. ':' then redis.call('HDEL', fits, field) end
  end
  redis.call('HDEL', fit_models, order[oldest])
  table.remove(order, oldest)
end
local listed = false
for _, id in ipairs(order) do listed = listed or id == fit end
if not listed then order[#order + 1] = fit end
redis.call('HSET', fits, 'order', table.concat(order, ' '))
enter('queued', {
  'fingerprint', fingerprint, 'recipe', recipe, 'created', now(), 'attempts', 0, 'progress', 0,
  'points', points, 'pieces', pieces,
})
if tonumber(ttl) > 0 then
  for i = 1, #KEYS do redis.call('EXPIRE', KEYS[i], ttl) end
end
return QUEUED
