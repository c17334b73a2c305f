"""Turns: who comes alone works at once, who waits may be served by another, and nobody waits for ever."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from threading import Event, Thread

import pytest

from kvescrow.reference.ledger import Ledger, LedgerConfig, OutcomeUnknown
from kvescrow.reference.ledger.groups import GroupedLedger
from kvescrow.reference.ledger.turns import Line, Ticket
from kvescrow.spec.vocabulary import Decision, Key, Reserve

Open = Callable[..., Ledger]


def ask(request: str) -> Reserve:
    return Reserve(Key("red", request), 10, "digest", 10**12)


class Numbered(Ticket):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@pytest.fixture
def line() -> Line[Numbered]:
    return Line()


class Held:
    """A turn that lasts until it is told to end, and those who came behind it, in order."""

    def __init__(self, line: Line[Numbered]) -> None:
        self.line = line
        self.done: list[int] = []
        self._began, self._may_end = Event(), Event()
        self._meanwhile: Callable[[], None] = lambda: None
        self._threads = [Thread(target=line.turn, args=(Numbered(0), self._hold))]
        self._threads[0].start()
        self._began.wait()

    def _hold(self) -> None:
        self._began.set()
        self._may_end.wait()
        self._meanwhile()

    def behind(self, *numbers: int) -> None:
        """Let callers join the line, one after the other."""
        for number in numbers:
            ticket = Numbered(number)
            thread = Thread(target=self.line.turn, args=(ticket, lambda number=number: self.done.append(number)))
            thread.start()
            while ticket not in self.line._line:
                pass
            self._threads.append(thread)

    def end(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Do `meanwhile` in the turn and end it; return when all have left."""
        self._meanwhile = meanwhile
        self._may_end.set()
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive(), "somebody waits for ever"


def test_turns_come_in_the_order_of_arrival(line: Line[Numbered]) -> None:
    held = Held(line)
    held.behind(1, 2, 3)
    held.end()
    assert held.done == [1, 2, 3]


def test_who_has_the_turn_may_serve_those_behind_it(line: Line[Numbered]) -> None:
    held = Held(line)
    held.behind(1, 2, 3, 4)
    served: list[int] = []

    def serve() -> None:
        following = line.following(lambda ticket: ticket.number != 3)
        served.extend(ticket.number for ticket in following)
        line.serve(following)

    held.end(serve)
    assert served == [1, 2], "only as far as they fit, in order"
    assert held.done == [3, 4]


def test_what_one_raises_is_its_own(line: Line[Numbered]) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    held = Held(line)
    held.behind(1)
    with pytest.raises(KeyboardInterrupt):
        Line().turn(Ticket(), fail)
    held.end()
    with pytest.raises(KeyboardInterrupt):
        line.turn(Numbered(5), fail)
    line.turn(Numbered(6), lambda: held.done.append(6))
    assert held.done == [1, 6]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_who_is_interrupted_while_waiting_holds_nobody_up(line: Line[Numbered], place: int) -> None:
    """As a thread is that gets KeyboardInterrupt: here from what it waits on."""

    class Struck(Numbered):
        def sleep(self) -> None:
            arrived.set()
            struck.wait()
            raise KeyboardInterrupt

    arrived, struck = Event(), Event()
    raised: list[type[BaseException]] = []

    def wait() -> None:
        try:
            line.turn(Struck(9), lambda: held.done.append(9))
        except KeyboardInterrupt:
            raised.append(KeyboardInterrupt)

    held = Held(line)
    held.behind(*range(1, 1 + place))
    caller = Thread(target=wait)
    caller.start()
    arrived.wait()
    held.behind(5)
    struck.set()
    caller.join(20)
    held.end()
    assert raised and held.done == [*range(1, 1 + place), 5]


def test_who_is_interrupted_when_its_turn_came_passes_it_on(line: Line[Numbered]) -> None:
    class Struck(Numbered):
        def sleep(self) -> None:
            super().sleep()
            raise KeyboardInterrupt

    held = Held(line)
    ticket = Struck(9)

    def wait() -> None:
        with pytest.raises(KeyboardInterrupt):
            line.turn(ticket, lambda: held.done.append(9))

    caller = Thread(target=wait)
    caller.start()
    while ticket not in line._line:
        pass
    held.behind(5)
    held.end()
    caller.join(20)
    assert not caller.is_alive() and held.done == [5]


@pytest.fixture
def hasty_switches() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def test_everybody_is_served_once(line: Line[Numbered], hasty_switches: None) -> None:
    """Eight threads that meet at random; each turn serves two more, if they are there."""
    counts: dict[int, int] = {}
    inside: list[int] = []

    def serve(own: int) -> None:
        inside.append(own)
        following = line.following(lambda ticket: ticket.number % 3 != 0)[:2]
        for number in (own, *(ticket.number for ticket in following)):
            counts[number] = counts.get(number, 0) + 1
        assert inside == [own], "one has the turn"
        inside.pop()
        line.serve(following)

    def work(first: int) -> None:
        for number in range(first, 2_400, 8):
            line.turn(Numbered(number), lambda number=number: serve(number))

    threads = [Thread(target=work, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert counts == dict.fromkeys(range(2_400), 1)


# --- in a ledger ------------------------------------------------------------------------------------------------------


class Clock:
    """A clock of which one reading waits, and the next is interrupted."""

    def __init__(self, error: BaseException) -> None:
        self.is_read, self.goes_on = Event(), Event()
        self.armed = 0
        self._error = error

    def __call__(self) -> int:
        self.armed = max(0, self.armed - 1)
        if self.armed == 2:
            self.is_read.set()
            self.goes_on.wait()
        elif self.armed == 1:
            raise self._error
        return 0


@pytest.mark.parametrize("open_ledger", ["sqlite", "postgres", "valkey"], indirect=True)
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)])
def test_a_caller_that_is_interrupted_while_it_commits_for_others_loses_nothing(
    open_ledger: Open, config: LedgerConfig, error: BaseException
) -> None:
    """The others are told that they cannot know, and the ledger goes on with what was kept."""
    clock = Clock(error)
    ledger = open_ledger(config, clock=clock)
    assert isinstance(ledger, GroupedLedger)
    ledger.submit(ask("before"))
    clock.armed = 3
    found: dict[int, object] = {}

    def call(number: int) -> None:
        try:
            found[number] = ledger.submit(ask(str(number))).decision
        except BaseException as raised:
            found[number] = type(raised)

    threads = [Thread(target=call, args=(number,)) for number in range(4)]
    threads[0].start()
    clock.is_read.wait()
    for number, thread in enumerate(threads[1:], start=2):
        thread.start()
        while len(ledger._line._line) < number:
            pass
    clock.goes_on.set()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "somebody waits for ever"
    assert found == {0: Decision.ADMITTED, 1: type(error), 2: OutcomeUnknown, 3: OutcomeUnknown}
    assert ledger.snapshot().pool_active == 20
    assert [ledger.submit(ask(str(number))).decision for number in range(1, 4)] == [Decision.ADMITTED] * 3
    assert ledger.snapshot().pool_active == 50


@pytest.mark.parametrize("open_ledger", ["sqlite"], indirect=True)
def test_what_was_decided_before_an_interruption_and_not_kept_is_not_answered(
    open_ledger: Open, config: LedgerConfig
) -> None:
    clock = Clock(KeyboardInterrupt())
    clock.goes_on.set()
    ledger = open_ledger(config, clock=clock)
    clock.armed = 3
    with pytest.raises(KeyboardInterrupt):
        ledger.submit_many([ask("first"), ask("second")])
    assert ledger.snapshot().pool_active == 0
    assert ledger.submit(ask("first")).seq == 1


@pytest.mark.parametrize("open_ledger", ["sqlite", "postgres", "valkey"], indirect=True)
def test_a_call_in_the_middle_of_another_of_the_same_thread_is_refused(open_ledger: Open, config: LedgerConfig) -> None:
    """As from a signal handler: it would wait for itself for ever."""
    calls = 0

    def clock() -> int:
        nonlocal calls
        calls += 1
        return ledger.snapshot().clock if calls == 2 else 0

    ledger = open_ledger(config, clock=clock)
    ledger.submit(ask("before"))
    with pytest.raises(RuntimeError, match="in the middle of a call of the same thread"):
        ledger.submit(ask("within"))
    assert ledger.submit(ask("after")).decision is Decision.ADMITTED
    assert ledger.snapshot().pool_active == 20
