-- Puts requests of tasks on their streams and rings the inbox; a repeated submission changes nothing (rule P1).
-- KEYS  1 the inbox of all these tasks, then the stream of each task
-- ARGV  for each task: its id, its stream's TTL in ms, how many arguments its request has, and the request as
--       field, value, field, value, ...
-- Returns  for each task  {'new'}
--                         {'known', fields of 0-1, id of the top entry, type of the top entry}
local time = redis.call('TIME')
local at = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local function known(stream)
  local first = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
  local top = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  local kind = ''
  for i = 1, #top[2], 2 do
    if top[2][i] == 'type' then kind = top[2][i + 1] end
  end
  return {'known', first[2], top[1], kind}
end
local answers = {}
local place = 1
for i = 2, #KEYS do
  local fields = tonumber(ARGV[place + 2])
  if redis.call('EXISTS', KEYS[i]) == 1 then
    answers[i - 1] = known(KEYS[i])
  else
    redis.call('XADD', KEYS[i], '0-1', 'type', 'status', 'state', 'submitted', 'v', '1', 'at', at,
      unpack(ARGV, place + 3, place + 2 + fields))
    redis.call('PEXPIRE', KEYS[i], ARGV[place + 1])
    redis.call('XADD', KEYS[1], '*', 'task', ARGV[place], 'kind', 'submitted')
    answers[i - 1] = {'new'}
  end
  place = place + 3 + fields
end
return answers
