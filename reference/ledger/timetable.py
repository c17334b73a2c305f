"""Moments by key, soonest first: when a record's time limit passes, when live work must be over."""

import heapq
from itertools import count

from kvescrow.spec.vocabulary import Key

_SLACK = 64
"""Stale entries that are always tolerated, so that a small timetable is not compacted at every change."""


class Timetable:
    """One moment a key. A change leaves a stale entry behind; they are skipped, and dropped when they prevail."""

    def __init__(self) -> None:
        self._moments: dict[Key, int] = {}
        # The serial number spares the comparison of keys, since many share one moment.
        self._heap: list[tuple[int, int, Key]] = []
        self._serial = count()

    def set(self, key: Key, moment: int | None) -> None:
        """Give `key` its moment; None takes it off the table."""
        if moment is None:
            self._moments.pop(key, None)
            return
        if self._moments.get(key) == moment:
            return
        self._moments[key] = moment
        heapq.heappush(self._heap, (moment, next(self._serial), key))
        if len(self._heap) > 2 * len(self._moments) + _SLACK:
            self._heap = [(moment, next(self._serial), key) for key, moment in self._moments.items()]
            heapq.heapify(self._heap)

    def earliest(self) -> int | None:
        """Return the soonest moment; None where the table is empty."""
        while self._heap and self._is_stale(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, clock: int) -> list[Key]:
        """Return the keys whose moment is `clock` or before it, soonest first; they stay on the table."""
        passed: dict[Key, tuple[int, int, Key]] = {}
        while self._heap and self._heap[0][0] <= clock:
            entry = heapq.heappop(self._heap)
            if not self._is_stale(entry):
                passed[entry[2]] = entry
        for entry in passed.values():
            heapq.heappush(self._heap, entry)
        return list(passed)

    def _is_stale(self, entry: tuple[int, int, Key]) -> bool:
        return self._moments.get(entry[2]) != entry[0]
