"""What a proof says: a verdict per obligation, and one for the whole, which passes only when each is proved."""

from enum import Enum
from typing import Any

from attrs import field, frozen

from kvescrow.checks.prove.counterexample import Counterexample
from kvescrow.checks.prove.step import Case


class Verdict(Enum):
    """What became of one obligation. Only PROVED passes (FRM-2)."""

    PROVED = "proved"
    """It holds in every view that satisfies the hypotheses, and such a view exists."""
    REFUTED = "refuted"
    """A view contradicts it; the counterexample says which."""
    UNKNOWN = "unknown"
    """The solver gave up within its effort."""
    VACUOUS = "vacuous"
    """It holds only because its situation can never arise, so it says nothing."""
    NOT_RUN = "not_run"
    """Nothing was there to check."""


class Method(Enum):
    """How an obligation was decided."""

    SOLVER = "solver"
    """Z3 found no counterexample, or found one."""
    INVARIANTS = "invariants"
    """Z3 decided it, and needed the invariants where the assumptions alone did not suffice."""
    FRAME = "frame"
    """The row changes nothing that the property reads."""
    STRUCTURE = "structure"
    """The table's form decides it: an unconditional last row, or a row without effects."""


@frozen
class Result:
    """One obligation and its verdict."""

    table: str
    row: str
    """Id of the row; `STATE/event` for a cell, `initial` for the initial state, `*` for the whole table."""
    invariant: str
    """Name of the invariant, rule, assumption or promise; or `witness`, `totality`, `changes_nothing`."""
    verdict: Verdict
    seconds: float
    method: Method = Method.SOLVER
    state: str | None = None
    """Source state, where the obligation is about one."""
    detail: str = ""
    """Why it is not proved, in words."""
    counterexample: Counterexample | None = None
    witness: Case | None = field(default=None, eq=False, repr=False)
    """For a proved witness, the case in which the row fires."""

    def to_json(self) -> dict[str, Any]:
        """Return the record that reports and tools read."""
        return {
            "table": self.table,
            "row": self.row,
            "invariant": self.invariant,
            "state": self.state,
            "verdict": self.verdict.value,
            "method": self.method.value,
            "seconds": round(self.seconds, 6),
            **({"detail": self.detail} if self.detail else {}),
        }

    def __str__(self) -> str:
        place = f"{self.row} in {self.state}" if self.state else self.row
        why = f": {self.detail}" if self.detail else ""
        return f"{self.verdict.value}  {self.table}  {place}  {self.invariant}{why}"


_WORST_FIRST = (Verdict.REFUTED, Verdict.VACUOUS, Verdict.UNKNOWN, Verdict.NOT_RUN)


@frozen
class ProofReport:
    """All results, in the order of the tables and their rows."""

    results: tuple[Result, ...]
    seconds: float = field(eq=False)

    @property
    def passed(self) -> bool:
        """Whether there was something to prove and all of it is proved."""
        return bool(self.results) and all(result.verdict is Verdict.PROVED for result in self.results)

    @property
    def failures(self) -> tuple[Result, ...]:
        """Return every result that is not proved."""
        return tuple(result for result in self.results if result.verdict is not Verdict.PROVED)

    @property
    def verdict(self) -> str:
        """Return `passed`, or the worst verdict that occurs; `not_run` where nothing was proved."""
        if self.passed:
            return "passed"
        found = {result.verdict for result in self.results} or {Verdict.NOT_RUN}
        return next(verdict.value for verdict in _WORST_FIRST if verdict in found)

    def to_json(self) -> dict[str, Any]:
        """Return the whole report; apart from `seconds` it is the same on every run."""
        return {
            "verdict": self.verdict,
            "obligations": len(self.results),
            "seconds": round(self.seconds, 3),
            "results": [result.to_json() for result in self.results],
        }
