"""Prints a digest of each thing that must be the same in every process: documents, results, and what seeds draw.

A program for `test_determinism`, which runs it under different hash seeds; its argument is the checkout.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from kvescrow.checks.cli import main
from kvescrow.checks.coverage import Layer, Seen, judged, seen_by
from kvescrow.checks.coverage.page import coverage_page
from kvescrow.checks.coverage.proved import proved
from kvescrow.checks.coverage.searched import searched
from kvescrow.checks.explore import instance_called
from kvescrow.checks.fuzz.driver import Driver
from kvescrow.checks.fuzz.profiles import Profile
from kvescrow.checks.fuzz.run import Run
from kvescrow.checks.mutate import mutants_of
from kvescrow.checks.mutate.runs import fuzzed_runs
from kvescrow.checks.targets.registry import subject_called
from kvescrow.gpu_harness.conform import Settings
from kvescrow.gpu_harness.conform.harness import conform_on, of_hazards
from kvescrow.gpu_harness.conform.platform import open_platform
from kvescrow.spec.render import render_documents
from kvescrow.spec.tables.promise import PROMISE
from kvescrow.spec.tables.registry import ALL_TABLES, digest

SHORT = Profile("short", 6, 20, 1, 1, None, keeps_database=False, pursues_holes=True)
MEASURED = ("seconds", "states_per_second", "memory")
"""Fields that a clock or the machine decides."""


def documents(root: Path) -> object:
    return render_documents((root / "docs" / "requirements.md").read_text("utf-8"))


def printed(*arguments: str) -> object:
    """Return the JSON of a verb, without what is measured."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "result.json")
        try:
            main([*arguments, "--json", str(file)])
        except SystemExit:
            return without(json.loads(file.read_text("utf-8")))
    raise AssertionError("a verb ends by leaving")


def without(value: object) -> object:
    if isinstance(value, dict):
        return {name: without(part) for name, part in value.items() if name not in MEASURED}
    return [without(part) for part in value] if isinstance(value, list) else value


def dumped(root: Path) -> object:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "tables.json")
        try:
            main(["render", "--dump", str(file)])
        except SystemExit:
            return file.read_text("utf-8")
    raise AssertionError("a verb ends by leaving")


def covered(root: Path) -> object:
    seen = [
        Seen(Layer.PROVE, proved([PROMISE]), 0.0),
        Seen(Layer.EXPLORE, seen_by([searched([instance_called("promises")], [PROMISE])]), 0.0),
    ]
    report = judged(seen, [PROMISE], {})
    return [report.to_json(), coverage_page(report)]


class Kept(Run):
    """A run of the fuzzer that keeps what was done."""

    drawn: list[list[str]]

    def _on_run(self, driver: Driver) -> None:
        super()._on_run(driver)
        self.drawn.append(list(driver.steps))


def fuzzed(target: str) -> object:
    """Return every step that a seed draws."""
    run = Kept(target, subject_called(target), SHORT, lambda now: None)
    run.drawn = []
    failure, _ = run.rounds(1)
    return [run.drawn, failure, [goal.name for goal in run.coverage.holes()]]


def conformed(root: Path) -> object:
    """Return the journals of the decoder in a fixed order, with a killed worker."""
    settings = Settings(fixed_order=True, growth=True, kills=(8,))
    with open_platform(settings) as platform, tempfile.TemporaryDirectory() as folder:
        offered, hazards = of_hazards(settings, platform)
        conform_on(platform, offered, hazards, journal=Path(folder, "run.jsonl"))
        return [path.read_text("utf-8") for path in sorted(Path(folder).iterdir())]


PARTS: Mapping[str, Callable[[Path], object]] = {
    "documents": documents,
    "digest of the tables": lambda root: digest(),
    "render --dump": dumped,
    "prove": lambda root: printed("prove", "promise", "ticket", "account"),
    "explore, packed": lambda root: printed("explore", "promises", "executions", "refusals", "--engine", "packed"),
    "explore, interpreter": lambda root: printed("explore", "account", "--engine", "interpreter"),
    "explore, dense": lambda root: printed("explore", "lifecycle-s", "--engine", "dense"),
    "trace": lambda root: printed("trace", "--root", str(root)),
    "coverage": covered,
    "fuzz of the ledger": lambda root: fuzzed("ledger-memory"),
    "fuzz of the pages": lambda root: fuzzed("pages"),
    "fuzz of both": lambda root: fuzzed("composed"),
    "conform in a fixed order": conformed,
    "runs of mutation": lambda root: [repr(run) for run in fuzzed_runs(3, 1)],
    "mutants": lambda root: [f"{m.name}: {m.change}" for table in ALL_TABLES for m in mutants_of(table)],
}


if __name__ == "__main__":
    checkout = Path(sys.argv[1])
    found = {}
    for name, part in PARTS.items():
        text = json.dumps(part(checkout), ensure_ascii=False)
        found[name] = f"{len(text)} {hashlib.sha256(text.encode()).hexdigest()}"
    Path(sys.argv[2]).write_text(json.dumps(found))
