"""What to do next with a whole scheduler: moves that press where schedulers break.

Long prompts of low priority fill a pool that is just too small; short ones of high priority arrive behind them and
grow, so that a request is planned for a step and made a victim in the same step. Prompts come again, and steps are
cancelled around their ends.
"""

from collections.abc import Callable, Mapping

from kvescrow.checks.fuzz.manager_moves import HOME
from kvescrow.checks.fuzz.moves import JudgedMoves
from kvescrow.checks.targets.protocols import SchedulerSetup

PAGE = 4
NAMES = tuple(f"r{number}" for number in range(8))
LONG, SHORT = 12, 2
"""Pages of a long prompt and of a short one."""
SHORTS = (2, 2, 1)
"""Short prompts that the pool has room for, beside a long one."""
LACKING = (0, -1, 1, 2)
SHAPES = 3 * len(SHORTS) * len(LACKING)
WHO, TURNS = len(NAMES), 24


def setup_of(shape: int) -> SchedulerSetup:
    """Return what `shape` picks: a pool for a long prompt and some short ones, less 0, 1 or 2 pages."""
    shorts, lacking = SHORTS[shape // 3 % len(SHORTS)], LACKING[shape // 9]
    pages = LONG + shorts * SHORT - lacking
    return SchedulerSetup(pages, PAGE, step_tokens=16 * PAGE, long_prefill=3 * PAGE, priority=shape % 3 != 2)


class SchedulerMoves(JudgedMoves):
    """Moves over the judge of a scheduler."""

    def _do(self, move: str, who: int, turn: int) -> None:
        SCHEDULER_MOVES[move](self, who, turn)

    def arrive_long(self, who: int, turn: int) -> None:
        """Submit a long prompt of low priority."""
        self._arrive(_prompt(LONG * PAGE - turn % 3, turn // 3 % 2), 1)

    def arrive_short(self, who: int, turn: int) -> None:
        """Submit a short prompt of high priority."""
        self._arrive(_prompt(SHORT * PAGE - turn % 4, 2 + who), 0)

    def twin(self, who: int, turn: int) -> None:
        """Submit the prompt of a live request again, with its priority or the other one."""
        live = list(self._judge.live.values())
        if live:
            self._arrive(live[who % len(live)].prompt, turn % 2)

    def step(self, who: int, turn: int) -> None:
        """Run a step."""
        self._judge.call("step", 1 + turn % 3)

    def steps(self, who: int, turn: int) -> None:
        """Run some steps."""
        for _ in range(2 + who):
            self.step(who, turn)

    def cancel(self, who: int, turn: int) -> None:
        """Cancel a request, whose step may be in flight."""
        live = list(self._judge.live)
        if live:
            self._judge.call("cancel", live[who % len(live)])

    def squeeze(self, who: int, turn: int) -> None:
        """Let a short request keep a long one's prefill in chunks, and another grow when the last chunk fills the pool.

        So a share that is planned already is the one that makes room.
        """
        self.drain(who, turn)
        self._arrive(_prompt(1 + turn % 6, 3), 0)
        self.step(who, 0)
        self._arrive(_prompt(LONG * PAGE + 1 - turn // 6 % 4, 0), 1)
        for _ in range(1 + who % 3):
            self.step(who, 0)
        self._arrive(_prompt(SHORT * PAGE - who // 4, 4), 0)
        for _ in range(4):
            self.step(who, 0)
        for name, request in list(self._judge.live.items()):
            if len(request.prompt) <= SHORT * PAGE:
                self._judge.call("cancel", name)
        self.step(who, 0)

    def drain(self, who: int, turn: int) -> None:
        """Cancel every request and let the step in flight end."""
        for name in list(self._judge.live):
            self._judge.call("cancel", name)
        self._judge.call("step", 1)

    def _arrive(self, prompt: tuple[int, ...], priority: int) -> None:
        name = next((name for name in NAMES if name not in self._judge.live), None)
        if name is not None:
            self._judge.call("submit", name, prompt, HOME, priority)


def _prompt(length: int, family: int) -> tuple[int, ...]:
    return tuple(1 + family * 8 + place % 5 for place in range(length))


SCHEDULER_MOVES: Mapping[str, Callable[[SchedulerMoves, int, int], None]] = {
    move.__name__: move
    for move in (
        SchedulerMoves.arrive_long,
        SchedulerMoves.arrive_short,
        SchedulerMoves.twin,
        SchedulerMoves.step,
        SchedulerMoves.steps,
        SchedulerMoves.cancel,
        SchedulerMoves.squeeze,
        SchedulerMoves.drain,
    )
}
