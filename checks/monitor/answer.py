"""What the worlds answer to one line."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kvescrow.spec.vocabulary import Decision, Reason
from kvescrow.spec.world.outcome import Outcome

UNCHANGED = frozenset(decision for decision in Decision if decision.changes_nothing)
"""Decisions that leave every account and record as it was."""


class Answer(NamedTuple):
    """The answer of the row that fired, and what else a line may say of the state after it."""

    row: str
    decision: Decision
    reason: Reason
    facts: Mapping[str, object]
    """By the line's keys, as JSON values."""
    broken: Sequence[str]
    """Invariants that do not hold after the event, each with what it does not hold of."""

    @classmethod
    def of(cls, outcome: Outcome, facts: Mapping[str, object], broken: Sequence[str] = ()) -> "Answer":
        """Return the answer that the row of `outcome` gave."""
        return cls(outcome.row, outcome.decision, outcome.reason, facts, broken)
