"""One fuzz run of a target that is judged from outside: listed deviations, rounds of random histories, the verdict."""

import inspect
import time
from collections.abc import Callable, Sequence

from attrs import define, evolve, field

from kvescrow.checks.fuzz.coverage import Counts
from kvescrow.checks.fuzz.differences import Disagreement, shown
from kvescrow.checks.fuzz.findings import Finding, differing, entry_of
from kvescrow.checks.fuzz.guard import absence, closing
from kvescrow.checks.fuzz.judge import Judge
from kvescrow.checks.fuzz.laws import BY_NAME, applying, laws_for
from kvescrow.checks.fuzz.plays import PLAYS, Play
from kvescrow.checks.fuzz.profiles import DATABASE, Profile, settings_of
from kvescrow.checks.fuzz.result import (
    BROKEN,
    FAILED,
    NOT_APPLICABLE,
    NOT_RUN,
    PASSED,
    UNCOVERED,
    Deviation,
    FuzzResult,
    NotApplicable,
    Progress,
    repeat_line,
)
from kvescrow.checks.fuzz.shrink import Failure, least_failure, replay
from kvescrow.checks.targets.subject import ListedDeviation, Subject


def fuzz_judged(
    name: str,
    subject: Subject,
    profile: Profile,
    seed: int,
    on_progress: Callable[[Progress], None],
    database: str = DATABASE,
) -> FuzzResult:
    """Fuzz `subject`, which is called `name` in the record.

    A target that cannot be opened here, since its library is missing, is `not_run`, with the reason.
    """
    started = time.monotonic()
    run = JudgedRun(name, subject, profile, seed, on_progress, database)
    if missing := absence(subject, run.play.setup_of(0)):
        return evolve(run.result("", time.monotonic() - started), verdict=NOT_RUN, holes=(), failure=missing)
    run.show_deviations()
    failure = run.rounds()
    return run.result(failure, time.monotonic() - started)


@define
class JudgedRun:
    """The state of one run."""

    name: str
    subject: Subject
    profile: Profile
    seed: int
    on_progress: Callable[[Progress], None]
    database: str = DATABASE
    exercised: set[str] = field(factory=set)
    deviations: list[Deviation] = field(factory=list)
    findings: list[Finding] = field(factory=list)
    unshown: list[str] = field(factory=list)
    """Listed deviations that are no longer shown, each with what its scenario came to."""
    examples: int = 0
    steps: int = 0
    last: Judge | None = None
    """The history that ended last: the one that failed, where one did."""

    @property
    def play(self) -> Play:
        """Return how a subject of this kind is judged and moved."""
        return PLAYS[self.subject.kind]

    # --- listed deviations --------------------------------------------------------------------------------------------

    def show_deviations(self) -> None:
        """Replay the scenario of each listed deviation."""
        for listed in self.subject.deviations:
            came_to = self._shows(listed)
            if came_to:
                self.unshown.append(f"{listed.name}: {came_to}")
            scenario = tuple(f"{method}({', '.join(map(shown, rest))})" for method, *rest in listed.steps)
            self.deviations.append(Deviation(listed.name, listed.law, listed.note, scenario, exercised=not came_to))

    def _shows(self, listed: ListedDeviation) -> str:
        """Return why the scenario no longer shows its law broken by its last step; nothing where it does."""
        if listed.law not in applying(self.subject.capabilities, self.subject.kind):
            return f"law {listed.law} does not apply to this target"
        if misspelt := self._misspelt(listed):
            return misspelt
        came_to = ""
        for steps in self.play.ways(listed.steps):
            judge = self.play.judge(self.subject)
            came_to = self._came_to(judge, listed, steps)
            if not came_to or judge.is_last_way:
                break
        return came_to

    def _misspelt(self, listed: ListedDeviation) -> str:
        """Return what in the scenario is nothing that a target of this kind is opened with or asked."""
        due = type(self.play.setup_of(0))
        if not isinstance(listed.setup, due):
            return f"its setup is a {type(listed.setup).__name__}, where {due.__name__} is due"
        for number, (method, *arguments) in enumerate(listed.steps, start=1):
            asked = getattr(self.play.judge, f"_may_{method}", None)
            try:
                inspect.signature(asked).bind(None, *arguments)  # type: ignore[arg-type]  # told as any other mistake
            except TypeError:
                return f"step {number} is no call of this protocol"
        return ""

    def _came_to(self, judge: Judge, listed: ListedDeviation, steps: Sequence[tuple[object, ...]]) -> str:
        number = 0
        try:
            with closing(judge):
                judge.open_with(listed.setup)
                for number, (method, *arguments) in enumerate(steps, start=1):
                    if not judge.call(str(method), *arguments):
                        return f"step {number} is not a call that a client may make there"
        except Disagreement as found:
            if (found.differences[0].path, number) == (listed.law, len(steps)):
                self._keep(_failure(found, judge), listed)
                return ""
            return f"step {number} breaks the law {found.differences[0]}"
        return "no law is broken"

    def _keep(self, failure: Failure, listed: ListedDeviation | None = None) -> None:
        law = BY_NAME[failure.kind]
        required, seen = differing(failure.disagreement.differences)
        note = f"seen in {self.subject.engine or self.name}"
        self.findings.append(
            Finding(
                target=self.name,
                engine=self.subject.engine,
                law=law.name,
                statement=law.statement,
                listed=listed.name if listed else "",
                scenario=failure.steps,
                specification=required,
                implementation=seen,
                repeat=repeat_line(self.name, self.profile.name, self.seed),
                note=listed.note if listed else "",
                entry=entry_of(law.name, listed.note if listed else note, failure.setup, failure.done),
            )
        )

    # --- random histories ---------------------------------------------------------------------------------------------

    def rounds(self) -> str:
        """Run round after round; return what failed, or nothing."""
        started, number = time.monotonic(), 0
        while not self._is_over(number, time.monotonic() - started):
            failure = self._round(self.seed + number)
            if failure:
                # A long run is repeated from the round that failed, a bounded one as a whole.
                self.seed += number if self.profile.most_rounds is None else 0
                return failure
            number += 1
        return ""

    def _is_over(self, number: int, seconds: float) -> bool:
        if self.profile.seconds is not None and seconds >= self.profile.seconds:
            return True
        if self.profile.most_rounds is None:
            return False
        enough = number >= self.profile.least_rounds and not self._holes()
        return enough or number >= self.profile.most_rounds

    def _round(self, seed: int) -> str:
        from kvescrow.checks.fuzz.machine import failure_of_round, machine_of_judge

        machine = machine_of_judge(self.play, self._judge, self._on_end)
        return failure_of_round(machine, settings_of(self.profile, self.name, self.database), seed, self._told)

    def _judge(self) -> Judge:
        return self.play.judge(self.subject, self.exercised)

    def _on_end(self, judge: Judge) -> None:
        self.examples += 1
        self.steps += len(judge.done)
        self.last = judge
        self.on_progress(Progress(self.examples, self.steps, self._counts()))

    def _told(self, found: Disagreement) -> str:
        assert self.last is not None, "a broken law comes from a history"
        failure = _failure(found, self.last)
        failure = self._least(failure) or failure
        failure = self._without_race(failure) or failure
        self._keep(failure)
        found = failure.disagreement
        broken = found.differences[0].implementation
        lines = [f"Law broken: {BY_NAME[failure.kind]}", f"  {found.step}", f"    {broken}"]
        lines += ["Least steps:", *(f"  {number}. {step}" for number, step in enumerate(failure.steps))]
        return "\n".join(lines)

    def _without_race(self, failure: Failure) -> Failure | None:
        """Return an error that needs no two calls at one moment, where a race has come upon one."""
        if not failure.done or failure.done[-1][0] != "race":
            return None
        first, second, _ = failure.done[-1][1]
        listed = {deviation.law for deviation in self.subject.deviations}
        for calls in ((first, second), (second, first)):
            plain = replay(self._judge, failure.setup, (*failure.done[:-1], *calls))
            if plain is not None and plain.kind not in listed:
                return self._least(plain) or plain
        return None

    def _least(self, failure: Failure) -> Failure | None:
        """Return the fewest calls that break the same law, in a pool no larger than the failure's."""
        found = [least_failure(self._judge, setup, failure.done) for setup in self.play.smaller(failure.setup)]
        same = [one for one in found if one is not None and one.kind == failure.kind]
        return min(same, key=lambda one: len(one.done), default=None)

    # --- the verdict --------------------------------------------------------------------------------------------------

    def _applying(self) -> list[str]:
        """Return the laws that random histories must keep: in force, and not listed as broken."""
        listed = {deviation.law for deviation in self.subject.deviations}
        return [
            law.name
            for law in laws_for(self.subject.kind)
            if law.name in applying(self.subject.capabilities, self.subject.kind) - listed
        ]

    def _holes(self) -> list[str]:
        return [name for name in self._applying() if name not in self.exercised]

    def _counts(self) -> Counts:
        laws = self._applying()
        return Counts(len(laws) - len(self._holes()), len(laws), 0, 0)

    def result(self, failure: str, seconds: float) -> FuzzResult:
        """Return the record."""
        if self.unshown and not failure:
            failure = "Listed as a deviation, but no longer shown: " + "; ".join(self.unshown)
        holes, counts = self._holes(), self._counts()
        broken = {finding.law for finding in self.findings}
        in_force = applying(self.subject.capabilities, self.subject.kind)
        record = FuzzResult(
            target=self.name,
            profile=self.profile.name,
            seed=self.seed,
            verdict=FAILED if failure else UNCOVERED if holes else PASSED,
            seconds=round(seconds, 3),
            examples=self.examples,
            steps=self.steps,
            rows_hit=counts.rows_hit,
            rows=counts.rows,
            guards_hit=0,
            guards=0,
            holes=tuple(f"law {BY_NAME[name]}" for name in holes),
            deviations=tuple(self.deviations),
            not_applicable=tuple(
                NotApplicable(str(law), excluded)
                for law in laws_for(self.subject.kind)
                if (excluded := law.excluded_by(self.subject.capabilities)) is not None
            ),
            laws={law.name: self._verdict_of(law.name, broken, in_force) for law in laws_for(self.subject.kind)},
            findings=tuple(self.findings),
        )
        return evolve(record, failure=f"{failure}\nRepeat: {record.repeat}") if failure else record

    def _verdict_of(self, law: str, broken: set[str], in_force: frozenset[str]) -> str:
        if law not in in_force:
            return NOT_APPLICABLE
        if law in broken:
            return BROKEN
        return PASSED if law in self.exercised else NOT_RUN


def _failure(found: Disagreement, judge: Judge) -> Failure:
    return Failure(found, judge.setup, tuple(judge.steps), tuple(judge.done))
