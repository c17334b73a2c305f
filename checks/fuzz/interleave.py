"""Two calls at the same moment, in an order that can be repeated.

The first call is halted after a number of lines of Python, its own or its libraries', wherever that is. The second one
runs from its beginning to its end. Then the first goes on. An error that needs one switch between two threads is found
by trying the places of the switch, instead of by waiting for a scheduler to come upon it.
"""

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar

from attrs import frozen

T = TypeVar("T")
Ask = Callable[[], T]

_LOOK = 0.001
"""Seconds between two looks at a thread."""
_LOOKS = 5
"""So often a thread is seen asleep before it counts as waiting for the other one."""
_HARNESS = frozenset(f"kvescrow.checks.fuzz.{name}" for name in ("capacity", "guard", "judge", "interleave"))
"""Modules whose lines are none of the calls': to halt there is to halt where the target is not at work."""
_LONGEST = 60.0
"""Seconds after which two calls count as waiting for each other."""


@frozen
class Interleaved(Generic[T]):
    """What two calls came to."""

    first: T
    second: T
    halted: bool
    """Whether the second call began within the first."""
    lines: int
    """Lines of Python that the first call ran."""


def interleave(first: Ask[T], second: Ask[T], after: int) -> Interleaved[T]:
    """Halt `first` after `after` lines, make the call `second`, and go on.

    Where the second call cannot end since the first one holds a lock, the first goes on at once. Raises what a call
    raises, and `TimeoutError` where neither ends.
    """
    reached, resume = threading.Event(), threading.Event()
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        if frame.f_globals.get("__name__") in _HARNESS:
            return None
        if event == "line":
            if lines == after:
                reached.set()
                resume.wait()
            lines += 1
        return trace

    one, other = _Thread(first, reached, trace), _Thread(second, threading.Event(), None)
    with _uncollected():
        one.start()
        _ended(reached)
        halted = not one.over
        other.start()
        _ends_or_waits(other)
        resume.set()
        _ended(other.stirred)
        one.join(_LONGEST)
    return Interleaved(one.result(), other.result(), halted, lines)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Let no garbage be collected meanwhile: who is told of a collection runs lines at no certain moment."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Thread(threading.Thread, Generic[T]):
    """Makes one call; sets `stirred` when it is over, as its trace does when it is halted."""

    def __init__(self, ask: Ask[T], stirred: threading.Event, trace: Any) -> None:
        super().__init__(daemon=True)
        self.stirred = stirred
        self.over = False
        self._ask = ask
        self._trace = trace
        self._answers: list[T] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        sys.settrace(self._trace)
        try:
            self._answers.append(self._ask())
        except BaseException as error:
            self._error = error
        finally:
            sys.settrace(None)
            self.over = True
            self.stirred.set()

    def result(self) -> T:
        """Return the answer, or raise what the call raised."""
        if self._error is not None:
            raise self._error
        if not self._answers:
            raise TimeoutError("two calls at the same moment wait for each other")
        return self._answers[0]


def _ended(stirred: threading.Event) -> None:
    if not stirred.wait(_LONGEST):
        raise TimeoutError("two calls at the same moment wait for each other")


def _ends_or_waits(thread: "_Thread[Any]") -> None:
    """Return when the thread is over, or sleeps, which it does while it waits for a lock."""
    asleep = 0
    while not thread.stirred.wait(_LOOK) and asleep < _LOOKS:
        asleep = asleep + 1 if _sleeps(thread) else 0


def _sleeps(thread: "_Thread[Any]") -> bool:
    """Return whether the system says that the thread sleeps; where the system does not say, it counts as asleep."""
    try:
        state = Path(f"/proc/self/task/{thread.native_id}/stat").read_text("ascii", "replace")
    except OSError:
        return True
    return state.rpartition(")")[2].split()[0] == "S"
