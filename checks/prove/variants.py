"""A table with other rows: which law it breaks first, and where it behaves otherwise than before.

Variants share symbols, hypotheses and laws with their original, so that each costs no more than its changed rows.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import cached_property

import z3  # type: ignore[import-untyped]
from attrs import define, evolve, field, frozen

from kvescrow.checks.prove.cells import prove_cell
from kvescrow.checks.prove.context import After, EventContext, event_context, standing, state_after, table_context
from kvescrow.checks.prove.encoding import Path
from kvescrow.checks.prove.prover import EFFORT
from kvescrow.checks.prove.rows import Goal, goals, prove_row
from kvescrow.checks.prove.runs import prove_non_interference
from kvescrow.checks.prove.solver import Status
from kvescrow.checks.prove.step import Case
from kvescrow.checks.prove.verdicts import Result, Verdict
from kvescrow.spec.language.table import Event, Reply, Row, Table


class Likeness(Enum):
    """Whether a variant behaves like its original."""

    SAME = "same"
    """Same reply and same effects in every view that satisfies invariants and assumptions."""
    DIFFERENT = "different"
    """Some such view tells them apart."""
    UNKNOWN = "unknown"
    """The solver gave up within its effort."""


@frozen
class Comparison:
    """How a variant compares with its original on one event."""

    likeness: Likeness
    case: Case | None = None
    """A view that tells them apart, small where there is a small one."""


Terms = tuple[z3.BoolRef, After]
"""When a row fires, whatever is read before it, and the state after it."""
Step = Sequence[z3.ExprRef]
"""The number of the reply, and the value of each field that a row may write, after the event."""


@define(eq=False, slots=False)
class EventVariants:
    """Everything that variants of one event's rows share."""

    context: EventContext
    goals: tuple[Goal, ...]
    _numbers: dict[Reply | None, int] = field(factory=dict)

    def failures(self, variant: Table, rows: Collection[str], *, cells: bool, replies: bool) -> Iterator[Result]:
        """Yield what is not proved of `rows` of the variant, as it is found.

        `cells` says that other cases may be decided, `replies` that the answer may depend on what it must not.
        """
        context = self._of(variant)
        results = self._results(context, self._rows(variant), rows, cells=cells, replies=replies)
        return (result for result in results if result.verdict is not Verdict.PROVED)

    def _results(
        self, context: EventContext, mine: list[Row], rows: Collection[str], *, cells: bool, replies: bool
    ) -> Iterator[Result]:
        blocked: list[z3.BoolRef] = []
        for index, row in enumerate(mine):
            if row.id in rows:
                yield from prove_row(context, row, mine[:index], blocked, self.goals)
            blocked.append(z3.Not(self._terms(context, row)[0]))
        if cells:
            for state in context.table.state_type:
                yield prove_cell(context, state, reached=True)
        if replies:
            for promise in context.table.non_interference:
                if promise.event == context.event.name:
                    yield prove_non_interference(context, promise)

    def compare(self, variant: Table) -> Comparison:
        """Return whether the variant answers and changes the same as the original, for any number of entities."""
        one, original = self.context, self._rows(self.context.table)
        rows = self._rows(variant)
        kept = _same_at_the_end(original, rows)
        step = self._steps[len(original) - kept]
        for row in reversed(rows[: len(rows) - kept]):
            step = self._before(row, self._terms(self._of(variant), row), step)
        unlike = [was != now for was, now in zip(self._steps[0], step, strict=True) if not was.eq(now)]
        if not unlike:
            return Comparison(Likeness.SAME)
        answer = one.solver.ask_for_small(z3.Or(unlike), one.small)
        if answer.model is not None:
            return Comparison(Likeness.DIFFERENT, one.case(answer.model))
        return Comparison(Likeness.SAME if answer.status is Status.UNSATISFIABLE else Likeness.UNKNOWN)

    def _of(self, variant: Table) -> EventContext:
        return evolve(self.context, base=evolve(self.context.base, table=variant))

    def _rows(self, table: Table) -> list[Row]:
        return [row for row in table.rows if row.event == self.context.event.name]

    @cached_property
    def _paths(self) -> list[Path]:
        """The fields that a row may write."""
        entities = self.context.table.entities
        return [(entity.name, name) for entity in entities if not entity.settled for name in entity.fields]

    @cached_property
    def _steps(self) -> Sequence[Step]:
        """What the original does if only its rows from each place on are read; from the last place on, none is."""
        steps: list[Step] = [[self._number(None), *(self.context.now[path] for path in self._paths)]]
        for row in reversed(self._rows(self.context.table)):
            steps.append(self._before(row, self._terms_of_original[row], steps[-1]))
        return steps[::-1]

    def _before(self, row: Row, terms: Terms, rest: Step) -> Step:
        """Return what is done where `row` is read first, and `rest` is what is done where it does not fire."""
        fires, end = terms
        values = [self._number(row.reply), *(end.symbols[path] for path in self._paths)]
        return [
            later if value.eq(later) else z3.If(fires, value, later) for value, later in zip(values, rest, strict=True)
        ]

    @cached_property
    def _terms_of_original(self) -> Mapping[Row, Terms]:
        return {row: _terms(self.context, row) for row in self._rows(self.context.table)}

    def _terms(self, context: EventContext, row: Row) -> Terms:
        known = self._terms_of_original.get(row)
        return _terms(context, row) if known is None else known

    def _number(self, reply: Reply | None) -> z3.ExprRef:
        return self.context.base.encoder.constant(self._numbers.setdefault(reply, len(self._numbers)))


def _terms(context: EventContext, row: Row) -> Terms:
    return context.fires(row), state_after(context, row)


def _same_at_the_end(original: Sequence[Row], rows: Sequence[Row]) -> int:
    """Return how many of the last rows are the same."""
    count = 0
    for one, other in zip(reversed(original), reversed(rows), strict=False):
        if one is not other:
            break
        count += 1
    return count


@contextmanager
def event_variants(table: Table, event: Event, *, effort: int = EFFORT) -> Iterator[EventVariants]:
    """Prepare proofs about variants of the rows of `event` in `table`. Each question may take `effort`."""
    base = table_context(table, effort)
    solver = base.solver()
    solver.assume(standing(base, invariants=True))
    with event_context(base, event, solver) as context:
        yield EventVariants(context, goals(context))
