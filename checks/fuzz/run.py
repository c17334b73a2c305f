"""One fuzz run: rounds of a Hypothesis state machine, then the verdict."""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence

from attrs import define, evolve, field

from kvescrow.checks.fuzz.composed import ComposedDriver
from kvescrow.checks.fuzz.coverage import Coverage
from kvescrow.checks.fuzz.differences import Disagreement
from kvescrow.checks.fuzz.driver import Driver
from kvescrow.checks.fuzz.findings import Finding, differing
from kvescrow.checks.fuzz.goals import Goal
from kvescrow.checks.fuzz.judged_run import fuzz_judged
from kvescrow.checks.fuzz.ledger import LedgerDriver
from kvescrow.checks.fuzz.pages import PageDriver
from kvescrow.checks.fuzz.plays import PLAYS
from kvescrow.checks.fuzz.profiles import DATABASE, Profile, profile_called, settings_of
from kvescrow.checks.fuzz.release import ReleaseDriver
from kvescrow.checks.fuzz.result import (
    BROKEN,
    FAILED,
    NOT_APPLICABLE,
    PASSED,
    UNCOVERED,
    FuzzResult,
    NotApplicable,
    Progress,
    repeat_line,
)
from kvescrow.checks.fuzz.shrink import Failure, least_failure
from kvescrow.checks.fuzz.unreachable import UNREACHABLE
from kvescrow.checks.targets.registry import subject_called, told_opening
from kvescrow.checks.targets.subject import Kind, Subject

OnProgress = Callable[[Progress], None]

DRIVERS: Mapping[Kind, type[Driver]] = {
    Kind.LEDGER: LedgerDriver,
    Kind.PAGES: PageDriver,
    Kind.COMPOSED: ComposedDriver,
    Kind.RELEASE: ReleaseDriver,
}

LAWS: Mapping[Kind, tuple[tuple[str, str | None], ...]] = {
    Kind.LEDGER: (
        ("reply, identities and snapshot equal the specification's after each event", None),
        ("a restart changes nothing (LEA-7)", "durable"),
    ),
    Kind.PAGES: (
        ("reply and snapshot equal the specification's after each event", None),
        ("a forced collision of digests shares nothing (SCO-2)", "chooses_digest"),
    ),
    Kind.COMPOSED: (
        ("replies, executions and both snapshots equal the specification's after each event", None),
        ("what a step in flight touches is charged and not reused (LIF-3, REC-2, PAG-4)", None),
    ),
    Kind.RELEASE: (("reply and snapshot equal the specification's after each event", None),),
}
"""What is checked of each kind, and the capability that a law needs, if any."""

DEFAULT_SEED = 20261129
"""The seed of `pr` where none is given."""


def run_fuzz(
    target: str,
    profile: str = "pr",
    seed: int | None = None,
    on_progress: OnProgress | None = None,
    database: str = DATABASE,
) -> FuzzResult:
    """Fuzz the target called `target`, or `package.module:factory`, and return the record of the run.

    Raises `UserError` where there is no such target or profile.
    """
    return fuzz(target, subject_called(target), profile_called(profile), seed, on_progress, database)


def fuzz(
    name: str,
    subject: Subject,
    profile: Profile,
    seed: int | None = None,
    on_progress: OnProgress | None = None,
    database: str = DATABASE,
) -> FuzzResult:
    """Fuzz `subject`, which is called `name` in the record; `database` is where a profile with one keeps failures."""
    if seed is None:
        seed = secrets.randbelow(2**31) if profile.keeps_database else DEFAULT_SEED
    if subject.kind in PLAYS:
        return fuzz_judged(name, subject, profile, seed, on_progress or (lambda progress: None), database)
    run = Run(name, told_opening(name, subject), profile, on_progress or (lambda progress: None), database)
    started = time.monotonic()
    disagreement, failed_seed = run.rounds(seed)
    return run.result(failed_seed, disagreement, time.monotonic() - started)


@define
class Run:
    """The state of one run."""

    name: str
    subject: Subject
    profile: Profile
    on_progress: OnProgress
    database: str = DATABASE
    coverage: Coverage = field(init=False)
    examples: int = 0
    steps: int = 0
    found: Failure | None = None
    """What differed, after the least steps that lead there."""
    last: Driver | None = None
    """The run of the machine that ended last: the one that failed, where one did."""

    def __attrs_post_init__(self) -> None:
        self.coverage = Coverage(self.driver.tables)

    @property
    def driver(self) -> type[Driver]:
        """Return the driver for the subject's kind."""
        return DRIVERS[self.subject.kind]

    def rounds(self, seed: int) -> tuple[str, int]:
        """Run round after round; return what failed and the seed to repeat it, or nothing and `seed`."""
        started = time.monotonic()
        number = 0
        while not self._is_over(number, time.monotonic() - started):
            holes = self._holes() if self.profile.pursues_holes else []
            failure = self._round(holes or self.coverage.goals, seed + number)
            if failure:
                return failure, seed if self.profile.pursues_holes else seed + number
            number += 1
        return "", seed

    def _is_over(self, number: int, seconds: float) -> bool:
        if self.profile.seconds is not None and seconds >= self.profile.seconds:
            return True
        if self.profile.most_rounds is None:
            return False
        enough = number >= self.profile.least_rounds and not self._holes()
        return enough or number >= self.profile.most_rounds

    def _round(self, wanted: Sequence[Goal], seed: int) -> str:
        from kvescrow.checks.fuzz.machine import failure_of_round, machine_of

        machine = machine_of(
            self._open_driver, self.driver, wanted, self._on_run, durable=self.subject.capabilities.durable
        )
        return failure_of_round(machine, settings_of(self.profile, self.name, self.database), seed, self._told)

    def _open_driver(self) -> Driver:
        return self.driver(self.coverage, self.subject)

    def _on_run(self, driver: Driver) -> None:
        self.examples += 1
        self.steps += max(0, len(driver.told) - 1)
        self.last = driver
        self.on_progress(Progress(self.examples, self.steps, self.coverage.counts()))

    def _told(self, found: Disagreement) -> str:
        assert self.last is not None, "a disagreement comes from a run"
        last = self.last
        least = least_failure(self._open_driver, last.setup, last.done)
        self.found = least or Failure(found, last.setup, tuple(last.steps), tuple(last.done))
        lines = ["Specification and implementation differ:", f"  {self.found.disagreement.step}"]
        lines += [f"    {difference}" for difference in self.found.disagreement.differences]
        lines += ["Least steps:", *(f"  {number}. {step}" for number, step in enumerate(self.found.steps))]
        return "\n".join(lines)

    def _listed(self) -> Mapping[str, str]:
        return UNREACHABLE.get(self.subject.kind.value, {})

    def _holes(self) -> list[Goal]:
        return [goal for goal in self.coverage.holes() if goal.name not in self._listed()]

    def result(self, seed: int, failure: str, seconds: float) -> FuzzResult:
        """Return the record."""
        holes = tuple(goal.name for goal in self._holes())
        missed = {goal.name for goal in self.coverage.holes()}
        outlived = [name for name in self._listed() if name not in missed]
        if outlived and not failure:
            failure = "Listed as unreachable, but reached: " + "; ".join(outlived)
        counts = self.coverage.counts()
        record = FuzzResult(
            target=self.name,
            profile=self.profile.name,
            seed=seed,
            verdict=FAILED if failure else UNCOVERED if holes else PASSED,
            seconds=round(seconds, 3),
            examples=self.examples,
            steps=self.steps,
            rows_hit=counts.rows_hit,
            rows=counts.rows,
            guards_hit=counts.guards_hit,
            guards=counts.guards,
            tables=tuple(table.name for table in self.driver.tables),
            holes=holes,
            unreachable=tuple(f"{goal}: {why}" for goal, why in self._listed().items()),
            not_applicable=tuple(not_applicable(self.subject)),
            laws=laws_of(self.subject, broken=self.found is not None),
            findings=tuple(self._findings(repeat_line(self.name, self.profile.name, seed))),
        )
        if failure:
            record = evolve(record, failure=f"{failure}\nRepeat: {record.repeat}")
        return record

    def _findings(self, repeat: str) -> list[Finding]:
        if self.found is None:
            return []
        required, seen = differing(self.found.disagreement.differences)
        law, statement, steps = self.found.kind, LAWS[self.subject.kind][0][0], self.found.steps
        return [Finding(self.name, self.subject.engine, law, statement, "", steps, required, seen, repeat)]


def laws_of(subject: Subject, *, broken: bool) -> dict[str, str]:
    """Return the verdict of each law of the subject's kind; where something differed, the first one is broken."""
    excluded = {law.law for law in not_applicable(subject)}
    verdicts = {law: NOT_APPLICABLE if law in excluded else PASSED for law, _ in LAWS[subject.kind]}
    return verdicts | ({next(iter(verdicts)): BROKEN} if broken else {})


def not_applicable(subject: Subject) -> list[NotApplicable]:
    """Return the laws of the subject's kind that its capabilities exclude."""
    return [
        NotApplicable(law, capability)
        for law, capability in LAWS[subject.kind]
        if capability is not None and not getattr(subject.capabilities, capability)
    ]
