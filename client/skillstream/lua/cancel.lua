-- Records that a task is to be canceled and rings the inbox (rule P9).
-- KEYS  1 the task's stream, 2 its cancel key, 3 its inbox
-- ARGV  1 task id, 2 reason, 3 the key's TTL in ms where the stream has none
-- Returns  {'unknown'}
--          {'final', id, fields} where the task has ended: nothing was recorded
--          {'recorded', id of the top entry, agent, 1 where no attempt writes on: none has opened, or the last one was handed back}
local top = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if not top then return {'unknown'} end
local function value_of(fields, name)
  for i = 1, #fields, 2 do
    if fields[i] == name then return fields[i + 1] end
  end
  return ''
end
if value_of(top[2], 'type') == 'final' then return {'final', top[1], top[2]} end
local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
local ttl = redis.call('PTTL', KEYS[1])
if ttl <= 0 then ttl = ARGV[3] end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ttl)
redis.call('XADD', KEYS[3], '*', 'task', ARGV[1], 'kind', 'cancel')
local is_waiting = string.match(top[1], '^0%-') or value_of(top[2], 'handed_back') ~= ''
return {'recorded', top[1], value_of(first[2], 'agent'), is_waiting and 1 or 0}
