"""What fuzzing and hand-written scenarios have seen."""

from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import evolve

from kvescrow.checks.coverage.layers import seen_by
from kvescrow.checks.fuzz.coverage import Coverage
from kvescrow.checks.fuzz.profiles import PROFILES
from kvescrow.checks.fuzz.result import Progress
from kvescrow.checks.fuzz.run import DEFAULT_SEED, Run
from kvescrow.checks.mutate.run import load_vectors
from kvescrow.checks.targets.registry import subject_called
from kvescrow.spec.language.table import Table
from kvescrow.spec.tables.registry import TABLE_BY_NAME
from kvescrow.spec.vocabulary import UserError

TARGETS = ("ledger-memory", "pages", "composed", "release")
"""Targets of the fuzzer that drive different tables."""


def fuzzed(on_progress: Callable[[str], None], targets: Sequence[str] = TARGETS) -> frozenset[str]:
    """Return the names of the goals that the fuzzer's short profile sees, each target until nothing is left to see.

    Raises `UserError` where a target differs from the tables: what is seen beside a wrong target says nothing.
    """
    # The first round already pursues; more rounds would only look again at what was seen.
    profile = evolve(PROFILES["pr"], least_rounds=1)
    runs: list[Run] = []
    for target in targets:

        def told(now: Progress, target: str = target) -> None:
            on_progress(f"{target} {now.steps} steps")

        run = Run(target, subject_called(target), profile, told)
        failure, _ = run.rounds(DEFAULT_SEED)
        if failure:
            raise UserError(f"{target} differs from the tables; mend that first: kvescrow fuzz --target {target}")
        runs.append(run)
    return seen_by(run.coverage for run in runs)


def shown_by_vectors(place: str, root: Path, tables: Sequence[Table]) -> frozenset[str]:
    """Return the names of the goals that hand-written scenarios see; `place` is `package.module:factory`.

    Raises `UserError` where there are none, or one fails.
    """
    coverage = Coverage(tables)
    for scenario in load_vectors(place, root):
        try:
            scenario.run(TABLE_BY_NAME, coverage.watch)
        except Exception as error:
            raise UserError(
                f"scenario {scenario.name} fails ({type(error).__name__}: {error}): mend it first"
            ) from error
    return seen_by([coverage])
