"""Counterexamples as steps that a reader walks through, from the scenario files of `prove` and `explore`.

The files hold every state that is shown, so nothing is run again and a mended table changes nothing here.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from kvescrow.checks.report.evidence import read_json
from kvescrow.spec.tables.registry import TABLE_BY_NAME
from kvescrow.spec.vocabulary import UserError

UNKNOWN_LAW = "A state that the laws allow leads to this."
"""What is said of a property that is not a named law of a table that is known here."""


@frozen
class Shown:
    """One field of a state."""

    name: str
    value: str
    before: str
    """What it was one step earlier, or in the other run."""

    @property
    def changed(self) -> bool:
        """Whether this step changed it."""
        return self.value != self.before


@frozen
class Step:
    """One state, and what led to it."""

    title: str
    row: str
    """The row that led here; empty for the first state."""
    fields: tuple[Shown, ...]


@frozen
class Counterexample:
    """A way to a state, or a step, that breaks a law."""

    name: str
    found_by: str
    law: str
    says: str
    again: str
    """The command that runs it again."""
    steps: tuple[Step, ...]


def read_counterexamples(folder: Path) -> tuple[Counterexample, ...]:
    """Read every scenario in `folder`, by name; none where it is absent.

    Raises:
        UserError: A file is not JSON, or no scenario.

    """
    return tuple(map(read_counterexample, sorted(folder.glob("*.json")))) if folder.is_dir() else ()


def read_counterexample(path: Path) -> Counterexample:
    """Read one scenario file; raises `UserError` where it is none."""
    found = read_json(path)
    try:
        if "kvescrow_search" in found:
            return _of_search(path, found)
        return _of_proof(path, found)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise UserError(
            f"{path}: no scenario, since {error} is missing or misplaced; write it again with `kvescrow prove` or "
            "`kvescrow explore`"
        ) from error


def _of_search(path: Path, found: Mapping[str, Any]) -> Counterexample:
    moves = found["scenario"]
    # A file without states shows the last one alone.
    states: Sequence[Mapping[str, str]] = found.get("states") or [found["state"]]
    steps = [Step("the first state", "", _fields(states[0], states[0]))] if found.get("states") else []
    for number, move in enumerate(moves, 1):
        after = states[min(number, len(states) - 1)]
        before = states[min(number - 1, len(states) - 1)]
        steps.append(Step(move["move"], move["row"], _fields(after, before)))
    return Counterexample(
        name=path.stem,
        found_by=f"explore, instance {found['instance']}",
        law=found["law"],
        says=f"{found['what']} {found['law']} is broken after {len(moves)} steps, as few as can be.",
        again=f"kvescrow explore --scenario {path.name}",
        steps=tuple(steps),
    )


def _of_proof(path: Path, found: Mapping[str, Any]) -> Counterexample:
    law, table, event = found["expect"]["breaks"], found["table"], found["event"]
    before, after = _flat(found["view"]), _flat(found["expect"]["after"])
    given = ", ".join(f"{name}={value}" for name, value in found["parameters"].items())
    steps = [Step("before" if event else "at the start", "", _fields(before, before))]
    if "other_view" in found:
        other = _flat(found["other_view"])
        steps.append(Step("the other run, which the caller cannot tell from the first", "", _fields(other, before)))
    if event is not None:
        steps.append(Step(f"{event}({given})", found["row"], _fields(after, before)))
    return Counterexample(
        name=path.stem,
        found_by=f"prove, table {table}",
        law=law,
        says=_note(table, law),
        again=f"kvescrow prove --scenario {path.name}",
        steps=tuple(steps),
    )


def _note(table: str, law: str) -> str:
    known = TABLE_BY_NAME.get(table)
    if known is None:
        return UNKNOWN_LAW
    notes = {each.name: each.note for each in known.invariants}
    notes |= {each.name: each.note for each in known.rules}
    notes |= {each.name: each.note for each in known.assumptions}
    notes |= {each.name: each.note for each in known.non_interference}
    return notes.get(law, UNKNOWN_LAW)


def _flat(view: Mapping[str, Mapping[str, object]]) -> Mapping[str, str]:
    return {
        f"{entity}.{name}": str(value).lower() if isinstance(value, bool) else str(value)
        for entity, record in view.items()
        for name, value in record.items()
    }


def _fields(state: Mapping[str, str], before: Mapping[str, str]) -> tuple[Shown, ...]:
    return tuple(Shown(name, value, before.get(name, value)) for name, value in state.items())
