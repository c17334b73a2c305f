"""Non-interference: two runs that a caller cannot tell apart get the same answer (SCO-4)."""

from collections.abc import Mapping, Sequence
from time import perf_counter

import z3  # type: ignore[import-untyped]
from attrs import frozen

from kvescrow.checks.prove.context import EventContext, state_after
from kvescrow.checks.prove.counterexample import counterexample
from kvescrow.checks.prove.encoding import Path, Symbols, view_of
from kvescrow.checks.prove.solver import Status
from kvescrow.checks.prove.step import Case, premises
from kvescrow.checks.prove.verdicts import Result, Verdict
from kvescrow.spec.language.expressions import Expression, reads
from kvescrow.spec.language.table import NonInterference, Reply, Row

PLACE = "*"


@frozen(eq=False)
class Run:
    """One run of the event: its state, its reply as a number, and its state after the step."""

    now: Symbols
    reply: z3.ArithRef
    after: Mapping[Path, z3.ExprRef]


def prove_non_interference(context: EventContext, promise: NonInterference) -> Result:
    """Prove `promise` in every pair of runs that satisfy the premises and agree as it says."""
    start = perf_counter()
    base = context.base
    symbols = base.encoder.symbols(base.types, suffix="'")
    parameters = {path: symbol for path, symbol in context.now.items() if path[0] == "event"}
    second = EventContext(base, context.event, context.types, {**symbols, **parameters}, context.solver)
    runs = [_run(context, promise), _run(second, promise)]

    def result(verdict: Verdict, detail: str = "", case: Case | None = None) -> Result:
        example = counterexample(context.table, PLACE, promise.name, case) if case else None
        return Result(
            table=context.table.name,
            row=PLACE,
            invariant=promise.name,
            verdict=verdict,
            seconds=perf_counter() - start,
            detail=example.finding.why if example else detail,
            counterexample=example,
        )

    with context.solver.scope():
        context.solver.assume(base.encoder.domains(base.types, symbols))
        context.solver.assume(second.term(holds) for _, holds in premises(context.table, promise.event))
        context.solver.assume(_agreements(context, second, promise))
        differ = z3.Or([base.view[path] != symbols[path] for path in base.types])
        possible = context.solver.ask(differ)
        if possible.status is Status.UNSATISFIABLE:
            return result(Verdict.VACUOUS, "no two different runs look the same to the caller")
        answer = context.solver.ask_for_small(
            _told_apart(context, promise, *runs), lambda: [*context.small(), *second.small()]
        )
        if answer.model is not None:
            other = view_of(context.table.schema, base.types, symbols, answer.model)
            seen = context.case(answer.model)
            return result(Verdict.REFUTED, case=Case(seen.view, seen.event, seen.parameters, other))
        if Status.UNKNOWN in (answer.status, possible.status):
            return result(Verdict.UNKNOWN, answer.why or possible.why)
        return result(Verdict.PROVED)


def _agreements(one: EventContext, two: EventContext, promise: NonInterference) -> list[z3.BoolRef]:
    def equal(parts: Sequence[Expression]) -> list[z3.BoolRef]:
        return [one.term(part) == two.term(part) for part in parts]

    conditional = [
        z3.Implies(z3.Or(one.term(condition), two.term(condition)), formula)
        for condition, visible in promise.same_when
        for formula in equal(visible)
    ]
    return [*equal(promise.same), *conditional]


def _run(context: EventContext, promise: NonInterference) -> Run:
    """Return the run with the first row that fires, written from the last row to the first."""
    rows = [row for row in context.table.rows if row.event == promise.event]
    numbers = _numbers(rows)
    paths = sorted({path for part in promise.same for path in reads(part)})
    reply: z3.ArithRef = context.base.encoder.constant(-1)
    after: dict[Path, z3.ExprRef] = {path: context.now[path] for path in paths}
    for row in reversed(rows):
        fires, end = context.fires(row), state_after(context, row)
        reply = z3.If(fires, context.base.encoder.constant(numbers[row.reply]), reply)
        after = {path: z3.If(fires, end.symbols[path], after[path]) for path in paths}
    return Run(context.now, reply, after)


def _numbers(rows: Sequence[Row]) -> Mapping[Reply, int]:
    return {reply: number for number, reply in enumerate(dict.fromkeys(row.reply for row in rows))}


def _told_apart(context: EventContext, promise: NonInterference, one: Run, two: Run) -> z3.BoolRef:
    term = context.base.encoder.term
    return z3.Or([one.reply != two.reply, *(term(part, one.after) != term(part, two.after) for part in promise.same)])
