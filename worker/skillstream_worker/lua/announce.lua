-- Puts an agent's card on the broker: this worker's skills, and those that other workers announced lately.
-- KEYS  1 the hash of cards
-- ARGV  1 agent, 2 its card as a JSON object without skills and workers, 3 worker, 4 ms after which a worker and a skill
--       are forgotten, 5 "leaving" where the worker stops and leaves the card, its skills stay, then for each skill:
--       its name, its card as a JSON object
-- Returns  how many workers are seen
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function stamp(key, seen)
  return cjson.encode(key) .. ':' .. string.format('%.0f', seen)
end
local longest = 1e15 -- of a whole number: what is beyond, infinity too, cannot be written as one
local function is_fresh(seen)
  return type(seen) == 'number' and seen > now - ARGV[4] and seen < longest
end
-- cjson writes an empty list as an object, and a long number with fourteen digits
local function skill_of(card)
  local parts = {}
  for name, value in pairs(card) do
    local text
    if type(value) == 'table' and next(value) == nil then
      text = '[]'
    elseif type(value) == 'number' and math.abs(value) >= longest then
      error('too long a number')
    elseif type(value) == 'number' and value == math.floor(value) then
      text = string.format('%.0f', value)
    else
      text = cjson.encode(value)
    end
    parts[#parts + 1] = cjson.encode(name) .. ':' .. text
  end
  return '{' .. table.concat(parts, ',') .. '}'
end
local workers, skills, seen, own = {}, {}, {}, {}
for i = 6, #ARGV, 2 do
  own[ARGV[i]] = true
  skills[#skills + 1] = ARGV[i + 1]
  seen[#seen + 1] = stamp(ARGV[i], now)
end
local known = redis.call('HGET', KEYS[1], ARGV[1])
if ARGV[5] == 'leaving' and not known then return 0 end
local ok, card = pcall(cjson.decode, known or '')
if ok and type(card) == 'table' then
  for worker, at in pairs(type(card.workers) == 'table' and card.workers or {}) do
    if worker ~= ARGV[3] and is_fresh(at) then workers[#workers + 1] = stamp(worker, at) end
  end
  local announced = type(card.seen) == 'table' and card.seen or {}
  for _, skill in ipairs(type(card.skills) == 'table' and card.skills or {}) do
    local name = type(skill) == 'table' and type(skill.name) == 'string' and skill.name
    if name and not own[name] and is_fresh(announced[name]) then
      local readable, text = pcall(skill_of, skill)
      if readable then
        own[name] = true
        skills[#skills + 1] = text
        seen[#seen + 1] = stamp(name, announced[name])
      end
    end
  end
end
if ARGV[5] ~= 'leaving' then workers[#workers + 1] = stamp(ARGV[3], now) end
local parts = {
  '"skills":[' .. table.concat(skills, ',') .. ']',
  '"workers":{' .. table.concat(workers, ',') .. '}',
  '"seen":{' .. table.concat(seen, ',') .. '}',
}
redis.call('HSET', KEYS[1], ARGV[1], string.sub(ARGV[2], 1, -2) .. ',' .. table.concat(parts, ',') .. '}')
return #workers
