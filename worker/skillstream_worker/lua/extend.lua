-- Keeps a task that has not ended: a final's stream has the expiry that the router gave it (rules P10, P12, P13).
-- KEYS  1 the task's stream, 2 its cancel key
-- ARGV  1 TTL in ms, from now on; one that is longer already stands
-- Returns  1, or 0 where the task has ended or has no stream
local top = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if not top then return 0 end
for i = 1, #top[2], 2 do
  if top[2][i] == 'type' and top[2][i + 1] == 'final' then return 0 end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1], 'GT')
redis.call('PEXPIRE', KEYS[2], ARGV[1], 'GT')
return 1
