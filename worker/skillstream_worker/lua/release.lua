-- Gives a job back to the queue, only where its lease is still held by this claim (rules P3 and P10).
-- KEYS  1 the agent's queue, 2 the job's lease, 3 the job, 4 the agent's wake list
-- ARGV  1 job id, 2 value of the lease, 3 delay in ms, 4 job TTL in ms, 5 wake list's cap, 6 wake list's TTL in ms
-- Returns  1 if it was given back, 0 if the lease was lost
if redis.call('GET', KEYS[2]) ~= ARGV[2] then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('DEL', KEYS[2])
redis.call('ZADD', KEYS[1], 'XX', string.format('%.0f', now + ARGV[3]), ARGV[1])
redis.call('PEXPIRE', KEYS[3], ARGV[4], 'GT')
redis.call('RPUSH', KEYS[4], ARGV[1])
redis.call('LTRIM', KEYS[4], -ARGV[5], -1)
redis.call('PEXPIRE', KEYS[4], ARGV[6])
return 1
