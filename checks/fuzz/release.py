"""Driving the release of one candidate."""

from typing import cast

from kvescrow.checks.fuzz.calls import Call
from kvescrow.checks.fuzz.coverage import Coverage
from kvescrow.checks.fuzz.differences import shown
from kvescrow.checks.fuzz.driver import INVARIANTS_EVERY, Driver, Step, next_goals, rotated
from kvescrow.checks.fuzz.goals import Goal
from kvescrow.checks.fuzz.guard import opened
from kvescrow.checks.targets.protocols import ReleaseFacts, ReleaseSetup
from kvescrow.checks.targets.subject import Subject
from kvescrow.spec.language.compiler import compiled
from kvescrow.spec.tables.release import RELEASE, SERVING
from kvescrow.spec.vocabulary import GradeVerdict
from kvescrow.spec.world.outcome import Outcome, violated
from kvescrow.spec.world.release import ReleaseWorld

EPOCH = 3
"""In force when a release is planned: neither the first nor the last."""


class ReleaseDriver(Driver):
    """The world of a release beside a target."""

    tables = (RELEASE,)
    setup: ReleaseSetup

    def __init__(self, coverage: Coverage, subject: Subject) -> None:
        super().__init__(coverage, subject)
        self._compiled = compiled(RELEASE)

    def setup_of(self, shape: int) -> ReleaseSetup:
        """Return a release with one to three looks and a time limit of one to five."""
        shape, looks = divmod(shape, 3)
        return ReleaseSetup(looks=1 + looks, limit=1 + 2 * (shape % 3), epoch=EPOCH)

    def open_with(self, setup: ReleaseSetup) -> None:
        """Open world and target as `setup` says."""
        self.setup = setup
        self.world = ReleaseWorld(setup.looks, setup.limit, setup.epoch, self.watch)
        self.target = opened(self.subject, setup)
        self.told.append(Step(lambda: f"open {shown(setup)}"))

    def close(self) -> None:
        """Nothing is held open."""

    def act(self, goal: Goal, who: int, turn: int) -> None:
        """Do the goal's event with parameters that reach it, if any do; `who` chooses among those."""
        choices = rotated(self._choices(goal.row.event, turn), who)
        reaching = [call for call in choices if self._fires(call, goal)]
        self.perform((reaching or choices)[0])

    def approach(self, goal: Goal, who: int, turn: int) -> bool:
        """Take a shortest way to the goal, by the states alone; every other way has work of the candidate in flight.

        Without it a candidate comes to its end with nothing to drain, to orphan or to settle.
        """
        if turn % 2 and self._may_have_work():
            self.perform(Call("grant", (self.world.view["candidate"]["epoch"],)))
            return False
        steps = next_goals(goal, self.world.view["release"]["state"], turn)
        self.act(steps[0] if steps else goal, who, turn)
        return not steps or steps[0] is goal

    def _may_have_work(self) -> bool:
        """Return whether the candidate has nothing in flight, and may be granted more."""
        state, in_flight = self.world.view["release"]["state"], self.world.view["candidate"]["in_flight"]
        return state in SERVING and in_flight == 0

    def _choices(self, event: str, turn: int) -> list[Call]:
        """Return `event` with every parameter that the rows tell apart."""
        of_release, of_candidate = self.world.view["release"], self.world.view["candidate"]
        clock, until, epoch, orphaned = (
            cast(int, record[name])
            for record, name in (
                (of_release, "clock"),
                (of_release, "until"),
                (of_candidate, "epoch"),
                (of_candidate, "orphaned"),
            )
        )
        values: dict[str, tuple[object, ...]] = {
            "tick": (clock + 1 + turn % 3, clock, max(clock, until), max(0, clock - 1)),
            "measure": (1 + turn % 3, 0, -1),
            "grant": (epoch, epoch - 1, epoch + 1),
            "settle": (False, True),
            "look": tuple(rotated(tuple(GradeVerdict), turn)),
            "ship": (True, False),
            "abandon": (True, False),
            "raise_epoch": (epoch + 1 + turn % 3, epoch, epoch - 1),
            "verify": (orphaned, orphaned + 1, max(0, orphaned - 1)),
        }
        return [Call(event, (value,)) for value in values[event]] if event in values else [Call(event, ())]

    def _fires(self, call: Call, goal: Goal) -> bool:
        seen = self.peek(getattr(self.world, call.method), *call.arguments)
        return self._compiled.fire(seen.view, call.method, seen.parameters).row is goal.row

    def perform(self, call: Call) -> None:
        """Do one event on both sides."""
        self.done.append(("perform", (call,)))
        step = Step(lambda: str(call))
        self.told.append(step)
        specified = cast(Outcome, call.on(self.world))
        reply = self.answer(step, specified, lambda: cast(ReleaseFacts, call.on(self.target)))
        broken = violated(RELEASE, self.world.view) if len(self.told) % INVARIANTS_EVERY == 0 else []
        pairs = (
            ("decision", specified.decision, reply.decision),
            ("reason", specified.reason, reply.reason),
            ("release", self.world.snapshot(), self.target.snapshot()),
        )
        self.check(step, pairs, broken)
