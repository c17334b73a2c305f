"""The Hypothesis state machine, made from the tables that a driver has: one rule an event, and one that pursues."""

from collections.abc import Callable, Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from kvescrow.checks.fuzz.driver import Driver, rotated
from kvescrow.checks.fuzz.goals import Goal, goals_of

SHAPES = 5 * 3 * 3 * 3 * 3
WHO = 7
TURNS = 48 * 343
STORIES = 5
"""How many rules tell a story, for drivers that have them."""
PURSUITS = 8
"""How many rules pursue, beside one rule an event: about a third of all steps."""


def machine_of(
    opened: Callable[[], Driver],
    driver: type[Driver],
    wanted: Sequence[Goal],
    on_run: Callable[[Driver], None],
    *,
    durable: bool,
) -> type[RuleBasedStateMachine]:
    """Return a state machine over the events of the driver's tables.

    `wanted` are the goals that its pursuit is after. `on_run` is told each driver when its run is over. A `durable`
    target is restarted now and then.
    """

    class Machine(RuleBasedStateMachine):
        """World and target side by side."""

        def __init__(self) -> None:
            super().__init__()
            self.driver = opened()

        @initialize(shape=st.integers(0, SHAPES - 1), goal=st.integers(0, len(wanted) - 1))
        def open(self, shape: int, goal: int) -> None:
            self.driver.open(shape)
            self.driver.wanted = rotated(wanted, goal)

        def teardown(self) -> None:
            on_run(self.driver)
            if self.driver.told:  # the first thing told is the opening
                self.driver.close()

    who, turn = st.integers(0, WHO - 1), st.integers(0, TURNS - 1)
    rules: dict[str, object] = {
        f"{table.name}_{event.name}": _event_rule([g for g in goals_of(table) if g.row.event == event.name], who, turn)
        for table in driver.tables
        for event in table.events
    }
    rules |= {f"pursue_{number}": _pursuit(who, turn) for number in range(PURSUITS)}
    if hasattr(driver, "story"):
        rules |= {f"story_{number}": _story(who, turn) for number in range(STORIES)}
    if durable:
        rules["restart"] = _restart()
    return type("Machine", (Machine,), rules)


def _event_rule(goals: Sequence[Goal], who: st.SearchStrategy[int], turn: st.SearchStrategy[int]) -> object:
    @rule(aim=st.integers(0, len(goals) - 1), who=who, turn=turn)
    def act(self, aim: int, who: int, turn: int) -> None:  # type: ignore[no-untyped-def]  # a method of Machine
        self.driver.act(goals[aim], who, turn)

    return act


def _pursuit(who: st.SearchStrategy[int], turn: st.SearchStrategy[int]) -> object:
    @rule(who=who, turn=turn)
    def pursue(self, who: int, turn: int) -> None:  # type: ignore[no-untyped-def]  # a method of Machine
        self.driver.pursue(who, turn)

    return pursue


def _restart() -> object:
    @rule()
    def restart(self) -> None:  # type: ignore[no-untyped-def]  # a method of Machine
        self.driver.restart()

    return restart


def _story(who: st.SearchStrategy[int], turn: st.SearchStrategy[int]) -> object:
    @rule(who=who, turn=turn)
    def story(self, who: int, turn: int) -> None:  # type: ignore[no-untyped-def]  # a method of Machine
        self.driver.story(who, turn)

    return story
