"""One mutant through all layers."""

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from time import perf_counter

from attrs import frozen

from kvescrow.checks.mutate.mutant import Mutant, Operator
from kvescrow.checks.mutate.scenarios import Scenarios
from kvescrow.checks.mutate.search import LONG, QUICK, Searches
from kvescrow.checks.mutate.verdicts import Fate, Judged, Layer
from kvescrow.checks.prove.step import Case
from kvescrow.checks.prove.variants import Comparison, EventVariants, Likeness
from kvescrow.checks.prove.verdicts import Verdict
from kvescrow.spec.language.expressions import reads
from kvescrow.spec.language.interpreter import Value, View, evaluate, fire
from kvescrow.spec.language.table import Row, Table, TableError, effects_of

PATIENCE = 60
"""Seconds that one mutant may take; a scenario may run for ever in a mutant's world."""

_REPLY = (Operator.DECISION_CHANGED, Operator.REASON_CHANGED)
_WHAT_IS_DONE = (
    Operator.EFFECT_SHIFTED,
    Operator.EFFECT_DROPPED,
    Operator.EFFECT_DOUBLED,
    Operator.EFFECT_REDIRECTED,
    Operator.TARGET_CHANGED,
)


class _OutOfTime(BaseException):
    """Not an `Exception`, so that no scenario takes it for its own."""


@frozen(eq=False)
class Judge:
    """Judges mutants of the rows of one event."""

    variants: EventVariants
    scenarios: Mapping[Layer, Scenarios]
    searches: Searches | None = None
    """None: the search is not asked."""

    def judge(self, mutant: Mutant) -> Judged:
        """Return what becomes of `mutant`."""
        start = perf_counter()
        try:
            table = mutant.build()
        except TableError as error:
            return _judged(mutant, Fate.KILLED, {Layer.IMPORT: str(error)}, "", (), start)
        gave_up: list[str] = []
        killers: dict[Layer, str] = {}
        comparison = Comparison(Likeness.UNKNOWN)
        try:
            with _time_limit(PATIENCE):
                comparison = self.variants.compare(table)
                killers.update(self._proofs(mutant, table, gave_up))
                if comparison.likeness is not Likeness.SAME:
                    if Layer.PROVE not in killers:
                        killers.update(self._searched(mutant, table, QUICK))
                    killers.update(self._scenarios(mutant, table))
                    if not killers:
                        # A scenario takes a thousandth of the time, so the long searches are asked last.
                        killers.update(self._searched(mutant, table, LONG))
        except _OutOfTime:
            gave_up.append(f"it took more than {PATIENCE} s")
        if comparison.likeness is Likeness.UNKNOWN:
            gave_up.append("comparing it with the original")
        behaviour = "" if comparison.case is None else told_apart(mutant.original, table, comparison.case)
        return _judged(mutant, _fate(killers, comparison, gave_up), killers, behaviour, tuple(gave_up), start)

    def _proofs(self, mutant: Mutant, table: Table, gave_up: list[str]) -> Mapping[Layer, str]:
        rows, cells = _obliged(mutant, table)
        for result in self.variants.failures(table, rows, cells=cells, replies=True):
            if result.verdict is not Verdict.UNKNOWN:
                return {Layer.PROVE: f"{result.row}: {result.invariant} is {result.verdict.value}"}
            gave_up.append(f"proving {result.invariant} of {result.row}")
        return {}

    def _searched(self, mutant: Mutant, table: Table, instances: Sequence[str]) -> Mapping[Layer, str]:
        if self.searches is None or mutant.operator in _REPLY:
            return {}
        why = self.searches.noticing(table, instances)
        return {Layer.EXPLORE: why} if why else {}

    def _scenarios(self, mutant: Mutant, table: Table) -> Iterator[tuple[Layer, str]]:
        states = _states(mutant)
        for layer, scenarios in self.scenarios.items():
            found = scenarios.noticing(table, mutant.row.event, states)
            if found is not None:
                yield layer, found.name


def _fate(killers: Mapping[Layer, str], comparison: Comparison, gave_up: Sequence[str]) -> Fate:
    if killers:
        return Fate.KILLED
    if comparison.likeness is Likeness.SAME:
        return Fate.EQUIVALENT
    return Fate.INCONCLUSIVE if gave_up else Fate.SURVIVOR


def _obliged(mutant: Mutant, table: Table) -> tuple[frozenset[str], bool]:
    """Return the rows whose obligations the change may break, and whether cells may be left undecided.

    A change of a reply is none of theirs. What a row does concerns that row alone; when it fires concerns the rows
    that are read after it as well.
    """
    if mutant.operator in _REPLY:
        return frozenset(), False
    if mutant.operator in _WHAT_IS_DONE:
        return mutant.changed, False
    states = set(_states(mutant))
    return frozenset(row.id for row in table.rows if row.event == mutant.row.event and states & set(row.sources)), True


def _states(mutant: Mutant) -> tuple[Enum, ...]:
    """Return the states in which the mutant may differ from its original."""
    changed = mutant.changed
    found = {state for row in mutant.original.rows if row.id in changed for state in row.sources}
    return tuple(state for state in mutant.original.state_type if state in found)


def _judged(
    mutant: Mutant, fate: Fate, killers: Mapping[Layer, str], behaviour: str, gave_up: tuple[str, ...], start: float
) -> Judged:
    return Judged(
        name=mutant.name,
        table=mutant.original.name,
        operator=mutant.operator.value,
        change=mutant.change,
        fate=fate,
        killers=dict(killers),
        behaviour=behaviour,
        gave_up=gave_up,
        seconds=perf_counter() - start,
    )


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        raise _OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- showing what a mutant does ---------------------------------------------------------------------------------------


def told_apart(original: Table, mutant: Table, case: Case) -> str:
    """Return a view in which the two behave differently, and what each does, by the interpreter alone."""
    assert case.event is not None, "tables are compared on an event"
    one, other = _done(original, case), _done(mutant, case)
    assert one != other, f"the interpreter sees no difference on {case.event}"
    parameters = ", ".join(f"{name}={_shown(value)}" for name, value in case.parameters.items())
    seen = ", ".join(
        f"{entity}.{name}={_shown(case.view[entity][name])}" for entity, name in _looked_at(original, mutant, case)
    )
    return f"{case.event}({parameters}) with {seen}: {_told(one)} becomes {_told(other)}"


Done = tuple[str, Mapping[tuple[str, str], Value]]


def _done(table: Table, case: Case) -> Done:
    try:
        fired = fire(table, case.view, str(case.event), case.parameters)
    except ValueError:
        return "no row fires", {}
    changes = {path: value for path, value in fired.changes.items() if case.view[path[0]][path[1]] != value}
    return str(fired.row.reply), changes


def _told(done: Done) -> str:
    reply, changes = done
    told = ", ".join(f"{entity}.{name}:={_shown(value)}" for (entity, name), value in sorted(changes.items()))
    return f"{reply} ({told})" if told else reply


def _looked_at(original: Table, mutant: Table, case: Case) -> list[tuple[str, str]]:
    """Return the fields that the rows that fire read or write, the state first."""
    found = {
        path for table in (original, mutant) for row in _firing(table, case.view, case) for path in _fields(table, row)
    }
    state = original.state.path
    return [state, *sorted(path for path in found if path != state and path[0] != "event")]


def _firing(table: Table, view: View, case: Case) -> list[Row]:
    whole = {**view, "event": case.parameters}
    rows = table.cells[view[table.moves.name]["state"], str(case.event)]  # type: ignore[index]  # a state
    return [row for row in rows if evaluate(row.when, whole)][:1]


def _fields(table: Table, row: Row) -> set[tuple[str, str]]:
    effects = effects_of(table, row)
    return set(reads(row.when).union(*(reads(effect.value) for effect in effects), {e.target.path for e in effects}))


def _shown(value: Value) -> str:
    if isinstance(value, Enum):
        return value.name
    return str(value).lower() if isinstance(value, bool) else str(value)
