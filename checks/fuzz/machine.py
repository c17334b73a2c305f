"""The Hypothesis state machines: of a driver that is compared with tables, and of a judge.

A driver's has one rule an event of its tables, and some that pursue; a judge's has one rule a move.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import Any

from hypothesis import seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from kvescrow.checks.fuzz.constants import none_of_loaded_modules
from kvescrow.checks.fuzz.differences import Disagreement
from kvescrow.checks.fuzz.driver import Driver, rotated
from kvescrow.checks.fuzz.goals import Goal, goals_of
from kvescrow.checks.fuzz.judge import Judge
from kvescrow.checks.fuzz.plays import Play

SHAPES = 5 * 3 * 3 * 3 * 3
WHO = 7
TURNS = 48 * 343
STORIES = 5
"""How many rules tell a story, for drivers that have them."""
PURSUITS = 8
"""How many rules pursue, beside one rule an event: about a third of all steps."""


class Machine(RuleBasedStateMachine):
    """One history of a driver or a judge, which is closed at its end."""

    run: Any

    def __init__(self, on_end: Callable[[Any], None]) -> None:
        super().__init__()
        self._on_end = on_end
        self._failed = False

    def do(self, step: Callable[..., object], *arguments: object) -> None:
        """Do a step. After one that fails, what then goes wrong in closing is no finding of its own."""
        try:
            step(*arguments)
        except Disagreement:
            self._failed = True
            raise

    def teardown(self) -> None:
        """Tell of the history that is over, and close it."""
        self._on_end(self.run)
        with suppress(Disagreement) if self._failed else nullcontext():
            self.run.close()


def failure_of_round(
    machine: type[Machine], profile: settings, number: int, told: Callable[[Disagreement], str]
) -> str:
    """Run `machine` under the seed `number`; return what failed, as `told` tells it, or nothing."""
    seed(number)(machine)
    try:
        with none_of_loaded_modules():
            run_state_machine_as_test(machine, settings=profile)
    except Disagreement as found:
        return told(found)
    except Flaky as found:
        return f"The target does not repeat itself: the same calls had another outcome.\n{found}"
    return ""


def machine_of_judge(play: Play, judge: Callable[[], Judge], on_end: Callable[[Judge], None]) -> type[Machine]:
    """Return a state machine over the moves of `play`; `on_end` is told each judge when its history is over."""

    class OfJudge(Machine):
        def __init__(self) -> None:
            super().__init__(on_end)
            self.run = judge()
            self.moves = play.moves(self.run)

        @initialize(shape=st.integers(0, play.shapes - 1))
        def open(self, shape: int) -> None:
            self.do(self.run.open_with, play.setup_of(shape))

    def rule_of(move: str) -> object:
        @rule(who=st.integers(0, play.who - 1), turn=st.integers(0, play.turns - 1))
        def make(self: OfJudge, who: int, turn: int) -> None:
            self.do(self.moves.make, move, who, turn)

        return make

    return type("Machine", (OfJudge,), {move: rule_of(move) for move in play.names})


def machine_of(
    opened: Callable[[], Driver],
    driver: type[Driver],
    wanted: Sequence[Goal],
    on_end: Callable[[Driver], None],
    *,
    durable: bool,
) -> type[Machine]:
    """Return a state machine over the events of the driver's tables.

    `wanted` are the goals that its pursuit is after. `on_end` is told each driver when its run is over. A `durable`
    target is restarted now and then, where its protocol has that.
    """

    class OfDriver(Machine):
        def __init__(self) -> None:
            super().__init__(on_end)
            self.run = opened()

        @initialize(shape=st.integers(0, SHAPES - 1), goal=st.integers(0, len(wanted) - 1))
        def open(self, shape: int, goal: int) -> None:
            self.do(self.run.open, shape)
            self.run.wanted = rotated(wanted, goal)

    who, turn = st.integers(0, WHO - 1), st.integers(0, TURNS - 1)
    rules: dict[str, object] = {
        f"{table.name}_{event.name}": _event_rule([g for g in goals_of(table) if g.row.event == event.name], who, turn)
        for table in driver.tables
        for event in table.events
    }
    rules |= {f"pursue_{number}": _rule("pursue", who, turn) for number in range(PURSUITS)}
    if hasattr(driver, "story"):
        rules |= {f"story_{number}": _rule("story", who, turn) for number in range(STORIES)}
    if durable and hasattr(driver, "restart"):
        rules["restart"] = _restart()
    return type("Machine", (OfDriver,), rules)


def _event_rule(goals: Sequence[Goal], who: st.SearchStrategy[int], turn: st.SearchStrategy[int]) -> object:
    @rule(aim=st.integers(0, len(goals) - 1), who=who, turn=turn)
    def act(self: Machine, aim: int, who: int, turn: int) -> None:
        self.do(self.run.act, goals[aim], who, turn)

    return act


def _rule(method: str, who: st.SearchStrategy[int], turn: st.SearchStrategy[int]) -> object:
    def do(self: Machine, who: int, turn: int) -> None:
        self.do(getattr(self.run, method), who, turn)

    do.__name__ = method  # Rules are drawn in the order of their names.
    return rule(who=who, turn=turn)(do)


def _restart() -> object:
    @rule()
    def restart(self: Machine) -> None:
        self.do(self.run.restart)

    return restart
