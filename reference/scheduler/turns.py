"""Whose prompt is computed next: the fair share of prefill tokens between classes, on one worker (FAI-2, FAI-3).

Admission shares capacity; this shares the time of the worker. The class with the least counter of prefill tokens over
weight comes first, and within a class whoever came first. A class that had no prompt to compute starts at the least
counter of those that have one.
"""

from collections.abc import Collection, Mapping
from math import lcm


class PrefillTurns:
    """Turns between classes."""

    def __init__(self, weights: Mapping[str, int]) -> None:
        """Begin with all equal; `weights` are positive, and name every class."""
        common = lcm(*weights.values())
        self._scale = {name: common // weight for name, weight in weights.items()}
        self._counter = dict.fromkeys(weights, 0)
        self._pending: frozenset[str] = frozenset()
        self._virtual = 0

    def first(self, pending: Collection[str]) -> str:
        """Return which of the classes `pending`, which all have a prompt to compute, comes first."""
        known = [self._counter[name] for name in pending if name in self._pending]
        least = min(known, default=self._virtual)
        for name in pending:
            if name not in self._pending:
                self._counter[name] = max(self._counter[name], least)
        self._pending = frozenset(pending)
        return min(sorted(pending), key=lambda name: self._counter[name])

    def charge(self, name: str, tokens: int) -> None:
        """Count `tokens` computed for `name`."""
        self._counter[name] += tokens * self._scale[name]
        self._virtual = max(self._virtual, self._counter[name])
