"""What a page pool answers and reports."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from attrs import frozen

from kvescrow.spec.vocabulary import Decision, Reason


class Outcome(NamedTuple):
    """A decision with its reason; the pool compares these constants by identity."""

    decision: Decision
    reason: Reason


def refused(reason: Reason) -> Outcome:
    """Return the refusal for `reason`."""
    return Outcome(Decision.REFUSED, reason)


def granted(decision: Decision) -> Outcome:
    """Return `decision` where it needs no reason."""
    return Outcome(decision, Reason.NONE)


@frozen
class PageReply:
    """The answer to one page event (VIS-1)."""

    decision: Decision
    reason: Reason
    seq: int
    """Commit number of this change; where nothing changed, of the last change before the decision."""
    page: int | None = None
    """The page that was decided on; None where the event names none."""
    holder: str | None = None
    """The holder that acted; None where the event names none."""
    available: int | None = None
    """After `admit` or `grow`: units that were neither promised nor held when it was decided; else None."""
    asked: int | None = None
    """After `admit` or `grow`: units that were asked for; else None."""


@frozen
class Acquired:
    """What `acquire` took for a request, all of it or nothing (ADM-10)."""

    pages: tuple[int, ...]
    """The pages of the prompt in order: hits first, then new ones."""
    cached_tokens: int
    """Tokens that need no computing; always less than the prompt (PAG-7)."""
    promised: int
    """Pages that the holder may still draw for its output."""
    seq: int


@frozen
class PoolCounts:
    """Pages by state, the sink excluded, and promised units (PAG-2)."""

    total: int
    free: int
    private: int
    shared: int
    cached: int
    draining: int
    promised: int


@frozen
class PageEvent:
    """One event as the recorder sees it, refusals included; enough to check the run against the tables (VIS-3)."""

    name: str
    """The table's name of the event."""
    page: int | None
    holder: str | None
    parameters: Mapping[str, object]
    """By the table's names; `admit` and `retire_scope` add the scope record, `seal` its parent page and tokens."""
    decision: Decision
    reason: Reason
    seq: int


Recorder = Callable[[PageEvent], None]
"""Is called after the change, or after all changes of a batch, in the order of the events."""
