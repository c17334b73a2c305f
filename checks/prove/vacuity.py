"""Why a row can never fire, in the words of the table."""

from collections.abc import Sequence
from enum import Enum

import z3  # type: ignore[import-untyped]

from kvescrow.checks.prove.context import EventContext, hypotheses
from kvescrow.spec.language.table import Row, guards_of


def why_it_cannot_fire(context: EventContext, row: Row, state: Enum, earlier: Sequence[Row]) -> str:
    """Return the guards, earlier rows and hypotheses that together exclude `row` in `state`, none too many."""
    reasons = [
        *((f"guard `{guard}`", context.term(guard)) for guard in guards_of(row)),
        *((f"row {other.id} before it", z3.Not(context.fires(other))) for other in earlier),
        *hypotheses(context),
    ]
    solver = context.base.solver()
    solver.assume(context.base.encoder.domains(context.types, context.now))
    solver.assume([context.is_in(state)])
    guilty = solver.contradiction([formula for _, formula in reasons])
    names = [name for position, (name, _) in enumerate(reasons) if position in guilty]
    return f"it cannot fire in {state.name}: {'; '.join(names)}"
