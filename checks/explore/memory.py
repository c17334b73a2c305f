"""How much memory there is, how much a search needs, and the stop before it runs out."""

import resource
import sys
from collections.abc import Callable
from pathlib import Path

from attrs import field, frozen

from kvescrow.spec.vocabulary import UserError

Level = Callable[[int, int, int], None]
"""(depth, states so far, states of the newest level): told after each level of a search."""


def peak_bytes() -> int:
    """Return the peak resident bytes of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def available_bytes() -> int:
    """Return the bytes that can still be taken: what the system has, or less where a control group says so."""
    found = [int(line.split()[1]) * 1024 for line in _lines(Path("/proc/meminfo")) if line.startswith("MemAvailable:")]
    limit = _lines(Path("/sys/fs/cgroup/memory.max"))
    used = _lines(Path("/sys/fs/cgroup/memory.current"))
    if limit and used and limit[0].isdigit():
        found.append(max(0, int(limit[0]) - int(used[0])))
    return min(found, default=4 << 30)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def shown_bytes(count: int) -> str:
    """Return a number of bytes in binary units."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable: the last unit always returns")


@frozen
class Watcher:
    """Follows one search: shows how far it is and stops it before memory runs out."""

    instance: str
    engine: str
    limit: int = field(factory=available_bytes)
    """Bytes that the search may take."""
    shown: Level | None = None

    def level(self, depth: int, states: int, newest: int, wanted: int) -> None:
        """Note the end of a level; raise `UserError` where the `wanted` bytes of one more are more than there are."""
        if self.shown is not None:
            self.shown(depth, states, newest)
        self.need(wanted)

    def need(self, wanted: int) -> None:
        """Raise `UserError` where `wanted` bytes are more than there are."""
        if wanted > self.limit:
            raise UserError(
                f"instance {self.instance}: the {self.engine} engine would need about {shown_bytes(wanted)} and may "
                f"use {shown_bytes(self.limit)}; choose a smaller instance, `--engine dense` or `--symmetric`, or give "
                "it more with `--memory`"
            )
