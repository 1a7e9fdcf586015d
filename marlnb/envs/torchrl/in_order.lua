-- Lua's `pairs` goes through names in another order in each process and copy, and with it would an episode of one seed.
local next, sort, type = next, table.sort, type

function pairs(t)
  if type(next(t)) ~= 'string' then return next, t, nil end
  local names, n = {}, 0
  for name in next, t do
    if type(name) ~= 'string' then return next, t, nil end
    n = n + 1
    names[n] = name
  end
  sort(names)
  local i = 0
  return function()
    while i < n do
      i = i + 1
      local value = t[names[i]]
      if value ~= nil then return names[i], value end
    end
  end
end
