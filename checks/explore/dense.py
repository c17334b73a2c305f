"""The reachable set as one array of bits: an axis a slot, the last slot in the bits of a word.

Counters are functions of the slots (`certified` has shown it), so they are not stored. A transition of a slot is
`R[target] |= R[source]` along its axis, and only where the counters stay within their limits if it must fit. Axis by
axis this grows to a fixpoint. A second pass, apart from the first, shows that no transition leads out of the set, and
counts how many there are.
"""

import time
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from kvescrow.checks.explore.certified import Certified, NotCertified, Slot, Transition, When, certify
from kvescrow.checks.explore.instance import Instance
from kvescrow.checks.explore.memory import Watcher, peak_bytes
from kvescrow.checks.explore.result import Exploration

Words = np.ndarray[Any, np.dtype[np.uint32]]

WORD_BITS = 32
INNER = 4
"""Axes of a block beside the bits: a block of 20^3 words stays in the first caches."""
LOW_BITS = 12
"""Bits of a word that are looked up at a time."""


class _Field:
    """The array, its limits, and its transitions by axis."""

    def __init__(self, certified: Certified, watcher: Watcher) -> None:
        self.slots = certified.slots
        self.limits = np.array(certified.limits, np.int64)
        sizes = [len(slot.locals) for slot in self.slots]
        if sizes[-1] > WORD_BITS:
            raise NotCertified(f"{self.slots[-1].place} has {sizes[-1]} local states and a word has {WORD_BITS} bits")
        self.shape = tuple(sizes[:-1])
        self.inner = self.shape[-INNER:]
        self.outer = self.shape[: len(self.shape) - len(self.inner)]
        watcher.need(4 * int(np.prod(self.shape, dtype=object)))
        self.words: Words = np.zeros(self.shape, np.uint32)
        self._legal: dict[tuple[int, ...], Words] = {}
        self._inner_weights = self._weights_of_blocks()

    def _weights_of_blocks(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return what the slots of a block add to each counter: shape (counters, *inner)."""
        axes = self.slots[len(self.outer) : -1]
        total = np.zeros((len(self.limits), *self.inner), np.int64)
        for axis, slot in enumerate(axes):
            shape = [len(self.limits), *(len(slot.locals) if n == axis else 1 for n in range(len(axes)))]
            total += np.array(slot.weights, np.int64).reshape(len(slot.locals), -1).T.reshape(shape)
        return total

    def blocks(self) -> Iterator[tuple[int, ...]]:
        """Yield the index of each block whose outer slots alone stay within the limits."""
        for index in product(*(range(size) for size in self.outer)):
            if all(weight <= limit for weight, limit in zip(self.outer_weight(index), self.limits, strict=True)):
                yield index

    def outer_weight(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """Return what the outer slots add to each counter."""
        weights = [slot.weights[state] for slot, state in zip(self.slots, index, strict=False)]
        return tuple(sum(column) for column in zip(*weights, strict=True)) or (0,) * len(self.limits)

    def legal(self, index: tuple[int, ...]) -> Words:
        """Return, for a block, the states in which every counter is within its limit."""
        key = self.outer_weight(index)
        if key not in self._legal:
            base = self._inner_weights + np.array(key, np.int64).reshape(-1, *(1 for _ in self.inner))
            words = np.zeros(self.inner, np.uint32)
            for bit, weight in enumerate(self.slots[-1].weights):
                fits = np.ones(self.inner, bool)
                for counter, limit in enumerate(self.limits):
                    fits &= base[counter] + weight[counter] <= limit
                words |= fits.astype(np.uint32) << np.uint32(bit)
            self._legal[key] = words
        return self._legal[key]

    def count(self) -> int:
        """Return how many states are in the set."""
        return _count(self.words)


class _Bits:
    """The transitions of the last slot, on the bits of a word."""

    def __init__(self, slot: Slot) -> None:
        after = [0] * len(slot.locals)
        for transition in _reaching(slot):
            after[transition.source] |= 1 << transition.target
        self._low = _unions(after[:LOW_BITS])
        self._high = _unions(after[LOW_BITS : 2 * LOW_BITS])
        self._top = _unions(after[2 * LOW_BITS :])

    def after(self, words: Words, legal: Words) -> Words:
        """Return the states that one transition of the slot leads to. What needs no room stays within the limits."""
        mask = np.uint32((1 << LOW_BITS) - 1)
        result: Words = self._low.take(words & mask)
        result |= self._high.take((words >> np.uint32(LOW_BITS)) & mask)
        result |= self._top.take(words >> np.uint32(2 * LOW_BITS))
        result &= legal
        return result


def _unions(after: list[int]) -> Words:
    table = np.zeros(1 << len(after), np.uint32)
    for bit, targets in enumerate(after):
        table[1 << bit : 2 << bit] = table[: 1 << bit] | np.uint32(targets)
    return table


def _reaching(slot: Slot) -> list[Transition]:
    """Return one transition for each pair of local states, the freest, in the order in which states are first met."""
    best: dict[tuple[int, int], Transition] = {}
    for transition in slot.transitions:
        pair = (transition.source, transition.target)
        if transition.when is When.LACKS:
            continue
        if transition.when is When.FITS and transition.towards != transition.target:
            raise NotCertified(f"row {transition.row} depends on the room of another state than the one it leads to")
        if pair not in best or transition.when is When.ALWAYS:
            best[pair] = transition
    covered = {pair for pair, transition in best.items() if transition.when is When.ALWAYS}
    for transition in slot.transitions:
        if transition.when is When.LACKS and (transition.source, transition.target) not in covered:
            raise NotCertified(f"row {transition.row} is taken only where there is no room")
    return sorted(best.values(), key=lambda t: (t.source, t.target))


def search(instance: Instance, watcher: Watcher) -> Exploration:
    """Return how many states and transitions `instance` has; raise `NotCertified` where it is not of this kind."""
    started = time.perf_counter()
    certified = certify(instance)
    field = _Field(certified, watcher)
    _grow(field, watcher)
    states = field.count()
    moves = _close(field)
    return Exploration(
        instance=instance.name,
        engine="dense",
        why="",
        kept="an array of bits, the counters certified as functions of the slots",
        states=states,
        transitions=states * certified.moves,
        moves=moves,
        depth=None,
        seconds=time.perf_counter() - started,
        memory=peak_bytes(),
        left_out=(),
    )


def _grow(field: _Field, watcher: Watcher) -> None:
    """Apply every transition until a whole round adds nothing."""
    field.words[(0,) * len(field.shape)] = 1
    outer = [_reaching(slot) for slot in field.slots[: len(field.outer)]]
    inner = [_reaching(slot) for slot in field.slots[len(field.outer) : -1]]
    bits = _Bits(field.slots[-1])
    blocks = list(field.blocks())
    settled: dict[tuple[int, ...], int] = {}
    states, rounds = 1, 0
    while True:
        for axis, transitions in enumerate(outer):
            _grow_outer(field, axis, transitions)
        for index in blocks:
            block = field.words[index]
            size = _count(block)
            if size and settled.get(index) != size:
                settled[index] = _grow_block(block, field.legal(index), inner, bits, size)
        rounds += 1
        total = field.count()
        watcher.level(rounds, total, total - states, 0)
        if total == states:
            return
        states = total


def _grow_outer(field: _Field, axis: int, transitions: list[Transition]) -> None:
    before = (slice(None),) * axis
    later = [range(size) for size in field.outer[axis + 1 :]]
    earlier = [range(size) for size in field.outer[:axis]]
    for transition in transitions:
        if transition.when is When.ALWAYS:
            target = field.words[_at(before, transition.target)]
            np.bitwise_or(target, field.words[_at(before, transition.source)], out=target)
            continue
        for left, right in product(product(*earlier), product(*later)):
            index = (*left, transition.target, *right)
            target = field.words[index]
            target |= field.words[(*left, transition.source, *right)] & field.legal(index)


def _grow_block(block: Words, legal: Words, inner: list[list[Transition]], bits: _Bits, size: int) -> int:
    while True:
        for axis, transitions in enumerate(inner):
            before = (slice(None),) * axis
            for transition in transitions:
                source, target = block[_at(before, transition.source)], block[_at(before, transition.target)]
                if transition.when is When.ALWAYS:
                    np.bitwise_or(target, source, out=target)
                else:
                    target |= source & legal[_at(before, transition.target)]
        block |= bits.after(block, legal)
        grown = _count(block)
        if grown == size:
            return size
        size = grown


def _close(field: _Field) -> int:
    """Show that no transition leads out of the set and no state is beyond a limit; return how many moves change it.

    This pass shares only the array and the limits with the pass that grew it.
    """
    always = [_times(slot) for slot in field.slots]
    reaching = [_reaching(slot) for slot in field.slots]
    total = 0
    for index in field.blocks():
        block, legal = field.words[index], field.legal(index)
        if not block.any():
            continue
        escaped = block & ~legal
        for axis, counts in enumerate(_by_local_state(field, index)):
            total += int(counts @ always[axis])
            for transition in field.slots[axis].transitions:
                if transition.when is not When.ALWAYS and counts[transition.source]:
                    source, _, room = _sides(field, index, axis, transition)
                    fitting = _count(source & room)
                    lacking = int(counts[transition.source]) - fitting
                    total += transition.times * (fitting if transition.when is When.FITS else lacking)
            for transition in reaching[axis]:
                if counts[transition.source]:
                    source, target, room = _sides(field, index, axis, transition)
                    taken = source if transition.when is When.ALWAYS else source & room
                    escaped.reshape(-1)[0] |= np.bitwise_or.reduce(taken & ~target, axis=None)
        if escaped.any():
            raise AssertionError("the set is not closed: a transition leads out of it, or beyond a limit")
    return total


def _times(slot: Slot) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return how many moves change each local state whatever the counters are."""
    times = np.zeros(len(slot.locals), np.int64)
    for transition in slot.transitions:
        if transition.when is When.ALWAYS:
            times[transition.source] += transition.times
    return times


def _by_local_state(field: _Field, index: tuple[int, ...]) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    """Return, for each slot, how many states of a block have it in each local state."""
    block = field.words[index]
    counts = np.bitwise_count(block)
    found = []
    for axis, slot in enumerate(field.slots[: len(field.outer)]):
        of_axis = np.zeros(len(slot.locals), np.int64)
        of_axis[index[axis]] = counts.sum(dtype=np.int64)
        found.append(of_axis)
    axes = range(counts.ndim)
    found += [counts.sum(axis=tuple(a for a in axes if a != axis), dtype=np.int64) for axis in axes]
    bits = range(len(field.slots[-1].locals))
    found.append(np.array([_count(block & np.uint32(1 << bit)) for bit in bits], np.int64))
    return found


def _sides(field: _Field, index: tuple[int, ...], axis: int, transition: Transition) -> tuple[Words, Words, Words]:
    """Return source and target of a transition in a block, and where its room is: words of the same shape."""
    places = (transition.source, transition.target, transition.towards)
    if axis < len(field.outer):
        _, to, room = ((*index[:axis], state, *index[axis + 1 :]) for state in places)
        return field.words[index], field.words[to], field.legal(room)
    block, legal = field.words[index], field.legal(index)
    if axis < len(field.slots) - 1:
        before = (slice(None),) * (axis - len(field.outer))
        of = [block[_at(before, transition.source)], block[_at(before, transition.target)]]
        return of[0], of[1], legal[_at(before, transition.towards)]
    one = np.uint32(1)
    bits = [(words >> np.uint32(state)) & one for words, state in zip((block, block, legal), places, strict=True)]
    return bits[0], bits[1], bits[2]


def _at(before: tuple[slice, ...], state: int) -> Any:
    """Return the index of one state of a slot: a view even where the slot has the only axis."""
    return (*before, state, ...)


def _count(words: Words) -> int:
    return int(np.bitwise_count(words).sum(dtype=np.int64))
