"""A case that breaks a property, shown as a small plain table."""

from collections.abc import Iterable, Sequence
from enum import Enum

from attrs import frozen

from kvescrow.checks.prove.step import (
    CHANGES_NOTHING,
    TOTALITY,
    WITNESS,
    Case,
    Finding,
    decides,
    examine,
    take_step,
)
from kvescrow.spec.language.expressions import Expression, reads
from kvescrow.spec.language.interpreter import Value, View
from kvescrow.spec.language.table import Row, Table, effects_of

CHANGED = "*"
"""Marks a field that the step changed or, with two runs, one in which they differ."""


@frozen(eq=False)
class Counterexample:
    """A case, the row that fires in it, and the state that it leads to."""

    table: str
    row: str
    invariant: str
    says: str
    """What the property promises, with what it cites."""
    case: Case
    after: View
    other_after: View | None
    shown: frozenset[tuple[str, str]]
    """The fields that the row or the property reads or writes."""
    finding: Finding
    """What the interpreter says of the case; it disagrees only where the encoding is wrong."""


_ALWAYS_PROMISED = {
    TOTALITY: "some row fires in every case (LIF-1)",
    WITNESS: "this row is the first that fires",
    CHANGES_NOTHING: "a refusal leaves everything as it was (FRM-6)",
}


def counterexample(table: Table, place: str, name: str, case: Case) -> Counterexample:
    """Return `case` as a counterexample to the property called `name`; `place` names the row or cell."""
    views = [view for view in (case.view, case.other) if view is not None]
    steps = [
        take_step(table, view, case.event, case.parameters)
        for view in views
        if case.event is not None and decides(table, view, case.event, case.parameters)
    ]
    ends = [step.after for step in steps] if len(steps) == len(views) else views
    says, read = _promised(table, name)
    relevant = {path for expression in read for path in reads(expression)}
    for step in steps:
        relevant |= _touched(table, step.row)
    for view, end in zip(views, ends, strict=True):
        relevant |= _differences(view, end)
    return Counterexample(
        table=table.name,
        row=place,
        invariant=name,
        says=says,
        case=case,
        after=ends[0],
        other_after=ends[1] if case.other is not None else None,
        shown=frozenset(relevant),
        finding=examine(table, place, name, case),
    )


def _promised(table: Table, name: str) -> tuple[str, list[Expression]]:
    for invariant in table.invariants:
        if invariant.name == name:
            return _law(invariant.note, invariant.cites, invariant.holds), [invariant.holds]
    for rule in table.rules:
        if rule.name == name:
            return _law(rule.note, rule.cites, rule.holds), [rule.holds]
    for assumption in table.assumptions:
        if assumption.name == name:
            return f"{assumption.note}: {assumption.holds}", [assumption.holds]
    for promise in table.non_interference:
        if promise.name == name:
            return f"{promise.note} ({', '.join(promise.cites)})", [
                *promise.same,
                *(condition for condition, _ in promise.same_when),
            ]
    return _ALWAYS_PROMISED[name], [table.state]


def _law(note: str, cites: Sequence[str], holds: Expression) -> str:
    return f"{note} ({', '.join(cites)}): {holds}"


def _touched(table: Table, row: Row) -> frozenset[tuple[str, str]]:
    effects = effects_of(table, row)
    return reads(row.when).union(*(reads(e.value) for e in effects), {e.target.path for e in effects})


def _differences(one: View, two: View) -> set[tuple[str, str]]:
    return {
        (entity, name) for entity, record in one.items() for name, value in record.items() if two[entity][name] != value
    }


def render_counterexample(example: Counterexample) -> str:
    """Return the counterexample as plain text: the event, then state before and after, changes marked."""
    head = [f"{example.row} breaks {example.invariant} in table {example.table}", f"  {example.says}"]
    case = example.case
    if case.event is not None:
        arguments = ", ".join(f"{name}={shown(value)}" for name, value in case.parameters.items())
        head.append(f"  event {case.event}({arguments})")
    head.append(f"  interpreter: {example.finding.why}")
    if not example.finding.broken:
        head.append("  The interpreter does not confirm it: the encoding or the interpreter is wrong.")
    return "\n".join([*head, *(f"  {line}" for line in _columns(_lines(example)))])


def _lines(example: Counterexample) -> Iterable[Sequence[str]]:
    case = example.case
    runs = [(case.view, example.after)]
    if case.other is not None and example.other_after is not None:
        runs.append((case.other, example.other_after))
        yield ("", "field", "run 1", "after 1", "run 2", "after 2")
    elif case.event is None:
        runs = [(case.view, case.view)]
        yield ("", "field", "initial", "")
    else:
        yield ("", "field", "before", "after")
    for entity, record in case.view.items():
        for name in record:
            if (entity, name) in example.shown:
                values = [view[entity][name] for run in runs for view in run]
                mark = CHANGED if any(value != values[0] for value in values) else ""
                cells = [shown(value) for value in values]
                yield (mark, f"{entity}.{name}", *(cells[:1] if case.event is None else cells))


def _columns(lines: Iterable[Sequence[str]]) -> list[str]:
    rows = [list(line) for line in lines]
    count = max(len(row) for row in rows)
    padded = [row + [""] * (count - len(row)) for row in rows]
    widths = [max(len(row[column]) for row in padded) for column in range(count)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in padded]


def shown(value: Value) -> str:
    """Return `value` as people read it."""
    if isinstance(value, Enum):
        return value.name
    return str(value).lower() if isinstance(value, bool) else str(value)
