"""Executions with their tickets, promises, and the scope decision."""

from collections.abc import Iterator

from kvescrow.checks.explore.instance import BOTH, Instance, Known, Move, Observation, Place, integers, members
from kvescrow.spec.tables.execution import EXECUTION, TICKET
from kvescrow.spec.tables.execution import execution as execution_entity
from kvescrow.spec.tables.execution import ticket as ticket_entity
from kvescrow.spec.tables.promise import PROMISE, holder, pool
from kvescrow.spec.tables.scope_reuse import SCOPE_FIELDS, SCOPE_REUSE, content, published, question, request
from kvescrow.spec.vocabulary import ExecutionState, HolderState, TicketState


def executions() -> Instance:
    """One execution with three tickets, under the generations 1 and 2.

    A ticket has its own number and is launched once. Generations only grow: there are two.
    """
    tickets = tuple(
        Place(f"ticket {n}", ticket_entity, {"state": members(TicketState), "number": (0, n)}) for n in (1, 2, 3)
    )
    execution = Place(
        "execution",
        execution_entity,
        {
            "state": members(ExecutionState),
            "generation": integers(0, 2),
            "in_flight": integers(0, 3),
            "last_ticket": integers(0, 3),
        },
    )
    return Instance(
        "executions",
        (execution, *tickets),
        tuple(_execution_moves()),
        (
            Observation(EXECUTION, {"execution": "execution"}),
            *(Observation(TICKET, {"execution": "execution", "ticket": f"ticket {n}"}) for n in (1, 2, 3)),
        ),
        note=executions.__doc__ or "",
    )


def _execution_moves() -> Iterator[Move]:
    binds = {"execution": "execution"}
    for generation in (1, 2):
        yield Move(f"begin {generation}", EXECUTION, "begin", binds, {"generation": generation})
    for event in ("close", "certify", "acknowledge"):
        yield Move(event, EXECUTION, event, binds)
    for number in (1, 2, 3):
        both = {**binds, "ticket": f"ticket {number}"}
        for generation in (1, 2):
            parameters: dict[str, Known] = {"generation": generation, "number": number}
            yield Move(f"launch {number} for generation {generation}", TICKET, "launch", both, parameters)
        for ok in (True, False):
            yield Move(f"settle {number} {'well' if ok else 'badly'}", TICKET, "settle", both, {"ok": ok})


def promises() -> Instance:
    """Three holders at a pool of four pages, three free and one cached.

    Pages do not move here, so free and cached are constant. Whether a holder that closes still has a page is a free
    choice of the event.
    """
    holders = tuple(
        Place(f"holder {n}", holder, {"state": members(HolderState), "promised": integers(0, 4)}) for n in range(3)
    )
    the_pool = Place("pool", pool, {"promised": integers(0, 4)}, {"usable": 4, "free": 3, "cached": 1})
    moves: list[Move] = []
    for number in range(3):
        binds, of = {"holder": f"holder {number}", "pool": "pool"}, f"of holder {number}"
        for event in ("admit", "grow"):
            moves += [Move(f"{event} {units} {of}", PROMISE, event, binds, {"units": units}) for units in range(-1, 6)]
        moves += [Move(f"{event} {of}", PROMISE, event, binds) for event in ("close", "forget")]
        still: dict[tuple[str, str], Known] = {("holder", "pages"): 1}
        moves.append(Move(f"close {of} with a page", PROMISE, "close", binds, given=still))
    observed = tuple(Observation(PROMISE, {"holder": f"holder {n}", "pool": "pool"}) for n in range(3))
    alike = (tuple(f"holder {n}" for n in range(3)),)
    return Instance("promises", (*holders, the_pool), tuple(moves), observed, alike, note=promises.__doc__ or "")


def scope_reuse() -> Instance:
    """One look-up of one page: any one field of the scope differs or none, with every state of the page's content.

    A field has the value 1, and 2 where it differs; a flag differs by being the other flag. Several differences at
    once are left to the proofs.
    """
    names = tuple(SCOPE_FIELDS)
    asked = Place("question", question, {"state": members(SCOPE_REUSE.state_type), "yes": BOTH})
    flags = Place("content", content, {}, {"chain_equal": True, "tokens_equal": True, "matchable": True})
    of_request = Place("request", request, {}, {name: name == "group" or 1 for name in names})
    of_page = Place("published", published, {}, {name: name == "group" or 1 for name in names})
    binds = {"question": "question", "request": "request", "published": "published", "content": "content"}
    moves = [Move("look up", SCOPE_REUSE, "look_up", binds)]
    for name in names:
        other: dict[tuple[str, str], Known] = {("published", name): False if name == "group" else 2}
        moves.append(Move(f"look up with another {name}", SCOPE_REUSE, "look_up", binds, given=other))
    for flag in ("chain_equal", "tokens_equal", "matchable"):
        missing: dict[tuple[str, str], Known] = {("content", flag): False}
        moves.append(Move(f"look up without {flag}", SCOPE_REUSE, "look_up", binds, given=missing))
    for group in (False, True):
        for authorised in (False, True):
            asks: dict[tuple[str, str], Known] = {("request", "group"): group}
            name = f"publish for {'a group' if group else 'its tenant'}, {'' if authorised else 'un'}authorised"
            moves.append(Move(name, SCOPE_REUSE, "publish", binds, {"authorised": authorised}, asks))
    places = (asked, of_request, of_page, flags)
    return Instance(
        "scope_reuse", places, tuple(moves), (Observation(SCOPE_REUSE, binds),), note=scope_reuse.__doc__ or ""
    )
