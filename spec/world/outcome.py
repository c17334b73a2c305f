"""What a world answers."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache

from attrs import frozen

from kvescrow.spec.language.compiler import CompiledTable, function_of
from kvescrow.spec.language.expressions import Entity, Kind
from kvescrow.spec.language.interpreter import Record, Value, View
from kvescrow.spec.language.table import Assumption, Invariant, Table
from kvescrow.spec.vocabulary import Decision, Reason

MutableRecord = dict[str, Value]


@frozen
class Outcome:
    """The row that fired and its reply."""

    row: str
    decision: Decision
    reason: Reason


def blank(entity: Entity, **values: Value) -> MutableRecord:
    """Return a record of `entity` with zero, false and nobody everywhere but in `values`."""
    if id(entity) not in _BLANKS:
        unset = {name: _UNSET.get(kind) for name, kind in entity.fields.items()}
        _BLANKS[id(entity)] = entity, unset
    record = _BLANKS[id(entity)][1].copy()
    record.update((name, value) for name, value in values.items() if name in record)
    return record


_UNSET: Mapping[object, Value] = {Kind.INTEGER: 0, Kind.BOOLEAN: False, Kind.NAME: 0}
_BLANKS: dict[int, tuple[Entity, MutableRecord]] = {}
"""The blank record of each entity that was asked for, by the entity's identity."""


def apply_row(
    table: CompiledTable,
    view: Mapping[str, MutableRecord],
    event: str,
    parameters: Record,
    watch: "Callable[[str, View, str, Record], None] | None" = None,
) -> Outcome:
    """Fire `table` on `view` and write the row's effects into the view's records, all at once.

    `watch` is told (table name, view before, event, parameters) first; coverage is measured through it.
    """
    if watch is not None:
        watch(table.table.name, view, event, parameters)
    fired = table.fire(view, event, parameters)
    for (entity, name), value in fired.changes.items():
        view[entity][name] = value
    return Outcome(fired.row.id, fired.row.reply.decision, fired.row.reply.reason)


def violated(table: Table, view: View, invariants: Iterable[Invariant | Assumption] | None = None) -> list[str]:
    """Return the names of the invariants of `table`, or of those given, that do not hold in `view`."""
    chosen: Iterable[Invariant | Assumption] = table.invariants if invariants is None else invariants
    return [invariant.name for invariant in chosen if not _holds(invariant)(view, {})]


@cache
def _holds(invariant: Invariant | Assumption) -> Callable[[View, Record], Value]:
    return function_of(invariant.holds)
