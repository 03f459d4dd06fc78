-- Adds the final of an attempt and rings the inbox, only right behind the attempt's last entry (rule P6).
-- KEYS  1 the task's stream, 2 its inbox
-- ARGV  1 task id, 2 claim of the attempt, 3 id of its last entry, 4 id of the final, 5 stream TTL in ms,
--       6.. fields of the final without at
-- Returns  {'ok', id of the final, its time in unix ms}, also where this final stands there already
--          {'other', id of the top entry or ''}
local function value_of(fields, name)
  for i = 1, #fields, 2 do
    if fields[i] == name then return fields[i + 1] end
  end
  return nil
end
local top = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if not top then return {'other', ''} end
local first = string.match(ARGV[3], '^%d+') .. '-1'
-- after a failover another worker may have opened an attempt of the same number
local opening = top[1] == first and top or redis.call('XRANGE', KEYS[1], first, first)[1]
if not opening or value_of(opening[2], 'claim') ~= ARGV[2] then return {'other', top[1]} end
if value_of(top[2], 'type') == 'final' then
  if top[1] == ARGV[4] then return {'ok', top[1], value_of(top[2], 'at')} end
  return {'other', top[1]}
end
if top[1] ~= ARGV[3] then return {'other', top[1]} end
-- by these times the messages of a conversation are ordered: clocks of workers differ
local time = redis.call('TIME')
local at = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
ARGV[#ARGV + 1] = 'at'
ARGV[#ARGV + 1] = at
redis.call('XADD', KEYS[1], ARGV[4], unpack(ARGV, 6))
redis.call('PEXPIRE', KEYS[1], ARGV[5], 'GT')
redis.call('XADD', KEYS[2], '*', 'task', ARGV[1], 'kind', 'final')
return {'ok', ARGV[4], at}
