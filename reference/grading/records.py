"""Request-level records: what became of each offered request of one run (REL-1, REL-2).

A run is a header, one record a request, and an ending. Times are integer microseconds on one clock, that of the load
generator; the clock of a request starts at its intended arrival, whenever it was sent. The page on records in `docs/`
describes the file.
"""

from collections.abc import Mapping
from enum import Enum
from itertools import pairwise

from attrs import field, frozen

from kvescrow.spec.vocabulary import UserError


class Ending(Enum):
    """How a request ended."""

    COMPLETED = "completed"
    """With its whole output."""
    REFUSED = "refused"
    """At admission: a miss, unless the objectives say that its reason is the caller's own (ADM-9)."""
    EXPIRED = "expired"
    """It waited too long for admission: a miss, and never a short answer (QUE-2)."""
    FAILED = "failed"
    """With an error, or stopped by the server: a miss."""
    CANCELLED = "cancelled"
    """By its user: a class of its own, neither good nor a miss."""
    WITHDRAWN = "withdrawn"
    """By the load generator when the run ended: in no count of offered requests."""
    UNFINISHED = "unfinished"
    """Still under way when the record was written: a miss once it is older than its objectives, else undecided."""


class SpanKind(Enum):
    """What a part of a request's time was spent on. The parts of a request follow each other without gap or overlap."""

    QUEUE = "queue"
    """Waits for admission or for a place in the batch; the cause is the reason that it was given."""
    RECLAIM = "reclaim"
    """Waits for pages whose former holder has stopped and is not confirmed yet."""
    PREFILL = "prefill"
    """Its prompt is computed."""
    DECODE = "decode"
    """Its output is computed."""
    GAP = "gap"
    """Between two of its tokens nothing of it is computed; the cause says what is computed instead."""
    GROWTH = "growth"
    """Waits since a growth of its reservation was denied (GRO-3)."""


@frozen
class Span:
    """One part of a request's time."""

    kind: SpanKind
    cause: str
    """A reason of the vocabulary or a word of the server; empty where there is no more to say."""
    microseconds: int


Frame = tuple[int, int]
"""(arrival in microseconds, output tokens in it); a frame without a token is no token's arrival."""


@frozen
class RequestRecord:
    """One offered request."""

    request: str
    """Its id: the same in both runs of one workload."""
    tenant: str
    class_name: str
    arrival: int
    """When it was meant to be sent."""
    ending: Ending
    reason: str = ""
    """Why it ended so, where it did not complete."""
    sent: int | None = None
    """When it was sent; None where the generator does not tell."""
    frames: tuple[Frame, ...] = ()
    """In the order in which they came."""
    ended: int | None = None
    """When it was over; None where it is not."""
    input_tokens: int | None = None
    cached_tokens: int | None = None
    """Prompt tokens that were not computed, since they were cached."""
    correct: bool | None = None
    """Whether the output was found right; None where nobody looked."""
    output: str = ""
    """A digest of the output, where outputs are compared; empty where not."""
    started: int | None = None
    """When the server dispatched it."""
    amount: int | None = None
    """Tokens reserved for it: what fairness counts."""
    scope: str = ""
    """Name of its prefix scope."""
    spans: tuple[Span, ...] = ()
    """How its time from arrival to end was spent; empty where unknown."""

    @property
    def token_times(self) -> tuple[int, ...]:
        """Arrivals of frames with at least one token."""
        return tuple(time for time, tokens in self.frames if tokens > 0)

    @property
    def output_tokens(self) -> int:
        """Output tokens that came."""
        return sum(tokens for _, tokens in self.frames)

    @property
    def first_token(self) -> int | None:
        """Microseconds from the intended arrival to the first token; None where none came."""
        times = self.token_times
        return times[0] - self.arrival if times else None

    @property
    def gaps(self) -> tuple[int, ...]:
        """Microseconds between two arrivals of tokens, as a user sees them."""
        times = self.token_times
        return tuple(after - before for before, after in pairwise(times))

    @property
    def time_per_token(self) -> int | None:
        """Microseconds for each token after the first frame, rounded down; None where there are none."""
        times = self.token_times
        after = sum(tokens for _, tokens in self.frames if tokens > 0) - next((n for _, n in self.frames if n > 0), 0)
        return (times[-1] - times[0]) // after if after > 0 else None

    @property
    def completion(self) -> int | None:
        """Microseconds from the intended arrival to the end; None where it did not complete."""
        return self.ended - self.arrival if self.ending is Ending.COMPLETED and self.ended is not None else None


@frozen
class Evidence:
    """What somebody else found about a run: a journal check, a fairness check."""

    checked: int
    """How much was looked at, such as events; at least 1, or nothing was checked."""
    violations: tuple[str, ...]
    source: str
    """Who looked."""


@frozen
class Run:
    """One run of a workload."""

    name: str
    records: tuple[RequestRecord, ...]
    ended: int
    """When recording ended, on the generator's clock."""
    offered: int
    """Requests that the generator says it offered."""
    workload: str = ""
    """Digest or name of the workload; empty where unknown."""
    synthetic: bool = False
    """Whether times are of a model rather than of a device."""
    safety: Evidence | None = None
    """The check of invariants; None where nobody looked (REL-4)."""
    probe: int | None = None
    """Microseconds that one fixed piece of work took on the device; None where it was not measured."""
    pool: int | None = None
    """Usable capacity in tokens; None where unknown."""
    clock_readings: tuple[tuple[int, int], ...] = ()
    """(generator's clock, server's clock), read together now and then during the run."""
    remarks: tuple[str, ...] = ()

    @property
    def by_request(self) -> Mapping[tuple[str, str], RequestRecord]:
        """The records by tenant and request (IDN-1)."""
        return {(record.tenant, record.request): record for record in self.records}


@frozen
class Pairing:
    """Two runs of one workload, request by request."""

    base: Run
    candidate: Run
    pairs: tuple[tuple[RequestRecord, RequestRecord], ...] = field(init=False)
    """In the order of the base's arrivals."""

    def __attrs_post_init__(self) -> None:
        other = self.candidate.by_request
        found = [
            (record, other[key])
            for key, record in sorted(self.base.by_request.items(), key=lambda item: (item[1].arrival, item[0]))
            if key in other
        ]
        object.__setattr__(self, "pairs", tuple(found))


def check_spans(record: RequestRecord) -> None:
    """Raise `UserError` unless the spans of `record` add up to its time, from arrival to end, to the microsecond."""
    if not record.spans:
        return
    total = sum(span.microseconds for span in record.spans)
    if record.ended is None or total != record.ended - record.arrival:
        lasted = "no end" if record.ended is None else f"{record.ended - record.arrival} us from arrival to end"
        raise UserError(f"spans: they add up to {total} us, but the request has {lasted}; write every part of it")
