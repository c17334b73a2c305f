"""The clock that the store and all gateways read, in memory that they share; a campaign can step it."""

import mmap
import struct
import time
from pathlib import Path

from attrs import define, field

LONGEST_STEP = 900_000
"""Microseconds by which a campaign steps the clock at most: three times an owner's lease."""

_WORDS = struct.Struct("<qqq")


@define
class SteppedClock:
    """Microseconds since the campaign began, and what the steps add. Beside it stands whether the work is over.

    It is passed to other processes by its path.
    """

    path: Path
    _memory: mmap.mmap | None = field(default=None, init=False, repr=False, eq=False)

    def __getstate__(self) -> Path:
        return self.path

    def __setstate__(self, path: Path) -> None:
        self.path = path
        self._memory = None

    def begin(self) -> None:
        """Make the shared memory and start at 0."""
        self.path.write_bytes(_WORDS.pack(time.monotonic_ns(), 0, 0))

    def __call__(self) -> int:
        """Return what it shows: never below 0."""
        origin, offset, _ = self._words()
        return max(0, (time.monotonic_ns() - origin) // 1000 + offset)

    def step(self, microseconds: int) -> None:
        """Let it jump; one process alone may do this."""
        origin, offset, over = self._words()
        _WORDS.pack_into(self._shared(), 0, origin, offset + microseconds, over)

    def stop_work(self) -> None:
        """Tell every gateway to take no new request."""
        origin, offset, _ = self._words()
        _WORDS.pack_into(self._shared(), 0, origin, offset, 1)

    @property
    def work_is_over(self) -> bool:
        """Whether no new request is to be taken."""
        return bool(self._words()[2])

    def _words(self) -> tuple[int, int, int]:
        origin, offset, over = _WORDS.unpack_from(self._shared())
        return origin, offset, over

    def _shared(self) -> mmap.mmap:
        if self._memory is None:
            with self.path.open("r+b") as file:
                self._memory = mmap.mmap(file.fileno(), _WORDS.size)
        return self._memory
