"""What is known of a run: the calls that were made, and the changes that the ledger's journal has."""

from collections.abc import Mapping

from attrs import field, frozen

from kvescrow.spec.vocabulary import (
    Decision,
    Key,
    LedgerEvent,
    Reason,
    ReservationState,
    SetBudget,
    SetPoolLimit,
    SetTenantLimit,
    Tick,
    event_name,
)
from kvescrow.spec.world.ledger import LedgerWorld, TenantTerms


@frozen
class Terms:
    """What the ledger began with, empty. Amounts are in the pool's unit, `retention` in microseconds."""

    pool_limit: int
    tenants: Mapping[str, TenantTerms]
    retention: int

    def world(self) -> LedgerWorld:
        """Return the empty world of these terms."""
        return LedgerWorld(self.pool_limit, self.tenants, self.retention)


@frozen
class Answer:
    """What of a reply is compared."""

    decision: Decision
    reason: Reason
    state: ReservationState | None = None
    """State after the event; None where the reply does not tell, or the event is about limits or time."""
    life: int = 0
    generation: int = 0
    seq: int | None = None
    """Commit number of the change, or of the last one before where nothing changed; None where none is given."""
    free: tuple[int, int] | None = None
    """What was free in the tenant's limit and in the pool before the event; None where it is not told."""

    @property
    def changes(self) -> bool:
        """Whether it says that something changed."""
        return not self.decision.changes_nothing

    def __str__(self) -> str:
        text = self.decision.value if self.reason is Reason.NONE else f"{self.decision.value} {self.reason.value}"
        if self.state is not None:
            text += f", {self.state.value}, life {self.life}, generation {self.generation}"
        return text


@frozen
class Call:
    """One event that one process submitted once; a retry is a call of its own."""

    process: str
    event: LedgerEvent
    began: int
    """Reading of the shared monotonic clock before the event was sent."""
    ended: int | None = None
    """Reading after the answer came; None where it never did."""
    answer: Answer | None = None
    """None where the caller never learnt what became of the event."""
    authentic: bool = True
    """Whether the proof that it carries is one that its signer gave; true for events without a proof."""
    failed: bool = False
    """Whether the ledger said that it could not keep the event and that nothing of it was applied."""

    def __str__(self) -> str:
        return f"{self.process}: {told(self.event)}"


@frozen
class Change:
    """One change in the ledger's journal."""

    seq: int
    event: LedgerEvent
    answer: Answer
    now: int | None = field(default=None)
    """The ledger's clock at the decision; None where its time moves by `Tick` alone."""


def key_of(event: LedgerEvent) -> Key | None:
    """Return the key that `event` speaks of: with an empty request for a tenant's limits, None for the pool's."""
    match event:
        case SetTenantLimit() | SetBudget():
            return Key(event.tenant, "")
        case Tick() | SetPoolLimit():
            return None
        case _:
            return event.key


def told(event: LedgerEvent) -> str:
    """Return `event` as a short text: its kind and what it speaks of."""
    key = key_of(event)
    return event_name(event).value if key is None else f"{event_name(event).value} {key.tenant}/{key.request}"
