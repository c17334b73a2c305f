"""The meaning of a table: evaluate expressions, fire the first row that applies.

A view maps entity names to records, and a record maps field names to values: integers, booleans, enum members, and
for names any hashable value (0 stands for nobody).
"""

from collections.abc import Hashable, Mapping
from enum import Enum
from typing import cast

from attrs import frozen

from kvescrow.spec.language.expressions import (
    Before,
    Binary,
    Expression,
    Field,
    IfElse,
    Literal,
    Not,
)
from kvescrow.spec.language.table import Row, Table, effects_of

Value = Hashable
Record = Mapping[str, Value]
View = Mapping[str, Record]
Changes = Mapping[tuple[str, str], Value]


@frozen
class Fired:
    """Which row fired, and the fields that it gave a new value."""

    row: Row
    changes: Changes


def evaluate(expression: Expression, view: View, old: View | None = None) -> Value:
    """Return the value of `expression` in `view`; `before(...)` reads `old`."""
    match expression:
        case Literal(value):
            return value
        case Field(entity, name):
            return view[entity][name]
        case Before(inner):
            if old is None:
                raise ValueError(f"`{expression}` needs an older state")
            return old[inner.entity][inner.name]
        case Not(operand):
            return not evaluate(operand, view, old)
        case IfElse(condition, yes, no):
            return evaluate(yes if evaluate(condition, view, old) else no, view, old)
        case Binary("and", left, right):
            return bool(evaluate(left, view, old)) and bool(evaluate(right, view, old))
        case Binary("or", left, right):
            return bool(evaluate(left, view, old)) or bool(evaluate(right, view, old))
        case Binary("==", left, right):
            return evaluate(left, view, old) == evaluate(right, view, old)
        case Binary(operator, left, right):
            return _integers(operator, cast(int, evaluate(left, view, old)), cast(int, evaluate(right, view, old)))
    raise ValueError(f"unknown node {expression!r}")


def _integers(operator: str, left: int, right: int) -> Value:
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "<":
            return left < right
        case "<=":
            return left <= right
    raise ValueError(f"unknown operator {operator}")


def fire(table: Table, view: View, event: str, parameters: Record) -> Fired:
    """Return what `table` does on `event` in `view`: the first row whose guard holds, and its new values.

    Raises `ValueError` where no row fires, which `prove` shows to be impossible.
    """
    whole = {**view, "event": parameters}
    state = cast(Enum, view[table.moves.name]["state"])
    for row in table.cells[state, event]:
        if evaluate(row.when, whole):
            return Fired(row, {effect.target.path: evaluate(effect.value, whole) for effect in effects_of(table, row)})
    raise ValueError(f"table {table.name}: no row fires for `{event}` in {state.name}")


def after(view: View, changes: Changes) -> View:
    """Return `view` with `changes` made."""
    result = {entity: dict(record) for entity, record in view.items()}
    for (entity, name), value in changes.items():
        result[entity][name] = value
    return result
