"""Assignments one after the other mean the same as all at once; constants are computed; guards exclude each other."""

from __future__ import annotations

from kvescrow.checks.agreement.commands import commands_of, essential, identifier, within
from kvescrow.checks.agreement.languages import MURPHI, PROMELA, in_turn, written
from kvescrow.checks.agreement.substitution import both, constant, negated, substituted
from kvescrow.checks.explore.catalogue import instance_called
from kvescrow.spec.language.expressions import FALSE, TRUE, Expression, Field, Kind, Literal, if_else
from kvescrow.spec.language.interpreter import evaluate

X, Y, Z = (Field("", name, Kind.INTEGER) for name in "xyz")


def run_in_turn(assigned: dict[str, Expression], values: dict[str, int]) -> dict[str, int]:
    state: dict[str, int] = dict(values)
    ordered, saved = in_turn(assigned)
    for name in saved:
        state[f"old_{name}"] = state[name]
    for name, value in ordered:
        state[name] = evaluate(value, {"": state})  # type: ignore[assignment]  # integers only
    return {name: state[name] for name in values}


def test_what_is_overwritten_is_read_first() -> None:
    assert run_in_turn({"x": X + 1, "y": X + Y}, {"x": 1, "y": 10}) == {"x": 2, "y": 11}
    assert in_turn({"x": X + 1, "y": X + Y})[1] == []


def test_a_circle_keeps_old_values() -> None:
    assert run_in_turn({"x": Y, "y": Z, "z": X}, {"x": 1, "y": 2, "z": 3}) == {"x": 2, "y": 3, "z": 1}
    assert len(in_turn({"x": Y, "y": X})[1]) == 1


def test_notations() -> None:
    choice = if_else((X <= Y) & ~(X == 3), X, Literal(2))
    assert written(choice, PROMELA) == "(((x <= y) && !((x == 3))) -> x : 2)"
    assert written(choice, MURPHI) == "(((x <= y) & !((x = 3))) ? x : 2)"
    assert written(TRUE, PROMELA) == "1" and written(TRUE, MURPHI) == "true"


def test_constants_are_computed() -> None:
    known = substituted((X + 1 <= Y) & (X == 1), lambda field, _: {"x": constant(1)}.get(field.name, field))
    assert str(known) == "2 <= .y"
    assert substituted(X < 1, lambda field, _: constant(0)) is TRUE
    assert both(TRUE, X == 1, FALSE) is FALSE
    assert negated(negated(X == 1)) is not None and str(negated(negated(X == 1))) == str(X == 1)


def test_an_identifier_fits_every_language() -> None:
    assert identifier("claim of 1 on page 2", "holds") == "claim_of_1_on_page_2_holds"


def test_a_value_in_its_domain_needs_no_check() -> None:
    system = commands_of(instance_called("account"))
    clock = next(variable for variable in system.variables if variable.name == "pool_clock")
    assert within(Literal(3), clock) is TRUE
    assert within(Literal(4), clock) is FALSE
    assert within(Field("", "pool_clock", Kind.INTEGER), clock) is TRUE
    assert str(within(X, clock)) == "(0 <= .x) and (.x <= 3)"


def test_in_each_state_each_move_has_one_command() -> None:
    """First match, as guards: they cover every state of a move and never overlap."""
    system = commands_of(instance_called("promises"))
    state = {variable.name: variable.first for variable in system.variables}
    for _ in range(4):
        fitting = [command for command in system.commands if evaluate(command.guard, {"": state})]
        moves = [command.move for command in fitting]
        assert len(moves) == len(set(moves)) == len(instance_called("promises").moves)
        step = next(command for command in fitting if command.assigned and command.row != "promise.forget.gone")
        state |= {name: evaluate(value, {"": state}) for name, value in step.assigned.items()}


def test_essential_commands_all_change_something() -> None:
    system = essential(commands_of(instance_called("promises")))
    assert all(command.assigned for command in system.commands)
    assert {command.row for command in system.commands} <= {
        "promise.admit.grant", "promise.grow.grant", "promise.close.released", "promise.forget.gone",
    }  # fmt: skip
