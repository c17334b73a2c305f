"""Counterexamples as files: a case that anyone can run again, also after the table was mended."""

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from attrs import frozen

from kvescrow.checks.prove.counterexample import Counterexample, shown
from kvescrow.checks.prove.step import CHANGES_NOTHING, TOTALITY, WITNESS, Case, examine
from kvescrow.spec.language.expressions import Kind, Type, type_name
from kvescrow.spec.language.interpreter import Record, Value, View
from kvescrow.spec.language.table import Table
from kvescrow.spec.vocabulary import UserError

VERSION = 1


@frozen
class Replay:
    """What a scenario shows when it is run again."""

    violated: bool
    """Whether the property is broken again."""
    why: str
    """What the interpreter did."""


def write_scenario(example: Counterexample, path: Path) -> None:
    """Write `example` as JSON that `replay_scenario` reads. Enum members are written by name."""
    case = example.case
    written = {
        "kvescrow_scenario": VERSION,
        "table": example.table,
        "row": example.row,
        "view": _plain(case.view),
        **({"other_view": _plain(case.other)} if case.other is not None else {}),
        "event": case.event,
        "parameters": _plain_record(case.parameters),
        "expect": {"breaks": example.invariant, "after": _plain(example.after)},
    }
    path.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")


def replay_scenario(path: Path, tables: Sequence[Table]) -> Replay:
    """Run the scenario at `path` in the interpreter and say whether it still breaks its property.

    Raises `UserError` where the file is not a scenario of one of `tables`.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a readable JSON file ({error})") from error
    reader = _Reader(path)
    version = reader.part(found, "kvescrow_scenario")
    if type(version) is not int or version != VERSION:
        raise reader.error(f"`kvescrow_scenario` is {version!r}; this version reads {VERSION}")
    table = reader.table(found, tables)
    case = reader.case(found, table)
    finding = examine(table, str(reader.part(found, "row")), reader.promise(found, table), case)
    return Replay(finding.broken, finding.why)


def _plain(view: View) -> dict[str, dict[str, Any]]:
    return {entity: _plain_record(record) for entity, record in view.items()}


def _plain_record(record: Record) -> dict[str, Any]:
    return {name: value.name if isinstance(value, Enum) else value for name, value in record.items()}


@frozen
class _Reader:
    """Reads the parts of a scenario, and names the file and the field where one is wrong."""

    path: Path

    def error(self, problem: str) -> UserError:
        return UserError(f"{self.path}: {problem}")

    def part(self, found: object, name: str) -> Any:
        if not isinstance(found, dict) or name not in found:
            raise self.error(f"`{name}` is missing; write the scenario again with `kvescrow prove`")
        return found[name]

    def table(self, found: object, tables: Sequence[Table]) -> Table:
        name = self.part(found, "table")
        for table in tables:
            if table.name == name:
                return table
        raise self.error(f"unknown table {name!r}; the tables are {', '.join(t.name for t in tables)}")

    def promise(self, found: object, table: Table) -> str:
        """Return the name of the broken property, which must fit the case."""
        name = self.part(self.part(found, "expect"), "breaks")
        event = self.part(found, "event")
        runs = {promise.name: promise.event for promise in table.non_interference}
        always = {invariant.name for invariant in table.invariants}
        of_steps = {
            *(rule.name for rule in table.rules),
            *(assumption.name for assumption in table.assumptions),
        }
        known = {*always, *of_steps, *runs, TOTALITY, WITNESS, CHANGES_NOTHING}
        if not isinstance(name, str) or name not in known:
            raise self.error(f"`expect.breaks` is {name!r}, which table {table.name} does not promise")
        if event is None and name not in always:
            raise self.error(f"`event` is null, but `{name}` speaks of a step; name the event")
        if name in runs and (event != runs[name] or not isinstance(found, dict) or "other_view" not in found):
            raise self.error(f"`{name}` compares two runs of `{runs[name]}`; give that event and `other_view`")
        return name

    def case(self, found: object, table: Table) -> Case:
        event = self.part(found, "event")
        parameters: Mapping[str, Type] = {}
        if event is not None:
            names = [known.name for known in table.events]
            if event not in names:
                raise self.error(f"unknown event {event!r}; table {table.name} has {', '.join(names)}")
            parameters = table.event(event).parameters
        record = self.record(self.part(found, "parameters"), "parameters", parameters)
        other = None
        if isinstance(found, dict) and "other_view" in found:
            other = self.view(found, "other_view", table)
        return Case(self.view(found, "view", table), event, record, other)

    def view(self, found: object, name: str, table: Table) -> View:
        records = self.part(found, name)
        return {
            entity.name: self.record(self.part(records, entity.name), f"{name}.{entity.name}", entity.fields)
            for entity in table.entities
        }

    def record(self, found: object, place: str, fields: Mapping[str, Type]) -> Record:
        unknown = sorted(set(found) - set(fields)) if isinstance(found, dict) else []
        if unknown:
            raise self.error(f"`{place}` has unknown fields {', '.join(unknown)}")
        return {name: self.value(self.part(found, name), f"{place}.{name}", kind) for name, kind in fields.items()}

    def value(self, found: object, place: str, kind: Type) -> Value:
        if isinstance(kind, type):
            if isinstance(found, str) and found in kind.__members__:
                return kind[found]
            wanted = f"one of {', '.join(shown(member) for member in kind)}"
        elif kind is Kind.BOOLEAN:
            if isinstance(found, bool):
                return found
            wanted = "true or false"
        elif isinstance(found, int) and not isinstance(found, bool):
            return found
        else:
            wanted = f"an integer ({type_name(kind)})"
        raise self.error(f"`{place}` is {found!r}; it must be {wanted}")
