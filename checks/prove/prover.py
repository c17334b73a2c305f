"""Prove whole tables: every obligation, in the order of the rows, with one verdict each (FRM-2)."""

from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

import z3  # type: ignore[import-untyped]

from kvescrow.checks.prove.cells import prove_cell, prove_initial
from kvescrow.checks.prove.context import TableContext, event_context, standing, table_context
from kvescrow.checks.prove.rows import goals, properties, prove_row
from kvescrow.checks.prove.runs import prove_non_interference
from kvescrow.checks.prove.solver import Solver
from kvescrow.checks.prove.step import WITNESS
from kvescrow.checks.prove.verdicts import ProofReport, Result, Verdict
from kvescrow.spec.language.table import Event, Table

EFFORT = 10_000_000
"""Units of Z3's resource count for one question: a second or two; no question of these tables needs 100,000."""

Progress = Callable[[int, int, str], None]
"""Called with the obligations done, their total, and the name of the table."""


def prove(tables: Sequence[Table], *, effort: int = EFFORT, on_progress: Progress | None = None) -> ProofReport:
    """Return the verdict on every obligation of `tables`.

    An obligation that takes more than `effort` is unknown, on every machine alike. Without tables nothing is
    proved, and the report does not pass.
    """
    start = perf_counter()
    total = sum(count_obligations(table) for table in tables)
    results: list[Result] = []
    for table in tables:
        for result in _prove_table(table_context(table, effort)):
            results.append(result)
            if on_progress is not None:
                on_progress(len(results), total, table.name)
    return ProofReport(tuple(results), perf_counter() - start)


def count_obligations(table: Table) -> int:
    """Return how many results `prove` yields for `table`."""
    rows = sum(
        len(row.sources) + len(properties(table, row.event)) + row.reply.decision.changes_nothing for row in table.rows
    )
    initial = 1 + len(table.invariants)
    return initial + rows + len(table.cells) + len(table.non_interference) + len(_idle(table))


def _idle(table: Table) -> list[str]:
    """Return the names of the rules that speak of no event of the table."""
    events = {event.name for event in table.events}
    return [rule.name for rule in table.rules if rule.events is not None and not rule.events & events]


def _prove_table(base: TableContext) -> Iterator[Result]:
    yield from prove_initial(base)
    solver = base.solver()
    solver.assume(standing(base, invariants=True))
    for event in base.table.events:
        yield from _prove_event(base, event, solver)
    for name in _idle(base.table):
        yield Result(base.table.name, "*", name, Verdict.NOT_RUN, 0.0, detail="it applies to no event")


def _prove_event(base: TableContext, event: Event, solver: Solver) -> Iterator[Result]:
    rows = [row for row in base.table.rows if row.event == event.name]
    reached: set[str | None] = set()
    with event_context(base, event, solver) as context:
        blocked: list[z3.BoolRef] = []
        wanted = goals(context)
        for index, row in enumerate(rows):
            for result in prove_row(context, row, rows[:index], blocked, wanted):
                if result.invariant == WITNESS and result.verdict is not Verdict.VACUOUS:
                    reached.add(result.state)
                yield result
            blocked.append(z3.Not(context.fires(row)))
        for state in base.table.state_type:
            yield prove_cell(context, state, reached=state.name in reached)
        for promise in base.table.non_interference:
            if promise.event == event.name:
                yield prove_non_interference(context, promise)
