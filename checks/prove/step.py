"""The same questions in plain Python: what a step does, and whether it breaks a property.

Every model of the solver is put through here, so that an error in the encoding cannot pass for a proof or for a
counterexample (FRM-2).
"""

from collections.abc import Iterator

from attrs import field, frozen

from kvescrow.spec.language.expressions import Expression
from kvescrow.spec.language.interpreter import Changes, Record, View, after, evaluate, fire
from kvescrow.spec.language.table import Assumption, NonInterference, Row, StepRule, Table

TOTALITY = "totality"
WITNESS = "witness"
CHANGES_NOTHING = "changes_nothing"


@frozen(eq=False)
class Case:
    """One situation: a view, and an event with its parameters, or no event for the initial state."""

    view: View
    event: str | None = None
    parameters: Record = field(factory=dict)
    other: View | None = None
    """The view of the second run, where two runs are compared."""


@frozen(eq=False)
class Step:
    """What a table does in a case: the row that fires, its changes, and the state after it, ghosts included."""

    row: Row
    changes: Changes
    after: View


@frozen
class Finding:
    """Whether a case breaks a property, and what the interpreter saw."""

    broken: bool
    why: str


def take_step(table: Table, view: View, event: str, parameters: Record) -> Step:
    """Fire the first row that applies, then update the ghosts. Raises `ValueError` where none applies."""
    fired = fire(table, view, event, parameters)
    moved = after(view, fired.changes)
    ghosts = {ghost.target.path: evaluate(ghost.update, moved, view) for ghost in table.ghosts}
    return Step(fired.row, fired.changes, after(moved, ghosts))


def decides(table: Table, view: View, event: str, parameters: Record) -> bool:
    """Return whether some row fires."""
    whole = {**view, "event": parameters}
    state = evaluate(table.state, view)
    return any(evaluate(row.when, whole) for row in table.rows if row.event == event and state in row.sources)


def applies(prop: StepRule | Assumption, event: str | None) -> bool:
    """Return whether `prop` speaks of `event`; without an event, whether it speaks of none in particular."""
    return prop.events is None or event in prop.events


def premises(table: Table, event: str | None) -> Iterator[tuple[str, Expression]]:
    """Yield (name, expression) of what may be relied on before `event`."""
    for assumption in table.assumptions:
        if applies(assumption, event):
            yield f"assumption {assumption.name}", assumption.holds
    if event is None:
        yield "the initial condition", table.initial
        return
    for invariant in table.invariants:
        yield f"invariant {invariant.name}", invariant.holds


def broken_premises(table: Table, case: Case) -> list[str]:
    """Return the names of the premises that do not hold in `case`, in either run."""
    views = [case.view] if case.other is None else [case.view, case.other]
    return [
        name
        for view in views
        for name, expression in premises(table, case.event)
        if not evaluate(expression, {**view, "event": case.parameters})
    ]


def examine(table: Table, row: str, name: str, case: Case) -> Finding:
    """Return whether `case` breaks the property called `name`, by the interpreter alone.

    `row` matters to a witness only: that is broken where another row fires.
    """
    missing = broken_premises(table, case)
    if missing:
        return Finding(False, f"the case cannot arise: {', '.join(missing)} does not hold")
    if case.event is None:
        return _examine_initial(table, name, case)
    for view in (case.view, case.other):
        if view is not None and not decides(table, view, case.event, case.parameters):
            return Finding(name == TOTALITY, f"no row fires for {case.event}")
    promise = next((p for p in table.non_interference if p.name == name), None)
    if promise is not None and case.other is not None:
        return _examine_runs(table, promise, case, case.other)
    step = take_step(table, case.view, case.event, case.parameters)
    if name == TOTALITY:
        return Finding(False, f"row {step.row.id} fires")
    if name == WITNESS:
        return Finding(step.row.id != row, f"row {step.row.id} fires")
    if name == CHANGES_NOTHING:
        return Finding(step.after != case.view, f"row {step.row.id} fires")
    holds = property_called(table, name)
    now = {**step.after, "event": case.parameters}
    kept = bool(evaluate(holds, now, {**case.view, "event": case.parameters}))
    return Finding(not kept, f"row {step.row.id} fires; `{name}` {'holds' if kept else 'does not hold'} after it")


def property_called(table: Table, name: str) -> Expression:
    """Return what the invariant, rule or assumption called `name` says."""
    for assumption in table.assumptions:
        if assumption.name == name:
            return assumption.holds
    for rule in table.rules:
        if rule.name == name:
            return rule.holds
    return next(invariant.holds for invariant in table.invariants if invariant.name == name)


def _examine_initial(table: Table, name: str, case: Case) -> Finding:
    kept = bool(evaluate(property_called(table, name), case.view))
    return Finding(not kept, f"`{name}` {'holds' if kept else 'does not hold'} at the start")


def indistinguishable(promise: NonInterference, case: Case, other: View) -> bool:
    """Return whether the two runs agree on what the caller may see."""
    first, second = ({**view, "event": case.parameters} for view in (case.view, other))
    shared = [*promise.same]
    for condition, visible in promise.same_when:
        if evaluate(condition, first) or evaluate(condition, second):
            shared.extend(visible)
    return all(evaluate(part, first) == evaluate(part, second) for part in shared)


def _examine_runs(table: Table, promise: NonInterference, case: Case, other: View) -> Finding:
    if not indistinguishable(promise, case, other):
        return Finding(False, "the case cannot arise: the caller can tell the two runs apart before the step")
    steps = [take_step(table, view, promise.event, case.parameters) for view in (case.view, other)]
    replies = [step.row.reply for step in steps]
    ends = [{**step.after, "event": case.parameters} for step in steps]
    told = [str(part) for part in promise.same if evaluate(part, ends[0]) != evaluate(part, ends[1])]
    if replies[0] != replies[1]:
        return Finding(True, f"one run answers {replies[0]}, the other {replies[1]}")
    if told:
        return Finding(True, f"{', '.join(told)} tells the two runs apart after the step")
    return Finding(False, f"both runs answer {replies[0]}")
