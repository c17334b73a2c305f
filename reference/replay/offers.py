"""One request of the trace on its way, as gateways and worker know it."""

from array import array
from enum import Enum

from attrs import define, field

from kvescrow.reference.traces import TraceRequest
from kvescrow.spec.vocabulary import Key


class Stage(Enum):
    """Where a request of the trace is, as its gateway knows."""

    COMING = "coming"
    """Not offered yet."""
    WAITING = "waiting"
    """In the admission queue before the ledger; it holds nothing (QUE-6)."""
    QUEUED = "queued"
    """In the ledger's queue, for the first time or after a preemption; it holds nothing."""
    ADMITTED = "admitted"
    """Charged; waits for a place in the batch."""
    RUNNING = "running"
    """Started by the worker; charged."""
    REFUSED = "refused"
    """Never admitted: it was said why at once, or when its turn came."""
    EXPIRED = "expired"
    """Not started, or not again: it waited its maximum wait, or its useful life away."""
    CANCELLED = "cancelled"
    """Ended by an injected cancel."""
    FAILED = "failed"
    """Stopped without its whole output, since a growth was denied for good (GRO-3)."""
    COMPLETED = "completed"
    """Ended with its whole output."""


CHARGED = frozenset({Stage.ADMITTED, Stage.RUNNING})
LIVE = CHARGED | {Stage.WAITING, Stage.QUEUED}


@define(eq=False)
class Offer:
    """One request, a `Holding` of reservation policies once it is admitted."""

    request: TraceRequest
    key: Key
    class_name: str
    allowed: int
    """Output tokens that it is allowed."""
    bound: int
    """Tokens that it reserves, or will."""
    latest: int
    """Last moment of a useful start (QUE-3)."""
    stage: Stage = Stage.COMING
    life: int = 0
    reserved: int = 0
    """Tokens that it reserved when it was first admitted."""
    admitted: int | None = None
    """When it was first admitted, in microseconds."""
    generated: int = 0
    first_token: int | None = None
    """Microseconds from arrival to the first token."""
    last_token: int = field(default=0)
    """When its last token so far came."""
    widest_gap: int = 0
    """Microseconds, between two of its tokens."""
    finished: int = 0
    """When it ended."""
    preempted: bool = False
    """It was stopped for memory at least once."""
    token_times: "array[int]" = field(factory=lambda: array("q"))
    """When each of its tokens came."""
    started: int | None = None
    """When it was first started."""
    cached: int = 0
    """Prompt tokens that its first look-up found."""
    reason: str = ""
    """Why it waited, or why it ended without its whole output; empty where nobody said."""

    @property
    def tenant(self) -> str:
        """Whose it is."""
        return self.key.tenant

    @property
    def tokens(self) -> int:
        """Prompt, and output so far."""
        return self.request.input_tokens + self.generated

    @property
    def left(self) -> int:
        """Output tokens that it may still generate."""
        return self.allowed - self.generated

    @property
    def maximum(self) -> int:
        """Most tokens that it may come to."""
        return self.request.input_tokens + self.allowed

    def starts(self, now: int) -> None:
        """Take in that the worker has started it, for the first time or after a preemption."""
        self.stage = Stage.RUNNING
        if self.started is None:
            self.started = now

    def token(self, now: int) -> int | None:
        """Take in one more token, and return the gap before it; None where it is the first."""
        self.generated += 1
        self.token_times.append(now)
        previous, self.last_token = self.last_token, now
        if self.first_token is None:
            self.first_token = now - self.request.arrival
            return None
        gap = now - previous
        self.widest_gap = max(self.widest_gap, gap)
        return gap
