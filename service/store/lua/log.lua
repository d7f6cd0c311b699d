-- Included before the scripts that read or write the log.

-- The points learned, as the state's head says: "observed mistakes updates version status"
local function observed_of(head) return string.match(head or '', '^%d+') or '0' end

-- What is counted here and not by the sender is stored twice: `check` has it again, so that damage is found before it is
-- believed. A session that was stored before there was a check has none.
local function check_of(revision, entries, answers, recent)
  return revision .. ' ' .. entries .. ' ' .. (answers or '') .. '/' .. (recent or '')
end

-- Whether the log goes on behind the newest entry that the state knows of: a script was stopped in the middle.
-- Until that is repaired (repair.lua) nothing may be appended. From the end: from `newest` on, the store would go through
-- all that shares a node of the stream with it.
local function was_stopped(log, newest) return #redis.call('XREVRANGE', log, '+', '(' .. newest, 'COUNT', 1) > 0 end
