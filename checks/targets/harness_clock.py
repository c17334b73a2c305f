"""The harness's own clock, for engines that ask the system for the time.

Such an engine is left as it is. What is replaced is the answer of `time.time`, and only while the engine is called:
that is how its windows pass without anyone waiting for them.
"""

import threading
import time
from types import TracebackType

_BEGIN = 2**32
"""Seconds since 1970, in the year 2106: later than now, so that an engine's own threads, which ask the real clock, find
nothing out of date. A power of two, so that fractions of a window are exact."""

_lock = threading.RLock()
_callers = 0
_system = time.time


class HarnessClock:
    """Answers `time.time` while it is entered, from several threads if need be. One is entered at a time."""

    def __init__(self) -> None:
        self._now = float(_BEGIN)

    def set(self, now: int) -> None:
        """Set the clock to `now` microseconds after its beginning."""
        self._now = _BEGIN + now / 1_000_000

    def __enter__(self) -> None:
        global _callers  # noqa: PLW0603 - as is what it replaces
        with _lock:
            _callers += 1
            time.time = lambda: self._now

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _callers  # noqa: PLW0603
        with _lock:
            _callers -= 1
            if not _callers:
                time.time = _system
