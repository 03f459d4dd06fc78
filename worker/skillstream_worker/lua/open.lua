-- Opens the next attempt of a task for the holder of a claim (rules P4 and P11).
-- KEYS  1 the task's stream, 2 its cancel key, 3 its inbox
-- ARGV  1 task id, 2 worker, 3 claim, 4 stream TTL in ms, 5 agent,
--       6 id of the last entry that the worker has read, or '',
--       7 code points of the text that the attempt goes on behind, or '',
--       8.. the request of a stock client's job as field, value, ... (no such arguments: the task is ours)
-- The request is not in the answers: read 0-1 beside the script, an entry on its way through Lua costs several times more.
-- Returns  {'opened', attempt, strikes, cancel reason or false}; 'same' instead, where this claim opened before
--          {'final', id, fields} where the task has ended
--          {'superseded', id} where a newer claim opened
--          {'gone'} where a task of ours has no stream: it may have ended long ago, and is never run
--          {'stale'} where the stream went on, or back, since it was read: read again
--          {'canceled' | 'exhausted' | 'interrupted' | 'resume', id of the top entry, detail}
--            where the task is to be closed (detail: the reason, or the last worker), or its text read before opening
local function value_of(fields, name)
  for i = 1, #fields, 2 do
    if fields[i] == name then return fields[i + 1] end
  end
  return nil
end
-- a field that anyone may have written: what is no number counts as the default, an error here would come for ever
local function number_of(fields, name, default)
  return tonumber(value_of(fields, name) or '') or default
end
local function now()
  local time = redis.call('TIME')
  return string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end
-- behind the submission there is nothing yet on most streams: to find that out costs less than to read the submission
local top = redis.call('XREVRANGE', KEYS[1], '+', '0-2', 'COUNT', 1)[1]
if not top and redis.call('EXISTS', KEYS[1]) == 0 then
  if not ARGV[8] then
    redis.call('XADD', KEYS[3], '*', 'task', ARGV[1], 'kind', 'gone', 'agent', ARGV[5])
    return {'gone'}
  end
  redis.call('XADD', KEYS[1], '0-1', 'type', 'status', 'state', 'submitted', 'v', '1', 'at', now(), unpack(ARGV, 8))
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
top = top or {'0-1', {}}
if value_of(top[2], 'type') == 'final' then return {'final', top[1], top[2]} end
local reason = redis.call('GET', KEYS[2])
local attempt, seq = string.match(top[1], '^(%d+)-(%d+)$')
local strikes, last_worker = 0, ''
if attempt ~= '0' then
  local opening = redis.call('XRANGE', KEYS[1], attempt .. '-1', attempt .. '-1')[1]
  local fields = opening and opening[2] or {}
  local claim = number_of(fields, 'claim', 0)
  if claim == tonumber(ARGV[3]) then
    return {'same', tonumber(attempt), number_of(fields, 'strikes', 0), reason}
  end
  if claim > tonumber(ARGV[3]) then return {'superseded', top[1]} end
  strikes = number_of(fields, 'strikes', 0)
  last_worker = value_of(fields, 'worker') or ''
end
local handed_back = value_of(top[2], 'handed_back')
if (handed_back ~= 'drain' and handed_back ~= 'elsewhere') or strikes == 0 then strikes = strikes + 1 end
if reason then return {'canceled', top[1], reason} end
if ARGV[6] ~= '' then
  local seen_attempt, seen_seq = string.match(ARGV[6], '^(%d+)-(%d+)$')
  if attempt ~= seen_attempt or tonumber(seq) < tonumber(seen_seq) then return {'stale'} end
end
if attempt ~= '0' then
  local request = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1][2]
  local on_retry = value_of(request, 'on_retry')
  -- handed back elsewhere, it has not run: the attempt before would have ended the task
  if on_retry == 'fail' and handed_back ~= 'elsewhere' then return {'interrupted', top[1], last_worker} end
  if strikes > number_of(request, 'max_attempts', 3) then return {'exhausted', top[1], last_worker} end
  if on_retry == 'resume' and ARGV[6] == '' then return {'resume', top[1], last_worker} end
end
local number = string.format('%.0f', attempt + 1)
local opening = {'type', 'status', 'state', 'working', 'worker', ARGV[2], 'claim', ARGV[3], 'strikes', tostring(strikes)}
if ARGV[7] ~= '' then
  opening[#opening + 1] = 'resume_from'
  opening[#opening + 1] = ARGV[7]
end
opening[#opening + 1] = 'at'
opening[#opening + 1] = now()
redis.call('XADD', KEYS[1], number .. '-1', unpack(opening))
redis.call('PEXPIRE', KEYS[1], ARGV[4], 'GT')
redis.call('XADD', KEYS[3], '*', 'task', ARGV[1], 'kind', 'opened')
return {'opened', tonumber(number), strikes, false}
