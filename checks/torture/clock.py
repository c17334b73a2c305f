"""The clock that the store and all gateways read, in memory that they share; a campaign can step it.

Leases are short, so that they run out within a campaign of seconds. Where other work leaves the processes hardly any
time, each lease would be over before its holder could act, and nothing would ever start. There the clock goes slower.
"""

import mmap
import struct
import time
from pathlib import Path

from attrs import define, field

LONGEST_STEP = 900_000
"""Microseconds by which a campaign steps the clock at most: three times an owner's lease."""

_PROBE = 0.02
"""Seconds of processor time that tell how busy the machine is: several turns of the scheduler."""
_BEARABLE = 2
"""Times that everything may take longer than on an idle machine, without leases becoming too short for it."""

_WORDS = struct.Struct("<qqqq")


@define
class SteppedClock:
    """Microseconds since the campaign began, at its pace, and what the steps add; and whether the work is over.

    It is passed to other processes by its path.
    """

    path: Path
    _memory: mmap.mmap | None = field(default=None, init=False, repr=False, eq=False)

    def __getstate__(self) -> Path:
        return self.path

    def __setstate__(self, path: Path) -> None:
        self.path = path
        self._memory = None

    def begin(self, pace: int | None = None) -> None:
        """Make the shared memory and start at 0; a second of the clock takes `pace` seconds, as busy as it is now."""
        self.path.write_bytes(_WORDS.pack(time.monotonic_ns(), 0, 0, slowness() if pace is None else pace))

    def __call__(self) -> int:
        """Return what it shows: never below 0."""
        origin, offset, _, pace = self._words()
        return max(0, (time.monotonic_ns() - origin) // (1000 * pace) + offset)

    @property
    def pace(self) -> int:
        """Seconds that a second of the clock takes."""
        return self._words()[3]

    def sleep(self, microseconds: float) -> None:
        """Wait until so much has passed on the clock, steps aside."""
        time.sleep(microseconds / 1e6 * self.pace)

    def step(self, microseconds: int) -> None:
        """Let it jump; one process alone may do this."""
        origin, offset, over, pace = self._words()
        _WORDS.pack_into(self._shared(), 0, origin, offset + microseconds, over, pace)

    def stop_work(self) -> None:
        """Tell every gateway to take no new request."""
        origin, offset, _, pace = self._words()
        _WORDS.pack_into(self._shared(), 0, origin, offset, 1, pace)

    @property
    def work_is_over(self) -> bool:
        """Whether no new request is to be taken."""
        return bool(self._words()[2])

    def _words(self) -> tuple[int, int, int, int]:
        origin, offset, over, pace = _WORDS.unpack_from(self._shared())
        return origin, offset, over, pace

    def _shared(self) -> mmap.mmap:
        if self._memory is None:
            with self.path.open("r+b") as file:
                self._memory = mmap.mmap(file.fileno(), _WORDS.size)
        return self._memory


def slowness() -> int:
    """Return the pace that suits this machine: how many times less processor time others leave than is bearable."""
    began, used = time.monotonic(), time.thread_time()
    while time.thread_time() - used < _PROBE:
        pass
    return max(1, round((time.monotonic() - began) / _PROBE / _BEARABLE))
