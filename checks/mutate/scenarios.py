"""Scenarios that a changed table is put through, and which of them can notice the change.

A scenario is run once on the tables as they are, and every view that a table was shown is kept. A mutant that
answers all of these views as its original does would run the same scenario to the same end; so only scenarios with
a view that it answers otherwise are run on it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import cast

from attrs import define, field, frozen

from kvescrow.spec.language.compiler import CompiledTable
from kvescrow.spec.language.interpreter import Fired, Record, Value, View
from kvescrow.spec.language.table import Reply, Table
from kvescrow.spec.tables.registry import TABLE_BY_NAME
from kvescrow.spec.vocabulary import UserError
from kvescrow.spec.world.ledger import Watch

Tables = Mapping[str, Table]
Cell = tuple[str, Enum, str]
"""Table, state, event."""


@frozen
class Scenario:
    """Something that worlds are put through."""

    name: str
    run: Callable[[Tables, Watch | None], None] = field(repr=False, eq=False)
    """Puts worlds that are moved by the tables through it; raises where they do not do what they must."""


@define(eq=False)
class _Step:
    """One view that a table was shown, what it did there, and in which scenarios."""

    view: View
    parameters: Record
    reply: Reply
    changes: Mapping[tuple[str, str], Value]
    scenarios: list[int]


class Scenarios:
    """Scenarios with the views that they show to each cell of each table."""

    def __init__(self, scenarios: Iterable[Scenario], tables: Tables = TABLE_BY_NAME) -> None:
        """Run each scenario once on `tables`; raise `UserError` where one fails there."""
        self.scenarios: Sequence[Scenario] = tuple(scenarios)
        self._tables = tables
        self._compiled = {name: CompiledTable(table) for name, table in tables.items()}
        self._steps: dict[Cell, dict[int, _Step]] = {}
        for number, scenario in enumerate(self.scenarios):
            self._record(number, scenario)

    def _record(self, number: int, scenario: Scenario) -> None:
        def watch(table: str, view: View, event: str, parameters: Record) -> None:
            self._note(number, table, view, event, parameters)

        try:
            scenario.run(self._tables, watch)
        except Exception as error:
            raise UserError(
                f"scenario {scenario.name} fails on the tables as they are ({type(error).__name__}: {error}); "
                "mend that first"
            ) from error

    def _note(self, number: int, table: str, view: View, event: str, parameters: Record) -> None:
        state = cast(Enum, view[self._tables[table].moves.name]["state"])
        key = hash((*(value for record in view.values() for value in record.values()), *parameters.values()))
        steps = self._steps.setdefault((table, state, event), {})
        known = steps.get(key)
        if known is None:
            kept = {entity: dict(record) for entity, record in view.items()}
            fired = self._compiled[table].fire(kept, event, parameters)
            steps[key] = _Step(kept, parameters, fired.row.reply, _changed(kept, fired), [number])
        elif known.scenarios[-1] != number:
            known.scenarios.append(number)

    def noticing(self, mutant: Table, event: str, states: Collection[Enum]) -> Scenario | None:
        """Return a scenario that fails on `mutant`, which differs on `event` in `states` only; None where none does."""
        tables = {**self._tables, mutant.name: mutant}
        tried: set[int] = set()
        for number in self._candidates(mutant, event, states):
            if number not in tried:
                tried.add(number)
                try:
                    self.scenarios[number].run(tables, None)
                except Exception:  # whatever a mutant's world raises, the scenario did not go as it must
                    return self.scenarios[number]
        return None

    def _candidates(self, mutant: Table, event: str, states: Collection[Enum]) -> Iterable[int]:
        compiled = CompiledTable(mutant)
        for state in mutant.state_type:
            if state in states:
                for step in self._steps.get((mutant.name, state, event), {}).values():
                    if _differs(compiled, event, step):
                        yield from step.scenarios


def _differs(compiled: CompiledTable, event: str, step: _Step) -> bool:
    try:
        fired = compiled.fire(step.view, event, step.parameters)
    except ValueError:
        return True
    return fired.row.reply != step.reply or _changed(step.view, fired) != step.changes


def _changed(view: View, fired: Fired) -> Mapping[tuple[str, str], Value]:
    return {path: value for path, value in fired.changes.items() if view[path[0]][path[1]] != value}
