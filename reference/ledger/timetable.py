"""Moments by key, soonest first: when a record's time limit passes, when live work must be over."""

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from itertools import count

from kvescrow.reference.ledger.records import Reservation
from kvescrow.spec.vocabulary import Key

_SLACK = 64
"""Stale entries that are always tolerated, so that a small timetable is not compacted at every change."""


class Timetable:
    """Moments that were noted for records, of which those count that still hold.

    What holds is asked of the record, not kept: a moment that has changed leaves a stale entry behind, which is
    skipped, and dropped when such prevail.
    """

    def __init__(self, records: Mapping[Key, Reservation], moment_of: Callable[[Reservation], int | None]) -> None:
        """Begin an empty table; `moment_of` tells the moment of a record as it is now, None where it has none."""
        self._records = records
        self._moment_of = moment_of
        # The serial number spares the comparison of keys, since many share one moment.
        self._heap: list[tuple[int, int, Key]] = []
        self._serial = count()
        self._most = _SLACK

    def note(self, key: Key, moment: int) -> None:
        """Take in that the record of `key` has this moment now."""
        heappush(self._heap, (moment, next(self._serial), key))
        if len(self._heap) > self._most:
            self._heap = list({entry[2]: entry for entry in self._heap if self._holds(entry)}.values())
            heapify(self._heap)
            self._most = 4 * len(self._heap) + _SLACK

    def earliest(self) -> int | None:
        """Return the soonest moment; None where the table is empty."""
        while self._heap and not self._holds(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, clock: int) -> list[Key]:
        """Return the keys whose moment is `clock` or before it, soonest first; they stay on the table."""
        passed: dict[Key, tuple[int, int, Key]] = {}
        while self._heap and self._heap[0][0] <= clock:
            entry = heappop(self._heap)
            if self._holds(entry):
                passed.setdefault(entry[2], entry)
        for entry in passed.values():
            heappush(self._heap, entry)
        return list(passed)

    def _holds(self, entry: tuple[int, int, Key]) -> bool:
        record = self._records.get(entry[2])
        return record is not None and self._moment_of(record) == entry[0]
