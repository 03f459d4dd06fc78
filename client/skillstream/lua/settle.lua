-- Ends the jobs of tasks whose final is on their stream (rule P7). No owner is asked: the final decides.
-- KEYS  1 the agent's queue, then for each job: 2 its lease, 3 its job, 4 its claim counter, 5 its result
-- ARGV  1 TTL of results in ms, then for each job: its id, and its result or ''
-- Returns  how many jobs left the queue
local left = 0
for i = 1, (#ARGV - 1) / 2 do
  local first = 2 + (i - 1) * 4
  redis.call('DEL', KEYS[first], KEYS[first + 1], KEYS[first + 2])
  left = left + redis.call('ZREM', KEYS[1], ARGV[i * 2])
  if ARGV[i * 2 + 1] ~= '' then
    redis.call('SET', KEYS[first + 3], ARGV[i * 2 + 1], 'PX', ARGV[1])
  end
end
return left
