"""The gate over what the layers have seen: a hole must be listed, and what is listed must be a hole."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from kvescrow.checks.coverage.layers import Layer, Seen, all_goals
from kvescrow.checks.fuzz.goals import Goal
from kvescrow.spec.language.table import Table
from kvescrow.spec.tables.registry import digest

Listed = Mapping[str, Sequence[str]]
"""Reason -> names of goals; `*` stands for any part of a name."""


@frozen
class LayerReport:
    """What one layer has seen, and what it has not."""

    seen: Seen
    holes: Mapping[str, str]
    """Goal that it has not seen and that is listed -> reason."""
    problems: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """Return `passed`, `failed` or `not_run`."""
        return "not_run" if self.seen.why_not_run else "failed" if self.problems else "passed"


@frozen
class CoverageReport:
    """All layers over the same goals."""

    tables: tuple[Table, ...]
    layers: Mapping[Layer, LayerReport]

    @property
    def goals(self) -> tuple[Goal, ...]:
        """Return every goal, row by row."""
        return all_goals(self.tables)

    @property
    def problems(self) -> tuple[str, ...]:
        """Return one line for each problem."""
        return tuple(f"{layer.value}: {each}" for layer, report in self.layers.items() for each in report.problems)

    @property
    def verdict(self) -> str:
        """Return `passed` where every layer was run and its holes are those that are listed."""
        verdicts = {report.verdict for report in self.layers.values()} or {"not_run"}
        return next(verdict for verdict in ("failed", "not_run", "passed") if verdict in verdicts)

    def counts(self, layer: Layer, goals: Sequence[Goal]) -> tuple[int, int, int, int]:
        """Return rows seen, rows, branches seen, branches among `goals`."""
        seen = self.layers[layer].seen.goals
        rows = [goal.name for goal in goals if goal.is_row]
        branches = [goal.name for goal in goals if not goal.is_row]
        return len(seen.intersection(rows)), len(rows), len(seen.intersection(branches)), len(branches)

    def to_json(self) -> dict[str, Any]:
        """Return the whole report; apart from `seconds` it is the same on every run of the same layers."""
        return {
            "verdict": self.verdict,
            "digest": digest(self.tables),
            "problems": list(self.problems),
            "layers": {layer.value: self._layer(layer) for layer in self.layers},
            "goals": {
                goal.name: [layer.value for layer, report in self.layers.items() if goal.name in report.seen.goals]
                for goal in self.goals
            },
        }

    def _layer(self, layer: Layer) -> dict[str, Any]:
        report = self.layers[layer]
        rows_seen, rows, branches_seen, branches = self.counts(layer, self.goals)
        return {
            "verdict": report.verdict,
            "rows_hit": rows_seen,
            "rows": rows,
            "guards_hit": branches_seen,
            "guards": branches,
            "listed": dict(report.holes),
            "seconds": round(report.seen.seconds, 1),
            **({"not_run": report.seen.why_not_run} if report.seen.why_not_run else {}),
        }


def judged(seen: Sequence[Seen], tables: Sequence[Table], listed: Mapping[Layer, Listed]) -> CoverageReport:
    """Return what `seen` comes to: `listed` has the holes of each layer."""
    goals = all_goals(tables)
    found = {each.layer: _judged(each, goals, listed.get(each.layer, {})) for each in seen}
    return CoverageReport(tuple(tables), found)


def as_listed(tables: Sequence[Table], listed: Mapping[Layer, Listed]) -> CoverageReport:
    """Return the report of a run that passes: each layer sees everything that `listed` does not have for it.

    As holes that are not listed fail, and what is listed and seen fails too, no other report passes.
    """
    names = [goal.name for goal in all_goals(tables)]
    seen = []
    for layer in Layer:
        patterns = [pattern for each in listed.get(layer, {}).values() for pattern in each]
        seen.append(Seen(layer, frozenset(names).difference(*(_meant(pattern, names) for pattern in patterns)), 0.0))
    return judged(seen, tables, listed)


def _judged(seen: Seen, goals: Sequence[Goal], listed: Listed) -> LayerReport:
    names = [goal.name for goal in goals]
    if seen.why_not_run:
        return LayerReport(seen, {}, ())
    holes: dict[str, str] = {}
    problems: list[str] = []
    for reason, patterns in listed.items():
        for pattern in patterns:
            meant = _meant(pattern, names)
            holes.update(dict.fromkeys(meant, reason))
            if not meant:
                problems.append(f"{pattern} is listed ({reason}), but nothing is called so: take it off the list")
            problems += [
                f"{name} is listed ({reason}), but was seen: take {pattern} off the list, or narrow it"
                for name in meant
                if name in seen.goals
            ]
    problems += _unlisted(seen, goals, holes)
    return LayerReport(seen, {name: why for name, why in holes.items() if name not in seen.goals}, tuple(problems))


def _unlisted(seen: Seen, goals: Sequence[Goal], holes: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each hole that is not listed, or one for a whole table that the layer never looks at."""
    by_table: dict[str, list[str]] = {}
    for goal in goals:
        by_table.setdefault(goal.table.name, []).append(goal.name)
    for table, names in by_table.items():
        missing = [name for name in names if name not in seen.goals and name not in holes]
        if len(missing) == len(names):
            yield f"nothing of table {table} was ever seen: have it seen, or list {table}.* with the reason"
        else:
            yield from (f"{name} was never seen: have it seen, or list it with the reason" for name in missing)


def _meant(pattern: str, names: Sequence[str]) -> list[str]:
    """Return those of `names` that `pattern` stands for."""
    matches = re.compile(".*".join(map(re.escape, pattern.split("*")))).fullmatch
    return [name for name in names if matches(name)]
