"""The replay beside the span of its trace, at three sizes, and beside public simulators on the same trace.

Each run has a process of its own, so that its memory is its own; time is processor time. A fourth run, under cProfile,
says where the time goes.
"""

import math
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, TypeVar

from attrs import asdict, frozen

from kvescrow.checks.bench.report import BenchReport, BenchRow, machine
from kvescrow.checks.targets.own_replay import Spent, Took, profiled, run
from kvescrow.checks.targets.simulators import SIMULATORS, NotRun, Simulated
from kvescrow.spec.vocabulary import MICROSECONDS_PER_SECOND, UserError

SIZES = (1_000, 10_000, 100_000)
"""Requests: the packaged trace, and the same repeated and shifted."""
FASTER = 100
"""A replay must take at most so small a part of its trace's own time."""
LINEAR = 1.15
"""Largest exponent of growth that is called linear: twice the size takes at most 2.22 times as much."""
UNIT = "virtual s/s"

T = TypeVar("T")
Show = Callable[[str], None]


@frozen
class Replayed:
    """What was measured."""

    machine: dict[str, str]
    runs: tuple[Took, ...]
    """From the smallest to the largest."""
    peers: dict[str, Simulated | NotRun]
    spent: tuple[Spent, ...]

    @property
    def growth(self) -> dict[str, float]:
        """Exponents: 1 where time, or memory, grows as fast as the number of requests."""
        first, last = self.runs[0], self.runs[-1]
        sizes = math.log(last.requests / first.requests)
        return {
            "time": math.log(last.seconds / first.seconds) / sizes,
            "memory": math.log(last.memory / first.memory) / sizes,
        }

    @property
    def problems(self) -> tuple[str, ...]:
        """What was not as it must be."""
        slow = [
            f"{each.requests} requests take 1/{speed(each):.0f} of their own time, not 1/{FASTER}"
            for each in self.runs
            if speed(each) < FASTER
        ]
        lost = [
            f"{each.completed} of {each.requests} completed" for each in self.runs if each.completed != each.requests
        ]
        steep = [f"{name} grows with exponent {value:.2f}" for name, value in self.growth.items() if value > LINEAR]
        return (*slow, *lost, *steep)

    @property
    def verdict(self) -> str:
        """Return `passed` or `failed`."""
        return "failed" if self.problems else "passed"

    @property
    def report(self) -> BenchReport:
        """Return how much faster than its own time each run is, beside each peer that ran."""
        ran = {name: peer for name, peer in self.peers.items() if isinstance(peer, Simulated)}
        rows = [BenchRow(f"{each.requests:,} requests", speed(each), None, "-", UNIT) for each in self.runs]
        rows += [
            BenchRow(f"{self.runs[0].requests:,} requests", speed(self.runs[0]), speed(peer), name, UNIT)
            for name, peer in ran.items()
        ]
        return BenchReport(self.machine, tuple(rows))

    def to_json(self) -> dict[str, Any]:
        """Return everything."""
        return {
            "verdict": self.verdict,
            "problems": list(self.problems),
            **self.report.to_json(),
            "runs": [
                {
                    **asdict(each),
                    "times_faster": speed(each),
                    "microseconds_per_request": each.seconds / each.requests * MICROSECONDS_PER_SECOND,
                }
                for each in self.runs
            ],
            "growth": self.growth,
            "peers": {
                name: {"verdict": "not_run", "reason": peer.reason}
                if isinstance(peer, NotRun)
                else {"verdict": "ran", **asdict(peer), "times_faster": speed(peer)}
                for name, peer in self.peers.items()
            },
            "profile": [asdict(each) for each in self.spent],
        }

    def text(self) -> str:
        """Return the figures for people."""
        lines = [self.report.table()]
        lines += [
            f"{each.requests:>9,} requests: {each.seconds:.1f} s for {each.span / MICROSECONDS_PER_SECOND:,.0f} s, "
            f"{each.memory / 2**20:.0f} MiB"
            for each in self.runs
        ]
        lines.append("growth: " + ", ".join(f"{name} exponent {value:.2f}" for name, value in self.growth.items()))
        lines += [f"{name}: not_run: {peer.reason}" for name, peer in self.peers.items() if isinstance(peer, NotRun)]
        lines += [f"  {each.share:6.1%}  {each.function} ({each.calls:,} calls)" for each in self.spent]
        return "\n".join((*lines, *self.problems))


def speed(run: Took | Simulated) -> float:
    """Return how many seconds of virtual time pass in one of the processor."""
    return run.span / MICROSECONDS_PER_SECOND / run.seconds


def measure(sizes: Sequence[int] = SIZES, show: Show = lambda what: None) -> Replayed:
    """Replay each size, run the peers on the smallest, and profile that one.

    Raises UserError for fewer than two sizes, of which growth could not be told.
    """
    ordered = sorted(set(sizes))
    if len(ordered) < 2:
        raise UserError("sizes: growth needs two sizes or more")
    runs = []
    for size in ordered:
        show(f"replaying {size:,} requests")
        runs.append(_apart(run, size))
    peers: dict[str, Simulated | NotRun] = {}
    for name, simulator in SIMULATORS.items():
        show(f"{name}: {ordered[0]:,} requests")
        peers[name] = _apart(simulator, ordered[0])
    show(f"profiling {ordered[0]:,} requests")
    return Replayed(machine(), tuple(runs), peers, _apart(profiled, ordered[0]))


def _apart(work: Callable[[int], T], size: int) -> T:
    """Return what `work` returns in a fresh process, whose memory nothing else has grown."""
    # An interrupt ends the other process too, and this one tells of it.
    silent = (signal.SIGINT, signal.SIG_DFL)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), signal.signal, silent) as pool:
        return pool.submit(work, size).result()
