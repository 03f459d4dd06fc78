-- Takes jobs by name: a job is won if it is due and nobody holds its lease (rule P2).
-- KEYS  1 the agent's queue, 2 its wake list, then for each candidate: 3 its lease, 4 its job, 5 its claim counter
-- ARGV  1 worker, 2 lease in ms, 3 how many further candidates are wanted, 4 the counter's TTL in ms,
--       5 prefix of the agent's job ids, then the job id of each candidate
-- Returns  {won, further, due, removed}: won is a list of {job id, claim, number of claims, payload or false};
--          further are ids to claim next; due is the unix ms when the next job or lease falls due, or '';
--          removed are members that were no job ids of this agent and left the queue
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local claim = time[1] * 1000000 + time[2]
local lease_end = string.format('%.0f', now + ARGV[2])
local won = {}
for i = 6, #ARGV do
  local first = 3 + (i - 6) * 3
  local score = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if score and tonumber(score) <= now then
    local number = string.format('%.0f', claim)
    if redis.call('SET', KEYS[first], ARGV[1] .. ':' .. number, 'NX', 'PX', ARGV[2]) then
      redis.call('ZADD', KEYS[1], 'XX', lease_end, ARGV[i])
      local claims = 1
      if not redis.call('SET', KEYS[first + 2], '1', 'NX', 'PX', ARGV[4]) then
        claims = redis.call('INCR', KEYS[first + 2])
      end
      won[#won + 1] = {ARGV[i], number, claims, redis.call('GET', KEYS[first + 1])}
      claim = claim + 1
    end
  end
end
local wanted = tonumber(ARGV[3])
local further, removed = {}, {}
local due = ''
if wanted > 0 then
  -- tokens first: each is popped by one worker alone, so that many workers do not try the same ids
  further = redis.call('LPOP', KEYS[2], wanted) or {}
  if #further == 0 then
    local prefix = ARGV[5]
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, wanted)) do
      local rest = string.sub(member, #prefix + 1)
      if string.sub(member, 1, #prefix) == prefix and #rest <= 128 and string.match(rest, '^[%w._-]+$') then
        further[#further + 1] = member
      else
        redis.call('ZREM', KEYS[1], member)
        removed[#removed + 1] = member
      end
    end
  end
  local ahead = redis.call('ZRANGEBYSCORE', KEYS[1], string.format('(%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if ahead[2] then due = ahead[2] end
end
return {won, further, due, removed}
