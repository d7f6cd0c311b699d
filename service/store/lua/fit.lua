-- Included before the scripts of fits. KEYS[1] fits, KEYS[2] state, KEYS[3] log, KEYS[4] fit_points; ARGV[1] the fit.
local fits, state, log, fit_points = unpack(KEYS, 1, 4)
local fit = ARGV[1]
local function get(field) return redis.call('HGET', fits, fit .. ':' .. field) end
local function set(field, value) redis.call('HSET', fits, fit .. ':' .. field, value) end
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function drop(points)
  local i = 0
  while points and redis.call('HDEL', fit_points, points, points .. ':' .. i) > 0 do i = i + 1 end
end
-- A new status, with what else is known of the fit by then ({field, value, ...}) in one write; then an entry of the log,
-- which does not change the revision: observes go on undisturbed. While a log is to be repaired it is not told of there.
local function enter(status, known)
  local fields = {fit .. ':status', status}
  for i = 1, #known, 2 do
    fields[#fields + 1] = fit .. ':' .. known[i]
    fields[#fields + 1] = known[i + 1]
  end
  redis.call('HSET', fits, unpack(fields))
  local now = redis.call('HMGET', state, 'head', 'entries', 'revision', 'answers', 'recent', 'check')
  local head, entries = now[1], now[2]
  if not head then return end
  if now[6] and now[6] ~= check_of(now[3], entries, now[4], now[5]) then return end -- damaged
  local observed = observed_of(head)
  if was_stopped(log, observed .. '-' .. entries) then return end
  local entry = {'kind', 'fit', 'fit', fit, 'status', status, 'head', string.match(head, '^%d+ %d+ %d+ %d+ %a+')}
  entry[9], entry[10] = 'check', redis.sha1hex(table.concat(entry, '\0'))
  redis.call('XADD', log, observed .. '-' .. (entries + 1), unpack(entry))
  local counted = {'entries', entries + 1}
  if now[6] then counted = {'entries', entries + 1, 'check', check_of(now[3], entries + 1, now[4], now[5])} end
  redis.call('HSET', state, unpack(counted))
end
