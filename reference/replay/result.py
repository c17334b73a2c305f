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


MICROSECONDS = 1_000_000
"""A second."""


@frozen
class Goodput:
    """Requests that met every objective of their class, their completion within the deadline included (REL-1)."""

    met: int
    share: float | None
    """Of the requests offered, but those that were cancelled; refused, expired and failed ones are misses."""
    per_second: float


@frozen
class ClassResult:
    """One class."""

    share: float
    """Its part of reserved tokens while others wait."""
    objectives: dict[str, int | None]
    """Microseconds; None where there is none."""
    offered: int
    admitted: int
    refused: int
    expired: int
    cancelled: int
    failed: int
    completed: int
    met: int
    attainment: float | None
    """`met` of those offered and not cancelled; None where there is none, which is not good."""
    queue_wait: Quantiles
    first_token: Quantiles
    token_gap: Quantiles


@frozen
class FairnessPair:
    """Two classes, or two tenants of a class."""

    parties: tuple[str, str]
    gap: float
    """Widest difference of normalised service in one interval."""
    bound: float


@frozen
class FairnessResult:
    """What the bounds of the fair queue came to, over the whole run."""

    largest: int
    """E: tokens of the largest request that waited."""
    classes: FairnessPair | None
    """The pair of classes nearest to its bound; None where no two waited together."""
    tenants: FairnessPair | None
    """The pair of tenants of one class nearest to its bound."""
    shortfall: dict[str, float]
    """Tokens by which each class was at most below its share m of T, in one interval: m*T - R, at most E."""
    broken: list[str]
    """Bounds that were passed; an order that has no bound may pass them."""
    resource: str = "tokens of the pool, reserved at dispatch, less refunds and with growth"
    interval: str = "while both have a request waiting that no limit of their own blocks"
    unit: str = "tokens over weight"


@frozen
class Curves:
    """What plots are made of."""

    utilisation: list[float]
    """Means over equal parts of the run."""
    queue_wait: dict[str, list[int]]
    """By class, at equally spaced ranks from the least to the greatest; microseconds."""
    token_gap: dict[str, list[int]]
    service: dict[str, int]
    """Tokens reserved less refunded, by class and tenant."""


@frozen
class ReplayResult:
    """One run. Times are microseconds of virtual time except `seconds`; amounts are tokens.

    `offered` = `admitted` + what was refused + what ended in the queue; every request ends in exactly one of
    refused, expired, failed, cancelled and completed.
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
    failed: dict[str, int]
    """By the reason for which a growth was denied for good."""
    cancelled: int
    completed: int
    cancellations: Cancellations
    goodput: Goodput
    classes: dict[str, ClassResult]
    utilisation: float
    """Time-weighted mean of the tokens charged, as a share of the usable pool."""
    peak_utilisation: float
    queue_wait: Quantiles
    """From arrival to admission, of the admitted."""
    first_token: Quantiles
    """From arrival to the first token, of those that got one."""
    token_gap: Quantiles
    """Between two tokens of one request."""
    held_back: dict[str, int]
    """Steps without a chunk although a prompt waited, by the reason that the chunk rule gave; without it none."""
    hit_rate: float | None
    """Prompt tokens that were reused, as a share of all prompt tokens looked up; None where none was."""
    preemptions: int
    """Work stopped for memory, each time."""
    denials: int
    """Growths that the ledger refused."""
    deferrals: int
    """How often work began to wait for a growth."""
    broken_promises: int
    """Requests that were admitted and then stopped for memory or failed for it, at least once (PAG-1)."""
    under_reserving: list[str]
    """Tenants that keep reserving too little (GRO-5)."""
    fairness: FairnessResult | None
    """None where the ledger's own queue served, first come first served."""
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
    curves: Curves
    seconds: float
    """Real time that the run took."""

    def to_json(self) -> str:
        """Return the result as one JSON object."""
        return json.dumps(asdict(self), indent=2)
