-- Puts an agent's card on the broker and this worker among the workers seen.
-- KEYS  1 the hash of cards
-- ARGV  1 agent, 2 its card as a JSON object without workers, 3 worker, 4 ms after which a worker is forgotten
-- Returns  how many workers are seen
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local workers = {}
local count = 1
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known then
  local ok, card = pcall(cjson.decode, known)
  if ok and type(card) == 'table' and type(card.workers) == 'table' then
    for worker, seen in pairs(card.workers) do
      if worker ~= ARGV[3] and type(seen) == 'number' and seen > now - ARGV[4] then
        workers[#workers + 1] = cjson.encode(worker) .. ':' .. string.format('%.0f', seen)
        count = count + 1
      end
    end
  end
end
workers[#workers + 1] = cjson.encode(ARGV[3]) .. ':' .. string.format('%.0f', now)
local card = string.sub(ARGV[2], 1, -2) .. ',"workers":{' .. table.concat(workers, ',') .. '}}'
redis.call('HSET', KEYS[1], ARGV[1], card)
return count
