-- Ends a task whose stream is gone: its submission, an opening and the final, in one step (rule P14).
-- One step, so that no worker finds a submission without a final and runs the task again. The attempt lies behind all
-- that are known, so that a worker that still runs one of them can add nothing.
-- KEYS  1 the task's stream, 2 its inbox
-- ARGV  1 task id, 2 name of the closer, 3 stream TTL in ms, 4 number of the attempt, 5 unix ms of the submission,
--       6 how many arguments the request has, 7.. the request as field, value, ..., then the final's fields without type and at
-- Returns  1 if the task was ended, 0 if there is a stream
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local time = redis.call('TIME')
local at = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local claim = string.format('%.0f', time[1] * 1000000 + time[2])
local final = 7 + tonumber(ARGV[6])
redis.call('XADD', KEYS[1], '0-1', 'type', 'status', 'state', 'submitted', 'v', '1', 'at', ARGV[5], unpack(ARGV, 7, final - 1))
redis.call('XADD', KEYS[1], ARGV[4] .. '-1', 'type', 'status', 'state', 'working', 'worker', ARGV[2], 'claim', claim, 'strikes', '0', 'at', at)
local fields = {unpack(ARGV, final)}
fields[#fields + 1] = 'at'
fields[#fields + 1] = at
redis.call('XADD', KEYS[1], ARGV[4] .. '-2', 'type', 'final', unpack(fields))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('XADD', KEYS[2], '*', 'task', ARGV[1], 'kind', 'final')
return 1
