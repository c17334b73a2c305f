"""What pressure is worth: findings per thousand runs, beside draws without it.

Both sides make as many calls in as many histories, under the same laws. One side has the pools and the moves of the
fuzzer. The other draws the pool, each method and each argument uniformly.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from attrs import define, evolve, field, frozen

from kvescrow.checks.fuzz.differences import Disagreement
from kvescrow.checks.fuzz.guard import absence, closing
from kvescrow.checks.fuzz.judge import Judge
from kvescrow.checks.fuzz.manager_moves import HOME
from kvescrow.checks.fuzz.plays import PLAYS, Play
from kvescrow.checks.targets.protocols import ManagerSetup, SchedulerSetup
from kvescrow.checks.targets.subject import Kind, Subject
from kvescrow.spec.vocabulary import UserError

CALLS = 60
"""Calls in one history, or as many as come to a finding."""
_NAMES = 8
_PAGES = (2, 40)


@define
class Side:
    """What one side came to."""

    runs: int
    calls: int = 0
    findings: Counter[str] = field(factory=Counter)
    """Law -> histories that broke it first."""

    def per_thousand(self, law: str | None = None) -> float:
        """Return findings per thousand runs, of one law or of all."""
        count = sum(self.findings.values()) if law is None else self.findings[law]
        return 1000 * count / self.runs


@frozen
class PressureReport:
    """Both sides."""

    target: str
    pressed: Side
    plain: Side

    @property
    def verdict(self) -> str:
        """Return `passed` where pressure finds as much as uniform draws, `failed` where it finds less.

        It is `vacuous` where neither side finds anything: that says nothing of either.
        """
        pressed, plain = self.pressed.per_thousand(), self.plain.per_thousand()
        if not pressed and not plain:
            return "vacuous"
        return "passed" if pressed >= plain else "failed"

    def to_json(self) -> dict[str, object]:
        """Return the figures as plain values."""
        laws = sorted({*self.pressed.findings, *self.plain.findings})
        return {
            "verdict": self.verdict,
            "target": self.target,
            "runs": self.pressed.runs,
            "calls": {"with_pressure": self.pressed.calls, "uniform": self.plain.calls},
            "findings_per_thousand_runs": {
                name: {"all": side.per_thousand(), **{law: side.per_thousand(law) for law in laws}}
                for name, side in (("with_pressure", self.pressed), ("uniform", self.plain))
            },
        }

    def rows(self) -> list[tuple[str, ...]]:
        """Return a table."""
        laws = sorted({*self.pressed.findings, *self.plain.findings})
        lines: list[tuple[str, ...]] = [("findings per thousand runs", "with pressure", "uniform")]
        for name, law in (("all", None), *((law, law) for law in laws)):
            lines.append((name, f"{self.pressed.per_thousand(law):.1f}", f"{self.plain.per_thousand(law):.1f}"))
        return lines


def measure(target: str, subject: Subject, runs: int, seed: int, show: Callable[[str], None]) -> PressureReport:
    """Run `runs` histories of each side; what is listed as known counts like any finding.

    Raises `UserError` where the target is neither a cache manager nor a scheduler.
    """
    if subject.kind not in _UNIFORM:
        kinds = " or a ".join(kind.value for kind in _UNIFORM)
        raise UserError(f"target {target!r}: pressure is measured on a {kinds}: choose another (`kvescrow targets`)")
    play, open_to_all = PLAYS[subject.kind], evolve(subject, deviations=())
    sides = []
    for name, history in (("with pressure", _pressed), ("uniform", _UNIFORM[subject.kind])):
        show(f"{target}, {name}: {runs} runs")
        side = Side(runs)
        for number in range(runs):
            judge = play.judge(open_to_all)
            try:
                with closing(judge):
                    history(play, judge, Random(f"{seed} {number}"))
            except Disagreement as found:
                side.findings[found.differences[0].path] += 1
            side.calls += len(judge.done)
        sides.append(side)
    return PressureReport(target, *sides)


def absent(subject: Subject) -> str:
    """Return why a target that pressure is measured on cannot be opened here; nothing where it can."""
    return absence(subject, PLAYS[subject.kind].setup_of(0)) if subject.kind in _UNIFORM else ""


def _pressed(play: Play, judge: Judge, draw: Random) -> None:
    judge.open_with(play.setup_of(draw.randrange(play.shapes)))
    moves = play.moves(judge)
    for _ in range(CALLS):
        if len(judge.done) >= CALLS:
            return
        moves.make(draw.choice(play.names), draw.randrange(play.who), draw.randrange(play.turns))


def _uniform_manager(play: Play, judge: Judge, draw: Random) -> None:
    setup = ManagerSetup(draw.randint(*_PAGES), draw.choice((2, 4)))
    judge.open_with(setup)
    listed: Mapping[str, Callable[[], tuple[Any, ...]]] = {
        "submit": lambda: (_name(draw), _prompt(draw, setup.page_length), HOME),
        "reserve": lambda: (_name(draw), draw.randint(1, 3 * setup.page_length)),
        "launch": lambda: (_name(draw), draw.randint(1, 3 * setup.page_length)),
        "complete": lambda: (_name(draw), draw.choice(((), (1,)))),
        "release": lambda: (_name(draw),),
        "evict": tuple,
    }
    _draw(judge, draw, listed)


def _uniform_scheduler(play: Play, judge: Judge, draw: Random) -> None:
    budget, chunk = draw.randint(8, 64), draw.randint(4, 64)
    judge.open_with(SchedulerSetup(draw.randint(*_PAGES), 4, budget, chunk, draw.random() < 0.5))
    listed: Mapping[str, Callable[[], tuple[Any, ...]]] = {
        "submit": lambda: (_name(draw), _prompt(draw, 16), HOME, draw.randint(0, 1)),
        "step": lambda: (draw.randint(1, 3),),
        "cancel": lambda: (_name(draw),),
    }
    _draw(judge, draw, listed)


_UNIFORM = {Kind.MANAGER: _uniform_manager, Kind.SCHEDULER: _uniform_scheduler}
_TRIES = 50
"""Draws for each call that is made: most draws are calls that a client may not make."""


def _draw(judge: Judge, draw: Random, listed: Mapping[str, Callable[[], tuple[Any, ...]]]) -> None:
    for _ in range(CALLS * _TRIES):
        if len(judge.done) >= CALLS:
            return
        method = draw.choice(list(listed))
        judge.call(method, *listed[method]())


def _name(draw: Random) -> str:
    return f"r{draw.randrange(_NAMES)}"


def _prompt(draw: Random, page_length: int) -> tuple[int, ...]:
    return tuple(draw.randint(1, 3) for _ in range(draw.randint(1, 3 * page_length)))
