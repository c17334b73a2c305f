"""The port of a ledger: its configuration, its replies, and what every store offers."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Protocol

from attrs import Attribute, field, frozen

from kvescrow.spec.vocabulary import (
    Decision,
    Key,
    LedgerEvent,
    LedgerSnapshot,
    Reason,
    ReservationState,
    SetBudget,
    SetPoolLimit,
    SetTenantLimit,
    Tick,
    UserError,
)

Clock = Callable[[], int]
"""Reads the time in microseconds."""


class StoreClock(Enum):
    """The clock of a store that several gateways share."""

    STORE = "store"
    """The server's own clock decides what has expired, so the gateways' clocks need not agree (LEA-6)."""


class StorageError(UserError):
    """The store could not keep an event; nothing of it was applied. The message names the store and the remedy."""


class StorageFull(StorageError):
    """There is no room to keep an event; nothing of it was applied."""


class OutcomeUnknown(UserError):
    """The connection to the store was lost while an event was being committed, and has not come back.

    The event was applied whole or not at all. Submit it again: its key tells which (IDN-3).
    """


def _a_name(instance: object, attribute: "Attribute[str]", value: str) -> None:
    if not isinstance(value, str) or not value:
        raise UserError(f"{type(instance).__name__}.{attribute.name} is {value!r}: give it a name")


def _a_count(instance: object, attribute: "Attribute[int]", value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UserError(
            f"{type(instance).__name__}.{attribute.name} is {value!r}: set it to an integer that is not negative"
        )


@frozen
class TenantConfig:
    """What one tenant may have. Raises `UserError` where a field is negative or no integer."""

    limit: int = field(validator=_a_count)
    """Most that its live work may hold at once, in the pool's unit (ADM-5)."""
    budget: int = field(validator=_a_count)
    """Most that it may spend in the period, in the pool's unit (ADM-8)."""
    queue_limit: int = field(validator=_a_count)
    """Most of its requests that may wait at once (QUE-1)."""


def _tenants(instance: object, attribute: "Attribute[Mapping[str, TenantConfig]]", value: object) -> None:
    if not isinstance(value, dict) or not all(isinstance(each, TenantConfig) for each in value.values()):
        raise UserError(f"LedgerConfig.{attribute.name}: give a mapping from tenant names to TenantConfig")
    if "" in value:
        raise UserError(f"LedgerConfig.{attribute.name}: the empty name is no tenant: give it a name")


@frozen
class LedgerConfig:
    """One pool and its tenants. Raises `UserError` where a field is outside its domain.

    It is where a ledger begins. A store that outlives its process keeps the limits and budgets that it recorded,
    since they may have been changed by events, and takes new tenants, queue limits and the retention from here.
    """

    pool: str = field(validator=_a_name)
    """The pool's name, to which receipts are bound (REC-1)."""
    pool_limit: int = field(validator=_a_count)
    """The usable pool (ADM-11)."""
    tenants: Mapping[str, TenantConfig] = field(validator=_tenants)
    """By name; a tenant that is not here is FORBIDDEN."""
    retention: int = field(validator=_a_count)
    """How long a terminal record is kept, in microseconds (IDN-5)."""


@frozen(slots=False)  # One is made for every event, and frozen slots take twice as long to fill.
class LedgerReply:
    """The answer to one event (VIS-1).

    A FORBIDDEN or FORGED reply tells nothing: `state` is None and every amount is 0.
    """

    decision: Decision
    """What was decided."""
    reason: Reason
    """Why; NONE where the decision says all."""
    seq: int
    """Commit number of this change; of the last change before it where nothing changed."""
    state: ReservationState | None
    """State of the reservation after the event; None for events about limits and time."""
    life: int
    """Life of the key (IDN-5); 0 where there is no record."""
    generation: int
    """Execution generation; 0 where nothing has started."""
    bound: int
    """What is charged for it while it is live."""
    asked: int
    """What the event needs to be free: the amount, the bound to promote, or the growth; 0 for other events."""
    free_tenant: int
    """Tenant's limit less what was active before the event; negative where the limit was lowered under live work."""
    free_pool: int
    """Pool's limit less what was active before the event; negative likewise."""
    retry_after: int | None
    """Microseconds after which a retry may do better; None where waiting alone cures nothing."""


@frozen(slots=False)  # Likewise.
class JournalEntry:
    """One decided event, as a journal keeps it (VIS-3)."""

    now: int
    """The ledger's clock at the decision."""
    event: LedgerEvent
    reply: LedgerReply
    vouched: bool
    """Whether the caller was authorised, or the proof authentic; true for events that need neither."""
    state: ReservationState | None
    """State after the event; unlike the reply's, told even where the caller may not know."""
    life: int
    generation: int

    @property
    def seq(self) -> int:
        """Commit number of the change, or of the last one before it."""
        return self.reply.seq


def key_of(event: LedgerEvent) -> Key | None:
    """Return the key that `event` speaks of: with an empty request for a tenant's limits, None for the pool's."""
    match event:
        case SetTenantLimit() | SetBudget():
            return Key(event.tenant, "")
        case Tick() | SetPoolLimit():
            return None
        case _:
            return event.key


Recorder = Callable[[JournalEntry], None]
"""Sees every decided event in order, refusals included. It must not call the ledger.

Refusals with the reason RECOVERING are left out: they say something of the store, which no table speaks of.

Where it raises, the event stays decided, and the error reaches whoever submitted it.
"""


class Ledger(Protocol):
    """An authoritative record of one pool. Every method may be called from any thread.

    The methods raise `UserError` on a closed ledger, and a durable store raises `StorageError` where an event cannot
    be kept: then nothing of it was applied. A store behind a connection raises `OutcomeUnknown` where it cannot tell.
    """

    def submit(self, event: LedgerEvent) -> LedgerReply:
        """Decide exactly one event; the reply comes when its change is durable."""

    def submit_many(self, events: Sequence[LedgerEvent]) -> list[LedgerReply]:
        """Decide `events` one after the other; their changes become durable together."""

    def journal(self, after: int = 0) -> list[JournalEntry]:
        """Return the changes with a commit number above `after`, in order."""

    def snapshot(self) -> LedgerSnapshot:
        """Return the whole projected state between two events."""

    def waiting(self) -> tuple[Key, ...]:
        """Return the queued keys, first come first."""

    def due(self) -> list[LedgerEvent]:
        """Return the events that time has made due: sweeps of passed limits, forgetting after the retention."""

    def close(self) -> None:
        """Give up what the ledger holds open; closing twice is harmless."""
