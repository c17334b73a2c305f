"""What a replay reports."""

import json

from attrs import asdict, frozen

from kvescrow.reference.replay.measures import Quantiles


@frozen
class Cancellations:
    """Cancels that the replay injected; recorded traces have none."""

    injected: bool
    """Always true: none of these is the trace's own."""
    rate: float
    seed: int
    within: int
    """Microseconds after its arrival in which a request's cancel came."""
    sent: int
    late: int
    """Came when the request was over, or had been refused; all others took effect."""


@frozen
class ReplayResult:
    """One run. Times are microseconds of virtual time except `seconds`; amounts are tokens.

    `offered` = `admitted` + what was refused + what ended in the queue; every request ends in exactly one of
    refused, expired, cancelled and completed.
    """

    trace: str
    attribution: str
    remarks: tuple[str, ...]
    policy: dict[str, object]
    """What was reserved, in which order the queue and the batch were served, and the limits."""
    cost_model: dict[str, object]
    offered: int
    admitted: int
    refused: dict[str, int]
    """By reason."""
    expired: dict[str, int]
    """By reason."""
    cancelled: int
    completed: int
    cancellations: Cancellations
    utilisation: float
    """Time-weighted mean of the tokens charged, as a share of the usable pool."""
    peak_utilisation: float
    queue_wait: Quantiles
    """From arrival to admission, of the admitted."""
    first_token: Quantiles
    """From arrival to the first token, of those that got one."""
    hit_rate: float | None
    """Prompt tokens that were reused, as a share of all prompt tokens looked up; None where none was."""
    prefill_tokens: int
    """Prompt tokens computed."""
    generated_tokens: int
    steps: int
    virtual_span: int
    """From the first arrival to the last event."""
    ledger_events: int
    """Events that the ledger decided, refusals included."""
    page_changes: int
    """Changes of the page pool: pages drawn, shared, published, given up, and touched by steps."""
    seconds: float
    """Real time that the run took."""

    def to_json(self) -> str:
        """Return the result as one JSON object."""
        return json.dumps(asdict(self), indent=2)
