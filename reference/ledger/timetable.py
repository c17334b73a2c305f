"""Moments by key, soonest first: when a record's time limit passes, when live work must be over."""

import heapq

from kvescrow.reference.ledger.records import Reservation
from kvescrow.spec.vocabulary import Key

_SLACK = 64
"""Stale entries that are always tolerated, so that a small timetable is not compacted at every change."""


class Timetable:
    """One moment a life of a key. A change leaves a stale entry behind; such are skipped, and dropped if they prevail.

    What falls on one moment is in the order of lives.
    """

    def __init__(self) -> None:
        self._moments: dict[int, int] = {}
        """By life, a number that no two records share: a number is looked up faster than a key."""
        self._heap: list[tuple[int, int, Key]] = []

    def set(self, record: Reservation, moment: int | None) -> None:
        """Give the life of `record` its moment; None takes it off the table."""
        life = record.life
        if moment is None:
            self._moments.pop(life, None)
            return
        if self._moments.get(life) == moment:
            return
        self._moments[life] = moment
        heapq.heappush(self._heap, (moment, life, record.key))
        if len(self._heap) > 2 * len(self._moments) + _SLACK:
            self._heap = list({entry[1]: entry for entry in self._heap if not self._is_stale(entry)}.values())
            heapq.heapify(self._heap)

    def earliest(self) -> int | None:
        """Return the soonest moment; None where the table is empty."""
        while self._heap and self._is_stale(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, clock: int) -> list[Key]:
        """Return the keys whose moment is `clock` or before it, soonest first, then by life; they stay on the table."""
        passed: list[tuple[int, int, Key]] = []
        while self._heap and self._heap[0][0] <= clock:
            entry = heapq.heappop(self._heap)
            if not self._is_stale(entry) and entry not in passed[-1:]:
                passed.append(entry)
        for entry in passed:
            heapq.heappush(self._heap, entry)
        return [key for _, _, key in passed]

    def _is_stale(self, entry: tuple[int, int, Key]) -> bool:
        return self._moments.get(entry[1]) != entry[0]
