"""The moves of each group of places, tabulated: (what is read of the group) -> what every move of it does.

A group is all moves and laws that look at the same places. What a group does at one valuation is found by firing the
tables once, with a record of what was read; all valuations that agree on that share the answer. So a guard that reads
`pool.active` in one local state only is told apart there only: this is partial evaluation, by running.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product

from attrs import define, field, frozen

from kvescrow.checks.explore.instance import Instance
from kvescrow.checks.explore.laws import Laws, laws_of
from kvescrow.checks.explore.packing import Packing
from kvescrow.checks.explore.views import BoundMove, Outcome, Views
from kvescrow.spec.language.expressions import Expression, reads

Changes = Sequence[tuple[int, int]]
"""(variable, new code)."""

DECIDED_AT_ONCE = 2048
"""A law with at most this many valuations is tried on all of them before the search."""


@frozen
class Break:
    """What breaks at a valuation."""

    move: int | None
    """Index of the move; None for an invariant."""
    row: str
    what: str
    law: str


@frozen
class Behaviour:
    """What the moves of a group do at a valuation, and which of its laws hold there."""

    deltas: tuple[int, ...]
    """What is added to the packed state, once for each different next state."""
    fired: int
    """Moves that a row decided and that were taken."""
    changed: int
    """Those of them that change the state."""
    cut: int
    """Moves that would leave the bounds of the search."""
    rows: frozenset[str]
    reached: frozenset[str]
    broken: tuple[Break, ...] = ()


@define(eq=False)
class Group:
    """Moves, laws and situations over the same places."""

    places: tuple[str, ...]
    variables: tuple[int, ...]
    moves: list[tuple[int, BoundMove]] = field(factory=list)
    laws: list[tuple[str, Callable[[], bool]]] = field(factory=list)
    situations: list[tuple[str, Callable[[], bool]]] = field(factory=list)
    terms: list[tuple[int, Callable[[], int]]] = field(factory=list)
    """(index of a sum, what is added to it)."""


class NormalForm:
    """An instance as groups, ready to be tabulated."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.views = Views(instance)
        self.laws: Laws = laws_of(instance)
        self.counters = tuple(self.views.spots[total.place, total.field] for total in self.laws.sums)
        """The variable of each sum, in the order of `laws.sums`."""
        self.groups = self._grouped()
        self.sum_groups = self._grouped_terms()

    def _grouped(self) -> list[Group]:
        groups: dict[frozenset[str], Group] = {}
        for number, move in enumerate(self.instance.moves):
            self._group(groups, move.binds.values()).moves.append((number, self.views.move(move)))
        for law in self.laws.invariants:
            holds = self.views.law(law)
            places = _places_of(law.holds, law.binds, law.given)
            if not self._always(holds):
                self._group(groups, places).laws.append((law.name, holds))
        for situation in self.laws.situations:
            places = _places_of(situation.holds, situation.binds, situation.given)
            self._group(groups, places).situations.append((situation.name, self.views.law(situation)))
        return list(groups.values())

    def _grouped_terms(self) -> list[Group]:
        groups: dict[frozenset[str], Group] = {}
        for index, total in enumerate(self.laws.sums):
            for term in total.terms:
                group = self._group(groups, _places_of(term.amount, term.binds, {}))
                group.terms.append((index, self.views.term(term)))
        return list(groups.values())

    def _group(self, groups: dict[frozenset[str], Group], places: Iterable[str]) -> Group:
        """Return the smallest group that looks at `places`, or make one."""
        key = frozenset(places)
        fitting = [known for known in groups if key <= known]
        if fitting:
            return groups[min(fitting, key=len)]
        names = tuple(place.name for place in self.instance.places if place.name in key)
        return groups.setdefault(key, Group(names, self.views.of_places(names)))

    def _always(self, holds: Callable[[], bool]) -> bool:
        """Return whether a law holds at every valuation of what it reads, reachable or not."""
        memory = self.views.memory
        wanted: tuple[int, ...] = ()
        while True:
            memory.read.clear()
            sizes = [range(len(memory.variables[v].domain)) for v in wanted]
            for codes in product(*sizes):
                for variable, code in zip(wanted, codes, strict=True):
                    memory.codes[variable] = code
                if not holds():
                    return False
            if memory.read <= set(wanted):
                return True
            wanted = tuple(sorted(memory.read | set(wanted)))
            count = 1
            for variable in wanted:
                count *= len(memory.variables[variable].domain)
            if count > DECIDED_AT_ONCE:
                return False

    def behave(self, group: Group, packing: Packing, step_of: Callable[[Group, Changes], None]) -> Behaviour:
        """Return what `group` does at the valuation in the memory; what it depends on is in `memory.read` then.

        `step_of` is told each step that changes something.
        """
        memory = self.views.memory
        broken = [Break(None, "", "invariant", name) for name, holds in group.laws if not holds()]
        reached = frozenset(name for name, holds in group.situations if holds())
        deltas: dict[int, None] = {}
        rows: set[str] = set()
        fired = changed = cut = 0
        for number, move in group.moves:
            step = move()
            if step.outcome is Outcome.ABSENT:
                continue
            rows.add(step.row)
            if step.outcome is Outcome.FIRED:
                fired += 1
                if step.changes:
                    changed += 1
                    step_of(group, step.changes)
                    deltas[packing.delta(memory.codes, step.changes, memory.read)] = None
            elif step.outcome is Outcome.CUT:
                cut += 1
            else:
                broken.append(Break(number, step.row, step.outcome.value, step.law))
        return Behaviour(tuple(deltas), fired, changed, cut, frozenset(rows), reached, tuple(broken))


def _places_of(
    expression: Expression, binds: Mapping[str, str], given: Mapping[tuple[str, str], object]
) -> frozenset[str]:
    """Return the places that `expression` looks at, also through what the rest of the world shows."""
    shown = [known for address, known in given.items() if address in reads(expression)]
    deeper = [known for known in shown if isinstance(known, Expression)]
    entities = {entity for part in (expression, *deeper) for entity, _ in reads(part)}
    return frozenset(binds[entity] for entity in entities if entity in binds)
