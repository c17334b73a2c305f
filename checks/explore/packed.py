"""Breadth-first search over packed states, a whole level at a time in numpy.

Levels give the least depth of everything, so a counterexample is a shortest one. States are exact: no hash, no loss.
"""

import time
from collections.abc import Iterator
from itertools import islice

import numpy as np

from kvescrow.checks.explore.instance import Instance
from kvescrow.checks.explore.lookup import Lookup, Numbers, States
from kvescrow.checks.explore.memory import Watcher, peak_bytes
from kvescrow.checks.explore.normal_form import Behaviour, Break, Group, NormalForm
from kvescrow.checks.explore.packing import packing_of
from kvescrow.checks.explore.result import Breach, Exploration, Firing
from kvescrow.checks.explore.sums import Sums
from kvescrow.checks.explore.symmetry import Symmetry
from kvescrow.checks.explore.views import Outcome
from kvescrow.checks.explore.visited import Visited

CHUNK = 1 << 16
"""States that are expanded at a time: their successors stay in the cache while they are sorted."""
BYTES_A_STATE = 24
"""A state in the visited set, once more while its bucket is merged, and once in its level."""


class _Answers:
    """The numbered behaviours of one group, and how often each occurred."""

    def __init__(self, form: NormalForm, engine: "Engine", group: Group) -> None:
        self.behaviours: list[Behaviour] = []
        self._numbers: dict[Behaviour, int] = {}
        self.occurred = np.zeros(0, np.int64)
        self._table: list[States] = []
        self._lengths = np.zeros(0, np.int32)
        self.lookup = Lookup(form, engine.packing, group, lambda: self._number(form.behave(group, engine.packing)))

    def _number(self, behaviour: Behaviour) -> int:
        number = self._numbers.setdefault(behaviour, len(self._numbers))
        if number == len(self.behaviours):
            self.behaviours.append(behaviour)
        return number

    def _grow(self) -> None:
        count = len(self.behaviours)
        if count == len(self._lengths):
            return
        longest = max(len(behaviour.deltas) for behaviour in self.behaviours)
        table = np.zeros((longest, count), np.int64)
        for number, behaviour in enumerate(self.behaviours):
            table[: len(behaviour.deltas), number] = behaviour.deltas
        self._table = list(table)
        self._lengths = np.array([len(behaviour.deltas) for behaviour in self.behaviours], np.int32)
        self.occurred = np.concatenate((self.occurred, np.zeros(count - len(self.occurred), np.int64)))

    def successors(self, states: States, numbers: Numbers, weights: States | None) -> Iterator[States]:
        """Yield the different next states of all `states` by this group, and count what occurs."""
        self._grow()
        count = np.bincount(numbers, weights, len(self.behaviours))
        self.occurred += count.astype(np.int64)
        lengths = self._lengths.take(numbers)
        for depth, deltas in enumerate(self._table):
            chosen = np.flatnonzero(lengths > depth)
            if not len(chosen):
                return
            if len(chosen) < len(states):
                states, numbers, lengths = states.take(chosen), numbers.take(chosen), lengths.take(chosen)
            yield states + deltas.take(numbers)

    def breaks(self, numbers: Numbers) -> list[tuple[int, Break]]:
        """Return (position of the first state, what breaks there) for every behaviour that breaks something."""
        bad = [number for number, behaviour in enumerate(self.behaviours) if behaviour.broken]
        found = ((np.flatnonzero(numbers == number), number) for number in bad)
        return [(int(where[0]), self.behaviours[number].broken[0]) for where, number in found if len(where)]


class Engine:
    """One instance, compiled for packed search."""

    def __init__(self, instance: Instance, *, symmetric: bool = False) -> None:
        self.instance = instance
        self.form = NormalForm(instance)
        self.packing = packing_of(instance.name, self.form.views.variables)
        self.answers = [_Answers(self.form, self, group) for group in self.form.groups]
        self.symmetry = Symmetry(instance, self.form, self.packing) if symmetric else None
        self.sums = Sums(self.form, self.packing)
        self.first = self.packing.pack(self.form.views.first())

    def expand(self, states: States, weights: States | None = None) -> tuple[list[States], tuple[int, Break] | None]:
        """Return all next states of `states`, unsorted, or what breaks in one of them."""
        broken = self.sums.broken(states)
        following: list[States] = []
        for answers in self.answers:
            numbers = answers.lookup.numbers(states)
            following.extend(answers.successors(states, numbers, weights))
            broken = broken or next(iter(answers.breaks(numbers)), None)
        return following, broken


def search(instance: Instance, watcher: Watcher, *, symmetric: bool = False) -> Exploration:
    """Return every reachable state of `instance`, level by level; a breach ends the search at its least depth."""
    started = time.perf_counter()
    engine = Engine(instance, symmetric=symmetric)
    visited = Visited(engine.packing.bits)
    frontier = np.array([engine.first], np.int64)
    visited.add(frontier)
    depth = full = 0
    found: tuple[int, Break] | None = None
    while len(frontier) and found is None:
        fresh: list[States] = []
        for states in _chunks(frontier):
            weights = engine.symmetry.weights(states) if engine.symmetry else None
            full += len(states) if weights is None else int(weights.sum())
            following, broken = engine.expand(states, weights)
            if broken is not None:
                found = int(states[broken[0]]), broken[1]
                break
            fresh.append(visited.new(_distinct(engine, following)))
        newest = _merged(fresh)
        visited.add(newest)
        watcher.level(depth, visited.size, len(newest), BYTES_A_STATE)
        if found is None and len(newest):
            depth += 1
        frontier = newest
    occurred = [
        (behaviour, int(count))
        for answers in engine.answers
        for behaviour, count in zip(answers.behaviours, answers.occurred, strict=False)
        if count
    ]
    return Exploration(
        instance=instance.name,
        engine="packed",
        why="",
        states=full,
        transitions=sum(b.fired * count for b, count in occurred),
        moves=sum(b.changed * count for b, count in occurred),
        depth=depth,
        seconds=time.perf_counter() - started,
        memory=peak_bytes(),
        breach=None if found is None else _breach(instance, *found, depth),
        rows=frozenset().union(*(b.rows for b, _ in occurred)),
        reached=frozenset().union(*(b.reached for b, _ in occurred)),
        cut=sum(b.cut * count for b, count in occurred),
        orbits=visited.size if symmetric else None,
        left_out=engine.form.laws.left_out,
    )


def levels(engine: Engine) -> Iterator[States]:
    """Yield the states that are 0, 1, 2... steps away from the first one, each level sorted."""
    visited = Visited(engine.packing.bits)
    level = np.array([engine.first], np.int64)
    while len(level):
        yield level
        visited.add(level)
        fresh = [visited.new(_distinct(engine, engine.expand(part)[0])) for part in _chunks(level)]
        level = _merged(fresh)


def _chunks(level: States) -> Iterator[States]:
    return (level[start : start + CHUNK] for start in range(0, len(level), CHUNK))


def _distinct(engine: Engine, following: list[States]) -> States:
    if not following:
        return np.empty(0, np.int64)
    states = np.concatenate(following)
    if engine.symmetry is not None:
        states = engine.symmetry.canonical(states)
    states.sort()
    return _once(states)


def _once(states: States) -> States:
    """Return sorted `states` without repetitions."""
    if len(states) < 2:
        return states
    keep = np.empty(len(states), bool)
    keep[0] = True
    np.not_equal(states[1:], states[:-1], out=keep[1:])
    return states.take(np.flatnonzero(keep))


def _merged(parts: list[States]) -> States:
    if not parts:
        return np.empty(0, np.int64)
    if len(parts) == 1:
        return parts[0]
    states = np.concatenate(parts)
    states.sort()
    return _once(states)


def _breach(instance: Instance, state: int, broken: Break, depth: int) -> Breach:
    """Search again with every level kept, and walk back from `state` to the first one."""
    engine = Engine(instance)
    kept = list(islice(levels(engine), depth))
    path: list[Firing] = []
    place = state
    for level in reversed(kept):
        before = _predecessor(engine, level, place)
        path.append(_firing(engine, before, place))
        place = before
    path.reverse()
    if broken.move is not None:
        path.append(Firing(instance.moves[broken.move].name, broken.row))
    named = engine.form.views.named(engine.packing.unpack(state))
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
                return Firing(engine.instance.moves[number].name, step.row)
    raise AssertionError("some move leads from a state to its successor")
