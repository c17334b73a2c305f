"""From packed states to what a group does there: one table look-up for whole arrays of states."""

from collections.abc import Callable
from typing import Any

import numpy as np

from kvescrow.checks.explore.normal_form import Group, NormalForm
from kvescrow.checks.explore.packing import Packing

States = np.ndarray[Any, np.dtype[np.int64]]
Numbers = np.ndarray[Any, np.dtype[np.int32]]

TABLE_BITS = 21
"""A group whose fields take at most this many bits has a table with an entry for each valuation."""
UNKNOWN = -1


class Lookup:
    """The answers for one group, found when first asked for. `answer` numbers them."""

    def __init__(self, form: NormalForm, packing: Packing, group: Group, answer: Callable[[], int]) -> None:
        self._memory = form.views.memory
        self._group = group
        self._answer = answer
        self._packing = packing
        self._runs = packing.runs(group.variables)
        self._mask = packing.mask(group.variables)
        bits = sum(packing.widths[v] for v in group.variables)
        self._sizes = [1 << packing.widths[v] for v in reversed(group.variables)]
        self._table: Numbers | None = np.full(1 << bits, UNKNOWN, np.int32) if bits <= TABLE_BITS else None
        self._known: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {}
        self._keys = np.empty(0, np.int64)
        self._values = np.empty(0, np.int32)

    def numbers(self, states: States) -> Numbers:
        """Return the number of the answer for each state."""
        return self._by_key(states) if self._table is None else self._by_table(self._table, states)

    def _by_table(self, table: Numbers, states: States) -> Numbers:
        index = self._index(states)
        numbers = table.take(index)
        while True:
            unknown = np.flatnonzero(numbers < 0)
            if not len(unknown):
                return numbers
            number, read = self._ask(int(states[unknown[0]]))
            where = tuple(self._memory.codes[v] if v in read else slice(None) for v in reversed(self._group.variables))
            table.reshape(self._sizes)[where] = number
            numbers[unknown] = table.take(index.take(unknown))

    def _index(self, states: States) -> States:
        index: States | None = None
        for run in self._runs:
            part = states >> run.shift
            part &= run.mask
            if run.place:
                part <<= run.place
            if index is None:
                index = part
            else:
                index |= part
        return np.zeros(len(states), np.int64) if index is None else index

    def _by_key(self, states: States) -> Numbers:
        keys, inverse = np.unique(states & self._mask, return_inverse=True)
        place = np.searchsorted(self._keys, keys)
        place[place == len(self._keys)] = 0
        known = self._keys[place] == keys if len(self._keys) else np.zeros(len(keys), bool)
        numbers = self._values[place] if len(self._keys) else np.empty(len(keys), np.int32)
        for position in np.flatnonzero(~known):
            numbers[position] = self._remembered(int(keys[position]))
        fresh = ~known
        if fresh.any():
            merged = np.concatenate((self._keys, keys[fresh]))
            order = np.argsort(merged, kind="stable")
            self._keys = merged[order]
            self._values = np.concatenate((self._values, numbers[fresh]))[order]
        return numbers[inverse]

    def _remembered(self, key: int) -> int:
        codes = self._packing.unpack(key)
        for read, answers in self._known.items():
            found = answers.get(tuple(codes[v] for v in read))
            if found is not None:
                return found
        number, seen = self._ask(key)
        read = tuple(sorted(seen))
        self._known.setdefault(read, {})[tuple(codes[v] for v in read)] = number
        return number

    def _ask(self, state: int) -> tuple[int, set[int]]:
        memory = self._memory
        memory.codes[:] = self._packing.unpack(state)
        memory.read.clear()
        number = self._answer()
        return number, set(memory.read)
