-- Included before the scripts that read or write the log.

-- The points learned, as the state's head says: "observed mistakes updates version status"
local function observed_of(head) return string.match(head, '^%d+') end

-- Whether the log goes on behind the newest entry that the state knows of: a script was stopped in the middle.
-- Until that is repaired (repair.lua) nothing may be appended.
local function was_stopped(log, newest) return #redis.call('XRANGE', log, '(' .. newest, '+', 'COUNT', 1) > 0 end
