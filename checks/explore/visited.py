"""The set of states that were seen: sorted arrays in buckets, by the uppermost bits."""

import numpy as np

from kvescrow.checks.explore.lookup import States

BUCKET_BITS = 8


class Visited:
    """A growing set of packed states; what is asked and added is sorted and has no repetitions."""

    def __init__(self, bits: int) -> None:
        self._shift = max(0, bits - BUCKET_BITS)
        count = 1 << min(bits, BUCKET_BITS)
        self._edges = (np.arange(1, count, dtype=np.int64)) << self._shift
        self._buckets: list[States] = [np.empty(0, np.int64)] * count
        self.size = 0

    def new(self, states: States) -> States:
        """Return those of `states` that are not in the set."""
        kept: list[States] = []
        for bucket, part in zip(self._buckets, self._parts(states), strict=True):
            if not len(part):
                continue
            if not len(bucket):
                kept.append(part)
                continue
            place = bucket.searchsorted(part)
            place[place == len(bucket)] = 0
            kept.append(part.take(np.flatnonzero(bucket.take(place) != part)))
        return np.concatenate(kept) if kept else states[:0]

    def add(self, states: States) -> None:
        """Add `states`, none of which is in the set."""
        for number, part in enumerate(self._parts(states)):
            if not len(part):
                continue
            bucket = self._buckets[number]
            if not len(bucket):
                self._buckets[number] = part.copy()
                continue
            merged = np.empty(len(bucket) + len(part), np.int64)
            place = bucket.searchsorted(part)
            place += np.arange(len(part))
            merged[place] = part
            rest = np.ones(len(merged), bool)
            rest[place] = False
            merged[np.flatnonzero(rest)] = bucket
            self._buckets[number] = merged
        self.size += len(states)

    def _parts(self, states: States) -> list[States]:
        return np.split(states, states.searchsorted(self._edges))
