"""Whether an event can come to a row with something true of it: what each false branch of a guard rests on (FRM-4)."""

from collections.abc import Iterator, Sequence

import z3  # type: ignore[import-untyped]
from attrs import frozen

from kvescrow.checks.prove.context import EventContext, event_context, standing, table_context
from kvescrow.checks.prove.prover import EFFORT
from kvescrow.checks.prove.step import Case, broken_premises
from kvescrow.spec.language.expressions import Expression
from kvescrow.spec.language.interpreter import evaluate
from kvescrow.spec.language.table import Row, Table


@frozen(eq=False)
class Arrival:
    """An event that no row before `row` takes, in a state of `row`, where `condition` holds."""

    row: Row
    condition: Expression


def possible_arrivals(table: Table, wanted: Sequence[Arrival], *, effort: int = EFFORT) -> list[Arrival]:
    """Return those of `wanted` for which there is a view that satisfies every invariant and assumption of `table`.

    Each view that Z3 finds is looked at again by the interpreter. A question that takes more than `effort` counts as
    impossible, so that nothing is taken for witnessed that was not.
    """
    base = table_context(table, effort)
    solver = base.solver()
    solver.assume(standing(base, invariants=True))
    found: list[Arrival] = []
    for event in table.events:
        with event_context(base, event, solver) as context:
            found += _possible(context, [arrival for arrival in wanted if arrival.row.event == event.name])
    return found


def _possible(context: EventContext, wanted: Sequence[Arrival]) -> Iterator[Arrival]:
    blocked: list[z3.BoolRef] = []
    for row in context.table.rows:
        if row.event != context.event.name:
            continue
        with context.solver.scope():
            context.solver.assume(blocked)
            context.solver.assume([context.term(context.table.state.is_in(row.sources))])
            for arrival in wanted:
                if arrival.row is row:
                    answer = context.solver.ask(context.term(arrival.condition))
                    if answer.model is not None and _arrives(context.table, arrival, context.case(answer.model)):
                        yield arrival
        blocked.append(z3.Not(context.fires(row)))


def _arrives(table: Table, arrival: Arrival, case: Case) -> bool:
    """Return whether the interpreter sees in `case` what the solver promised."""
    row, state = arrival.row, evaluate(table.state, case.view)
    whole = {**case.view, "event": case.parameters}
    earlier = [other for other in table.rows[: table.rows.index(row)] if other.event == row.event]
    taken = any(state in other.sources and evaluate(other.when, whole) for other in earlier)
    return (
        not broken_premises(table, case)
        and state in row.sources
        and not taken
        and bool(evaluate(arrival.condition, whole))
    )
