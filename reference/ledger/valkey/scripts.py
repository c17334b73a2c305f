"""What runs inside the server, each script as one step.

Every change raises `version` in the pool's hash. A change rests on books that were loaded at one version and is
refused at any other, so all that a decision looked at is checked by comparing this one number. Integers stay strings
in the scripts, since Lua's numbers are exact to 53 bits only. What is much travels as one JSON text each way, since the
client takes longer to pack or parse a value than the server takes to use it.

    pool            hash: account, epoch, last writer, whether it recovers, version
    tenants         hash: name -> account
    reservations    hash: key -> record and its place in the queue
    queue           sorted set: keys by place
    due             sorted set: keys by the moment at which a time limit passes
    deadlines       sorted set: keys of live work by deadline
    deadlines/NAME  the same of one tenant
    journal         stream: commit number -> change
    turn            gateway that the next change is left to, for a moment

Scores are rounded to 53 bits, in order; whoever needs the exact moment reads the record.
"""

NAMES = ("pool", "tenants", "reservations", "queue", "due", "deadlines", "journal", "turn")
"""The keys of a ledger. A script gets the pool's alone and reaches the others by its prefix, since they share its slot:
each key more that the client packs takes it longer than the server needs for a whole change."""

TURN_MILLISECONDS = 50
"""How long the others stand back for a gateway that lost often: enough for many of its attempts, and short should it
have died."""

_PREFIX = f"local prefix = string.sub(KEYS[1], 1, -{len('pool') + 1})"
_KEYS = "\n".join((_PREFIX, *(f"local {name} = prefix .. '{name}'" for name in NAMES)))

LOAD = f"""#!lua
{_KEYS}
-- ARGV: writer or '', two lists as one JSON text: keys, tenants
if ARGV[1] ~= '' then
    redis.call('SET', turn, ARGV[1], 'NX', 'PX', {TURN_MILLISECONDS})
end
local keys, names = unpack(cjson.decode(ARGV[2]))
local asked = {{}}
for _, key in ipairs(keys) do asked[key] = true end

local wanted, seen = {{}}, {{}}
local function want(key)
    if not seen[key] then seen[key] = true; wanted[#wanted + 1] = key end
end
for _, key in ipairs(keys) do want(key) end
local named, known = {{}}, {{}}
for _, name in ipairs(names) do named[name] = true; known[#known + 1] = name end
for _, key in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
    want(key)
    local name = cjson.decode(key)[1]
    if not named[name] then named[name] = true; known[#known + 1] = name end
end
-- The live work that must be over first decides hints alone. The keys are left out: they are known first-hand.
local function soonest(set)
    for _, key in ipairs(redis.call('ZRANGE', set, 0, #keys)) do
        if not asked[key] then return want(key) end
    end
end
soonest(deadlines)
for _, name in ipairs(names) do soonest(deadlines .. '/' .. name) end

local function all(hash, fields)
    local found = {{}}
    for first = 1, #fields, 1000 do
        local part = redis.call('HMGET', hash, unpack(fields, first, math.min(first + 999, #fields)))
        for _, value in ipairs(part) do found[#found + 1] = value end
    end
    return found
end
local found = {{redis.call('HGETALL', pool), redis.call('TIME'), known, all(tenants, known), all(reservations, wanted)}}
return cjson.encode(found)
"""
"""Return as one JSON text the pool, the clock, tenants with their accounts, and records: those of the keys and of all
that wait, and the records that hints are made of."""

COMMIT = f"""#!lua
{_KEYS}
-- ARGV: version, writer, six lists as one JSON text: the pool's fields, tenants' fields, changes, records, gone, keys
-- that must not be there; the clock's least reading or '', and how much later it may be; the last change's number,
-- writer and epoch
local found = redis.call('HMGET', pool, 'version', 'seq', 'writer', 'epoch')
if found[1] ~= ARGV[1] or found[2] ~= ARGV[6] or found[3] ~= ARGV[7] or found[4] ~= ARGV[8] then return 0 end
local whose = redis.call('GET', turn)
if whose and whose ~= ARGV[2] then return 0 end
local time = redis.call('TIME')
local clock = time[1] * 1000000 + time[2]
if ARGV[4] ~= '' and (clock < ARGV[4] - 0 or clock > ARGV[4] + ARGV[5]) then return 0 end
local fields, accounts, changes, records, gone, absent = unpack(cjson.decode(ARGV[3]))
for _, key in ipairs(absent) do
    if redis.call('HEXISTS', reservations, key) == 1 then return 0 end
end
local function schedule(set, moment, key)
    if moment == '' then redis.call('ZREM', set, key) else redis.call('ZADD', set, moment, key) end
end
-- First, since it alone can be refused for what is there: then nothing else is written either.
for at = 1, #changes, 2 do
    redis.call('XADD', journal, changes[at] .. '-0', 'writer', ARGV[2], 'change', changes[at + 1])
end
redis.call('HSET', pool, 'writer', ARGV[2], unpack(fields))
redis.call('HINCRBY', pool, 'version', 1)
for at = 1, #accounts, 2 do redis.call('HSET', tenants, accounts[at], accounts[at + 1]) end
for at = 1, #records, 6 do
    local key, name, record, place, moment, deadline = unpack(records, at, at + 5)
    redis.call('HSET', reservations, key, record)
    schedule(queue, place, key)
    schedule(due, moment, key)
    schedule(deadlines, deadline, key)
    schedule(deadlines .. '/' .. name, deadline, key)
end
for at = 1, #gone, 2 do
    local key, name = gone[at], gone[at + 1]
    redis.call('HDEL', reservations, key)
    for _, set in ipairs({{queue, due, deadlines, deadlines .. '/' .. name}}) do redis.call('ZREM', set, key) end
end
if whose then redis.call('DEL', turn) end
return clock
"""
"""Keep a group of changes where all is as it was thought to be; return the clock in microseconds, or 0."""

SETTLE = f"""#!lua
{_KEYS}
-- ARGV: number and writer of a change
local found = redis.call('XRANGE', journal, ARGV[1] .. '-0', ARGV[1] .. '-0')
if found[1] and found[1][2][2] == ARGV[2] then return 1 end
redis.call('HINCRBY', pool, 'version', 1)
return 0
"""
"""Return whether a change was kept; if not, see to it that a commit still under way comes too late."""

READ = f"""#!lua flags=no-writes
{_KEYS}
return {{redis.call('HGETALL', pool), redis.call('HGETALL', tenants), redis.call('HVALS', reservations),
    redis.call('XREVRANGE', journal, '+', '-', 'COUNT', 1)}}
"""
"""Return everything but the journal, as of one moment, and the journal's last change."""

ADOPT = f"""#!lua
{_KEYS}
-- ARGV: version or '' where there is no ledger yet, number of the pool's fields, fields, tenants' fields
local version = redis.call('HGET', pool, 'version')
if (version or '') ~= ARGV[1] then return 0 end
local last = 2 + tonumber(ARGV[2])
if last > 2 then redis.call('HSET', pool, unpack(ARGV, 3, last)) end
for index = last + 1, #ARGV, 2 do redis.call('HSET', tenants, ARGV[index], ARGV[index + 1]) end
redis.call('HINCRBY', pool, 'version', 1)
return 1
"""
"""Write accounts where the version is still the one given; return whether it was."""

DUE = f"""#!lua flags=no-writes
{_KEYS}
-- ARGV: clock
local clock = ARGV[1]
local kept = redis.call('HGET', pool, 'clock') or '0'
if tonumber(kept) > tonumber(clock) then clock = kept end
local found = {{kept}}
for _, key in ipairs(redis.call('ZRANGE', due, '-inf', clock, 'BYSCORE')) do
    found[#found + 1] = redis.call('HGET', reservations, key)
end
return found
"""
"""Return the pool's clock and the records whose time limit has passed, or nearly, soonest first."""
