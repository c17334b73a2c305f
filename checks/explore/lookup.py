"""From packed states to what a group does there: one table look-up for whole arrays of states."""

from collections.abc import Callable
from typing import Any

import numpy as np

from kvescrow.checks.explore.normal_form import Group, NormalForm
from kvescrow.checks.explore.packing import Packing, mask, runs

States = np.ndarray[Any, np.dtype[np.int64]]
Numbers = np.ndarray[Any, np.dtype[np.int32]]

TABLE_BITS = 21
"""A group whose fields take at most this many bits has a table with an entry for each valuation."""
UNKNOWN = -1


class Lookup:
    """The answers for one group, found when first asked for. `answer` numbers them."""

    def __init__(self, form: NormalForm, packing: Packing, group: Group, answer: Callable[[], int]) -> None:
        self._memory = form.views.memory
        self._answer = answer
        self._packing = packing
        self._digits = packing.of(group.variables)
        self._runs = runs(self._digits)
        self._mask = np.int64(mask(self._digits))
        bits = sum(digit.width for digit in self._digits)
        self._sizes = [1 << digit.width for digit in reversed(self._digits)]
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
            state = int(states[unknown[0]])
            number, read = self._ask(self._packing.unpack(state))
            where = tuple(
                (state >> digit.shift) & ((1 << digit.width) - 1) if read.intersection(digit.variables) else slice(None)
                for digit in reversed(self._digits)
            )
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
        keys: States
        keys, inverse = np.unique(states & self._mask, return_inverse=True)
        numbers: Numbers = np.empty(len(keys), np.int32)
        known = np.zeros(len(keys), bool)
        if len(self._keys):
            place = self._keys.searchsorted(keys)
            place[place == len(self._keys)] = 0
            known = self._keys.take(place) == keys
            numbers[known] = self._values.take(place[known])
        fresh = np.flatnonzero(~known)
        for position in fresh:
            numbers[position] = self._remembered(int(keys[position]))
        if len(fresh):
            merged = np.concatenate((self._keys, keys.take(fresh)))
            order = np.argsort(merged, kind="stable")
            self._keys = merged.take(order)
            self._values = np.concatenate((self._values, numbers.take(fresh))).take(order)
        return np.asarray(numbers.take(inverse), np.int32)

    def _remembered(self, key: int) -> int:
        codes = self._packing.unpack(key)
        for read, answers in self._known.items():
            found = answers.get(tuple(codes[v] for v in read))
            if found is not None:
                return found
        number, seen = self._ask(codes)
        read = tuple(sorted(seen))
        self._known.setdefault(read, {})[tuple(codes[v] for v in read)] = number
        return number

    def _ask(self, codes: list[int]) -> tuple[int, set[int]]:
        memory = self._memory
        memory.codes[:] = codes
        memory.read.clear()
        number = self._answer()
        return number, set(memory.read)
