-- Removes routers that read an inbox once and are gone, or leave now, so that their names do not pile up.
-- A consumer with pending rings stays: the rings are taken over first.
-- KEYS  1 the inbox
-- ARGV  1 consumer group, 2 ms of silence after which a router counts as gone, 3 name of a router that leaves, or ''
-- Returns  how many were removed
local removed = 0
for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local known = {}
  for i = 1, #consumer, 2 do known[consumer[i]] = consumer[i + 1] end
  if known.pending == 0 and (known.idle > tonumber(ARGV[2]) or known.name == ARGV[3]) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], known.name)
    removed = removed + 1
  end
end
return removed
