"""The shape in which every measurement is reported: rows of ours beside a peer, and the machine."""

import os
import platform
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time

from attrs import asdict, frozen

from kvescrow.spec.vocabulary import UserError

LEAST_ROUNDS = 3
"""A median of fewer rounds is a single measurement."""


@frozen
class BenchRow:
    """One measurement; more is better."""

    name: str
    ours: float
    peer: float | None
    """None where there is no peer to measure."""
    peer_name: str
    unit: str

    @property
    def ratio(self) -> float | None:
        """Ours over the peer's; None without a peer."""
        return None if self.peer is None else self.ours / self.peer


@frozen
class BenchReport:
    """What one run measured."""

    machine: dict[str, str]
    rows: tuple[BenchRow, ...]

    def to_json(self) -> dict[str, object]:
        """Return `{"machine": {...}, "rows": [{name, ours, peer, peer_name, ratio, unit}]}`."""
        return {"machine": self.machine, "rows": [{**asdict(row), "ratio": row.ratio} for row in self.rows]}

    def table(self) -> str:
        """Return the rows as aligned plain text, the machine below."""
        lines = [("", "ours", "peer", "ratio", "unit", "peer is")]
        for row in self.rows:
            peer, ratio = ("-", "-") if row.ratio is None else (f"{row.peer:,.0f}", f"{row.ratio:.2f}")
            lines.append((row.name, f"{row.ours:,.0f}", peer, ratio, row.unit, row.peer_name))
        widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
        # Names and units read from the left, figures from the right.
        text = "\n".join(
            "  ".join(
                cell.rjust(width) if 0 < column < 4 else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )
        return f"{text}\n{', '.join(f'{name} {value}' for name, value in self.machine.items())}"


def machine() -> dict[str, str]:
    """Return what a figure depends on: processor, cores, Python, system."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def interleaved_rates(
    subjects: Sequence[Callable[[int], int]], rounds: int, clock: Callable[[], float] = process_time
) -> list[float]:
    """Return each subject's median rate a second over `rounds` rounds, in which the subjects take turns.

    A subject does the work of the round that it is given and returns how many operations that was. Turns make a
    busy machine slow all of them alike. `clock` gives seconds: of processor time, unless a subject waits for others.
    Raises UserError for fewer than three rounds.
    """
    if rounds < LEAST_ROUNDS:
        raise UserError(f"rounds: {rounds} is too few for a median; take {LEAST_ROUNDS} or more")
    rates: list[list[float]] = [[] for _ in subjects]
    for number in range(rounds):
        order = range(len(subjects)) if number % 2 == 0 else reversed(range(len(subjects)))
        for index in order:
            start = clock()
            operations = subjects[index](number)
            rates[index].append(operations / (clock() - start))
    return [statistics.median(of_subject) for of_subject in rates]
