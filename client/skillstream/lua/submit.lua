-- Puts a task's request on its stream and rings the inbox; a repeated submission changes nothing (rule P1).
-- KEYS  1 the task's stream, 2 its inbox
-- ARGV  1 task id, 2 stream TTL in ms, 3.. the request as field, value, field, value, ...
-- Returns  {'new'}
--          {'known', fields of 0-1, id of the top entry, type of the top entry}
if redis.call('EXISTS', KEYS[1]) == 1 then
  local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
  local top = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
  local kind = ''
  for i = 1, #top[2], 2 do
    if top[2][i] == 'type' then kind = top[2][i + 1] end
  end
  return {'known', first[2], top[1], kind}
end
local time = redis.call('TIME')
local at = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('XADD', KEYS[1], '0-1', 'type', 'status', 'state', 'submitted', 'v', '1', 'at', at, unpack(ARGV, 3))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('XADD', KEYS[2], '*', 'task', ARGV[1], 'kind', 'submitted')
return {'new'}
