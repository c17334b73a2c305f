"""Small instances of the reservation and account tables that keep what the lifecycles leave out."""

from collections.abc import Iterator, Mapping

from kvescrow.checks.explore.instance import Instance, Known, Move, Observation, Place, integers, members
from kvescrow.checks.explore.instances.lifecycle import (
    DEADLINE,
    DIGEST,
    LATE,
    LIMIT,
    OWNER,
    RESERVATION,
    ROUNDED,
    SOON,
    STALE,
    STRANGER,
    TOO_LATE,
    UNKEPT,
    absent,
)
from kvescrow.spec.language.expressions import if_else
from kvescrow.spec.tables.account import ACCOUNT
from kvescrow.spec.tables.account import account as account_entity
from kvescrow.spec.tables.reservation.view import ghost, pool, reservation, tenant
from kvescrow.spec.vocabulary import AccountState, ReservationState, StopOutcome

S = ReservationState
_AT = ("pool", "clock")
_AHEAD = ("queue", "ahead")


def _event(
    name: str, event: str, binds: Mapping[str, str], given: Mapping[tuple[str, str], Known], **parameters: Known
) -> Move:
    return Move(name, RESERVATION, event, binds, parameters, given)


def _request(**changed: Known) -> dict[str, Known]:
    plain: dict[str, Known] = {
        "authorised": True,
        "amount": 1,
        "digest": DIGEST,
        "deadline": DEADLINE,
        "least_service": 0,
        "max_wait": 0,
        "lease": 1,
    }
    return {**plain, **changed}


def _owner(**changed: Known) -> dict[str, Known]:
    return {"authorised": True, "owner": OWNER, "generation": 1, **changed}


def _receipt(**changed: Known) -> dict[str, Known]:
    plain = {"authentic": True, "owner": OWNER, "generation": 1, "outcome": StopOutcome.STOPPED, "used": 0}
    return {**plain, **changed}


def usage() -> Instance:
    """Two reservations of one tenant that report usage, with a budget of 4 units that can run out.

    Kept are the bound, the usage and the overrun of each, and what the tenant has spent and overrun. What is spent
    and overrun only grows, so the search stops at 4 and at 2 units. Time, lives and generations are left out as in the
    lifecycles.
    """
    slots = tuple(
        Place(
            f"reservation {number}",
            reservation,
            {"state": members(S), "bound": integers(0, 2), "used": integers(0, 3), "overrun": integers(0, 3)},
            UNKEPT,
            {
                **ROUNDED,
                "used": if_else(_ended, 0, reservation.used),
                "overrun": if_else(_ended, 0, reservation.overrun),
            },
        )
        for number in range(2)
    )
    accounts = Place(
        "tenant 0",
        tenant,
        {
            "active": integers(0, 3),
            "held": integers(0, 3),
            "spent": integers(0, 4),
            "overrun": integers(0, 2),
            "queued": integers(0, 2),
        },
        {"limit": 3, "budget": 4, "queue_limit": 1},
        cut=frozenset({"spent", "overrun"}),
    )
    the_pool = Place("pool", pool, {"active": integers(0, 3)}, {**_POOL, "limit": 3})
    return Instance(
        "usage",
        (*slots, accounts, the_pool),
        tuple(move for number in range(2) for move in _usage_moves(number)),
        tuple(Observation(RESERVATION, _binding(number)) for number in range(2)),
        alike=(("reservation 0", "reservation 1"),),
        note=usage.__doc__ or "",
    )


_ended = reservation.state.is_in(tuple(s for s in S if s.name in ("COMPLETED", "CANCELLED", "FAILED", "EXPIRED")))
_POOL: dict[str, Known] = {"clock": SOON, "retention": 1, "next_life": 2, "next_generation": 2}


def _binding(number: int) -> dict[str, str]:
    return {"reservation": f"reservation {number}", "tenant": "tenant 0", "pool": "pool"}


def _usage_moves(number: int) -> Iterator[Move]:
    binds, given = _binding(number), {_AT: SOON, _AHEAD: 0}
    of = f"of reservation {number}"
    for amount in (1, 2):
        for wait in (0, 1):
            name = f"reserve {amount}{' or wait' if wait else ''} {of}"
            yield _event(name, "reserve", binds, given, **_request(amount=amount, max_wait=wait))
    yield _event(f"promote {of}", "promote", binds, given, lease=1)
    yield _event(f"start {of}", "start", binds, given, authorised=True, life=1, owner=OWNER, lease=1)
    yield _event(f"extend to 2 {of}", "extend", binds, given, **_owner(bound=2))
    for used in (1, 2, 3):
        yield _event(f"report {used} {of}", "report_usage", binds, given, **_owner(used=used))
    yield _event(f"cancel {of}", "cancel", binds, given, authorised=True, life=1)
    yield _event(f"preempt {of}", "preempt", binds, given, authorised=True, generation=1)
    yield _event(f"fence {of}", "fence", binds, given, authentic=True, owner=OWNER)
    yield _event(f"forget {of}", "forget", binds, {**given, _AT: LATE})
    for outcome in StopOutcome:
        for used in (0, 2, 3):
            name = f"finish {outcome.value.lower()} with {used} {of}"
            yield _event(name, "finish", binds, given, **_receipt(outcome=outcome, used=used))


def identities() -> Instance:
    """Two keys of one tenant with the real counters of lives and generations, and grants and releases counted.

    Every reservation asks for one unit. The counters only grow: the search stops at three lives, three generations
    and three grants a key, and within that nothing of them is left out. Time is left out as in the lifecycles.
    """
    counted = integers(0, 3)
    slots = tuple(
        Place(
            f"reservation {number}",
            reservation,
            {"state": members(S), "life": counted, "generation": counted},
            {
                "amount": if_else(absent, 0, 1),
                "bound": if_else(absent, 0, 1),
                "digest": if_else(absent, 0, DIGEST),
                "owner": if_else(reservation.generation == 0, 0, OWNER),
                "deadline": DEADLINE,
                "lease": LIMIT,
                "expires": LIMIT,
                "retained": LIMIT,
            },
        )
        for number in range(2)
    )
    ghosts = tuple(
        Place(f"history {n}", ghost, {"grants": counted, "releases": counted}, cut=frozenset({"grants", "releases"}))
        for n in range(2)
    )
    accounts = Place(
        "tenant 0",
        tenant,
        {"active": integers(0, 2), "held": integers(0, 2), "queued": integers(0, 2)},
        {"limit": 2, "budget": 1000, "queue_limit": 2},
    )
    the_pool = Place(
        "pool",
        pool,
        {"active": integers(0, 2), "next_life": integers(1, 4), "next_generation": integers(1, 4)},
        {"limit": 2, "clock": SOON, "retention": 1},
        initial={"next_life": 1, "next_generation": 1},
        cut=frozenset({"next_life", "next_generation"}),
    )
    return Instance(
        "identities",
        (*slots, *ghosts, accounts, the_pool),
        tuple(move for number in range(2) for move in _identity_moves(number)),
        tuple(Observation(RESERVATION, _counted(number), others=(f"reservation {1 - number}",)) for number in range(2)),
        note=identities.__doc__ or "",
    )


def _counted(number: int) -> dict[str, str]:
    return {**_binding(number), "ghost": f"history {number}"}


def _identity_moves(number: int) -> Iterator[Move]:
    binds, given = _counted(number), {_AT: SOON, _AHEAD: 0}
    of = f"of reservation {number}"
    yield _event(f"reserve {of}", "reserve", binds, given, **_request())
    yield _event(f"promote {of}", "promote", binds, given, lease=1)
    yield _event(f"sweep {of}", "sweep", binds, given)
    yield _event(f"sweep after its limit {of}", "sweep", binds, {**given, _AT: LATE})
    yield _event(f"fence {of}", "fence", binds, given, authentic=True, owner=OWNER)
    yield _event(f"forget {of}", "forget", binds, {**given, _AT: LATE})
    for life in (1, 2, 3):
        started = {"authorised": True, "life": life, "owner": OWNER, "lease": 1}
        yield _event(f"start of life {life} {of}", "start", binds, given, **started)
        yield _event(f"cancel of life {life} {of}", "cancel", binds, given, authorised=True, life=life)
    for generation in (1, 2, 3):
        label = f"of generation {generation} {of}"
        yield _event(f"preempt {label}", "preempt", binds, given, authorised=True, generation=generation)
        for outcome in (StopOutcome.COMPLETED, StopOutcome.STOPPED):
            name = f"finish {outcome.value.lower()} {label}"
            yield _event(name, "finish", binds, given, **_receipt(generation=generation, outcome=outcome))


def limits() -> Instance:
    """Two reservations while an operator moves the limits of pool and tenant between 0 and 3, below live work too.

    Bounds are 1 to 3. Time, lives, generations and usage are left out as in the lifecycles.
    """
    return _operated("limits", 2, 3, limits.__doc__ or "")


def full_queue() -> Instance:
    """Three reservations of one unit in a queue for one, while an operator moves both limits between 0 and 2.

    Time, lives, generations and usage are left out as in the lifecycles.
    """
    return _operated("full-queue", 3, 1, full_queue.__doc__ or "")


def _operated(name: str, slots: int, most: int, note: str) -> Instance:
    """Return reservations with bounds up to `most` under limits that an operator moves."""
    records = tuple(
        Place(f"reservation {n}", reservation, {"state": members(S), "bound": integers(0, most)}, UNKEPT, ROUNDED)
        for n in range(slots)
    )
    highest = max(most, 2)
    counted = integers(0, highest)
    accounts = Place(
        "tenant 0",
        tenant,
        {"active": counted, "held": counted, "queued": integers(0, slots), "limit": counted},
        {"budget": 1000, "queue_limit": 1},
        initial={"limit": highest},
    )
    the_pool = Place("pool", pool, {"active": counted, "limit": counted}, _POOL, initial={"limit": highest})
    operator = Place("account", account_entity, {"state": members(AccountState)})
    accounts_of = {"account": "account", "pool": "pool", "tenant": "tenant 0"}
    known: dict[tuple[str, str], Known] = {("tenant", "configured"): True}
    moves = [
        Move(f"{event} {limit}", ACCOUNT, event, accounts_of, {"limit": limit}, known)
        for event in ("set_pool_limit", "set_tenant_limit")
        for limit in counted
    ]
    return Instance(
        name,
        (*records, accounts, the_pool, operator),
        (*moves, *(move for number in range(slots) for move in _limit_moves(number, most))),
        (
            *(Observation(RESERVATION, _binding(number)) for number in range(slots)),
            Observation(ACCOUNT, accounts_of, known),
        ),
        alike=(tuple(place.name for place in records),),
        note=note,
    )


def _limit_moves(number: int, most: int) -> Iterator[Move]:
    binds, given = _binding(number), {_AT: SOON, _AHEAD: 0}
    of = f"of reservation {number}"
    for amount in range(1, min(most, 2) + 1):
        for wait in (0, 1):
            name = f"reserve {amount}{' or wait' if wait else ''} {of}"
            yield _event(name, "reserve", binds, given, **_request(amount=amount, max_wait=wait))
    yield _event(f"promote {of}", "promote", binds, given, lease=1)
    yield _event(f"start {of}", "start", binds, given, authorised=True, life=1, owner=OWNER, lease=1)
    for bound in range(2, most + 1):
        yield _event(f"extend to {bound} {of}", "extend", binds, given, **_owner(bound=bound))
    yield _event(f"cancel {of}", "cancel", binds, given, authorised=True, life=1)
    yield _event(f"finish {of}", "finish", binds, given, **_receipt())
    yield _event(f"preempt {of}", "preempt", binds, given, authorised=True, generation=1)
    yield _event(f"forget {of}", "forget", binds, {**given, _AT: LATE})


def refusals() -> Instance:
    """One reservation beside another of the same tenant, with an event for every cause of refusal.

    Kept are state, amount and bound. Each event comes in its good form and in every bad one: unauthorised, forged, of
    a stranger, of a stale life or generation, malformed, too large, too late, of another amount, digest or deadline.
    That a forced release leaves a record without an owner is not kept: it is checked at the step.
    """
    slots = tuple(
        Place(
            f"reservation {number}",
            reservation,
            {"state": members(S), "amount": integers(0, 2), "bound": integers(0, 2)},
            {name: value for name, value in UNKEPT.items() if name != "amount"},
        )
        for number in range(2)
    )
    accounts = Place(
        "tenant 0",
        tenant,
        {"active": integers(0, 3), "held": integers(0, 3), "queued": integers(0, 2)},
        {"limit": 2, "budget": 1000, "queue_limit": 1},
    )
    the_pool = Place("pool", pool, {"active": integers(0, 3)}, {**_POOL, "limit": 3})
    return Instance(
        "refusals",
        (*slots, accounts, the_pool),
        tuple(move for number in range(2) for move in _refusable(number)),
        tuple(Observation(RESERVATION, _binding(number)) for number in range(2)),
        alike=(("reservation 0", "reservation 1"),),
        note=refusals.__doc__ or "",
    )


def _refusable(number: int) -> Iterator[Move]:
    binds, of = _binding(number), f"of reservation {number}"

    def event(label: str, name: str, *circumstances: int, **parameters: Known) -> Move:
        clock, ahead = (*circumstances, *(SOON, 0)[len(circumstances) :])
        given = {_AT: clock, _AHEAD: ahead}
        return _event(f"{name}{label} {of}", name, binds, given, **parameters)

    for amount in (0, 1, 2, 3, 4):
        for wait in (0, 1):
            for ahead in (0, 1):
                label = f" {amount}{' or wait' if wait else ''}{' behind others' if ahead else ''}"
                yield event(label, "reserve", SOON, ahead, **_request(amount=amount, max_wait=wait))
    yield event(" unauthorised", "reserve", **_request(authorised=False))
    yield event(" of another digest", "reserve", **_request(digest=2))
    yield event(" of another deadline", "reserve", **_request(deadline=DEADLINE + 1))
    yield event(" too late", "reserve", TOO_LATE, **_request())
    for name, value in (("least_service", -1), ("max_wait", -1), ("lease", 0)):
        yield event(f" with {name} {value}", "reserve", **_request(**{name: value}))
    for clock, ahead, label in ((SOON, 0, ""), (SOON, 1, " behind others"), (LATE, 0, " after its wait")):
        yield event(label, "promote", clock, ahead, lease=1)
    patient: dict[tuple[str, str], Known] = {_AT: TOO_LATE, _AHEAD: 0, ("reservation", "expires"): TOO_LATE + 1}
    yield _event(f"promote after its deadline {of}", "promote", binds, patient, lease=1)
    yield _event(f"sweep after its deadline, not its wait, {of}", "sweep", binds, patient)
    start: dict[str, Known] = {"authorised": True, "life": 1, "owner": OWNER, "lease": 1}
    yield event("", "start", **start)
    yield event(" after its lease", "start", LATE, **start)
    yield event(" unauthorised", "start", **{**start, "authorised": False})
    yield event(" of a stale life", "start", **{**start, "life": STALE})
    yield event(" of a stranger", "start", **{**start, "owner": STRANGER})
    owned: tuple[tuple[str, dict[str, Known]], ...] = (
        ("extend", {"bound": 2}),
        ("report_usage", {"used": 1}),
        ("renew", {"life": 1, "lease": 1}),
    )
    for name, more in owned:
        yield event("", name, **_owner(**more))
        yield event(" unauthorised", name, **_owner(authorised=False, **more))
        yield event(" of a stranger", name, **_owner(owner=STRANGER, **more))
        yield event(" of a stale generation", name, **_owner(generation=STALE, **more))
    yield event(" to 1", "extend", **_owner(bound=1))
    yield event(" to 0", "extend", **_owner(bound=0))
    yield event(" to 9", "extend", **_owner(bound=9))
    yield event(" 0", "report_usage", **_owner(used=0))
    yield event(" 3", "report_usage", **_owner(used=3))
    yield event(" after its lease", "renew", LATE, **_owner(life=1, lease=1))
    yield event(" of a stale life", "renew", **_owner(life=STALE, lease=1))
    for authorised, life, label in ((True, 1, ""), (False, 1, " unauthorised"), (True, STALE, " of a stale life")):
        yield event(label, "cancel", authorised=authorised, life=life)
    for authorised, generation, label in ((True, 1, ""), (False, 1, " unauthorised"), (True, STALE, " stale")):
        yield event(label, "preempt", authorised=authorised, generation=generation)
    for outcome in StopOutcome:
        yield event(f" {outcome.value.lower()}", "finish", **_receipt(outcome=outcome))
    yield event(" forged", "finish", **_receipt(authentic=False))
    yield event(" of a stranger", "finish", **_receipt(owner=STRANGER))
    yield event(" of a stale generation", "finish", **_receipt(generation=STALE))
    for clock, label in ((SOON, ""), (LATE, " after its limit"), (TOO_LATE, " after its deadline")):
        yield event(label, "sweep", clock)
    for authentic, owner, label in ((True, OWNER, ""), (False, OWNER, " forged"), (True, STRANGER, " of a stranger")):
        yield event(label, "fence", authentic=authentic, owner=owner)
    for authorised, generation, clock, label in (
        (True, 1, LATE, " after its lease"),
        (True, 1, SOON, ""),
        (False, 1, LATE, " unauthorised"),
        (True, STALE, LATE, " of a stale generation"),
    ):
        yield event(label, "force_release", clock, authorised=authorised, generation=generation)
    yield event("", "forget")
    yield event(" after its retention", "forget", LATE)


def account() -> Instance:
    """The accounts alone: a clock from 0 to 3, and limits and a budget from 0 to 3, beside live work of 2 units.

    The clock only grows: the search stops at 3.
    """
    the_pool = Place(
        "pool",
        pool,
        {"clock": integers(0, 3), "limit": integers(0, 3)},
        {"active": 2},
        initial={"limit": 3},
        cut=frozenset({"clock"}),
    )
    of_tenant = {"limit": integers(0, 3), "budget": integers(0, 3)}
    accounts = Place("tenant 0", tenant, of_tenant, {"active": 2, "held": 2}, initial={"limit": 3, "budget": 3})
    operator = Place("account", account_entity, {"state": members(AccountState)})
    binds = {"account": "account", "pool": "pool", "tenant": "tenant 0"}
    known: dict[tuple[str, str], Known] = {("tenant", "configured"): True}
    moves = [Move(f"tick {now}", ACCOUNT, "tick", binds, {"now": now}, known) for now in range(4)]
    for event, parameter in (("set_pool_limit", "limit"), ("set_tenant_limit", "limit"), ("set_budget", "budget")):
        for value in range(-1, 4):
            moves.append(Move(f"{event} {value}", ACCOUNT, event, binds, {parameter: value}, known))
        unknown: dict[tuple[str, str], Known] = {("tenant", "configured"): False}
        if event != "set_pool_limit":
            moves.append(Move(f"{event} of nobody", ACCOUNT, event, binds, {parameter: 1}, unknown))
    observed = (Observation(ACCOUNT, binds, known),)
    return Instance("account", (the_pool, accounts, operator), tuple(moves), observed, note=account.__doc__ or "")
