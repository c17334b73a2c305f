"""One incremental Z3 solver: hypotheses are pushed once and shared by everything asked below them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum

import z3  # type: ignore[import-untyped]
from attrs import frozen


class Status(Enum):
    """What the solver found."""

    SATISFIABLE = "satisfiable"
    """A model exists."""
    UNSATISFIABLE = "unsatisfiable"
    """No model exists."""
    UNKNOWN = "unknown"
    """It gave up."""


@frozen(eq=False)
class Answer:
    """What the solver found, with a model where there is one."""

    status: Status
    model: z3.ModelRef | None = None
    why: str = ""
    """Why it gave up."""


class Solver:
    """A stack of hypotheses. The same questions in the same order get the same answers and models."""

    def __init__(self, context: z3.Context, effort: int) -> None:
        """Limit every question to `effort` units of Z3's resource count, which no clock influences."""
        self._solver = z3.Solver(ctx=context)
        self._solver.set("random_seed", 0)
        self._solver.set("rlimit", effort)

    def assume(self, formulas: Iterable[z3.BoolRef]) -> None:
        """Add hypotheses to the current scope."""
        for formula in formulas:
            self._solver.add(formula)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Drop on exit every hypothesis that was added inside."""
        self._solver.push()
        try:
            yield
        finally:
            self._solver.pop()

    def ask(self, *formulas: z3.BoolRef) -> Answer:
        """Return whether all `formulas` can hold together with the hypotheses."""
        with self.scope():
            self.assume(formulas)
            found = self._solver.check()
            if found == z3.sat:
                return Answer(Status.SATISFIABLE, self._solver.model())
            if found == z3.unsat:
                return Answer(Status.UNSATISFIABLE)
            return Answer(Status.UNKNOWN, why=self._solver.reason_unknown())

    def ask_for_small(self, formula: z3.BoolRef, small: Callable[[], Iterable[z3.BoolRef]]) -> Answer:
        """Return `ask(formula)`, with a model that is `small` where there is one.

        The wish is a function, since it costs more than most questions and few have a model.
        """
        answer = self.ask(formula)
        if answer.status is not Status.SATISFIABLE:
            return answer
        nicer = self.ask(formula, *small())
        return nicer if nicer.status is Status.SATISFIABLE else answer

    def contradiction(self, formulas: Sequence[z3.BoolRef]) -> frozenset[int]:
        """Return positions of `formulas` that contradict each other; without any one of them the rest would not.

        Empty where the hypotheses alone are contradictory.
        """
        switches = [z3.Bool(f"switch {position}", formula.ctx) for position, formula in enumerate(formulas)]
        with self.scope():
            self.assume(z3.Implies(switch, formula) for switch, formula in zip(switches, formulas, strict=True))
            kept = self._core(switches)
            for switch in reversed(kept):
                rest = [other for other in kept if not other.eq(switch)]
                if self._solver.check(*rest) == z3.unsat:
                    kept = rest
        return frozenset(position for position, switch in enumerate(switches) if _is_among(switch, kept))

    def _core(self, switches: Sequence[z3.BoolRef]) -> list[z3.BoolRef]:
        if self._solver.check(*switches) != z3.unsat:
            return list(switches)
        core = self._solver.unsat_core()
        return [switch for switch in switches if _is_among(switch, core)]


def _is_among(term: z3.BoolRef, terms: Iterable[z3.BoolRef]) -> bool:
    return any(term.eq(other) for other in terms)
