"""All counting invariants at once: for each state, what the counters are against what their places add up to."""

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from kvescrow.checks.explore.lookup import Lookup, States
from kvescrow.checks.explore.normal_form import Break, Changes, Group, NormalForm
from kvescrow.checks.explore.packing import BITS, Packing
from kvescrow.spec.vocabulary import UserError

SPARE = 1
"""Bits beside those of a counter's domain, so that a sum that is wrong does not reach its neighbour at once."""


class _Amounts:
    """The amounts that a group of places stands for, packed one counter beside the other."""

    def __init__(self, form: NormalForm, packing: Packing, group: Group, amount: Callable[[], int]) -> None:
        self._found: list[int] = []
        self._table = np.zeros(0, np.int64)
        self._amount = amount
        self._lookup = Lookup(form, packing, group, self._number)

    def _number(self) -> int:
        self._found.append(self._amount())
        return len(self._found) - 1

    def of(self, states: States) -> States:
        """Return the packed amounts for each state."""
        numbers = self._lookup.numbers(states)
        if len(self._table) < len(self._found):
            self._table = np.array(self._found, np.int64)
        return self._table.take(numbers)


class Sums:
    """The counting invariants of an instance, on packed states."""

    def __init__(self, form: NormalForm, packing: Packing) -> None:
        self._form = form
        self._shifts = _shifts(form)
        self._terms = [_Amounts(form, packing, group, self._adder(group)) for group in form.sum_groups]
        places = dict.fromkeys(total.place for total in form.laws.sums)
        self._counters = [_Amounts(form, packing, self._counters_of(place), self._reader(place)) for place in places]

    def _adder(self, group: Group) -> Callable[[], int]:
        return lambda: sum(amount() << self._shifts[index] for index, amount in group.terms)

    def _counters_of(self, place: str) -> Group:
        counters = self._form.counters
        return Group((place,), tuple(c for c in counters if self._form.views.variables[c].place == place))

    def _reader(self, place: str) -> Callable[[], int]:
        memory = self._form.views.memory
        lanes = [
            (counter, shift)
            for counter, shift in zip(self._form.counters, self._shifts, strict=True)
            if memory.variables[counter].place == place
        ]

        def read() -> int:
            memory.read.update(counter for counter, _ in lanes)
            values = ((memory.variables[c].domain[memory.codes[c]], shift) for c, shift in lanes)
            return sum(cast(int, value) << shift for value, shift in values)

        return read

    def broken(self, states: States) -> tuple[int, Break] | None:
        """Return (position, invariant) of a state in which a counter is not its sum; None where all are."""
        if not self._counters:
            return None
        difference = _total(self._terms, states)
        difference -= _total(self._counters, states)
        wrong = np.flatnonzero(difference)
        if not len(wrong):
            return None
        position = int(wrong[0])
        lowest = (int(difference[position]) & -int(difference[position])).bit_length() - 1
        # The lowest counter that differs: those above it may differ by a borrow alone.
        index = max(index for index, shift in enumerate(self._shifts) if shift <= lowest)
        return position, Break(None, "", "invariant", self._form.laws.sums[index].name)


class NotKept(Exception):
    """A step does not move a counter by as much as what it counts, or its places do not tell whether it does."""


class Keeper:
    """Shows, step by step, that counters follow from what they count.

    Where the invariant `counter == sum of its terms` holds before a step, and the step moves both sides by the same
    amount, it holds after it. So the counters of reachable states need not be looked at, nor told apart.
    """

    def __init__(self, form: NormalForm) -> None:
        self._form = form
        self._sums_of: dict[int, list[int]] = {}
        for index, counter in enumerate(form.counters):
            self._sums_of.setdefault(counter, []).append(index)
        self._counted_by: dict[int, list[Group]] = {}
        for counted in form.sum_groups:
            for variable in counted.variables:
                self._counted_by.setdefault(variable, []).append(counted)
        self._amounts: dict[tuple[int, ...], tuple[int, ...]] = {}

    @property
    def follow(self) -> tuple[int, ...]:
        """Return the counters that can follow from other variables; none where what is counted depends on one."""
        return () if self._sums_of.keys() & self._counted_by.keys() else tuple(sorted(self._sums_of))

    def step(self, group: Group, changes: Changes) -> None:
        """Check that a step of `group`, in the state of the memory, moves every counter as what it counts.

        Raises `NotKept` where it does not.
        """
        memory = self._form.views.memory
        after = list(memory.codes)
        for variable, code in changes:
            after[variable] = code
        apart = dict.fromkeys(range(len(self._form.counters)), 0)
        for variable, code in changes:
            for index in self._sums_of.get(variable, ()):
                domain = memory.variables[variable].domain
                apart[index] += cast(int, domain[code]) - cast(int, domain[memory.codes[variable]])
        touched = {id(c): c for variable, _ in changes for c in self._counted_by.get(variable, ())}
        for counted in touched.values():
            if not set(counted.variables) <= set(group.variables):
                raise NotKept
            memory.read.update(counted.variables)
            amounts = zip(self._counted(counted, memory.codes), self._counted(counted, after), strict=True)
            for (index, _), (before, now) in zip(counted.terms, amounts, strict=True):
                apart[index] -= now - before
        if any(apart.values()):
            raise NotKept

    def _counted(self, counted: Group, codes: Sequence[int]) -> tuple[int, ...]:
        """Return what each term of a group comes to where the variables have these codes."""
        key = (id(counted), *[codes[variable] for variable in counted.variables])
        if key not in self._amounts:
            memory = self._form.views.memory
            kept = list(memory.codes)
            memory.codes[:] = codes
            self._amounts[key] = tuple(amount() for _, amount in counted.terms)
            memory.codes[:] = kept
        return self._amounts[key]


def _total(amounts: Sequence[_Amounts], states: States) -> States:
    total = np.zeros(len(states), np.int64)
    for amount in amounts:
        total += amount.of(states)
    return total


def _shifts(form: NormalForm) -> tuple[int, ...]:
    """Return where each sum stands in the packed amounts."""
    shifts: list[int] = []
    place = 0
    for counter in form.counters:
        shifts.append(place)
        place += (len(form.views.variables[counter].domain) - 1).bit_length() + SPARE
    if place > BITS:
        raise UserError(
            f"instance {form.instance.name}: its counters take {place} bits and {BITS} are left; keep fewer"
        )
    return tuple(shifts)
