"""Reservations of two tenants in one pool: the lifecycle at several sizes, and what its big sizes leave out.

What is left out, everywhere unless an instance says otherwise:

- Time. The clock is not kept. Each event comes with a clock that is before or after every limit that it reads, at
  its free choice; so each lease, wait and retention runs out or does not, one apart from the other. This allows more
  than a real clock does.
- Lives and generations. Each reads as 1 in every record; events name that one or a stale one. So nothing can be said
  of uniqueness here: the instance `identities` keeps the counters.
- Usage and billing. `usage` keeps them.
- The order of the queue. Whether another request comes first is a free choice of the event. It allows more too.
"""

from collections.abc import Iterator

from attrs import frozen

from kvescrow.checks.explore.instance import Instance, Known, Move, Observation, Place, integers, members
from kvescrow.spec.language.expressions import if_else
from kvescrow.spec.tables.registry import TABLE_BY_NAME
from kvescrow.spec.tables.reservation.view import pool, reservation, tenant
from kvescrow.spec.vocabulary import TERMINAL_STATES, ReservationState, StopOutcome

RESERVATION = TABLE_BY_NAME["reservation"]
S = ReservationState

SOON, LATE, TOO_LATE = 5, 15, 200
"""Clocks: before every limit, after every lease, wait and retention, and after every deadline."""
LIMIT, DEADLINE = 10, 100
"""When leases, waits and retentions end, and when every deadline is."""
OWNER, STRANGER, DIGEST = 1, 2, 1
LIFE, GENERATION, STALE = 1, 1, 7

absent = reservation.state == S.ABSENT
ended = reservation.state.is_in(TERMINAL_STATES)


@frozen
class Size:
    """How large a lifecycle is."""

    slots: int
    """Reservations; those with an even number are of tenant 0, the others of tenant 1."""
    amounts: int
    """A request asks for 1 to this many units."""
    growth: int
    """A bound grows to at most this much above the largest amount."""
    pool: int
    tenant: int
    """Limits of the pool and of each tenant."""

    @property
    def bounds(self) -> int:
        """Return the largest bound that any reservation can have."""
        return min(self.amounts + self.growth, self.pool, self.tenant)


def lifecycle(name: str, size: Size) -> Instance:
    """Return the lifecycle of `size`.

    Kept are state and bound of each reservation, and the counters of its accounts. The amount reads as 1, and the
    bound of an ended record as 1, since no row reads them for anything but a refusal.
    """
    slots = tuple(_slot(number, size) for number in range(size.slots))
    per_tenant = (size.slots + 1) // 2
    tenants = tuple(
        Place(
            name=f"tenant {number}",
            entity=tenant,
            kept={
                "active": integers(0, size.tenant),
                "held": integers(0, size.tenant),
                "queued": integers(0, per_tenant),
            },
            reads_as={"limit": size.tenant, "budget": 1000, "queue_limit": per_tenant},
        )
        for number in range(2)
    )
    the_pool = Place(
        name="pool",
        entity=pool,
        kept={"active": integers(0, size.pool)},
        reads_as={"limit": size.pool, "clock": SOON, "retention": 1, "next_life": 2, "next_generation": 2},
    )
    moves = [move for number in range(size.slots) for move in slot_moves(number, size)]
    return Instance(
        name=name,
        places=(*slots, *tenants, the_pool),
        moves=tuple(moves),
        observed=tuple(
            Observation(RESERVATION, binding(number), {("queue", "ahead"): 0}) for number in range(size.slots)
        ),
        alike=tuple(tuple(f"reservation {n}" for n in range(t, size.slots, 2)) for t in range(2)),
        note=(
            f"{size.slots} reservations of two tenants with bounds up to {size.bounds}; the pool has {size.pool} units "
            f"and each tenant {size.tenant}.\n\n{lifecycle.__doc__}"
        ),
    )


def binding(number: int) -> dict[str, str]:
    """Return what the reservation with this number is bound to."""
    return {"reservation": f"reservation {number}", "tenant": f"tenant {number % 2}", "pool": "pool"}


def _slot(number: int, size: Size) -> Place:
    return Place(
        name=f"reservation {number}",
        entity=reservation,
        kept={"state": members(S), "bound": integers(0, size.bounds)},
        reads_as=UNKEPT,
        rounded=ROUNDED,
    )


UNKEPT: dict[str, Known] = {
    "amount": if_else(absent, 0, 1),
    "digest": if_else(absent, 0, DIGEST),
    "deadline": DEADLINE,
    "life": if_else(absent, 0, LIFE),
    "generation": if_else(absent, 0, GENERATION),
    "owner": if_else(absent, 0, OWNER),
    "lease": LIMIT,
    "expires": LIMIT,
    "retained": LIMIT,
}
"""What is seen in the fields that are not kept: the record as it must be, with one life, one owner, and all limits
at one moment."""
ROUNDED = {"bound": if_else(ended, 1, reservation.bound)}


def slot_moves(number: int, size: Size) -> Iterator[Move]:
    """Yield every event of one reservation with every parameter that tells cases apart."""

    def move(label: str, event: str, *circumstances: int, **parameters: Known) -> Move:
        clock, ahead = (*circumstances, *(SOON, 0)[len(circumstances) :])
        return Move(
            name=f"{event}{label} of reservation {number}",
            table=RESERVATION,
            event=event,
            binds=binding(number),
            parameters=parameters,
            given={("pool", "clock"): clock, ("queue", "ahead"): ahead},
        )

    request = {"authorised": True, "digest": DIGEST, "deadline": DEADLINE, "least_service": 0, "lease": 1}
    for amount in range(1, min(size.amounts, size.bounds) + 1):
        yield move(f" {amount}", "reserve", amount=amount, max_wait=0, **request)
        yield move(f" {amount} or wait", "reserve", amount=amount, max_wait=1, **request)
        yield move(f" {amount} behind others", "reserve", SOON, 1, amount=amount, max_wait=0, **request)
        yield move(f" {amount} or wait behind others", "reserve", SOON, 1, amount=amount, max_wait=1, **request)
    yield move("", "promote", lease=1)
    yield move(" behind others", "promote", SOON, 1, lease=1)
    yield move(" after its wait", "promote", LATE, lease=1)
    start: dict[str, Known] = {"authorised": True, "owner": OWNER, "lease": 1}
    yield move("", "start", life=LIFE, **start)
    yield move(" after its lease", "start", LATE, life=LIFE, **start)
    yield move(" of a stale life", "start", life=STALE, **start)
    owner: dict[str, Known] = {"authorised": True, "owner": OWNER, "generation": GENERATION}
    for bound in range(1, size.bounds + 1):
        yield move(f" to {bound}", "extend", bound=bound, **owner)
    yield move("", "cancel", authorised=True, life=LIFE)
    yield move(" of a stale life", "cancel", authorised=True, life=STALE)
    yield move("", "preempt", authorised=True, generation=GENERATION)
    receipt: dict[str, Known] = {"authentic": True, "owner": OWNER, "generation": GENERATION, "used": 0}
    for outcome in StopOutcome:
        yield move(f" {outcome.value.lower()}", "finish", outcome=outcome, **receipt)
    yield move(" forged", "finish", **{**receipt, "authentic": False, "outcome": StopOutcome.STOPPED})
    yield move(" of a stale generation", "finish", **{**receipt, "generation": STALE, "outcome": StopOutcome.STOPPED})
    yield move("", "renew", life=LIFE, lease=1, **owner)
    yield move(" after its lease", "renew", LATE, life=LIFE, lease=1, **owner)
    yield move("", "sweep")
    yield move(" after its limit", "sweep", LATE)
    yield move("", "fence", authentic=True, owner=OWNER)
    yield move("", "forget")
    yield move(" after its retention", "forget", LATE)


def closed_form(size: Size) -> int:
    """Return how many states the lifecycle of `size` has, by counting: a combination of reservations is reachable
    exactly where the charges fit. This shares nothing with any search.

    A reservation charges nothing in 5 ways (absent, or one of four ends) and in one for each bound that waits; it
    charges a bound in 5 ways (the charged states).
    """
    ways = {0: 5 + size.bounds, **dict.fromkeys(range(1, size.bounds + 1), 5)}

    def tenant_ways(slots: int) -> dict[int, int]:
        total = {0: 1}
        for _ in range(slots):
            following: dict[int, int] = {}
            for charged, count in total.items():
                for charge, kinds in ways.items():
                    if charged + charge <= size.tenant:
                        following[charged + charge] = following.get(charged + charge, 0) + count * kinds
            total = following
        return total

    first, second = tenant_ways((size.slots + 1) // 2), tenant_ways(size.slots // 2)
    return sum(a * b for x, a in first.items() for y, b in second.items() if x + y <= size.pool)


SIZES = {
    "lifecycle-xs": Size(slots=2, amounts=1, growth=1, pool=3, tenant=2),
    "lifecycle-s": Size(slots=3, amounts=1, growth=1, pool=3, tenant=2),
    "lifecycle-80k": Size(slots=4, amounts=1, growth=1, pool=6, tenant=4),
    "lifecycle-1m": Size(slots=5, amounts=1, growth=1, pool=5, tenant=4),
    "lifecycle-8m": Size(slots=6, amounts=1, growth=1, pool=4, tenant=3),
    "lifecycle-47m": Size(slots=6, amounts=2, growth=1, pool=6, tenant=5),
}
"""The lifecycles by name; the name says how many states."""
