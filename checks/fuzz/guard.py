"""Calls into a target that someone else wrote: an answer of the type that its protocol gives, or a fault of the target.

Whatever a target raises is its fault, an exit of Python included, and so is an answer of another type. The user's own
interrupt alone goes on its way. No guard holds against `os._exit`: it ends the process, and nothing is written.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Protocol, get_type_hints

from kvescrow.checks.fuzz.differences import Difference, Disagreement
from kvescrow.checks.targets.capacity import CapacityLedger
from kvescrow.checks.targets.protocols import (
    CacheManager,
    ComposedTarget,
    LedgerTarget,
    PageTarget,
    ReleaseTarget,
    ServingScheduler,
)
from kvescrow.checks.targets.subject import Kind, Subject
from kvescrow.checks.targets.typed import check_of
from kvescrow.spec.vocabulary import UserError

PROTOCOLS: Mapping[Kind, type] = {
    Kind.LEDGER: LedgerTarget,
    Kind.PAGES: PageTarget,
    Kind.COMPOSED: ComposedTarget,
    Kind.RELEASE: ReleaseTarget,
    Kind.MANAGER: CacheManager,
    Kind.SCHEDULER: ServingScheduler,
    Kind.CAPACITY: CapacityLedger,
}


class Fault(Disagreement):
    """A call that was not answered as the target's protocol says."""

    def __init__(self, method: str, seen: str) -> None:
        super().__init__(f"{method}()", (Difference(f"{method}()", "an answer as its protocol says", seen),))
        self.seen = seen


def opened(subject: Subject, setup: object) -> Any:
    """Return a fresh target whose every call is guarded.

    Raises `Fault` where it does not open, and `UserError` where it says itself that it cannot be opened here.
    """
    try:
        target = subject.open(setup)
    except (KeyboardInterrupt, UserError):
        raise
    except BaseException as error:
        raise _raised("open", error) from error
    return _guard_of(PROTOCOLS[subject.kind])(target)


def absence(subject: Subject, setup: object) -> str:
    """Return why a target says that it cannot be opened here; nothing where it opens, or fails in another way."""
    with suppress(Fault):
        try:
            opened(subject, setup).close()
        except UserError as missing:
            return str(missing)
    return ""


def _raised(method: str, error: BaseException) -> Fault:
    return Fault(method, f"raised {type(error).__name__}: {error}")


@cache
def _guard_of(protocol: Any) -> Callable[[Any], Any]:
    """Return a class that has the methods and the parts of `protocol`, and asks a target for each."""
    parts = {name: _guard_of(part) for name, part in get_type_hints(protocol).items()}

    def begin(self: Any, target: Any) -> None:
        self._target = target
        for name, guard in parts.items():
            try:
                part = getattr(target, name)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                raise _raised(name, error) from error
            setattr(self, name, guard(part))

    public = {name: method for name, method in inspect.getmembers(protocol, inspect.isfunction) if name[0] != "_"}
    methods = {name: _guarded(name, method) for name, method in public.items()}
    return type(f"Guarded{protocol.__name__}", (), {"__init__": begin, **methods})


def _guarded(name: str, method: Any) -> Callable[..., Any]:
    due = get_type_hints(method)["return"]
    # A method that returns nothing may answer anything.
    wrong = check_of(Any if due is type(None) else due)

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            answer = getattr(self._target, name)(*arguments, **named)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise _raised(name, error) from error
        if told := wrong(answer):
            raise Fault(name, f"answered {told}")
        return answer

    return call


class Closing(Protocol):
    """What is opened and must be closed."""

    def close(self) -> None:
        """Give up everything that is held open."""


@contextmanager
def closing(run: Closing) -> Iterator[None]:
    """Close `run` at the end. What went wrong before that counts, not what goes wrong in closing because of it."""
    try:
        yield
    except BaseException:
        with suppress(Disagreement):
            run.close()
        raise
    run.close()
