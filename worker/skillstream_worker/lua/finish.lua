-- Adds the final of an attempt and rings the inbox, only right behind the attempt's last entry (rule P6).
-- KEYS  1 the task's stream, 2 its inbox
-- ARGV  1 task id, 2 id of the attempt's last entry, 3 id of the final, 4 stream TTL in ms, 5.. fields of the final
-- Returns  {'ok'}, also where this final stands there already
--          {'other', id of the top entry or '', fields of the top entry}
local top = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if not top then return {'other', '', {}} end
if top[1] == ARGV[3] then return {'ok'} end
if top[1] ~= ARGV[2] then return {'other', top[1], top[2]} end
redis.call('XADD', KEYS[1], ARGV[3], unpack(ARGV, 5))
redis.call('PEXPIRE', KEYS[1], ARGV[4], 'GT')
redis.call('XADD', KEYS[2], '*', 'task', ARGV[1], 'kind', 'final')
return {'ok'}
