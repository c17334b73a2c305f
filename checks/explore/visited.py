"""The set of states that were seen: a bit for each possible key where keys are short, else sorted arrays."""

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from kvescrow.checks.explore.lookup import States

BUCKET_BITS = 8
BYTES_SORTED = 24
"""A state in the sorted set, once more while its bucket is merged, and once in its level."""
BYTES_NEW = 32
"""A state of the newest level beside the bits: as it is offered, while it is sorted, and in its level."""


class Seen(Protocol):
    """A growing set of packed states. A level of the search offers the next states, then settles."""

    size: int

    def offer(self, following: Iterable[States]) -> None:
        """Note next states: in any order, with repetitions, new or not."""

    def settle(self) -> States:
        """Return what was offered and was not in the set, in order and once. Now it is in the set."""

    def wanted(self, newest: int) -> int:
        """Return the bytes that one more level with twice the `newest` states may take."""


class Bits:
    """A bit for each key, all keys being possible. It costs neither a sort nor a search to find what is new."""

    def __init__(self, key_bits: int, apart: int) -> None:
        self._key_bits, self._apart = key_bits, apart
        self._bytes: np.ndarray[Any, np.dtype[np.uint8]] = np.zeros(self.bytes_of(key_bits), np.uint8)
        self._offered: list[States] = []
        self.size = 0

    @staticmethod
    def bytes_of(key_bits: int) -> int:
        """Return how many bytes the set takes for keys of this length."""
        return 1 << max(0, key_bits - 3)

    def __str__(self) -> str:
        return f"a bit for each of 2^{self._key_bits} keys"

    def offer(self, following: Iterable[States]) -> None:
        """Note next states."""
        for states in following:
            self._offer(states)

    def _offer(self, states: States) -> None:
        places = states >> (self._apart + 3)
        bits = (states >> self._apart).astype(np.uint8)
        bits &= 7
        found = self._bytes.take(places)
        found >>= bits
        found &= 1
        fresh = np.flatnonzero(found == 0)
        if not len(fresh):
            return
        self._offered.append(states.take(fresh))
        # Of two new keys in one byte this notes one: enough to drop most repetitions. `settle` notes all.
        places = places.take(fresh)
        self._bytes[places] = self._bytes.take(places) | _BIT.take(bits.take(fresh))

    def settle(self) -> States:
        """Return what is new."""
        states = _in_order(self._offered)
        self._offered = []
        if len(states):
            places = states >> (self._apart + 3)
            bits = _BIT.take((states >> self._apart) & 7)
            starts = np.flatnonzero(np.concatenate((places[:1] >= 0, places[1:] != places[:-1])))
            self._bytes[places.take(starts)] |= np.bitwise_or.reduceat(bits, starts)
        self.size += len(states)
        return states

    def wanted(self, newest: int) -> int:
        """Return the bytes of another level."""
        return len(self._bytes) + 2 * newest * BYTES_NEW


_BIT = np.left_shift(1, np.arange(8)).astype(np.uint8)


class Sorted:
    """Sorted arrays in buckets, by the uppermost bits: for states of any width."""

    def __init__(self, bits: int) -> None:
        shift = max(0, bits - BUCKET_BITS)
        count = 1 << min(bits, BUCKET_BITS)
        self._edges = (np.arange(1, count, dtype=np.int64)) << shift
        self._buckets: list[States] = [np.empty(0, np.int64)] * count
        self._offered: list[States] = []
        self.size = 0

    def __str__(self) -> str:
        return "sorted states"

    def offer(self, following: Iterable[States]) -> None:
        """Note next states; those of one call are sorted together."""
        self._offered.append(self._new(_in_order(list(following))))

    def settle(self) -> States:
        """Return what is new."""
        states = self._offered[0] if len(self._offered) == 1 else _in_order(self._offered)
        self._offered = []
        self._add(states)
        return states

    def wanted(self, newest: int) -> int:
        """Return the bytes of another level."""
        return (self.size + 2 * newest) * BYTES_SORTED

    def _new(self, states: States) -> States:
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

    def _add(self, states: States) -> None:
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


def _in_order(parts: list[States]) -> States:
    """Return the states of all parts, sorted and without repetitions."""
    if not parts:
        return np.empty(0, np.int64)
    states = np.concatenate(parts)
    states.sort()
    if len(states) < 2:
        return states
    keep = np.empty(len(states), bool)
    keep[0] = True
    np.not_equal(states[1:], states[:-1], out=keep[1:])
    return states.take(np.flatnonzero(keep))
