"""What judges a target from outside: one call at a time, and every law after each of them (TGT-1)."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from kvescrow.checks.fuzz.differences import Difference, Disagreement, shown
from kvescrow.checks.fuzz.guard import Fault, opened
from kvescrow.checks.fuzz.laws import BY_NAME, applying
from kvescrow.checks.targets.subject import Subject

Done = tuple[str, tuple[Any, ...]]
"""A method of the target's protocol and its arguments."""


class Judge(ABC):
    """A fresh target, what its client knows of it, and every law after every call.

    A call that a client may not make, such as the launch of a step without room for it, is left out and not judged, so
    any subsequence of a history is a history. Raises `Disagreement` when a law is broken; its path is the law's name.
    For each method there are `_may_METHOD`, whether a client may call it, and `_after_METHOD`, what it must come to.
    """

    def __init__(self, subject: Subject, exercised: set[str] | None = None) -> None:
        """Judge `subject`, and add to `exercised` the name of each law that has been put to the test."""
        self.subject = subject
        self.declared = subject.capabilities
        self.laws = applying(self.declared, subject.kind)
        self.exercised: set[str] = set() if exercised is None else exercised
        self.steps: list[str] = []
        self.done: list[Done] = []
        self.is_last_way = True
        """Whether another way of trying the same scenario comes to the same."""
        self.setup: Any = None
        self.target: Any = None
        self.view: Any = None

    @abstractmethod
    def open_with(self, setup: Any) -> None:
        """Open the target. Raises `UserError` where it says that it cannot be opened here."""

    def close(self) -> None:
        """Close the target, where it was opened. Raises `Disagreement` where it cannot be closed."""
        if self.target is not None:
            self._asked("answers", self.target.close, "close()")

    def redo(self, step: Done) -> None:
        """Make a call of another history."""
        method, arguments = step
        self.call(method, *arguments)

    def call(self, method: str, *arguments: Any) -> bool:
        """Make a call if a client may make it now, judge it, and return whether it was made."""
        if not getattr(self, f"_may_{method}")(*arguments):
            return False
        self.done.append((method, arguments))
        self.steps.append(f"{method}({', '.join(shown(argument) for argument in arguments)})")
        before = self.view
        law = self._tried(method, arguments)
        reply = self._asked(law, lambda: self._make(method, arguments))
        if reply is not None:
            self.steps[-1] += f" -> {shown(reply)}"
        self.view = self._look(next((one for one in arguments[:1] if isinstance(one, str)), None))
        getattr(self, f"_after_{method}")(before, reply, *arguments)
        self._general(before, arguments[0] if arguments else None)
        return True

    def _make(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Return what the target answers to a call."""
        return getattr(self.target, method)(*arguments)

    @abstractmethod
    def _tried(self, method: str, arguments: tuple[Any, ...]) -> str:
        """Return the law that is broken where this call is not answered."""

    @abstractmethod
    def _look(self, acting: str | None) -> Any:
        """Return all that can be seen of the target now; `acting` is the first argument of the call before."""

    @abstractmethod
    def _general(self, before: Any, acting: Any) -> None:
        """Look at what must hold after every call."""

    def _opened(self, setup: Any) -> Any:
        """Return a fresh target. Raises `UserError` where it says that it cannot be opened here."""
        self.steps.append(f"open {shown(setup)}")
        return self._asked("answers", lambda: opened(self.subject, setup))

    def _asked(self, law: str, ask: Callable[[], Any], step: str = "") -> Any:
        """Return what the target answers; where it does not, that breaks `law`, at `step` where that is none yet."""
        try:
            answer = ask()
        except Fault as fault:
            if step:
                self.steps.append(step)
            raise self._broken(law, fault.seen) from fault
        except TimeoutError as error:
            raise self._broken(law, str(error)) from error
        self.exercised.add("answers")
        return answer

    def _require(self, law: str, holds: bool, otherwise: str) -> None:
        if not holds and law in self.laws:
            raise self._broken(law, otherwise)

    def _broken(self, law: str, seen: str) -> Disagreement:
        return Disagreement(self.steps[-1], (Difference(law, BY_NAME[law].statement, seen),))
