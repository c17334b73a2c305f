"""What a monitor says: findings, and the verdict over all events."""

from collections.abc import Mapping
from enum import Enum

from attrs import field, frozen


class Outcome(Enum):
    """Whether the journal is one that the tables allow."""

    PASSED = "passed"
    """Every event was answered as its row answers."""
    REFUTED = "refuted"
    """At least one was not."""


@frozen
class Finding:
    """One event that was not answered as the tables say, or after which an invariant does not hold."""

    line: int
    """Line of the journal; in a running process, the number of the event plus one, as if it stood in a file."""
    event: str
    """The event and what it speaks of."""
    row: str
    """The row that fired."""
    expected: str
    """What the row gives, where it differs from what was found."""
    found: str
    """What the journal says instead."""

    def __str__(self) -> str:
        return f"line {self.line}: {self.event}: {self.row} gives {self.expected}; found {self.found}"

    def as_json(self) -> dict[str, object]:
        """Return the finding as JSON values."""
        return {
            "line": self.line,
            "event": self.event,
            "row": self.row,
            "expected": self.expected,
            "found": self.found,
        }


@frozen
class Verdict:
    """The verdict over a whole journal."""

    events: int
    rows: Mapping[str, int] = field(repr=False)
    """How often each row fired, by its id, in the order of ids."""
    findings: tuple[Finding, ...]
    omitted: int
    """Further findings that were counted and not kept; after the first, others may only follow from it."""

    @property
    def outcome(self) -> Outcome:
        """Whether the journal passed."""
        return Outcome.REFUTED if self.findings else Outcome.PASSED

    def as_json(self) -> dict[str, object]:
        """Return the verdict record as JSON values."""
        return {
            "verdict": self.outcome.value,
            "events": self.events,
            "rows": dict(self.rows),
            "findings": [finding.as_json() for finding in self.findings],
            "omitted": self.omitted,
        }
