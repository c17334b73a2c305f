"""Ledger, worker and page pool together: who may do what is settled between the tables, not in one of them.

A reservation has an execution, a ticket and a holder of pages of its own, and each holder has a scope. What ties the
tables is what a worker keeps to:

- it begins an execution when the ledger says RUNNING, and asks for the stop when the ledger says otherwise;
- it admits, draws and publishes pages for an open execution alone;
- it touches pages under a launched ticket, and settles the ticket after its pages;
- its receipt is authentic exactly when the execution is certified.

The claim is that this is enough: where the ledger has released a reservation, nothing touches a page of it.
"""

from collections.abc import Iterator, Mapping

from kvescrow.checks.explore.instance import BOTH, Claim, Instance, Known, Move, Observation, Place, integers, members
from kvescrow.checks.explore.instances.lifecycle import (
    DEADLINE,
    DIGEST,
    GENERATION,
    LATE,
    LIFE,
    LIMIT,
    OWNER,
    RESERVATION,
    SOON,
    absent,
    ended,
)
from kvescrow.spec.language.expressions import Entity, Expression, all_of, any_of, if_else, implies
from kvescrow.spec.tables.execution import EXECUTION, TICKET
from kvescrow.spec.tables.execution import execution as execution_entity
from kvescrow.spec.tables.execution import ticket as ticket_entity
from kvescrow.spec.tables.page import PAGE
from kvescrow.spec.tables.page.view import claim, holder, page, parent, scope
from kvescrow.spec.tables.page.view import pool as page_pool
from kvescrow.spec.tables.promise import PROMISE
from kvescrow.spec.tables.reservation.view import pool, reservation, tenant
from kvescrow.spec.vocabulary import (
    OWNED_STATES,
    ExecutionState,
    HolderState,
    PageState,
    ReservationState,
    StopOutcome,
    TicketState,
)

SLOTS, PAGES = 2, 3
E, T = ExecutionState, TicketState
_PAGE_STATES = tuple(state for state in PageState if state is not PageState.SINK)
_AT, _AHEAD = ("pool", "clock"), ("queue", "ahead")

running = reservation.state == ReservationState.RUNNING
stopping = reservation.state.is_in(OWNED_STATES) & ~running
open_ = execution_entity.state == E.OPEN
launched = ticket_entity.state == T.LAUNCHED
stopped = execution_entity.state == E.STOPPED


def composition(pages: int = PAGES) -> Instance:
    """Two reservations with their executions, one ticket each, a pool of pages, and a scope for each holder.

    Left out, beside what the lifecycles and the pools leave out: the accounts of ledger, tenants and scopes;
    preemption; steps that fail; and in which of the four ways a reservation ended. Every reservation asks for one unit,
    a holder promises at most two pages, and a prompt has one page.
    """
    places = [place for number in range(SLOTS) for place in _slot(number, pages)]
    places += [_page(number) for number in range(pages)]
    places += [
        Place("tenant", tenant, {}, {"limit": 9, "budget": 99, "queue_limit": 9}),
        Place("pool", pool, {}, {"limit": 9, "clock": SOON, "retention": 1, "next_life": 2, "next_generation": 2}),
        Place(
            "pages",
            page_pool,
            {name: integers(0, pages) for name in ("free", "cached", "promised")},
            {"total": pages},
            initial={"free": pages},
        ),
        Place("root", parent, {}, {"matchable": True, "cached": False}),
        Place("no one", holder, {}, {"state": HolderState.ABSENT}),
        Place("no claim", claim, {}, {"holds": False}),
    ]
    return Instance(
        name="composition" if pages == PAGES else f"composition-{pages}",
        places=tuple(places),
        moves=tuple(move for number in range(SLOTS) for move in _moves(number, pages)),
        observed=tuple(_observations()),
        claims=tuple(_claims(pages)),
        note=f"{pages} pages. {composition.__doc__}",
    )


def _slot(number: int, pages: int) -> Iterator[Place]:
    begun = if_else(execution_entity.state == E.ABSENT, 0, GENERATION)
    numbered = if_else(ticket_entity.state == T.ABSENT, 0, 1)
    counted = integers(0, 2)
    yield Place(
        f"reservation {number}",
        reservation,
        {"state": members(ReservationState)},
        _UNKEPT,
        {"state": if_else(ended, ReservationState.COMPLETED, reservation.state)},
    )
    yield Place(
        f"execution {number}",
        execution_entity,
        {"state": members(E), "in_flight": integers(0, 1)},
        {"generation": begun, "last_ticket": 1},
    )
    yield Place(f"ticket {number}", ticket_entity, {"state": members(T)}, {"number": numbered})
    kept = {"state": members(HolderState), "promised": counted, "pages": counted, "shares": counted}
    yield Place(f"holder {number}", holder, kept, {"scope": number + 1}, cut=frozenset({"promised"}))
    yield Place(f"scope {number}", scope, {"live": BOTH}, {"identity": number + 1, "limit": 9}, initial={"live": True})
    for of_page in range(pages):
        yield Place(f"claim {number} on {of_page}", claim, {"holds": BOTH})


_UNKEPT: Mapping[str, Known] = {
    "amount": if_else(absent, 0, 1),
    "bound": if_else(absent, 0, 1),
    "digest": if_else(absent, 0, DIGEST),
    "life": if_else(absent, 0, LIFE),
    "generation": if_else(absent, 0, GENERATION),
    "owner": if_else(absent, 0, OWNER),
    "deadline": DEADLINE,
    "lease": LIMIT,
    "expires": LIMIT,
    "retained": LIMIT,
}


def _page(number: int) -> Place:
    kept = {
        "state": _PAGE_STATES,
        "holders": integers(0, 1),
        "readers": integers(0, 1),
        "writers": integers(0, 1),
        "computed": BOTH,
        "matchable": BOTH,
        "scope": integers(0, SLOTS),
        "chain": integers(0, 1),
    }
    cut = frozenset({"readers", "writers"})
    return Place(f"page {number}", page, kept, {"spoiled": False}, initial={"state": PageState.FREE}, cut=cut)


def _moves(number: int, pages: int) -> Iterator[Move]:
    yield from _ledger_moves(number)
    yield from _worker_moves(number, pages)
    yield from _holder_moves(number, pages)
    for of_page in range(pages):
        yield from _page_moves(number, of_page, pages)


def _ledger_moves(number: int) -> Iterator[Move]:
    binds = {"reservation": f"reservation {number}", "tenant": "tenant", "pool": "pool"}
    both = {**binds, "execution": f"execution {number}"}

    def move(
        name: str, event: str, clock: int, parameters: Mapping[str, Known], where: Mapping[str, str] = binds
    ) -> Move:
        return Move(f"{name} {number}", RESERVATION, event, where, parameters, {_AT: clock, _AHEAD: 0})

    yield move(
        "reserve",
        "reserve",
        SOON,
        {
            "authorised": True,
            "amount": 1,
            "digest": DIGEST,
            "deadline": DEADLINE,
            "least_service": 0,
            "max_wait": 0,
            "lease": 1,
        },
    )
    yield move("start", "start", SOON, {"authorised": True, "life": LIFE, "owner": OWNER, "lease": 1})
    yield move("cancel", "cancel", SOON, {"authorised": True, "life": LIFE})
    yield move("sweep late", "sweep", LATE, {})
    yield move("forget late", "forget", LATE, {})
    owner: dict[str, Known] = {"owner": OWNER, "generation": GENERATION}
    yield move("renew", "renew", SOON, {"authorised": True, "life": LIFE, "lease": 1, **owner})
    receipt: dict[str, Known] = {"authentic": stopped, "outcome": StopOutcome.STOPPED, "used": 0, **owner}
    yield move("finish", "finish", SOON, receipt, both)


def _worker_moves(number: int, count: int) -> Iterator[Move]:
    names = {
        "reservation": f"reservation {number}",
        "execution": f"execution {number}",
        "ticket": f"ticket {number}",
    }
    pages = {f"page {n}": f"page {n}" for n in range(count)}
    released = ~reservation.state.is_in(OWNED_STATES)
    yield Move(f"begin {number}", EXECUTION, "begin", names, {"generation": GENERATION}, where=running)
    yield Move(f"close {number}", EXECUTION, "close", names, where=stopping | running)
    yield Move(f"certify {number}", EXECUTION, "certify", names)
    yield Move(f"acknowledge {number}", EXECUTION, "acknowledge", names, where=released)
    launch: dict[str, Known] = {"generation": GENERATION, "number": 1}
    yield Move(f"launch {number}", TICKET, "launch", names, launch)
    settled = all_of(*(_untouched(n, number) for n in range(count)))
    yield Move(f"settle ticket {number}", TICKET, "settle", {**names, **pages}, {"ok": True}, where=settled)


def _untouched(of_page: int, number: int) -> Expression:
    """Return that no step touches a page of this scope."""
    record = Entity(f"page {of_page}", page.fields)
    return (record.scope != number + 1) | (record.readers + record.writers == 0)


def _holder_moves(number: int, pages: int) -> Iterator[Move]:
    binds = {"holder": f"holder {number}", "pool": "pages", "execution": f"execution {number}"}
    given: dict[tuple[str, str], Known] = {("pool", "usable"): pages}
    for units in (1, 2):
        yield Move(f"admit {units} for {number}", PROMISE, "admit", binds, {"units": units}, given, open_)
    yield Move(f"close holder {number}", PROMISE, "close", binds, {}, given)
    yield Move(f"forget holder {number}", PROMISE, "forget", binds, {}, given)


def _page_moves(number: int, of_page: int, pages: int) -> Iterator[Move]:
    binds = {
        "page": f"page {of_page}",
        "holder": f"holder {number}",
        "claim": f"claim {number} on {of_page}",
        "scope": f"scope {number}",
        "pool": "pages",
        "parent": "root",
    }
    of = f"page {of_page} by {number}"
    working = {**binds, "execution": f"execution {number}"}
    stepping = {**binds, "ticket": f"ticket {number}"}
    others = {f"page {n}": f"page {n}" for n in range(pages) if n != of_page}
    mine = page.scope == number + 1
    taken = any_of(*(all_of(p.matchable, p.scope == number + 1) for p in (Entity(n, page.fields) for n in others)))
    occupied: dict[tuple[str, str], Known] = {("index", "occupied"): taken}
    free = page.state == PageState.FREE
    yield Move(f"allocate {of}", PAGE, "allocate", working, where=open_ & free)
    yield Move(f"seal {of}", PAGE, "seal", {**working, **others}, {"chain": 1}, occupied, open_ & mine)
    yield Move(f"share {of}", PAGE, "share", working, {"chain": 1, "tokens_equal": True}, where=open_ & mine)
    yield Move(f"drop {of}", PAGE, "drop", binds, where=mine)
    yield Move(f"write {of}", PAGE, "touch", stepping, {"write": True}, where=launched & mine)
    shared = page.state == PageState.SHARED
    yield Move(f"read {of}", PAGE, "touch", stepping, {"write": False}, where=launched & mine & shared)
    nobody = {**binds, "holder": "no one", "claim": "no claim"}
    yield Move(f"evict {of}", PAGE, "evict", nobody, where=mine)
    for write in (True, False):
        name = f"settle {'write' if write else 'read'} of {of}"
        yield Move(name, PAGE, "settle", nobody, {"write": write, "ok": True, "filled": True}, where=mine)


def _observations() -> Iterator[Observation]:
    for number in range(SLOTS):
        names = {"execution": f"execution {number}", "ticket": f"ticket {number}"}
        yield Observation(TICKET, names)
        yield Observation(EXECUTION, {"execution": f"execution {number}"})


def _claims(pages: int) -> Iterator[Claim]:
    released = ~reservation.state.is_in(OWNED_STATES)
    for number in range(SLOTS):
        for of_page in range(pages):
            binds = {
                "reservation": f"reservation {number}",
                "execution": f"execution {number}",
                f"page {of_page}": f"page {of_page}",
            }
            untouched = _untouched(of_page, number)
            yield Claim("certified_work_touches_no_page", implies(~open_closing(), untouched), binds)
            yield Claim("released_work_touches_no_page", implies(released, untouched), binds)


def open_closing() -> Expression:
    """Return that an execution may still have a step in flight."""
    return execution_entity.state.is_in((E.OPEN, E.CLOSING))
