"""From packed states to what a group does there: one table look-up for whole arrays of states."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from kvescrow.checks.explore.normal_form import Group, NormalForm
from kvescrow.checks.explore.packing import BITS, Digit, Packing, mask, runs

States = np.ndarray[Any, np.dtype[np.int64]]
Numbers = np.ndarray[Any, np.dtype[np.int64]]
"""Numbers of answers; as wide as an index, so that no look-up converts them first."""

TABLE_BITS = 21
"""A group whose fields take at most this many bits has a table with an entry for each valuation."""
CACHE_BITS = 18
"""The others have a cache with so many entries: what misses it is sorted, and looked for among all that is known."""
UNKNOWN = -1
SPREAD = np.int64(0x1E3779B97F4A7C15)
"""An odd number; the upper bits of its products are spread well."""


class Lookup:
    """The answers for one group, found when first asked for. `answer` numbers them."""

    def __init__(self, form: NormalForm, packing: Packing, group: Group, answer: Callable[[], int]) -> None:
        self._memory = form.views.memory
        self._answer = answer
        self._packing = packing
        self._digits = packing.of(group.variables)
        self.runs = runs(self._digits)
        """How the index into the table is drawn from a state."""
        bits = sum(digit.width for digit in self._digits)
        self._sizes = [1 << digit.width for digit in reversed(self._digits)]
        self.table: Numbers | None = np.full(1 << bits, UNKNOWN, np.int64) if bits <= TABLE_BITS else None
        """The number for each index, `UNKNOWN` where no state has asked; None where it would be too large."""
        self._known = _Known()
        self._wide = _Wide(self._digits)
        self._mask = np.int64(mask(self._digits))
        cached = 0 if self.table is not None else 1 << CACHE_BITS
        self._cached_keys = np.full(cached, UNKNOWN, np.int64)
        self._cached = np.zeros(cached, np.int64)

    def numbers(self, states: States) -> Numbers:
        """Return the number of the answer for each state."""
        return self._by_key(states) if self.table is None else self._by_table(self.table, states)

    def _by_table(self, table: Numbers, states: States) -> Numbers:
        index = self._index(states)
        numbers = table.take(index)
        while numbers.min(initial=0) < 0:
            unknown = np.flatnonzero(numbers < 0)
            state = int(states[unknown[0]])
            number, read = self._ask(state)
            where = tuple(
                (state >> digit.shift) & ((1 << digit.width) - 1) if read.intersection(digit.variables) else slice(None)
                for digit in reversed(self._digits)
            )
            table.reshape(self._sizes)[where] = number
            numbers[unknown] = table.take(index.take(unknown))
        return numbers

    def _index(self, states: States) -> States:
        index: States | None = None
        for run in self.runs:
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
        keys = states & self._mask
        spots = keys * SPREAD
        spots >>= 63 - CACHE_BITS
        spots &= (1 << CACHE_BITS) - 1
        numbers = self._cached.take(spots)
        missed = np.flatnonzero(self._cached_keys.take(spots) != keys)
        if len(missed):
            missing = keys.take(missed)
            numbers[missed] = found = self._of_keys(missing)
            spots = spots.take(missed)
            # Of two keys at one spot the last one written stays, in both arrays: numpy writes in order.
            self._cached_keys[spots] = missing
            self._cached[spots] = found
        return numbers

    def _of_keys(self, keys: States) -> Numbers:
        """Return the numbers of keys, asking once for each that differs in what is read."""
        wide = self._wide.of(keys)
        numbers = self._known.numbers(wide)
        unknown = np.flatnonzero(numbers < 0)
        while len(unknown):
            number, read = self._ask(int(keys[unknown[0]]))
            bits = self._wide.mask(read)
            part = int(wide[unknown[0]]) & bits
            self._known.add(bits, part, number)
            alike = (wide.take(unknown) & bits) == part
            numbers[unknown[alike]] = number
            unknown = unknown[~alike]
        return numbers

    def _ask(self, state: int) -> tuple[int, set[int]]:
        memory = self._memory
        memory.codes[:] = self._packing.unpack(state)
        memory.read.clear()
        number = self._answer()
        return number, set(memory.read)


class _Wide:
    """Keys in which each variable has bits of its own, where they all fit: what was read of a record is told apart."""

    def __init__(self, digits: Sequence[Digit]) -> None:
        self._digits = digits
        variables = [variable for digit in digits for variable in digit.variables]
        widths = [width for digit in digits for width in digit.widths]
        self._fits = sum(widths) <= BITS
        self._shifts = dict(zip(variables, accumulate(widths, initial=0), strict=False))
        self._widths = dict(zip(variables, widths, strict=True))
        self.tables: list[States] = [np.empty(0, np.int64)] * len(digits)

    def of(self, keys: States) -> States:
        """Return `keys` with a number of bits for each variable."""
        if not self._fits:
            return keys
        wide = np.zeros(len(keys), np.int64)
        for place, digit in enumerate(self._digits):
            part = (keys >> digit.shift) & ((1 << digit.width) - 1)
            if digit.numbers is None:
                wide |= part << self._shifts[digit.variables[0]]
                continue
            if len(self.tables[place]) < len(digit.records):
                self.tables[place] = np.array([self._of_record(digit, codes) for codes in digit.records], np.int64)
            wide |= self.tables[place].take(part)
        return wide

    def _of_record(self, digit: Digit, codes: Sequence[int]) -> int:
        return sum(code << self._shifts[variable] for variable, code in zip(digit.variables, codes, strict=True))

    def mask(self, read: set[int]) -> int:
        """Return the bits of the variables that were `read`."""
        if not self._fits:
            return mask([digit for digit in self._digits if read.intersection(digit.variables)])
        return sum(((1 << self._widths[v]) - 1) << self._shifts[v] for v in read if v in self._shifts)


class _Known:
    """Answers by the bits of the state that they depend on."""

    def __init__(self) -> None:
        self._by_bits: dict[int, dict[int, int]] = {}
        self._sorted: dict[int, tuple[States, Numbers]] = {}

    def add(self, bits: int, key: int, number: int) -> None:
        """Remember the answer for all states that have `key` in `bits`."""
        self._by_bits.setdefault(bits, {})[key] = number
        self._sorted.pop(bits, None)

    def numbers(self, keys: States) -> Numbers:
        """Return the number of the answer for each key, UNKNOWN where there is none yet."""
        numbers: Numbers = np.full(len(keys), UNKNOWN, np.int64)
        left = np.arange(len(keys))
        for bits in self._by_bits:
            if not len(left):
                break
            known, answers = self._arrays(bits)
            parts = keys.take(left) & bits
            places = known.searchsorted(parts)
            places[places == len(known)] = 0
            found = known.take(places) == parts
            hit = np.flatnonzero(found)
            numbers[left.take(hit)] = answers.take(places.take(hit))
            left = left.take(np.flatnonzero(~found))
        return numbers

    def _arrays(self, bits: int) -> tuple[States, Numbers]:
        if bits not in self._sorted:
            answers = sorted(self._by_bits[bits].items())
            keys, numbers = zip(*answers, strict=True)
            self._sorted[bits] = np.array(keys, np.int64), np.array(numbers, np.int64)
        return self._sorted[bits]
