-- Take a fit that waits, or whose lease has run out.
-- KEYS  fits, state, log, fit_points
-- ARGV  fit, owner, lease (ms), most attempts
-- Reply {recipe, name of its points, pieces} it is yours · ms to wait: another has its lease
--       0 it has ended, or its session has · -1 it is not there, perhaps not yet
local _, owner, lease, most = unpack(ARGV)
local status = get('status')
if not status then return -redis.call('EXISTS', state) end
if status ~= 'queued' and status ~= 'running' then return 0 end
local left = status == 'running' and get('lease') - now() or 0
if left > tonumber(lease) then -- the store's clock went back: the lease begins anew
  left = tonumber(lease)
  redis.call('HSET', fits, fit .. ':lease', now() + left)
end
if left > 0 then return left end
if redis.call('HINCRBY', fits, fit .. ':attempts', 1) > tonumber(most) then
  local failure = '{"type":"/problems/fit-failed","detail":"its worker died ' .. most .. ' times"}'
  enter('failed', {'failure', failure, 'finished', now()})
  drop(get('points'))
  return 0
end
enter('running', {'owner', owner, 'lease', now() + lease, 'started', now(), 'progress', 0})
return {get('recipe'), get('points'), get('pieces')}
