"""Coverage counts what was evaluated on an event, and nothing else."""

from __future__ import annotations

from enum import Enum

from kvescrow.checks.fuzz.coverage import Counts, Coverage
from kvescrow.checks.fuzz.goals import Goal, goals_of, routes_to
from kvescrow.spec.language.expressions import Entity, Kind
from kvescrow.spec.language.table import Event, Reply, Row, Table, merged_event_entity
from kvescrow.spec.vocabulary import Decision, Reason


class Door(Enum):
    """Where a door is."""

    OPEN = "OPEN"
    """One can pass."""
    SHUT = "SHUT"
    """One cannot."""
    LOCKED = "LOCKED"
    """One cannot, and needs a key."""


door = Entity("door", {"state": Door, "uses": Kind.INTEGER})
EVENTS = (
    Event("turn", {"key": Kind.BOOLEAN, "force": Kind.INTEGER}, "someone turns the key"),
    Event("push", {}, "someone pushes"),
)
event = merged_event_entity(EVENTS)
NOTED = Reply(Decision.NOTED)
REFUSED = Reply(Decision.REFUSED, Reason.FORBIDDEN)


def row(name: str, sources: tuple[Door, ...], reply: Reply, **rest: object) -> Row:
    return Row(f"door.{name}", name.split(".", maxsplit=1)[0], sources, reply, ("ADM-1",), "a row", **rest)  # type: ignore[arg-type]


DOOR = Table(
    name="door",
    moves=door,
    state_type=Door,
    entities=(door,),
    events=EVENTS,
    rows=(
        row("turn.weak", tuple(Door), REFUSED, when=(event.force < 1) | (event.force > 9)),
        row("turn.locks", (Door.SHUT,), NOTED, when=event.key & (event.force > 4), to=Door.LOCKED),
        row("turn.nothing", tuple(Door), REFUSED),
        row("push.shuts", (Door.OPEN,), NOTED, to=Door.SHUT),
        row("push.stays", (Door.SHUT, Door.LOCKED), REFUSED),
    ),
    initial=door.state == Door.OPEN,
    note="A door.",
)


def watched(*events: tuple[Door, str, dict[str, object]]) -> Coverage:
    coverage = Coverage([DOOR])
    for state, name, parameters in events:
        coverage.watch("door", {"door": {"state": state, "uses": 0}}, name, parameters)
    return coverage


def missing(coverage: Coverage) -> set[str]:
    return {goal.name for goal in coverage.holes()}


def test_everything_is_missing_at_first() -> None:
    assert watched().counts() == Counts(rows_hit=0, rows=5, guards_hit=0, guards=5)


def test_a_row_that_fires_is_seen_and_those_after_it_are_not() -> None:
    coverage = watched((Door.SHUT, "turn", {"key": False, "force": 0}))
    assert "door.turn.weak" not in missing(coverage)
    assert {"door.turn.locks", "door.turn.locks without `event.key`"} <= missing(coverage)


def test_a_false_conjunct_is_seen_only_where_earlier_rows_did_not_fire() -> None:
    coverage = watched((Door.SHUT, "turn", {"key": False, "force": 5}))
    assert "door.turn.locks without `event.key`" not in missing(coverage)
    assert "door.turn.locks without `4 < event.force`" in missing(coverage)
    assert "door.turn.nothing" not in missing(coverage)


def test_an_alternative_counts_where_it_alone_is_true() -> None:
    coverage = watched((Door.OPEN, "turn", {"key": True, "force": 10}))
    assert "door.turn.weak for `9 < event.force` alone" not in missing(coverage)
    assert "door.turn.weak for `event.force < 1` alone" in missing(coverage)


def test_a_conjunct_is_not_looked_at_in_a_state_that_is_no_source() -> None:
    coverage = watched((Door.OPEN, "turn", {"key": False, "force": 5}))
    assert "door.turn.locks without `event.key`" in missing(coverage)


def test_all_of_it_can_be_seen() -> None:
    coverage = watched(
        *((Door.SHUT, "turn", {"key": key, "force": force}) for key in (True, False) for force in (0, 3, 5, 10)),
        (Door.OPEN, "push", {}),
        (Door.SHUT, "push", {}),
    )
    assert missing(coverage) == set()
    assert coverage.counts() == Counts(rows_hit=5, rows=5, guards_hit=5, guards=5)


def test_a_way_leads_through_the_rows_that_enter() -> None:
    goal = next(goal for goal in goals_of(DOOR) if goal.row.id == "door.turn.locks")
    assert isinstance(goal, Goal)
    assert {state: [r.id for r in rows] for state, rows in routes_to(DOOR, (Door.LOCKED,)).items()} == {
        Door.SHUT: ["door.turn.locks"],
        Door.OPEN: ["door.push.shuts"],
    }
