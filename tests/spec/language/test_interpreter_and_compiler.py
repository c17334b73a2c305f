"""The two ways to run a table: the interpreter's meaning, and the compiler's agreement in every cell (FRM-1)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvescrow.spec.language.compiler import CompiledTable
from kvescrow.spec.language.expressions import Kind, Type
from kvescrow.spec.language.interpreter import Record, View, after, fire
from kvescrow.spec.language.table import Table
from kvescrow.spec.tables.execution import TICKET
from kvescrow.spec.tables.registry import ALL_TABLES
from kvescrow.spec.tables.reservation import RESERVATION
from kvescrow.spec.vocabulary import Decision, ExecutionState, ReservationState, TicketState

COMPILED = {table.name: CompiledTable(table) for table in ALL_TABLES}

NAMES = (0, "anna")
"""Few, so that equal names meet; 0 is nobody."""


def values(kind: Type) -> st.SearchStrategy[object]:
    """Values of a field, from a range so small that limits are met exactly and exceeded by one."""
    if isinstance(kind, type):
        return st.sampled_from(list(kind))
    return {
        Kind.INTEGER: st.integers(-1, 3),
        Kind.BOOLEAN: st.booleans(),
        Kind.NAME: st.sampled_from(NAMES),
    }[kind]


def records(fields: Mapping[str, Type]) -> st.SearchStrategy[Record]:
    """Records with these fields."""
    return st.fixed_dictionaries({name: values(kind) for name, kind in fields.items()})


def views(table: Table) -> st.SearchStrategy[View]:
    """Views of `table`, reachable or not: the two ways must agree on all of them."""
    return st.fixed_dictionaries({entity.name: records(entity.fields) for entity in table.entities})


def outcome(way: object, *situation: object) -> object:
    """What a way of running does: the row and its changes, or that no row fires."""
    try:
        fired = way(*situation)  # type: ignore[operator]
    except ValueError as error:
        return str(error)
    return fired.row.id, dict(fired.changes)


@pytest.mark.parametrize("table", ALL_TABLES, ids=lambda table: table.name)
def test_compiler_and_interpreter_agree_in_every_cell(table: Table) -> None:
    compiled = COMPILED[table.name]
    seen: set[tuple[Enum, str]] = set()

    @settings(max_examples=100, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data())
    def agree(data: st.DataObject) -> None:
        view = data.draw(views(table))
        for event in table.events:
            parameters = data.draw(records(event.parameters))
            for state in table.state_type:
                there = after(view, {(table.moves.name, "state"): state})
                interpreted = outcome(fire, table, there, event.name, parameters)
                assert outcome(compiled.fire, there, event.name, parameters) == interpreted
                seen.add((state, event.name))

    agree()
    assert seen == set(table.cells)


ticket_view = {
    "ticket": {"state": TicketState.ABSENT, "number": 0},
    "execution": {"state": ExecutionState.OPEN, "generation": 4, "in_flight": 2, "last_ticket": 7},
    "rest": {"in_flight": 2},
}


@pytest.mark.parametrize("way", [lambda *a: fire(TICKET, *a), COMPILED["ticket"].fire], ids=["fire", "compiled"])
def test_the_first_row_whose_guard_holds_fires_with_all_its_effects_at_once(way: object) -> None:
    assert outcome(way, ticket_view, "launch", {"generation": 4, "number": 5}) == (
        "ticket.launch.launched",
        {
            ("ticket", "state"): TicketState.LAUNCHED,
            ("ticket", "number"): 5,
            ("execution", "in_flight"): 3,
            ("execution", "last_ticket"): 7,
        },
    )
    stale = outcome(way, ticket_view, "launch", {"generation": 3, "number": 5})
    assert stale == ("ticket.launch.stale_generation", {})


def test_a_row_reads_the_values_before_it() -> None:
    execution = TICKET.schema["execution"]
    swap = (
        execution.in_flight.becomes(execution.last_ticket),
        execution.last_ticket.becomes(execution.in_flight),
    )
    rows = tuple(evolve(r, do=swap) if r.id == "ticket.settle.done" else r for r in TICKET.rows)
    table = evolve(TICKET, rows=rows)
    view = after(ticket_view, {("ticket", "state"): TicketState.LAUNCHED})
    for way in (lambda *a: fire(table, *a), CompiledTable(table).fire):
        _, changes = outcome(way, view, "settle", {"ok": True})  # type: ignore[misc]
        assert changes == {
            ("ticket", "state"): TicketState.DONE,
            ("execution", "in_flight"): 7,
            ("execution", "last_ticket"): 2,
        }


@pytest.mark.parametrize("compiled", [False, True])
def test_a_cell_that_leaves_a_gap_raises(compiled: bool) -> None:
    execution = TICKET.schema["execution"]
    gap = tuple(
        evolve(row, when=execution.in_flight > 9) if row.id == "ticket.settle.done" else row for row in TICKET.rows
    )
    table = evolve(TICKET, rows=gap)
    view = after(ticket_view, {("ticket", "state"): TicketState.LAUNCHED})
    with pytest.raises(ValueError, match=r"^table ticket: no row fires for `?settle`? in LAUNCHED$"):
        if compiled:
            CompiledTable(table).fire(view, "settle", {"ok": True})
        else:
            fire(table, view, "settle", {"ok": True})


def test_after_changes_what_is_named_and_leaves_the_old_view() -> None:
    new = after(ticket_view, {("ticket", "number"): 9})
    assert new["ticket"] == {"state": TicketState.ABSENT, "number": 9}
    assert ticket_view["ticket"]["number"] == 0
    assert new["execution"] == ticket_view["execution"]


def test_a_name_is_any_value_that_can_be_compared() -> None:
    view: dict[str, dict[str, object]] = {
        entity.name: {name: 0 for name in entity.fields} for entity in RESERVATION.entities
    }
    view["reservation"] |= {"state": ReservationState.RUNNING, "owner": ("worker", 1), "lease": 9, "generation": 2}
    view["pool"]["clock"] = 3
    parameters = {"authorised": True, "life": 0, "generation": 2, "lease": 5}
    same = fire(RESERVATION, view, "renew", {**parameters, "owner": ("worker", 1)})
    assert same.row.reply.decision is Decision.RENEWED
    other = fire(RESERVATION, view, "renew", {**parameters, "owner": ("worker", 2)})
    assert other.row.id == "reservation.renew.foreign_owner"
