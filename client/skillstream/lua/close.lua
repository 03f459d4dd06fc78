-- Ends a task from outside its attempt: opens the next attempt and adds its final at once (rule P8).
-- KEYS  1 the task's stream, 2 its inbox
-- ARGV  1 task id, 2 name of the closer, 3 id of the last entry that the closer has read,
--       4 code points of the text that are kept ('' where no attempt had begun), 5 stream TTL in ms,
--       6.. the final's fields as field, value, ... without type and at
-- Returns  {'closed', id of the final, its time in unix ms}
--          {'final', id, fields} where the task has ended already
--          {'stale'} where the stream went on, or back, since it was read: read again
--          {'gone'} where there is no stream
local function value_of(fields, name)
  for i = 1, #fields, 2 do
    if fields[i] == name then return fields[i + 1] end
  end
  return nil
end
local top = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if not top then return {'gone'} end
if value_of(top[2], 'type') == 'final' then return {'final', top[1], top[2]} end
local attempt, seq = string.match(top[1], '^(%d+)-(%d+)$')
local seen_attempt, seen_seq = string.match(ARGV[3], '^(%d+)-(%d+)$')
if attempt ~= seen_attempt or tonumber(seq) < tonumber(seen_seq) then return {'stale'} end
local strikes = '0'
if attempt ~= '0' then
  local opening = redis.call('XRANGE', KEYS[1], attempt .. '-1', attempt .. '-1')[1]
  strikes = opening and value_of(opening[2], 'strikes') or '0'
end
local time = redis.call('TIME')
local at = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local claim = string.format('%.0f', time[1] * 1000000 + time[2])
local next_attempt = string.format('%.0f', attempt + 1)
local opening = {'type', 'status', 'state', 'working', 'worker', ARGV[2], 'claim', claim, 'strikes', strikes}
if ARGV[4] ~= '' then
  opening[#opening + 1] = 'resume_from'
  opening[#opening + 1] = ARGV[4]
end
opening[#opening + 1] = 'at'
opening[#opening + 1] = at
redis.call('XADD', KEYS[1], next_attempt .. '-1', unpack(opening))
local final = next_attempt .. '-2'
local fields = {unpack(ARGV, 6)}
fields[#fields + 1] = 'at'
fields[#fields + 1] = at
redis.call('XADD', KEYS[1], final, 'type', 'final', unpack(fields))
redis.call('PEXPIRE', KEYS[1], ARGV[5], 'GT')
redis.call('XADD', KEYS[2], '*', 'task', ARGV[1], 'kind', 'final')
return {'closed', final, at}
