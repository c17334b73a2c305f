"""The same meaning as plain Python source, for long runs; tests check it against the interpreter cell by cell."""

from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import cast

from kvescrow.spec.language.expressions import (
    TRUE,
    Binary,
    Expression,
    Field,
    IfElse,
    Literal,
    Not,
)
from kvescrow.spec.language.interpreter import Changes, Fired, Record, Value, View
from kvescrow.spec.language.table import Row, Table, effects_of

Cell = Callable[[View, Record], tuple[int, Changes]]


class CompiledTable:
    """A table whose cells are Python functions. Call `fire` as `interpreter.fire`, without the table."""

    def __init__(self, table: Table) -> None:
        """Compile each cell of `table` when it is first asked."""
        self.table = table
        self._rows: Mapping[tuple[Enum, str], tuple[Row, ...]] = table.cells
        self._cells: dict[tuple[Enum, str], Cell] = {}

    def fire(self, view: View, event: str, parameters: Record) -> Fired:
        """Return what the table does on `event` in `view`."""
        cell = (cast(Enum, view[self.table.moves.name]["state"]), event)
        decide = self._cells.get(cell)
        if decide is None:
            decide = self._cells[cell] = _compile(self.table, cell, self._rows[cell])
        index, changes = decide(view, parameters)
        return Fired(self._rows[cell][index], changes)


@lru_cache(maxsize=64)
def compiled(table: Table) -> CompiledTable:
    """Return `table` compiled; the same table is compiled once, unless dozens of others came between."""
    return CompiledTable(table)


def function_of(expression: Expression) -> Callable[[View, Record], Value]:
    """Return `expression` as a Python function of a view and the event's parameters.

    Raises `ValueError` where it reads an older state.
    """
    constants: dict[str, object] = {}
    source = _source(expression, constants)
    return cast(Callable[[View, Record], Value], eval(f"lambda view, event: {source}", constants))


def function_of_field(expression: Expression, field: Field) -> Callable[[View, Record, Value], Value]:
    """Return `expression` as a Python function of a view, the event's parameters, and what `field` reads instead."""
    constants: dict[str, object] = {}
    source = _source(expression, constants).replace(_source(field, {}), "instead")
    return cast(Callable[[View, Record, Value], Value], eval(f"lambda view, event, instead: {source}", constants))


def _compile(table: Table, cell: tuple[Enum, str], rows: tuple[Row, ...]) -> Cell:
    constants: dict[str, object] = {}
    lines = ["def decide(view, event):"]
    for index, row in enumerate(rows):
        effects = ", ".join(
            f"{effect.target.path!r}: {_source(effect.value, constants)}" for effect in effects_of(table, row)
        )
        outcome = f"return {index}, {{{effects}}}"
        if row.when is TRUE:
            lines.append(f"    {outcome}")
            break
        lines.append(f"    if {_source(row.when, constants)}: {outcome}")
    else:
        lines.append(f"    raise ValueError('table {table.name}: no row fires for {cell[1]} in {cell[0].name}')")
    exec("\n".join(lines), constants)
    return cast(Cell, constants["decide"])


def _source(expression: Expression, constants: dict[str, object]) -> str:
    match expression:
        case Literal(value) if isinstance(value, Enum):
            name = f"{type(value).__name__}_{value.name}"
            constants[name] = value
            return name
        case Literal(value):
            return repr(value)
        case Field("event", name):
            return f"event[{name!r}]"
        case Field(entity, name):
            return f"view[{entity!r}][{name!r}]"
        case Not(operand):
            return f"(not {_source(operand, constants)})"
        case IfElse(condition, yes, no):
            parts = (_source(part, constants) for part in (yes, condition, no))
            return "({} if {} else {})".format(*parts)
        case Binary(operator, left, right):
            return f"({_source(left, constants)} {operator} {_source(right, constants)})"
    raise ValueError(f"`{expression}` cannot be compiled: it reads an older state")
