"""Turns: callers stand in line, and who is first may serve those behind it along with itself.

No thread stands between a caller and the store: who comes alone does its work by itself, at once. Who is first does the
work of those who came meanwhile too, as writers do who share one sync of a log (LevelDB's queue of writers, for one).

A caller may be struck by an exception at any place, also in here (KeyboardInterrupt, in the main thread). Hence the
line is changed in steps that may be done twice, and nobody is out of it before being served.
"""

from _thread import LockType
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice, takewhile
from threading import Lock, get_ident
from typing import Generic, TypeVar

from attrs import define, field


def _held() -> LockType:
    lock = Lock()
    lock.acquire()
    return lock


@define(eq=False)
class Ticket:
    """A caller's place in the line, for one turn."""

    is_served: bool = field(default=False, init=False)
    """Whether another caller, whose turn it was, has done this one's work."""
    _asleep: LockType = field(factory=_held, init=False)
    """Held until it is served or has the turn."""

    def sleep(self) -> None:
        """Return when it is served or has the turn."""
        self._asleep.acquire()

    def wake(self) -> None:
        """Let `sleep` return; called under the gate, once or more."""
        if self._asleep.locked():
            self._asleep.release()


T = TypeVar("T", bound=Ticket)


class Line(Generic[T]):
    """Turns in the order of arrival."""

    def __init__(self) -> None:
        self._gate = Lock()
        self._line: deque[T] = deque()
        """The first has the turn."""
        self._holder: int | None = None
        """The thread that works in its turn."""

    def turn(self, ticket: T, work: Callable[[], None]) -> None:
        """Do `work` in this thread when `ticket` has the turn; return without it where another caller served it.

        Passes on what `work` raises; the line goes on. Raises RuntimeError in the middle of a turn of this very thread,
        as from a signal handler: it would wait for itself.
        """
        if self._holder == get_ident():
            raise RuntimeError("called in the middle of a call of the same thread: no signal handler may do that")
        try:
            if not self._is_first(ticket):
                ticket.sleep()
            if not ticket.is_served:
                self._work(work)
        finally:
            try:
                self._leave(ticket)
            except BaseException:
                self._leave(ticket)
                raise

    def _work(self, work: Callable[[], None]) -> None:
        self._holder = get_ident()
        try:
            work()
        finally:
            self._holder = None

    def following(self, fits: Callable[[T], bool]) -> list[T]:
        """Return those who stand next and fit, in order; only who has the turn may ask, and then `serve` them."""
        with self._gate:
            return list(takewhile(fits, islice(self._line, 1, None)))

    def serve(self, tickets: Sequence[T]) -> None:
        """Let those go whom `following` returned: their work is done."""
        with self._gate:
            for ticket in tickets:
                ticket.is_served = True
                if ticket in self._line:
                    self._line.remove(ticket)
                ticket.wake()

    def _is_first(self, ticket: T) -> bool:
        """Join the line; return whether nobody stands before."""
        with self._gate:
            self._line.append(ticket)
            return self._line[0] is ticket

    def _leave(self, ticket: T) -> None:
        """Pass the turn on, or give up a place that was not reached."""
        if ticket.is_served:
            return
        with self._gate:
            if ticket in self._line:
                self._line.remove(ticket)
            if self._line:
                self._line[0].wake()
