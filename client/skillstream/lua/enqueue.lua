-- Queues the job of a submitted task and wakes a worker; safe to repeat (rule P1).
-- The job is arq's layout in msgpack, {t: nil, f: 'run_skill', a: [], k: {}, et: now}, as literal bytes:
-- cmsgpack drops nil and packs an empty map as a list, which arq could not read.
-- KEYS  1 the agent's queue, 2 the job, 3 the agent's wake list
-- ARGV  1 job id, 2 delay in ms, 3 job TTL in ms, 4 wake list's cap, 5 wake list's TTL in ms
-- Returns  1 if the job was put on the queue, 0 if it stood there already
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local et = ''
local rest = now
for _ = 1, 8 do
  et = string.char(rest % 256) .. et
  rest = math.floor(rest / 256)
end
local job = '\133\161t\192\161f\169run_skill\161a\144\161k\128\162et\207' .. et
redis.call('SET', KEYS[2], job, 'NX', 'PX', ARGV[3])
local added = redis.call('ZADD', KEYS[1], 'NX', string.format('%.0f', now + ARGV[2]), ARGV[1])
redis.call('RPUSH', KEYS[3], ARGV[1])
redis.call('LTRIM', KEYS[3], -ARGV[4], -1)
redis.call('PEXPIRE', KEYS[3], ARGV[5])
return added
