"""The reachable set as a binary decision diagram, for the instances whose counters are functions of the slots.

It needs the package `dd` with CUDD, the extra `explore`. It counts states and nothing else: the model is loosely
coupled, so that a diagram stays small where the number of states is beyond any list.
"""

import time
from importlib.util import find_spec
from typing import Any

from kvescrow.checks.explore.certified import Certified, When, certify
from kvescrow.checks.explore.instance import Instance
from kvescrow.checks.explore.memory import Watcher, peak_bytes
from kvescrow.checks.explore.result import Exploration


def installed() -> bool:
    """Return whether `dd` is here, with CUDD inside."""
    return find_spec("dd") is not None and find_spec("dd.cudd") is not None


def search(instance: Instance, watcher: Watcher) -> Exploration:
    """Return how many states `instance` has. Raises `NotCertified` where it is not of this kind."""
    started = time.perf_counter()
    certified = certify(instance)
    diagram = _Diagram(certified)
    reached = diagram.initial
    rounds = 0
    while True:
        before = reached
        for slot in range(len(certified.slots)):
            reached = diagram.grown(reached, slot)
        rounds += 1
        watcher.level(rounds, diagram.count(reached), 0, 0)
        if reached == before:
            break
    states = diagram.count(reached)
    return Exploration(
        instance=instance.name,
        engine="bdd",
        why="",
        kept="a decision diagram, the counters certified as functions of the slots",
        states=states,
        transitions=states * certified.moves,
        moves=None,
        depth=None,
        seconds=time.perf_counter() - started,
        memory=peak_bytes(),
    )


class _Diagram:
    """Slots as blocks of variables, and the states within the limits."""

    def __init__(self, certified: Certified) -> None:
        from dd import cudd

        self._slots = certified.slots
        self._bdd: Any = cudd.BDD()
        self._names = [
            [f"s{number}b{bit}" for bit in range(max(1, (len(slot.locals) - 1).bit_length()))]
            for number, slot in enumerate(self._slots)
        ]
        self._bdd.declare(*(name for names in self._names for name in names))
        self._is = [
            [self._cube(number, state) for state in range(len(slot.locals))] for number, slot in enumerate(self._slots)
        ]
        self.initial: Any = self._bdd.true
        for number in range(len(self._slots)):
            self.initial &= self._is[number][0]
        self._legal: Any = self._bdd.true
        for counter, limit in enumerate(certified.limits):
            self._legal &= self._within(counter, limit)

    def _cube(self, slot: int, state: int) -> Any:
        return self._bdd.cube({name: bool(state >> bit & 1) for bit, name in enumerate(self._names[slot])})

    def _within(self, counter: int, limit: int) -> Any:
        """Return the states in which the slots together add at most `limit` to `counter`."""
        sums: dict[int, Any] = {0: self._bdd.true}
        for number, slot in enumerate(self._slots):
            following: dict[int, Any] = {}
            for total, states in sums.items():
                for state, weight in enumerate(slot.weights):
                    reached = total + weight[counter]
                    if reached <= limit:
                        of_state = states & self._is[number][state]
                        following[reached] = following.get(reached, self._bdd.false) | of_state
            sums = following
        within = self._bdd.false
        for states in sums.values():
            within |= states
        return within

    def grown(self, reached: Any, number: int) -> Any:
        """Return `reached` with everything that one slot can add, however many steps it takes."""
        names = self._names[number]
        parts = [
            self._bdd.exist(names, reached & self._is[number][state])
            for state in range(len(self._slots[number].locals))
        ]
        room = [
            self._bdd.exist(names, self._legal & self._is[number][state])
            for state in range(len(self._slots[number].locals))
        ]
        changed = True
        while changed:
            changed = False
            for transition in self._slots[number].transitions:
                taken = parts[transition.source]
                if transition.when is When.FITS:
                    taken &= room[transition.towards]
                elif transition.when is When.LACKS:
                    taken &= ~room[transition.towards]
                grown = parts[transition.target] | taken
                if grown != parts[transition.target]:
                    parts[transition.target] = grown
                    changed = True
        for state, part in enumerate(parts):
            reached |= part & self._is[number][state]
        return reached

    def count(self, states: Any) -> int:
        """Return how many states there are."""
        count: float = self._bdd.count(states, nvars=sum(len(names) for names in self._names))
        return round(count)
