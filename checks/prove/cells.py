"""The obligations of a table that belong to no row: its initial state, and that every cell is decided."""

from collections.abc import Iterator, Mapping
from enum import Enum
from time import perf_counter

import z3  # type: ignore[import-untyped]

from kvescrow.checks.prove.context import EventContext, TableContext, standing
from kvescrow.checks.prove.counterexample import counterexample
from kvescrow.checks.prove.encoding import view_of
from kvescrow.checks.prove.solver import Solver, Status
from kvescrow.checks.prove.step import TOTALITY, WITNESS, Case, broken_premises
from kvescrow.checks.prove.verdicts import Method, Result, Verdict
from kvescrow.spec.language.expressions import TRUE

INITIAL = "initial"


def prove_initial(base: TableContext) -> Iterator[Result]:
    """Yield that an initial state exists, and that each invariant holds in every initial state."""
    table, solver = base.table, base.solver()
    solver.assume(standing(base, invariants=False))
    solver.assume([base.encoder.term(table.initial, base.view)])
    start = perf_counter()
    answer = solver.ask()
    verdict, detail = Verdict.PROVED, ""
    if answer.model is None:
        unknown = answer.status is Status.UNKNOWN
        verdict = Verdict.UNKNOWN if unknown else Verdict.VACUOUS
        detail = answer.why if unknown else "no view satisfies the initial condition and the assumptions"
    elif broken := broken_premises(table, Case(_view(base, answer.model))):
        verdict, detail = Verdict.REFUTED, f"the interpreter finds that {', '.join(broken)} does not hold"
    yield Result(table.name, INITIAL, WITNESS, verdict, perf_counter() - start, detail=detail)
    for invariant in table.invariants:
        start = perf_counter()
        if verdict is Verdict.VACUOUS:
            yield Result(table.name, INITIAL, invariant.name, Verdict.VACUOUS, 0.0, detail=detail)
            continue
        violation = z3.Not(base.encoder.term(invariant.holds, base.view))
        yield _initially(base, solver, invariant.name, violation, start)


def _initially(base: TableContext, solver: Solver, name: str, violation: z3.BoolRef, start: float) -> Result:
    answer = solver.ask_for_small(violation, base.small)
    seconds = perf_counter() - start
    if answer.status is Status.UNSATISFIABLE:
        return Result(base.table.name, INITIAL, name, Verdict.PROVED, seconds)
    if answer.model is None:
        return Result(base.table.name, INITIAL, name, Verdict.UNKNOWN, seconds, detail=answer.why)
    example = counterexample(base.table, INITIAL, name, Case(_view(base, answer.model)))
    return Result(
        base.table.name,
        INITIAL,
        name,
        Verdict.REFUTED,
        seconds,
        detail=example.finding.why,
        counterexample=example,
    )


def _view(base: TableContext, model: z3.ModelRef) -> Mapping[str, Mapping[str, object]]:
    return view_of(base.table.schema, base.types, base.view, model)


def prove_cell(context: EventContext, state: Enum, *, reached: bool) -> Result:
    """Prove that some row fires in `state`; `reached` says that a row of the cell may be able to fire.

    The assumptions are tried first, since a table that is total without its invariants is total in any
    implementation, also in one that broke them.
    """
    start = perf_counter()
    place = f"{state.name}/{context.event.name}"
    verdict, method, detail, case = _decide_cell(context, state)
    if verdict is Verdict.PROVED and not reached:
        verdict, detail = Verdict.VACUOUS, "no row of this cell can ever fire"
    example = counterexample(context.table, place, TOTALITY, case) if case else None
    return Result(
        table=context.table.name,
        row=place,
        invariant=TOTALITY,
        verdict=verdict,
        seconds=perf_counter() - start,
        method=method,
        state=state.name,
        detail=example.finding.why if example else detail,
        counterexample=example,
    )


def _decide_cell(context: EventContext, state: Enum) -> tuple[Verdict, Method, str, Case | None]:
    rows = context.table.cells[state, context.event.name]
    if any(row.when is TRUE for row in rows):
        return Verdict.PROVED, Method.STRUCTURE, "", None
    undecided = [context.is_in(state), *(z3.Not(context.term(row.when)) for row in rows)]
    without = context.base.solver()
    without.assume(standing(context.base, invariants=False))
    without.assume(context.assumed())
    if without.ask(*undecided).status is Status.UNSATISFIABLE:
        return Verdict.PROVED, Method.SOLVER, "", None
    answer = context.solver.ask_for_small(z3.And(undecided), context.small)
    if answer.status is Status.UNSATISFIABLE:
        return Verdict.PROVED, Method.INVARIANTS, "", None
    if answer.model is None:
        return Verdict.UNKNOWN, Method.INVARIANTS, answer.why, None
    return Verdict.REFUTED, Method.INVARIANTS, "", context.case(answer.model)
