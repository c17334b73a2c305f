"""The obligations of one row: that it can fire, and that whatever holds before it holds after it."""

from collections.abc import Iterator, Sequence
from enum import Enum
from time import perf_counter

import z3  # type: ignore[import-untyped]
from attrs import define, frozen

from kvescrow.checks.prove.context import After, EventContext, state_after
from kvescrow.checks.prove.counterexample import counterexample
from kvescrow.checks.prove.encoding import Symbols, value_of
from kvescrow.checks.prove.solver import Status
from kvescrow.checks.prove.step import (
    CHANGES_NOTHING,
    WITNESS,
    Case,
    applies,
    broken_premises,
    decides,
    take_step,
)
from kvescrow.checks.prove.vacuity import why_it_cannot_fire
from kvescrow.checks.prove.verdicts import Method, Result, Verdict
from kvescrow.spec.language.expressions import Expression, reads
from kvescrow.spec.language.table import Row, Table


@frozen(eq=False)
class Property:
    """Something to prove of a row."""

    name: str
    holds: Expression
    about_states: bool
    """Whether it speaks of one state and held before the row, so that an untouched property stays true."""


def properties(table: Table, event: str) -> tuple[Property, ...]:
    """Return what is proved of every row of `event`.

    An assumption about the world is among them: a row that breaks one would take the ground from all else.
    """
    return (
        *(Property(invariant.name, invariant.holds, True) for invariant in table.invariants),
        *(Property(rule.name, rule.holds, False) for rule in table.rules if applies(rule, event)),
        *(Property(a.name, a.holds, True) for a in table.assumptions if a.events is None),
    )


@frozen(eq=False)
class Goal:
    """A property as a term over the states before and after any row of one event."""

    prop: Property
    term: z3.BoolRef
    after: Symbols
    """The symbol of each field that the property reads after the row."""


def goals(context: EventContext) -> tuple[Goal, ...]:
    """Return the properties of the event's rows. Each becomes a term once, and rows only fill in their values."""
    symbols = context.base.encoder.symbols(context.base.types, suffix=" after")
    now = {**context.now, **symbols}
    return tuple(
        Goal(
            prop,
            context.base.encoder.term(prop.holds, now, context.now),
            {path: symbols[path] for path in sorted(reads(prop.holds)) if path in symbols},
        )
        for prop in properties(context.table, context.event.name)
    )


def prove_row(
    context: EventContext,
    row: Row,
    earlier: Sequence[Row],
    blocked: Sequence[z3.BoolRef],
    wanted: Sequence[Goal],
) -> Iterator[Result]:
    """Yield the results of `row`: a witness per source state, then each property, then the refusal's silence.

    `blocked` says of each row in `earlier` that it does not fire; `wanted` are the event's `goals`.
    """
    proof = _RowProof(context, row, state_after(context, row))
    with context.solver.scope():
        context.solver.assume(blocked)
        context.solver.assume([context.fires(row)])
        verdicts = set()
        for state in row.sources:
            result = proof.witness(state, earlier)
            verdicts.add(result.verdict)
            yield result
        can_fire = verdicts != {Verdict.VACUOUS}
        for goal in wanted:
            yield proof.prove(goal) if can_fire else proof.vacuous(goal.prop.name)
        if row.reply.decision.changes_nothing:
            yield proof.changes_nothing() if can_fire else proof.vacuous(CHANGES_NOTHING)


@define
class _RowProof:
    context: EventContext
    row: Row
    end: After
    silent: bool = True
    """Whether no witness so far changed anything in the interpreter."""

    def _result(self, name: str, verdict: Verdict, since: float, **more: object) -> Result:
        seconds = perf_counter() - since
        return Result(self.context.table.name, self.row.id, name, verdict, seconds, **more)  # type: ignore[arg-type]

    def vacuous(self, name: str) -> Result:
        return self._result(name, Verdict.VACUOUS, perf_counter(), detail="the row can never fire")

    def witness(self, state: Enum, earlier: Sequence[Row]) -> Result:
        """Find a case in which this row is the first that fires, and have the interpreter fire it."""
        start = perf_counter()
        answer = self.context.solver.ask(self.context.is_in(state))
        if answer.status is Status.UNKNOWN:
            return self._result(WITNESS, Verdict.UNKNOWN, start, state=state.name, detail=answer.why)
        if answer.model is None:
            why = why_it_cannot_fire(self.context, self.row, state, earlier)
            return self._result(WITNESS, Verdict.VACUOUS, start, state=state.name, detail=why)
        case = self.context.case(answer.model)
        differs = self._disagreement(case, answer.model)
        if differs:
            example = counterexample(self.context.table, self.row.id, WITNESS, case)
            return self._result(
                WITNESS, Verdict.REFUTED, start, state=state.name, detail=differs, counterexample=example
            )
        return self._result(WITNESS, Verdict.PROVED, start, state=state.name, witness=case)

    def _disagreement(self, case: Case, model: z3.ModelRef) -> str:
        """Return how interpreter and solver differ on `case`; empty where they agree."""
        table, event = self.context.table, self.context.event.name
        missing = broken_premises(table, case)
        if missing:
            return f"the interpreter finds that {', '.join(missing)} does not hold"
        if not decides(table, case.view, event, case.parameters):
            return "the interpreter fires no row"
        step = take_step(table, case.view, event, case.parameters)
        if step.row is not self.row:
            return f"the interpreter fires {step.row.id}"
        # The symbols of unchanged fields are those of the view itself.
        solved = {path: value_of(self.end.symbols[path], self.context.types[path], model) for path in self.end.changed}
        wrong = [
            f"{entity}.{name}"
            for entity, name in self.context.base.types
            if step.after[entity][name] != solved.get((entity, name), case.view[entity][name])
        ]
        self.silent = self.silent and step.after == case.view
        return f"interpreter and solver compute different {', '.join(wrong)}" if wrong else ""

    def prove(self, goal: Goal) -> Result:
        """Prove that the goal's property holds after the row."""
        start = perf_counter()
        prop = goal.prop
        if prop.about_states and self.end.changed.isdisjoint(goal.after):
            return self._result(prop.name, Verdict.PROVED, start, method=Method.FRAME)
        values = [(symbol, self.end.symbols[path]) for path, symbol in goal.after.items()]
        return self._decide(prop.name, z3.Not(z3.substitute(goal.term, *values)), start)

    def changes_nothing(self) -> Result:
        """Prove that the row leaves the whole view as it was, ghosts included (FRM-6)."""
        start = perf_counter()
        if not self.end.changed:
            verdict = Verdict.PROVED if self.silent else Verdict.REFUTED
            return self._result(CHANGES_NOTHING, verdict, start, method=Method.STRUCTURE)
        moved = z3.Or([self.end.symbols[path] != self.context.now[path] for path in sorted(self.end.changed)])
        return self._decide(CHANGES_NOTHING, moved, start)

    def _decide(self, name: str, violation: z3.BoolRef, start: float) -> Result:
        answer = self.context.solver.ask_for_small(violation, self.context.small)
        if answer.status is Status.UNSATISFIABLE:
            return self._result(name, Verdict.PROVED, start)
        if answer.model is None:
            return self._result(name, Verdict.UNKNOWN, start, detail=answer.why)
        example = counterexample(self.context.table, self.row.id, name, self.context.case(answer.model))
        return self._result(name, Verdict.REFUTED, start, detail=example.finding.why, counterexample=example)
