"""Why a row can never fire, in the words of the table."""

from collections.abc import Sequence
from enum import Enum

import z3  # type: ignore[import-untyped]

from kvescrow.checks.prove.context import EventContext, hypotheses
from kvescrow.checks.prove.solver import Status
from kvescrow.spec.language.table import Row, guards_of

Reasons = list[tuple[str, z3.BoolRef]]


def why_it_cannot_fire(context: EventContext, row: Row, state: Enum, earlier: Sequence[Row]) -> str:
    """Return the least list of guards, earlier rows and hypotheses that together exclude `row` in `state`."""
    reasons: Reasons = [
        *((f"guard `{guard}`", context.term(guard)) for guard in guards_of(row)),
        *((f"row {other.id} before it", z3.Not(context.fires(other))) for other in earlier),
        *hypotheses(context),
    ]
    names = [name for name, _ in _least(context, state, reasons)]
    return f"it cannot fire in {state.name}: {'; '.join(names)}"


def _least(context: EventContext, state: Enum, reasons: Reasons) -> Reasons:
    """Drop every reason without which the rest is still contradictory, the broadest first."""
    kept = list(reasons)
    for reason in reversed(reasons):
        rest = [other for other in kept if other is not reason]
        if _contradict(context, state, rest):
            kept = rest
    return kept


def _contradict(context: EventContext, state: Enum, reasons: Reasons) -> bool:
    solver = context.base.solver()
    solver.assume(context.base.encoder.domains(context.types, context.now))
    solver.assume(formula for _, formula in reasons)
    return solver.ask(context.is_in(state)).status is Status.UNSATISFIABLE
