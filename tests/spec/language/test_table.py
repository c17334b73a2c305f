"""A table that is incomplete, ill typed or contradictory is refused when it is built, by the name of its row."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import pytest
from attrs import evolve

from kvescrow.spec.language.expressions import NOBODY, TRUE, Entity, Kind, before
from kvescrow.spec.language.table import (
    Assumption,
    Event,
    Ghost,
    Invariant,
    NonInterference,
    Reply,
    Row,
    Sometimes,
    StepRule,
    Table,
    TableError,
    conjunction,
    effects_of,
    guards_of,
    merged_event_entity,
)
from kvescrow.spec.vocabulary import Decision, Reason


class Door(Enum):
    """A door."""

    OPEN = "OPEN"
    """Anyone can pass."""
    SHUT = "SHUT"
    """No one can pass."""


INT, NAME = Kind.INTEGER, Kind.NAME
door = Entity("door", {"state": Door, "passed": INT, "keeper": NAME})
house = Entity("house", {"rooms": INT}, settled=True)
EVENTS = (Event("push", {"force": INT}, "someone pushes"), Event("pull", {}, "someone pulls"))
event = merged_event_entity(EVENTS)
REFUSED = Reply(Decision.REFUSED, Reason.FORBIDDEN)
NOTED = Reply(Decision.NOTED)


def row(name: str, sources: tuple[Enum, ...], reply: Reply, **more: Any) -> Row:
    """A row of the table `door`."""
    return Row(f"door.{name}", name.split(".", maxsplit=1)[0], sources, reply, ("LIF-1",), "a note", **more)


WEAK = row("push.weak", (Door.SHUT,), REFUSED, when=event.force < 3)
OPENS = row("push.opens", (Door.SHUT,), NOTED, to=Door.OPEN, do=(door.passed.adds(1),))
PUSHED = row("push.open", (Door.OPEN,), Reply(Decision.RECORDED))
PULLED = row("pull.shuts", (Door.OPEN,), NOTED, to=Door.SHUT)
STAYS = row("pull.shut", (Door.SHUT,), Reply(Decision.RECORDED))
TABLE = Table(
    name="door",
    moves=door,
    state_type=Door,
    entities=(door, house),
    events=EVENTS,
    rows=(WEAK, OPENS, PUSHED, PULLED, STAYS),
    initial=door.state == Door.SHUT,
    note="A door.",
)


def with_row(changed: Row, **changes: Any) -> Table:
    """The table with `changes` made to one row."""
    return evolve(TABLE, rows=tuple(evolve(r, **changes) if r is changed else r for r in TABLE.rows))


def test_a_table_knows_its_cells_rows_and_effects() -> None:
    assert TABLE.cells[Door.SHUT, "push"] == (WEAK, OPENS)
    assert TABLE.cells[Door.OPEN, "pull"] == (PULLED,)
    assert TABLE.row_by_id["door.pull.shut"] is STAYS
    assert TABLE.event("push").parameters == {"force": INT}
    assert [str(effect) for effect in effects_of(TABLE, OPENS)] == [
        "door.state := OPEN",
        "door.passed := door.passed + 1",
    ]
    assert effects_of(TABLE, WEAK) == ()


def test_guards_are_told_apart_at_each_and() -> None:
    when = (event.force < 3) & ((door.passed == 0) | (door.passed == 1)) & (house.rooms > 0)
    assert [str(guard) for guard in guards_of(evolve(WEAK, when=when))] == [
        "event.force < 3",
        "(door.passed == 0) or (door.passed == 1)",
        "0 < house.rooms",
    ]
    assert guards_of(OPENS) == ()


def test_the_conjunction_of_no_invariant_is_true() -> None:
    assert conjunction(TABLE) is TRUE
    one = Invariant("one", door.passed >= 0, ("LIF-1",), "note")
    assert str(conjunction(evolve(TABLE, invariants=(one,)))) == "0 <= door.passed"


PLANTED: list[tuple[Callable[[], Table], str]] = [
    (lambda: evolve(TABLE, rows=()), "table door: it has no rows"),
    (lambda: evolve(TABLE, rows=(*TABLE.rows, STAYS)), "table door: duplicate row door.pull.shut"),
    (lambda: evolve(TABLE, events=(*EVENTS, EVENTS[0])), "table door: duplicate event push"),
    (lambda: evolve(TABLE, entities=(door, house, house)), "table door: duplicate entity house"),
    (lambda: evolve(TABLE, entities=(house,)), "table door: it moves `door`, which is not in its view"),
    (
        lambda: evolve(TABLE, rows=tuple(r for r in TABLE.rows if r is not PULLED)),
        "table door: no row decides `pull` in OPEN",
    ),
    (
        lambda: with_row(WEAK, when=TRUE),
        "row door.push.opens: it can never fire in SHUT, since door.push.weak before it always does",
    ),
    (lambda: with_row(WEAK, id="door.push."), "row door.push.: its id must be `door.push.<name>`"),
    (lambda: with_row(WEAK, id="gate.push.weak"), "row gate.push.weak: its id must be `door.push.<name>`"),
    (lambda: with_row(WEAK, id="door.kick.weak", event="kick"), "row door.kick.weak: unknown event `kick`"),
    (lambda: with_row(WEAK, sources=()), "row door.push.weak: its sources must be states of Door"),
    (lambda: with_row(WEAK, sources=(Reason.NONE,)), "row door.push.weak: its sources must be states of Door"),
    (
        lambda: with_row(WEAK, sources=(Door.SHUT, Door.SHUT)),
        "row door.push.weak: a source state is named twice",
    ),
    (lambda: with_row(PULLED, to=Reason.NONE), "row door.pull.shuts: its target Reason.NONE is not a state"),
    (lambda: with_row(WEAK, note=" "), "row door.push.weak: it has no note"),
    (lambda: with_row(WEAK, cites=()), "row door.push.weak: it must cite requirement ids, not nothing"),
    (
        lambda: with_row(WEAK, cites=("LIF-1", "lif1")),
        "row door.push.weak: it must cite requirement ids, not lif1",
    ),
    (
        lambda: with_row(WEAK, do=(door.passed.adds(1),)),
        "row door.push.weak: it answers REFUSED FORBIDDEN and so must change nothing",
    ),
    (
        lambda: with_row(WEAK, to=Door.OPEN),
        "row door.push.weak: it answers REFUSED FORBIDDEN and so must change nothing",
    ),
    (lambda: with_row(PULLED, to=None), "row door.pull.shuts: it answers NOTED but has no effect"),
    (lambda: with_row(WEAK, when=door.width < 3), "row door.push.weak: unknown field `door.width`"),
    (lambda: with_row(WEAK, when=event.strength < 3), "row door.push.weak: unknown field `event.strength`"),
    (lambda: with_row(PULLED, when=event.force < 3), "row door.pull.shuts: unknown field `event.force`"),
    (
        lambda: with_row(WEAK, when=Entity("gate", {"passed": INT}).passed < 3),
        "row door.push.weak: unknown field `gate.passed`",
    ),
    (lambda: with_row(WEAK, when=door.passed), "row door.push.weak: `door.passed` is integer, not boolean"),
    (
        lambda: with_row(WEAK, when=door.keeper < 3),
        "row door.push.weak: `door.keeper` is name where `door.keeper < 3` needs integer",
    ),
    (
        lambda: with_row(WEAK, when=before(door.passed) < 3),
        "row door.push.weak: `before(door.passed)` reads an older state, which only step rules may",
    ),
    (
        lambda: with_row(OPENS, do=(door.passed.becomes(Door.OPEN),)),
        "row door.push.opens: `OPEN` is Door, not integer",
    ),
    (lambda: with_row(OPENS, do=(door.keeper.becomes(1),)), "row door.push.opens: `1` is integer, not name"),
    (
        lambda: with_row(OPENS, do=(house.rooms.adds(1),)),
        "row door.push.opens: `house.rooms` belongs to the rest of the world and cannot be written",
    ),
    (
        lambda: with_row(OPENS, do=(event.force.becomes(1),)),
        "row door.push.opens: unknown field `event.force`",
    ),
    (
        lambda: with_row(OPENS, do=(door.passed.adds(1), door.passed.becomes(0))),
        "row door.push.opens: door.passed is written twice",
    ),
    (
        lambda: with_row(OPENS, do=(door.state.becomes(Door.OPEN),)),
        "row door.push.opens: door.state is written twice",
    ),
    (lambda: evolve(TABLE, initial=event.force == 0), "table door: unknown field `event.force`"),
    (
        lambda: evolve(TABLE, invariants=(Invariant("odd", door.width == 1, ("LIF-1",), "note"),)),
        "table door: odd: unknown field `door.width`",
    ),
    (
        lambda: evolve(TABLE, invariants=(Invariant("odd", before(door.passed) == 1, ("LIF-1",), "note"),)),
        "table door: odd: `before(door.passed)` reads an older state",
    ),
    (
        lambda: evolve(TABLE, sometimes=(Sometimes("odd", door.passed, "note"),)),
        "table door: odd: `door.passed` is integer, not boolean",
    ),
    (
        lambda: evolve(TABLE, rules=(StepRule("odd", event.force == 1, ("LIF-1",), "note"),)),
        "table door: odd: unknown field `event.force`",
    ),
    (
        lambda: evolve(TABLE, rules=(StepRule("odd", TRUE, ("LIF-1",), "note", frozenset({"kick"})),)),
        "table door: odd: unknown event `kick`",
    ),
    (
        lambda: evolve(
            TABLE,
            invariants=(Invariant("odd", TRUE, ("LIF-1",), "note"),),
            assumptions=(Assumption("odd", TRUE, "note"),),
        ),
        "table door: duplicate property odd",
    ),
    (
        lambda: evolve(TABLE, ghosts=(Ghost(door.passed, door.state == Door.OPEN, "note"),)),
        "table door: `door.state == OPEN` is boolean, not integer",
    ),
    (
        lambda: evolve(TABLE, ghosts=(Ghost(door.width, door.passed, "note"),)),
        "table door: unknown field `door.width`",
    ),
    (
        lambda: _promising(event="kick"),
        "table door: odd: unknown event `kick`",
    ),
    (lambda: _promising(same=(door.width,)), "table door: odd: unknown field `door.width`"),
    (
        lambda: _promising(same_when=((door.passed, (door.keeper,)),)),
        "table door: odd: `door.passed` is integer, not boolean",
    ),
    (
        lambda: _promising(same_when=((TRUE, (door.width,)),)),
        "table door: odd: unknown field `door.width`",
    ),
]


def _promising(**changes: Any) -> Table:
    promise = NonInterference("odd", "push", (door.passed,), (), ("SCO-4",), "note")
    return evolve(TABLE, non_interference=(evolve(promise, **changes),))


@pytest.mark.parametrize(("build", "message"), PLANTED, ids=[message for _, message in PLANTED])
def test_a_wrong_table_is_refused_by_name(build: Callable[[], Table], message: str) -> None:
    with pytest.raises(TableError) as caught:
        build()
    assert str(caught.value).startswith(message)


def test_rules_may_read_both_states_and_names_may_become_nobody() -> None:
    rule = StepRule("grows", door.passed >= before(door.passed), ("LIF-1",), "note")
    pushed = StepRule("pushed", event.force >= 0, ("LIF-1",), "note", frozenset({"push"}))
    table = with_row(OPENS, do=(door.keeper.becomes(NOBODY), door.passed.adds(1)))
    assert evolve(table, rules=(rule, pushed)).rules == (rule, pushed)
    assert _promising().non_interference[0].same[0].path == ("door", "passed")  # type: ignore[attr-defined]


def test_one_parameter_name_has_one_type() -> None:
    events = (*EVENTS, Event("knock", {"force": Kind.BOOLEAN}, "someone knocks"))
    with pytest.raises(TableError, match="event parameter `force` has two types"):
        merged_event_entity(events)
