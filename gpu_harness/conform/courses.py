"""Short runs on the CPU in a fixed order, which between them take every course that a run of the harness can take.

What the harness sees of the tables is measured by their journals, so these are the same on every machine.
"""

from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

from kvescrow.gpu_harness.conform.arrivals import Progress
from kvescrow.gpu_harness.conform.harness import Workload, conform_on, of_hazards, of_trace
from kvescrow.gpu_harness.conform.platform import Platform, open_platform
from kvescrow.gpu_harness.conform.result import ConformResult
from kvescrow.gpu_harness.conform.settings import Settings
from kvescrow.reference.traces import packaged_trace

HAZARD_SEEDS = range(1, 9)
"""The moments of cancels are drawn: what comes in the few turns while one is in flight is another thing each time."""
KILLED_AT = (8,)
"""In every second of them the worker is killed when so many have started: a cancel is accepted under the kill."""
CROWDED = Settings(requests=30, pages=32, growth=True, epoch_after=15, kills=(15,), fixed_order=True)
"""A trace in a pool so small that outputs wait for each other to grow, and some are stopped so that others can."""


@frozen
class Course:
    """One run and its journals, one for each worker."""

    name: str
    result: ConformResult
    journals: tuple[Path, ...]


def courses(folder: Path, progress: Progress | None = None) -> Iterator[Course]:
    """Take each course; journals are written to `folder`. Raises what `conform` raises."""
    with open_platform(CROWDED) as platform:
        for name, offered, settings in _offered(platform):
            journal = folder / f"{name}.jsonl"
            result = conform_on(platform, offered, settings, journal=journal, progress=progress)
            yield Course(name, result, tuple(sorted(folder.glob(f"{journal.name}*"))))


def _offered(platform: Platform) -> Iterator[tuple[str, Workload, Settings]]:
    yield "crowded", of_trace(packaged_trace("mooncake"), CROWDED, platform), CROWDED
    for seed in HAZARD_SEEDS:
        settings = Settings(seed=seed, fixed_order=True, kills=() if seed % 2 else KILLED_AT)
        yield f"hazards-{seed}", *of_hazards(settings, platform)
