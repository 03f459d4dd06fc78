-- Writes the recent messages of a conversation, unless a newer version stands there (rule P13).
-- KEYS  1 the list of messages, 2 its version
-- ARGV  1 version: the highest message id, 2 TTL in ms, 3.. the messages as JSON, in the order of the conversation
-- Returns  1 if written, 0 if a newer version stands there
local known = tonumber(redis.call('GET', KEYS[2]) or '0')
if known > tonumber(ARGV[1]) then return 0 end
redis.call('DEL', KEYS[1])
for i = 3, #ARGV, 1000 do redis.call('RPUSH', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV))) end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return 1
