"""The checks themselves: states searched, obligations proved and steps fuzzed a second, each beside a peer."""

from collections.abc import Callable, Collection
from time import process_time

from kvescrow.checks.bench.report import BenchReport, BenchRow, machine
from kvescrow.checks.bench.search import one_core, search_rows
from kvescrow.spec.tables.registry import ALL_TABLES

Show = Callable[[str], None]

SIZES = {
    "small": ("lifecycle-1m", "composition-2"),
    "middle": ("lifecycle-8m", "composition"),
    "large": ("lifecycle-47m", "composition"),
}
"""A lifecycle, and a system whose parts are more coupled."""
MIDDLE = "middle"
BOUND = 900.0
"""Processor or wall seconds after which a peer is stopped, whichever is later."""
FUZZ_EXAMPLES, FUZZ_STEPS = 60, 40
FUZZ_ROUNDS = 8
TARGET = "ledger-memory"


def measure(
    *,
    size: str = MIDDLE,
    system: str | None = None,
    peers: Collection[str] = (),
    bound: float = BOUND,
    show: Show = lambda what: None,
) -> BenchReport:
    """Run all rows on one core, on the systems of `size`; with a `system`, its search alone.

    `peers` are names of `PEERS`, all by default. Raises UserError where a process cannot be kept on one core.
    """
    names = [name for name in SIZES[size] if system is None or name.startswith(system)]
    with one_core():
        rows = [row for name in names for row in search_rows(name, _engines(name), bound, show, peers)]
        if system is not None:
            return BenchReport(machine(), tuple(rows))
        show("prove")
        rows.append(_proved())
        show("fuzz")
        rows += _fuzzed()
    return BenchReport(machine(), tuple(rows))


def _engines(name: str) -> tuple[str, ...]:
    """Return the engines that take the instance: the dense one where its counters follow from single slots."""
    return ("packed", "dense") if name.startswith("lifecycle") else ("packed",)


def _proved() -> BenchRow:
    from kvescrow.checks.prove import prove

    started = process_time()
    report = prove(list(ALL_TABLES))
    rate = len(report.results) / (process_time() - started)
    return BenchRow(
        f"prove, {len(report.results):,} obligations", rate, None, "none: no other tool reads the tables", "1/s"
    )


def _fuzzed() -> list[BenchRow]:
    """Return steps a second, and rows that were hit in as many steps."""
    from kvescrow.checks.bench.bare_machine import run_bare_machine
    from kvescrow.checks.fuzz.profiles import Profile
    from kvescrow.checks.fuzz.run import DEFAULT_SEED, fuzz
    from kvescrow.checks.targets.registry import subject_called

    subject = subject_called(TARGET)
    profile = Profile(
        "bench", FUZZ_EXAMPLES, FUZZ_STEPS, FUZZ_ROUNDS, FUZZ_ROUNDS, None, keeps_database=False, pursues_holes=True
    )
    started = process_time()
    ours = fuzz(TARGET, subject, profile)
    ours_rate = ours.steps / (process_time() - started)
    steps, rows = 0, set[str]()
    started = process_time()
    for number in range(FUZZ_ROUNDS):
        tally = run_bare_machine(subject, FUZZ_EXAMPLES, FUZZ_STEPS, DEFAULT_SEED + number)
        steps, rows = steps + tally.steps, rows | tally.rows
    peer_rate = steps / (process_time() - started)
    peer = "a state machine written by hand"
    return [
        BenchRow(f"fuzz {TARGET}", ours_rate, peer_rate, peer, "steps/s"),
        BenchRow(f"fuzz {TARGET}, in {ours.steps:,} and {steps:,} steps", ours.rows_hit, len(rows), peer, "rows hit"),
    ]
