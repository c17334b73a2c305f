"""Breadth-first search over packed states, a whole level at a time in numpy.

Levels give the least depth of everything, so a counterexample is a shortest one. States are exact: no hash, no loss.

Where the time goes: below a million states, to compiling the tables and to the start of the process, about 0.7 s in
all. On large lifecycles a state has about twenty next states and one of these is new, so nearly all the time goes to
adding and to looking up bits, some 10 ns for each next state. Where the key is too long for a bit each, a third goes
to sorting states and a third to finding the answers of groups that look at many places: the composition, whose parts
are coupled, is searched at a fifth of the rate.
"""

import time
from collections.abc import Iterator
from itertools import islice

import numpy as np

from kvescrow.checks.explore.instance import Instance
from kvescrow.checks.explore.lookup import Lookup, Numbers, States
from kvescrow.checks.explore.memory import Watcher, peak_bytes
from kvescrow.checks.explore.normal_form import Behaviour, Break, Changes, Group, NormalForm
from kvescrow.checks.explore.packing import PackedOverflow, Packing, packing_of, short_packings_of
from kvescrow.checks.explore.result import Breach, Exploration, Firing
from kvescrow.checks.explore.sums import Keeper, NotKept, Sums
from kvescrow.checks.explore.symmetry import Symmetry
from kvescrow.checks.explore.views import Outcome
from kvescrow.checks.explore.visited import Bits, Seen, Sorted

CHUNK = 1 << 16
"""States that are expanded at a time: their successors stay in the cache while they are looked at."""
SPARSE = 0.7
"""States with another successor are taken apart from the others where they are fewer than this."""
SHARE = 4
"""A set of bits may take one part in so many of the memory."""


class Answers:
    """The numbered behaviours of one group, and how often each occurred."""

    def __init__(self, engine: "Engine", group: Group) -> None:
        self.behaviours: list[Behaviour] = []
        self._numbers: dict[Behaviour, int] = {}
        self.bad: list[int] = []
        """Numbers of the behaviours that break something."""
        self.occurred = np.zeros(0, np.int64)
        self.deltas: list[States] = []
        """For each next state in turn what is added to the state, by number; 0 where there is none."""
        self._lengths = np.zeros(0, np.int64)
        self.lookup = Lookup(engine.form, engine.packing, group, lambda: self._number(engine.behave(group)))

    def _number(self, behaviour: Behaviour) -> int:
        number = self._numbers.setdefault(behaviour, len(self._numbers))
        if number == len(self.behaviours):
            self.behaviours.append(behaviour)
            if behaviour.broken:
                self.bad.append(number)
        return number

    def grow(self) -> None:
        """Take the behaviours that were met since into the arrays."""
        count = len(self.behaviours)
        if count == len(self._lengths):
            return
        self._lengths = np.array([len(behaviour.deltas) for behaviour in self.behaviours], np.int64)
        table = np.zeros((self._lengths.max(), count), np.int64)
        for number, behaviour in enumerate(self.behaviours):
            table[: len(behaviour.deltas), number] = behaviour.deltas
        self.deltas = list(table)
        self.occurred = np.concatenate((self.occurred, np.zeros(count - len(self.occurred), np.int64)))

    def count(self, numbers: Numbers, weights: States | None) -> list[int]:
        """Count what occurs; return how many states have a first next state by this group, a second, and so on."""
        self.grow()
        counts = np.bincount(numbers, minlength=len(self.behaviours))
        weighted = counts if weights is None else np.bincount(numbers, weights, len(self.behaviours)).astype(np.int64)
        self.occurred += weighted
        by_length = np.bincount(self._lengths, counts)
        return [int(count) for count in by_length[::-1].cumsum()[-2::-1]]

    def successors(self, states: States, numbers: Numbers, left: list[int]) -> Iterator[States]:
        """Yield the next states of all `states` by this group, some states themselves among them.

        `left` is what `count` returned.
        """
        for depth, deltas in enumerate(self.deltas[: len(left)]):
            if not left[depth]:
                return
            if left[depth] < SPARSE * len(states):
                chosen = np.flatnonzero(self._lengths.take(numbers) > depth)
                states, numbers = states.take(chosen), numbers.take(chosen)
            following = deltas.take(numbers)
            following += states
            yield following

    def breaks(self, numbers: Numbers) -> tuple[int, Break] | None:
        """Return (position of a state, what breaks there); None where nothing does."""
        for number in self.bad:
            where = np.flatnonzero(numbers == number)
            if len(where):
                return int(where[0]), self.behaviours[number].broken[0]
        return None


class Engine:
    """One instance, compiled for packed search.

    With a packing that sets counters apart, each step that is met is shown to keep them what they count.
    """

    def __init__(self, form: NormalForm, packing: Packing | None = None, *, symmetric: bool = False) -> None:
        self.form = form
        self.packing = packing_of(form.instance.name, form.views.variables) if packing is None else packing
        self._keeper = Keeper(form) if self.packing.apart else None
        self.answers = [Answers(self, group) for group in form.groups]
        self.symmetry = Symmetry(form.instance, form, self.packing) if symmetric else None
        self.sums = Sums(form, self.packing)
        self.first = self.packing.pack(form.views.first())

    def behave(self, group: Group) -> Behaviour:
        """Return what `group` does at the valuation in the memory."""
        return self.form.behave(group, self.packing, self._check)

    def _check(self, group: Group, changes: Changes) -> None:
        if self._keeper is not None:
            self._keeper.step(group, changes)

    @property
    def looks_at_counters(self) -> bool:
        """Return whether counters must be compared with what they count in every state, not only in the first."""
        return self._keeper is None and bool(self.form.counters)

    def broken_sum(self, states: States) -> tuple[int, Break] | None:
        """Return (position, invariant) of a state in which a counter is not what it counts; None where all are."""
        follow = self._keeper is not None and states[0] != self.first
        return None if follow else self.sums.broken(states)

    def seen(self) -> Seen:
        """Return an empty set of states."""
        if self.packing.indexed:
            return Bits(self.packing.key_bits, self.packing.apart)
        return Sorted(self.packing.bits)

    def successors(self, states: States) -> Iterator[States]:
        """Yield all next states of `states`, and some of `states` themselves."""
        for answers in self.answers:
            numbers = answers.lookup.numbers(states)
            yield from answers.successors(states, numbers, answers.count(numbers, None))


def search(instance: Instance, watcher: Watcher, *, symmetric: bool = False) -> Exploration:
    """Return every reachable state of `instance`, level by level; a breach ends the search at its least depth.

    Where keys are short enough the states are kept as bits. How long they must be shows only on the way, and so does
    whether the counters follow from what they count; where a try fails the next one starts from the first state.
    """
    started = time.perf_counter()
    form = NormalForm(instance)
    for packing in () if symmetric else short_packings_of(form.views.variables, Keeper(form).follow):
        if Bits.bytes_of(packing.key_bits) > watcher.limit // SHARE:
            break
        try:
            return _searched(Engine(form, packing), watcher, started)
        except PackedOverflow:
            continue
        except NotKept:
            break
    return _searched(Engine(form, symmetric=symmetric), watcher, started)


def _searched(engine: Engine, watcher: Watcher, started: float) -> Exploration:
    seen = engine.seen()
    seen.offer([np.array([engine.first], np.int64)])
    frontier = seen.settle()
    depth = full = 0
    found: tuple[int, Break] | None = None
    while len(frontier) and found is None:
        for states in _chunks(frontier):
            weights = engine.symmetry.weights(states) if engine.symmetry else None
            full += len(states) if weights is None else int(weights.sum())
            broken = _expand(engine, states, weights, seen)
            if broken is not None:
                found = int(states[broken[0]]), broken[1]
                break
        newest = seen.settle()
        watcher.level(depth, seen.size, len(newest), seen.wanted(len(newest)))
        if found is None and len(newest):
            depth += 1
        frontier = newest
    return concluded(engine, str(seen), full, depth, found, started, orbits=seen.size if engine.symmetry else None)


def concluded(
    engine: Engine,
    kept: str,
    states: int,
    depth: int,
    found: tuple[int, Break] | None,
    started: float,
    *,
    orbits: int | None = None,
) -> Exploration:
    """Return what a search came to, from what occurred on the way; `found` is (state, what breaks there)."""
    occurred = [
        (behaviour, int(count))
        for answers in engine.answers
        for behaviour, count in zip(answers.behaviours, answers.occurred, strict=False)
        if count
    ]
    return Exploration(
        instance=engine.form.instance.name,
        engine="packed",
        why="",
        kept=kept,
        states=states,
        transitions=sum(b.fired * count for b, count in occurred),
        moves=sum(b.changed * count for b, count in occurred),
        depth=depth,
        seconds=time.perf_counter() - started,
        memory=peak_bytes(),
        breach=None if found is None else _breach(engine, *found, depth),
        rows=frozenset().union(*(b.rows for b, _ in occurred)),
        reached=frozenset().union(*(b.reached for b, _ in occurred)),
        cut=sum(b.cut * count for b, count in occurred),
        orbits=orbits,
        left_out=engine.form.laws.left_out,
    )


def _expand(engine: Engine, states: States, weights: States | None, seen: Seen) -> tuple[int, Break] | None:
    """Offer all next states of `states`, or return (position, what breaks) of one of them."""
    broken = engine.broken_sum(states)
    canonical = engine.symmetry.canonical if engine.symmetry else None

    def following() -> Iterator[States]:
        nonlocal broken
        for answers in engine.answers:
            numbers = answers.lookup.numbers(states)
            left = answers.count(numbers, weights)
            broken = broken or answers.breaks(numbers)
            if broken is None:
                yield from answers.successors(states, numbers, left)

    seen.offer(following() if canonical is None else map(canonical, following()))
    return broken


def levels(engine: Engine) -> Iterator[States]:
    """Yield the states that are 0, 1, 2... steps away from the first one, each level sorted."""
    seen = engine.seen()
    seen.offer([np.array([engine.first], np.int64)])
    while len(level := seen.settle()):
        yield level
        for part in _chunks(level):
            seen.offer(engine.successors(part))


def _chunks(level: States) -> Iterator[States]:
    return (level[start : start + CHUNK] for start in range(0, len(level), CHUNK))


def _breach(found: Engine, state: int, broken: Break, depth: int) -> Breach:
    """Search again with every level kept, and walk back from `state` to the first one."""
    instance = found.form.instance
    engine = Engine(NormalForm(instance))
    kept = list(islice(levels(engine), depth))
    path: list[Firing] = []
    codes = found.packing.unpack(state)
    place = engine.packing.pack(codes)
    for level in reversed(kept):
        before = _predecessor(engine, level, place)
        path.append(_firing(engine, before, place))
        place = before
    path.reverse()
    if broken.move is not None:
        path.append(Firing(instance.moves[broken.move].name, broken.row))
    named = engine.form.views.named(codes)
    return Breach(broken.law, broken.what, tuple(path), named)


def _predecessor(engine: Engine, level: States, state: int) -> int:
    for answers in engine.answers:
        numbers = answers.lookup.numbers(level)
        deltas = [np.array(b.deltas or (0,), np.int64) for b in answers.behaviours]
        for number, steps in enumerate(deltas):
            for step in steps:
                where = np.flatnonzero((numbers == number) & (level == state - step))
                if len(where) and step:
                    return int(level[where[0]])
    raise AssertionError("every state of a level has a predecessor in the level before")


def _firing(engine: Engine, before: int, after: int) -> Firing:
    views = engine.form.views
    views.memory.codes[:] = engine.packing.unpack(before)
    wanted = engine.packing.unpack(after)
    for group in engine.form.groups:
        for number, move in group.moves:
            step = move()
            codes = list(views.memory.codes)
            for variable, code in step.changes:
                codes[variable] = code
            if step.outcome is Outcome.FIRED and codes == wanted:
                return Firing(engine.form.instance.moves[number].name, step.row)
    raise AssertionError("some move leads from a state to its successor")
