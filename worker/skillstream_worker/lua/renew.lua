-- Renews leases, each only where it is still held by this claim; a lease that lapsed is never taken back (rule P3).
-- KEYS  1 the agent's queue, then the lease of each job
-- ARGV  1 lease in ms, then for each job: its id, the value of its lease
-- Returns  for each job 1 (renewed) or 0 (lost)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local lease_end = string.format('%.0f', now + ARGV[1])
local held = {}
for i = 2, #KEYS do
  local job = ARGV[i * 2 - 2]
  held[i - 1] = 0
  if redis.call('GET', KEYS[i]) == ARGV[i * 2 - 1] then
    redis.call('PEXPIRE', KEYS[i], ARGV[1])
    redis.call('ZADD', KEYS[1], 'XX', lease_end, job)
    held[i - 1] = 1
  end
end
return held
