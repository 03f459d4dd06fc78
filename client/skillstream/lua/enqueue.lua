-- Queues the jobs of submitted tasks of one agent and wakes workers; safe to repeat (rule P1).
-- A job is arq's layout in msgpack, {t: nil, f: 'run_skill', a: [], k: {}, et: now}, as literal bytes:
-- cmsgpack drops nil and packs an empty map as a list, which arq could not read.
-- KEYS  1 the agent's queue, 2 its wake list, then each job
-- ARGV  1 wake list's cap, 2 wake list's TTL in ms, then for each job: its id, its delay in ms, its TTL in ms
-- Returns  for each job 1 if it was put on the queue, 0 if it stood there already
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local et = ''
local rest = now
for _ = 1, 8 do
  et = string.char(rest % 256) .. et
  rest = math.floor(rest / 256)
end
local job = '\133\161t\192\161f\169run_skill\161a\144\161k\128\162et\207' .. et
local added, tokens = {}, {}
for i = 3, #KEYS do
  local place = i * 3 - 6
  redis.call('SET', KEYS[i], job, 'NX', 'PX', ARGV[place + 2])
  added[i - 2] = redis.call('ZADD', KEYS[1], 'NX', string.format('%.0f', now + ARGV[place + 1]), ARGV[place])
  tokens[i - 2] = ARGV[place]
end
redis.call('RPUSH', KEYS[2], unpack(tokens))
redis.call('LTRIM', KEYS[2], -ARGV[1], -1)
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return added
