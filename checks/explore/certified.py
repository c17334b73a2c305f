"""Counters that are functions of the slots, shown from the table before any search.

A slot is a place with a local state of its own; a counter is what counting invariants speak of. Every local transition
is looked at once: where it moves each counter by exactly as much as the invariant's term moves, the counters follow
from the slots and need not be stored. Where one does not, the instance is refused, and the row is named.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum

from attrs import frozen

from kvescrow.checks.explore.instance import Instance
from kvescrow.checks.explore.normal_form import Group, NormalForm
from kvescrow.checks.explore.views import LocalStep
from kvescrow.spec.language.interpreter import Value


class NotCertified(Exception):
    """The counters of an instance are not functions of its slots, or it is not of that kind; the message says why."""


class When(Enum):
    """When a local transition is possible."""

    ALWAYS = "always"
    """Whatever the counters are."""
    FITS = "fits"
    """Where every counter stays within its limit if the slot were in the state `towards`."""
    LACKS = "lacks"
    """Where it would not."""


@frozen
class Transition:
    """A change of the local state of a slot, and how many moves make it."""

    source: int
    target: int
    when: When
    towards: int
    """Local state that decides whether it fits; the target, where it is ALWAYS."""
    times: int
    row: str
    """The row of one of these moves."""


@frozen
class Slot:
    """One place as a small machine."""

    place: str
    variables: tuple[int, ...]
    locals: tuple[tuple[int, ...], ...]
    """Codes of its variables in each local state; the first state is the initial one."""
    weights: tuple[tuple[int, ...], ...]
    """What each local state adds to each bound counter."""
    transitions: tuple[Transition, ...]


@frozen
class Certified:
    """An instance as slots and limits."""

    instance: Instance
    slots: tuple[Slot, ...]
    limits: tuple[int, ...]
    """Greatest value of each counter that the slots together could exceed."""
    counters: tuple[str, ...]
    moves: int
    """Moves that are possible in every state."""


def certify(instance: Instance) -> Certified:
    """Return `instance` as slots and limits; raise `NotCertified` where its counters are not sums over its slots."""
    form = NormalForm(instance)
    counters = tuple(dict.fromkeys(form.counters))
    if len(counters) < len(form.counters):
        raise NotCertified("two invariants count the same thing")
    for counter in counters:
        domain = form.views.variables[counter].domain
        if domain != tuple(range(len(domain))):
            raise NotCertified(f"the domain of {form.views.variables[counter]} does not start at 0")
    alike = _alike(form)
    machines = [_Machine(form, counters, alike, group) for group in _slot_groups(form, counters)]
    for machine in machines:
        machine.close()
    most = [sum(max(weight[c] for weight in machine.weights) for machine in machines) for c in range(len(counters))]
    limits = [len(form.views.variables[counter].domain) - 1 for counter in counters]
    bound = [c for c in range(len(counters)) if most[c] > limits[c]]
    slots = tuple(machine.slot(bound, limits, most) for machine in machines)
    return Certified(
        instance,
        slots,
        tuple(limits[c] for c in bound),
        tuple(str(form.views.variables[counters[c]]) for c in bound),
        len(instance.moves),
    )


def _slot_groups(form: NormalForm, counters: Sequence[int]) -> Iterator[Group]:
    places: dict[str, Group] = {}
    for group in form.groups:
        own = {form.views.variables[v].place for v in group.variables if v not in counters}
        if len(own) != 1:
            raise NotCertified(f"moves look at {', '.join(sorted(own)) or 'counters'} together, not at one slot")
        (place,) = own
        if place in places:
            raise NotCertified(f"{place} is looked at beside two sets of counters")
        places[place] = group
    missing = {v.place for n, v in enumerate(form.views.variables) if n not in counters} - set(places)
    if missing:
        raise NotCertified(f"nothing moves {', '.join(sorted(missing))}")
    yield from places.values()


def _alike(form: NormalForm) -> Mapping[int, int]:
    """Return, for each counter, the first counter that is the sum of the same terms and so always its equal."""
    first: dict[object, int] = {}
    return {
        counter: first.setdefault(
            tuple((id(term.amount), tuple(sorted(term.binds.items()))) for term in total.terms), counter
        )
        for counter, total in zip(form.counters, form.laws.sums, strict=True)
    }


@frozen
class _Leaf:
    """What a move does where the counters that it looked at have these values."""

    counters: Mapping[int, int]
    step: LocalStep


class _Machine:
    """Finds the local states of one slot and what its moves do in them."""

    def __init__(self, form: NormalForm, counters: Sequence[int], alike: Mapping[int, int], group: Group) -> None:
        self._form = form
        self._alike = alike
        self._counters = counters
        self._group = group
        self._variables = tuple(v for v in group.variables if v not in counters)
        self._place = form.views.variables[self._variables[0]].place
        first = form.views.first()
        self._locals: dict[tuple[int, ...], int] = {tuple(first[v] for v in self._variables): 0}
        self.weights: list[tuple[int, ...]] = []
        self._weighed: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._leaves: list[tuple[int, list[_Leaf]]] = []
        """(local state, what one move does there)."""

    def close(self) -> None:
        """Visit every local state that can be reached, whatever the counters are, and certify each step."""
        for codes in iter(self._pending, None):
            number = self._locals[codes]
            self.weights.append(self._weight(codes))
            self._check_laws(codes)
            for _, move in self._group.moves:
                leaves = list(self._branch(codes, move.local))
                self._leaves.append((number, leaves))
                for leaf in leaves:
                    self._certify(codes, leaf.step)

    def _pending(self) -> tuple[int, ...] | None:
        return next((codes for codes, number in self._locals.items() if number == len(self.weights)), None)

    def _branch(
        self, codes: tuple[int, ...], run: Callable[[], LocalStep], known: Mapping[int, int] | None = None
    ) -> Iterator[_Leaf]:
        """Yield what `run` does for all values of the counters that it looks at."""
        known = known or {}
        step = self._at(codes, known, run)
        asked = next((v for v in self._form.views.memory.read if v in self._counters and v not in known), None)
        if asked is None:
            yield _Leaf(known, step)
            return
        equal = [value for counter, value in known.items() if self._alike[counter] == self._alike[asked]]
        for value in equal or range(len(self._form.views.variables[asked].domain)):
            yield from self._branch(codes, run, {**known, asked: value})

    def _at(self, codes: tuple[int, ...], known: Mapping[int, int], run: Callable[[], LocalStep]) -> LocalStep:
        memory = self._form.views.memory
        for variable, code in zip(self._variables, codes, strict=True):
            memory.codes[variable] = code
        for counter in self._counters:
            memory.codes[counter] = known.get(counter, 0)
        memory.read.clear()
        return run()

    def _weight(self, codes: tuple[int, ...]) -> tuple[int, ...]:
        """Return what the slot adds to each counter in a local state."""
        if codes not in self._weighed:
            self._weighed[codes] = self._sum_of_terms(codes)
        return self._weighed[codes]

    def _sum_of_terms(self, codes: tuple[int, ...]) -> tuple[int, ...]:
        total = dict.fromkeys(self._counters, 0)
        for group in self._form.sum_groups:
            if self._place in group.places:
                for index, amount in group.terms:
                    self._at(codes, {}, lambda: LocalStep(""))
                    total[self._form.counters[index]] += amount()
                    if self._form.views.memory.read & set(self._counters):
                        raise NotCertified(f"what {self._place} adds to a counter depends on a counter")
        return tuple(total.values())

    def _check_laws(self, codes: tuple[int, ...]) -> None:
        for name, holds in self._group.laws:
            for leaf in self._branch(codes, lambda holds=holds: LocalStep("" if holds() else "broken")):  # type: ignore[misc]
                if leaf.step.row:
                    raise NotCertified(f"invariant {name} does not hold in every local state of {self._place}")

    def _certify(self, codes: tuple[int, ...], step: LocalStep) -> None:
        """Check that `step` moves every counter as the counting invariants say, and take its target."""
        if not step.row:
            raise NotCertified(f"a move of {self._place} does not exist in every state")
        if step.law:
            raise NotCertified(f"row {step.row} can break {step.law}")
        target = self._target(codes, step)
        before, after = self._weight(codes), self._weight(target)
        moved = dict(step.shifts)
        if any(variable in self._counters for variable, _ in step.changes):
            raise NotCertified(f"row {step.row} sets a counter instead of adding to it")
        for position, counter in enumerate(self._counters):
            wanted = after[position] - before[position]
            if moved.get(counter, 0) != wanted:
                name = self._form.views.variables[counter]
                raise NotCertified(
                    f"row {step.row} adds {moved.get(counter, 0)} to {name}, but what {self._place} stands for there "
                    f"changes by {wanted}"
                )
        self._locals.setdefault(target, len(self._locals))

    def _target(self, codes: tuple[int, ...], step: LocalStep) -> tuple[int, ...]:
        views = self._form.views
        values: dict[int, Value] = {
            v: views.variables[v].domain[code] for v, code in zip(self._variables, codes, strict=True)
        }
        values.update((v, value) for v, value in step.changes if v in values)
        for variable, shift in step.shifts:
            if variable in values:
                old = values[variable]
                assert isinstance(old, int), "only integers are added to"
                values[variable] = old + shift
        target = []
        for variable, value in values.items():
            code = views.code_of[variable].get(value)
            if code is None:
                raise NotCertified(f"row {step.row} takes {views.variables[variable]} to {value}, out of its domain")
            target.append(code)
        return tuple(target)

    # --- when is a transition possible? -------------------------------------------------------------------------------

    def slot(self, bound: Sequence[int], limits: Sequence[int], most: Sequence[int]) -> Slot:
        """Return the finished machine over the counters that are `bound`; all slots add at most `most` to each."""
        codes = list(self._locals)
        others = [total - max(weight[c] for weight in self.weights) for c, total in enumerate(most)]
        found: dict[tuple[int, int, When, int], tuple[int, str]] = {}
        for source, leaves in self._leaves:
            possible = [leaf for leaf in leaves if self._occurs(source, leaf, others)]
            targets: dict[int, list[_Leaf]] = {}
            for leaf in possible:
                target = self._locals[self._target(codes[source], leaf.step)]
                targets.setdefault(target, []).append(leaf)
            for target, taken in targets.items():
                if target != source:
                    when, towards = self._when(source, target, taken, possible, bound, limits)
                    key = (source, target, when, towards)
                    times, row = found.get(key, (0, taken[0].step.row))
                    found[key] = (times + 1, row)
        return Slot(
            self._place,
            self._variables,
            tuple(codes),
            tuple(tuple(weight[c] for c in bound) for weight in self.weights),
            tuple(Transition(*key, times, row) for key, (times, row) in found.items()),
        )

    def _occurs(self, source: int, leaf: _Leaf, others: Sequence[int]) -> bool:
        """Return whether the counters can have these values: what the slot adds, and what others may add."""
        return all(
            own <= leaf.counters.get(counter, own) <= own + other
            for counter, own, other in zip(self._counters, self.weights[source], others, strict=True)
        )

    def _when(
        self,
        source: int,
        target: int,
        taken: list[_Leaf],
        possible: list[_Leaf],
        bound: Sequence[int],
        limits: Sequence[int],
    ) -> tuple[When, int]:
        if len(taken) == len(possible):
            return When.ALWAYS, target
        chosen = {id(leaf) for leaf in taken}
        for towards in (target, *range(len(self.weights))):
            fits = [self._fits(source, towards, leaf, bound, limits) for leaf in possible]
            if all(fit == (id(leaf) in chosen) for fit, leaf in zip(fits, possible, strict=True)):
                return When.FITS, towards
            if all(fit != (id(leaf) in chosen) for fit, leaf in zip(fits, possible, strict=True)):
                return When.LACKS, towards
        raise NotCertified(f"row {taken[0].step.row} depends on counters otherwise than by what fits")

    def _fits(self, source: int, towards: int, leaf: _Leaf, bound: Sequence[int], limits: Sequence[int]) -> bool:
        moved = {c: self.weights[towards][c] - self.weights[source][c] for c in bound}
        return all(
            self._counters[c] in leaf.counters and leaf.counters[self._counters[c]] + shift <= limits[c]
            for c, shift in moved.items()
            if shift > 0
        )
