"""Judging all mutants of some tables on several processes."""

import importlib
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from attrs import frozen

from kvescrow.checks.mutate.judge import Judge
from kvescrow.checks.mutate.mutant import Mutant
from kvescrow.checks.mutate.operators import mutants_of
from kvescrow.checks.mutate.runs import Run, fuzzed_runs
from kvescrow.checks.mutate.scenarios import Scenario, Scenarios
from kvescrow.checks.mutate.search import Searches
from kvescrow.checks.mutate.verdicts import Judged, Layer, MutationReport
from kvescrow.checks.prove.variants import event_variants
from kvescrow.spec.tables.registry import TABLE_BY_NAME
from kvescrow.spec.vocabulary import UserError

SEED = 20261129
RUNS = 400
"""Runs of the fuzzer of each kind: as many as its short profile makes before every row and guard was seen."""
BATCH = 40
"""Mutants of one event that a process takes at a time: so few that the processes end together."""
PROCESSES = 2
"""The smallest machine on which the checks must run has two cores."""

Progress = Callable[[int, int, str], None]
"""Called with the mutants done, their total, and the table of the last ones."""


@frozen
class Options:
    """What is asked of a run; the same options give the same report, times aside."""

    tables: tuple[str, ...]
    sample: int | None = None
    """Judge that many mutants, drawn by `seed`; all where it is None."""
    seed: int = SEED
    runs: int = RUNS
    """Runs of the fuzzer of each kind."""
    vectors: str | None = None
    """`package.module:factory` of the hand-written scenarios; the factory takes nothing and yields `Scenario`s."""
    root: Path = Path()
    """Where that module is found, besides what is installed."""
    processes: int = PROCESSES


@frozen
class Batch:
    """Mutants of one event of one table, by their place among all mutants of the table."""

    table: str
    event: str
    places: tuple[int, ...]


def mutate(options: Options, on_progress: Progress | None = None) -> MutationReport:
    """Judge the mutants that `options` choose.

    Raises `UserError` where a table is unknown, the vectors cannot be loaded, or a scenario fails without a mutant.
    """
    start = time.monotonic()
    batches = _batches(options)
    runs = tuple(fuzzed_runs(options.runs, options.seed))
    total = sum(len(batch.places) for batch in batches)
    found: dict[tuple[str, int], Judged] = {}
    for batch, judged in _judged(batches, options, runs):
        found.update({(batch.table, place): one for place, one in zip(batch.places, judged, strict=True)})
        if on_progress is not None:
            on_progress(len(found), total, batch.table)
    ordered = [found[name, place] for name in options.tables for place in sorted(p for t, p in found if t == name)]
    not_run = {} if options.vectors is not None else {Layer.VECTORS: "no vectors were named"}
    return MutationReport(tuple(ordered), not_run, time.monotonic() - start)


def _batches(options: Options) -> list[Batch]:
    unknown = [name for name in options.tables if name not in TABLE_BY_NAME]
    if unknown:
        raise UserError(f"no table is called {', '.join(unknown)}; the tables are {', '.join(TABLE_BY_NAME)}")
    mutants = [(name, place, m) for name in options.tables for place, m in enumerate(mutants_of(TABLE_BY_NAME[name]))]
    if options.sample is not None and options.sample < len(mutants):
        kept = sorted(random.Random(options.seed).sample(range(len(mutants)), options.sample))
        mutants = [mutants[index] for index in kept]
    by_event: dict[tuple[str, str], list[int]] = {}
    for name, place, mutant in mutants:
        by_event.setdefault((name, mutant.row.event), []).append(place)
    return [
        Batch(name, event, tuple(places[first : first + BATCH]))
        for (name, event), places in by_event.items()
        for first in range(0, len(places), BATCH)
    ]


def _judged(batches: Sequence[Batch], options: Options, runs: Sequence[Run]) -> Iterator[tuple[Batch, list[Judged]]]:
    if options.processes == 1:
        bench = Bench(options, runs)
        yield from ((batch, bench.judge(batch)) for batch in batches)
        return
    # Spawned, not forked: the parent has threads that draw the progress.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, context, _start, (options, runs)) as pool:
        try:
            waiting = {pool.submit(_judge, batch): batch for batch in batches}
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


class Bench:
    """What one process needs, prepared once: mutants, vectors, and runs beside the reference."""

    def __init__(self, options: Options, runs: Sequence[Run]) -> None:
        self._mutants: dict[str, Sequence[Mutant]] = {}
        self._searches = Searches()
        self._scenarios = {Layer.FUZZ: Scenarios(run.scenario() for run in runs)}
        if options.vectors is not None:
            self._scenarios[Layer.VECTORS] = Scenarios(load_vectors(options.vectors, options.root))

    def judge(self, batch: Batch) -> list[Judged]:
        """Judge the mutants of one batch."""
        table = TABLE_BY_NAME[batch.table]
        if batch.table not in self._mutants:
            self._mutants[batch.table] = mutants_of(table)
        with event_variants(table, table.event(batch.event)) as variants:
            judge = Judge(variants, self._scenarios, self._searches)
            return [judge.judge(self._mutants[batch.table][place]) for place in batch.places]


_bench: list[Bench | UserError] = []
"""The bench of a worker process, or why there is none; in the parent it is empty."""


def _start(options: Options, runs: Sequence[Run]) -> None:
    # An error raised here would only tell the parent that the process has died.
    try:
        _bench.append(Bench(options, runs))
    except UserError as error:
        _bench.append(error)


def _judge(batch: Batch) -> list[Judged]:
    bench = _bench[0]
    if isinstance(bench, UserError):
        raise bench
    return bench.judge(batch)


def load_vectors(place: str, root: Path) -> Iterable[Scenario]:
    """Return the scenarios that `place` names, `package.module:factory`, with `root` among what can be imported.

    Raises `UserError` where there are none.
    """
    module_name, colon, factory_name = place.partition(":")
    if not colon:
        raise UserError(f"vectors {place!r}: give package.module:factory")
    folder = str(root.resolve())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        factory = getattr(importlib.import_module(module_name), factory_name)
    except (ImportError, AttributeError) as error:
        raise UserError(
            f"vectors {place!r}: cannot be loaded from {folder} ({error}); run in a checkout, or name others"
        ) from error
    scenarios: Iterable[Scenario] = factory()
    return scenarios
