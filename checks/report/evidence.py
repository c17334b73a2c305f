"""What the checks wrote: JSON files of `prove`, `mutate`, `fuzz`, `explore`, `replay` and others, by row and law.

A page shows what these files say and nothing else. What no file says is `not_run` (CON-3).
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from kvescrow.spec.vocabulary import UserError

NOT_RUN = "not_run"
PASSED = "passed"
PROVED = "proved"


@frozen
class Source:
    """One result file."""

    file: str
    kind: str
    """The verb that wrote it, as far as its form tells; `other` where it does not."""
    verdict: str
    says: str
    """What it did, in figures."""
    result: Mapping[str, Any]


@frozen
class Proof:
    """The obligations of one row, or of one law over all rows."""

    by_verdict: Mapping[str, tuple[str, ...]]
    """Verdict -> the obligations with it."""

    @property
    def total(self) -> int:
        """How many obligations there are."""
        return sum(len(names) for names in self.by_verdict.values())

    @property
    def proved(self) -> int:
        """How many of them are proved."""
        return len(self.by_verdict.get(PROVED, ()))

    @property
    def verdict(self) -> str:
        """`proved`, or the first other verdict that occurs; `not_run` where there is no obligation."""
        others = [verdict for verdict in self.by_verdict if verdict != PROVED]
        return others[0] if others else PROVED if self.total else NOT_RUN


@frozen
class MutantsOfRow:
    """What became of the mutants of one row."""

    fates: Mapping[str, int]
    layers: Mapping[str, int]
    """Layer -> the mutants that it notices; several may notice one."""
    mutants: tuple[Mapping[str, Any], ...]

    @property
    def verdict(self) -> str:
        """`passed` where each was noticed or makes no difference."""
        if not self.mutants:
            return NOT_RUN
        return PASSED if set(self.fates) <= {"killed", "equivalent"} else "failed"


@frozen
class Seen:
    """One check that is known to have made a row fire."""

    layer: str
    by: str


@frozen
class Evidence:
    """Everything that result files say."""

    sources: tuple[Source, ...]
    proofs_of_row: Mapping[str, Proof]
    proofs_of_law: Mapping[tuple[str, str], Proof]
    """(table, law) -> the rows of which it is proved."""
    mutants: Mapping[str, MutantsOfRow]
    seen: Mapping[str, tuple[Seen, ...]]
    branches: Mapping[str, Mapping[str, tuple[str, ...]]]
    """Row -> each branch of its guard that is to be seen -> the layers that saw it."""

    def of_kind(self, kind: str) -> tuple[Source, ...]:
        """Return the result files of one verb."""
        return tuple(source for source in self.sources if source.kind == kind)

    def verdict(self, kind: str) -> str:
        """Return the verdict of one verb: the first that did not pass, or `passed`; `not_run` without a file."""
        verdicts = [source.verdict for source in self.of_kind(kind)]
        return next((verdict for verdict in verdicts if verdict != PASSED), PASSED if verdicts else NOT_RUN)


_FORMS: Sequence[tuple[str, frozenset[str]]] = (
    ("prove", frozenset({"obligations", "results"})),
    ("mutate", frozenset({"mutants", "killed", "results"})),
    ("fuzz", frozenset({"target", "rows_hit", "holes"})),
    ("explore", frozenset({"instances", "states", "transitions"})),
    ("coverage", frozenset({"goals", "layers"})),
    ("verify", frozenset({"checks", "seconds"})),
    ("trace", frozenset({"requirements", "uncovered"})),
    ("replay", frozenset({"trace", "rows", "findings"})),
    ("check-journal", frozenset({"rows", "findings"})),
    ("conform", frozenset({"device", "verdict"})),
    ("grade", frozenset({"gates", "goodput"})),
    ("diagnose", frozenset({"lost_seconds", "hypotheses"})),
)
"""Verb -> keys that its JSON has; the first that fits is taken."""


def read_evidence(folders: Iterable[Path]) -> Evidence:
    """Read every `*.json` of `folders`. A folder that is absent holds nothing.

    Raises:
        UserError: A file there is not JSON, or not the result of a check.

    """
    files = sorted(path for folder in folders if os.path.isdir(folder) for path in folder.glob("*.json"))
    sources = tuple(map(_source, files))
    return Evidence(sources, *_proofs(sources), _mutants(sources), _seen(sources), _branches(sources))


def read_json(path: Path) -> Any:
    """Return what the file at `path` holds; raises `UserError` where it cannot be read or is not JSON."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a readable JSON file ({error}); write it again, or take it away") from error


def _source(path: Path) -> Source:
    found = read_json(path)
    if not isinstance(found, dict) or not isinstance(found.get("verdict"), str):
        raise UserError(f"{path}: `verdict` is missing, so it is no result of a check; write it with a verb's --json")
    kind = next((kind for kind, keys in _FORMS if keys <= set(found)), "other")
    source = Source(path.name, kind, found["verdict"], _says(found), found)
    try:
        for read in (_proofs, _mutants, _seen, _branches):
            read((source,))
    except (AttributeError, KeyError, TypeError) as error:
        raise UserError(
            f"{path}: no result of `kvescrow {kind}` ({error}: missing or misplaced); write it again, or take it away"
        ) from error
    return source


def _says(found: Mapping[str, Any]) -> str:
    """Return the scalars of a result, but for its verdict."""
    figures = [
        f"{name.replace('_', ' ')} {figure(value)}"
        for name, value in found.items()
        if name not in ("verdict", "digest", "attribution", "failure", "seed")
        if isinstance(value, int | float | str) and not isinstance(value, bool) and value != ""
    ]
    return ", ".join(figures[:8])


def figure(value: object) -> str:
    """Return a value of a result as people read it."""
    match value:
        case None:
            return "-"
        case bool():
            return str(value).lower()
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.4g}"
        case _:
            return str(value)


def _proofs(sources: Iterable[Source]) -> tuple[Mapping[str, Proof], Mapping[tuple[str, str], Proof]]:
    rows: dict[str, dict[str, list[str]]] = {}
    laws: dict[tuple[str, str], dict[str, list[str]]] = {}
    for source in sources:
        for each in source.result["results"] if source.kind == "prove" else ():
            row, law, verdict = each["row"], each["invariant"], each["verdict"]
            in_state = f"{law} in {each['state']}" if each.get("state") else law
            rows.setdefault(row, {}).setdefault(verdict, []).append(in_state)
            laws.setdefault((each["table"], law), {}).setdefault(verdict, []).append(row)
    return (
        {name: Proof({verdict: tuple(names) for verdict, names in found.items()}) for name, found in rows.items()},
        {name: Proof({verdict: tuple(names) for verdict, names in found.items()}) for name, found in laws.items()},
    )


def _mutants(sources: Iterable[Source]) -> Mapping[str, MutantsOfRow]:
    by_row: dict[str, list[Mapping[str, Any]]] = {}
    for source in sources:
        for each in source.result["results"] if source.kind == "mutate" else ():
            by_row.setdefault(each["name"].partition(": ")[0], []).append(each)
    return {
        row: MutantsOfRow(
            fates=dict(Counter(each["fate"] for each in found)),
            layers=dict(Counter(layer for each in found for layer in each["killed_by"])),
            mutants=tuple(found),
        )
        for row, found in by_row.items()
    }


def _seen(sources: Iterable[Source]) -> Mapping[str, tuple[Seen, ...]]:
    seen: dict[str, list[Seen]] = {}
    for source in sources:
        for row, layer, by in _fired(source):
            seen.setdefault(row, []).append(Seen(layer, by))
    return {row: tuple(found) for row, found in seen.items()}


def _fired(source: Source) -> Iterable[tuple[str, str, str]]:
    """Yield (row, layer, what made it fire) of one result."""
    if source.kind == "coverage":
        for name, layers in source.result["goals"].items():
            if " " not in name:
                yield from ((name, layer, source.file) for layer in layers)
    yield from ((row, source.kind, by) for row, by in _fired_in(source))


def _fired_in(source: Source) -> Iterable[tuple[str, str]]:
    """Yield (row, what made it fire) of a result of one layer."""
    result = source.result
    match source.kind:
        case "explore":
            for instance in result["instances"]:
                yield from ((row, instance["instance"]) for row in instance.get("rows") or ())
        case "replay" | "check-journal":
            yield from ((row, f"{count:,} times in {source.file}") for row, count in result["rows"].items())
        case "fuzz":
            yield from ((row, result["target"]) for row in _hit(result))


def _branches(sources: Iterable[Source]) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Return what `kvescrow coverage` says of the branches of guards; their names begin with their row's."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for source in sources:
        for name, layers in source.result["goals"].items() if source.kind == "coverage" else ():
            row, space, branch = name.partition(" ")
            if space:
                found.setdefault(row, {})[branch] = tuple(layers)
    return found


def _hit(result: Mapping[str, Any]) -> Iterable[str]:
    """Yield the rows of the driven tables that are neither holes nor listed as unreachable."""
    from kvescrow.spec.tables.registry import TABLE_BY_NAME

    missed = {*result["holes"], *(entry.partition(": ")[0] for entry in result["unreachable"])}
    for name in result.get("tables", ()):
        if name in TABLE_BY_NAME:
            yield from (row.id for row in TABLE_BY_NAME[name].rows if row.id not in missed)
