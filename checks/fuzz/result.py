"""What a fuzz run comes to."""

from collections.abc import Mapping
from typing import Any

from attrs import asdict, field, frozen

from kvescrow.checks.fuzz.coverage import Counts
from kvescrow.checks.fuzz.findings import Finding

PASSED = "passed"
FAILED = "failed"
UNCOVERED = "uncovered"
"""Nothing differed, but some row, false guard or law was never seen, so too little was looked at."""
BROKEN = "broken"
NOT_APPLICABLE = "not_applicable"
NOT_RUN = "not_run"
"""Of a law: it was never put to the test. Of a run: the target cannot be opened here, since its library is missing;
`failure` says how to change that."""


@frozen
class NotApplicable:
    """A law that was not checked, since the target declares that it does not keep it."""

    law: str
    capability: str


@frozen
class Deviation:
    """A law that the target is known to break, and whether its scenario still shows it."""

    name: str
    law: str
    note: str
    scenario: tuple[str, ...]
    exercised: bool


@frozen
class Progress:
    """How far a run is."""

    examples: int
    steps: int
    seen: Counts


@frozen
class FuzzResult:
    """The record of one run; `verdict` is `passed` only where nothing is wrong."""

    target: str
    profile: str
    seed: int
    """A run with this target, profile and seed repeats this one."""
    verdict: str
    seconds: float
    examples: int
    steps: int
    """Events that world and target both decided."""
    rows_hit: int
    rows: int
    """Rows of the tables; for a cache manager, laws that apply, hit where one held when it could have been broken."""
    guards_hit: int
    guards: int
    """Conjuncts of guards; hit where one was false on an event that no earlier row of its cell had taken."""
    tables: tuple[str, ...] = ()
    """Tables whose rows were to be hit; none for a cache manager."""
    holes: tuple[str, ...] = ()
    """Rows and guards that were neither hit nor listed as unreachable."""
    unreachable: tuple[str, ...] = ()
    """Rows and guards that are listed as unreachable, each with the reason."""
    deviations: tuple[Deviation, ...] = ()
    not_applicable: tuple[NotApplicable, ...] = ()
    laws: Mapping[str, str] = field(factory=dict)
    """Each law by name: `passed`, `broken`, `not_applicable`, or `not_run` where it was never put to the test."""
    findings: tuple[Finding, ...] = ()
    """What was found, listed or new; `--findings` writes each to files of its own."""
    failure: str = ""
    """What differed or which law was broken, the least steps that lead there, and the line that repeats it; empty where
    nothing did."""

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain lists and dictionaries."""
        return {**asdict(self), "findings": [finding.to_json() for finding in self.findings]}

    @property
    def repeat(self) -> str:
        """Return the command that repeats this run."""
        return repeat_line(self.target, self.profile, self.seed)


def repeat_line(target: str, profile: str, seed: int) -> str:
    """Return the command that repeats a run."""
    named = "" if profile == "pr" else f" --profile {profile}"
    return f"kvescrow fuzz --target {target}{named} --seed {seed}"
