"""The events that a ledger accepts, as frozen records.

Times are integer microseconds on the store's clock. Amounts are integers in the pool's unit (tokens or pages).
Constructors refuse values of the wrong kind at once: an integer is an `int`, and no float or bool that is equal to one.
What a *domain* error means (an amount of zero, say) is the table's to decide, but for a lease, which is never zero.
"""

from enum import Enum
from typing import Any, TypeVar

from attrs import frozen

from kvescrow.spec.vocabulary.errors import UserError
from kvescrow.spec.vocabulary.states import StopOutcome

T = TypeVar("T")

MICROSECONDS_PER_SECOND = 1_000_000


def _checked(kind: type[T]) -> type[T]:
    """Let constructors of `kind` check every integer, and that a lease is above 0."""
    names = tuple(name for name, of in kind.__annotations__.items() if of is int)
    has_lease = "lease" in names

    def check(event: Any) -> None:
        for name in names:
            if type(getattr(event, name)) is not int:
                raise UserError(f"{kind.__name__}.{name} is {getattr(event, name)!r}: give an integer")
        if has_lease and event.lease < 1:
            raise UserError(f"{kind.__name__}.lease is 0 or less: give microseconds above 0")

    kind.__attrs_post_init__ = check  # type: ignore[attr-defined]  # attrs calls it, where a class has it
    return kind


class LedgerEventKind(Enum):
    """The kinds of ledger event, by the name that tables, journals and rows use."""

    RESERVE = "reserve"
    """A gateway asks for capacity for a request."""
    PROMOTE = "promote"
    """The ledger tries to move a queued reservation to RESERVED."""
    START = "start"
    """A worker takes ownership; the commit point (LIF-2)."""
    EXTEND = "extend"
    """The owner asks for a larger bound (GRO-2)."""
    REPORT_USAGE = "report_usage"
    """The owner reports what has been used so far."""
    CANCEL = "cancel"
    """The client, or a disconnect on its behalf, asks to stop (LIF-7)."""
    PREEMPT = "preempt"
    """The scheduler asks to stop and requeue (LIF-9)."""
    FINISH = "finish"
    """The owner's receipt: the work has stopped (REC-1)."""
    RENEW = "renew"
    """The gateway (RESERVED) or the owner (running) renews its lease."""
    SWEEP = "sweep"
    """The ledger applies a time limit that has passed."""
    FENCE = "fence"
    """A supervisor's proof that one incarnation of an owner is gone (LEA-4)."""
    FORCE_RELEASE = "force_release"
    """An operator gives up on an execution whose stop nobody confirms (LEA-3)."""
    FORGET = "forget"
    """The ledger drops a terminal record after its retention (IDN-5)."""
    TICK = "tick"
    """The store's clock is read."""
    SET_POOL_LIMIT = "set_pool_limit"
    """An operator changes the usable pool."""
    SET_TENANT_LIMIT = "set_tenant_limit"
    """An operator changes a tenant's limit."""
    SET_BUDGET = "set_budget"
    """An operator changes a tenant's period budget."""


@frozen(order=True, cache_hash=True)
class Key:
    """Identity of a request: the same request id in two tenants is two requests (IDN-1)."""

    tenant: str
    request: str


@frozen
@_checked
class Receipt:
    """An owner's signed statement that one execution has stopped (REC-1).

    `mac` is HMAC-SHA256 over the framed fields before it, under the key named by `key_id`.
    """

    pool: str
    key: Key
    owner: str
    generation: int
    last_ticket: int
    """Number of the last ticket launched for this generation; 0 where none was."""
    outcome: StopOutcome
    used: int
    """Units used in all by this generation."""
    key_id: str
    mac: bytes


@frozen
@_checked
class Reserve:
    """Ask for `amount` for `key`."""

    key: Key
    amount: int
    digest: str
    """Digest of all parameters that the key is bound to (IDN-2)."""
    deadline: int
    """Absolute time by which the work must be over."""
    least_service: int = 0
    """Least time in which the work can be useful (ADM-7)."""
    max_wait: int = 0
    """Longest time in the queue; 0 asks for an immediate answer (QUE-1)."""
    lease: int = 30 * MICROSECONDS_PER_SECOND
    """How long the gateway keeps RESERVED without renewal."""
    authorised: bool = True
    """Whether the caller may reserve for this tenant (ADM-3)."""


@frozen
@_checked
class Promote:
    """Try to admit a queued reservation."""

    key: Key
    lease: int = 30 * MICROSECONDS_PER_SECOND


@frozen
@_checked
class Start:
    """Take ownership of a RESERVED reservation."""

    key: Key
    life: int
    owner: str
    """Incarnation of the worker, unique to one process start."""
    lease: int = 10 * MICROSECONDS_PER_SECOND
    authorised: bool = True


@frozen
@_checked
class Extend:
    """Ask for `bound` in all: an absolute value, so that a retry charges nothing twice."""

    key: Key
    owner: str
    generation: int
    bound: int
    authorised: bool = True


@frozen
@_checked
class ReportUsage:
    """State the units used so far by this generation."""

    key: Key
    owner: str
    generation: int
    used: int
    authorised: bool = True


@frozen
@_checked
class Cancel:
    """Ask that this life of the key ends."""

    key: Key
    life: int
    authorised: bool = True


@frozen
@_checked
class Preempt:
    """Ask that this execution stops and its reservation is queued again."""

    key: Key
    generation: int
    authorised: bool = True


@frozen
class Finish:
    """Deliver a stop receipt."""

    receipt: Receipt

    @property
    def key(self) -> Key:
        """The key that the receipt speaks of."""
        return self.receipt.key


@frozen
@_checked
class Renew:
    """Renew the lease; `life` matters while RESERVED, owner and generation while running."""

    key: Key
    life: int
    owner: str = ""
    generation: int = 0
    lease: int = 10 * MICROSECONDS_PER_SECOND
    authorised: bool = True


@frozen
class Sweep:
    """Apply the time limits of one record."""

    key: Key


@frozen
class Fence:
    """Confirm the stop of `key` since its owner's incarnation is gone; `proof` signs (pool, owner)."""

    key: Key
    owner: str
    key_id: str
    proof: bytes


@frozen
@_checked
class ForceRelease:
    """Release an execution that is no longer heard of, without any proof that it has stopped.

    The operator answers for that: if it still runs, its capacity is used twice. The record says so for as long as it
    is kept, by naming no owner.
    """

    key: Key
    generation: int
    authorised: bool = True
    """Whether the caller is an operator of this pool (ADM-3)."""


@frozen
class Forget:
    """Drop a terminal record whose retention has passed."""

    key: Key


@frozen
@_checked
class Tick:
    """Read the clock: `now` is what it shows; the ledger's time never goes back (LEA-6)."""

    now: int


@frozen
@_checked
class SetPoolLimit:
    """Set the usable pool."""

    limit: int


@frozen
@_checked
class SetTenantLimit:
    """Set one tenant's capacity limit."""

    tenant: str
    limit: int


@frozen
@_checked
class SetBudget:
    """Set one tenant's period budget."""

    tenant: str
    budget: int


LedgerEvent = (
    Reserve
    | Promote
    | Start
    | Extend
    | ReportUsage
    | Cancel
    | Preempt
    | Finish
    | Renew
    | Sweep
    | Fence
    | ForceRelease
    | Forget
    | Tick
    | SetPoolLimit
    | SetTenantLimit
    | SetBudget
)

_KINDS: dict[type, LedgerEventKind] = {
    Reserve: LedgerEventKind.RESERVE,
    Promote: LedgerEventKind.PROMOTE,
    Start: LedgerEventKind.START,
    Extend: LedgerEventKind.EXTEND,
    ReportUsage: LedgerEventKind.REPORT_USAGE,
    Cancel: LedgerEventKind.CANCEL,
    Preempt: LedgerEventKind.PREEMPT,
    Finish: LedgerEventKind.FINISH,
    Renew: LedgerEventKind.RENEW,
    Sweep: LedgerEventKind.SWEEP,
    Fence: LedgerEventKind.FENCE,
    ForceRelease: LedgerEventKind.FORCE_RELEASE,
    Forget: LedgerEventKind.FORGET,
    Tick: LedgerEventKind.TICK,
    SetPoolLimit: LedgerEventKind.SET_POOL_LIMIT,
    SetTenantLimit: LedgerEventKind.SET_TENANT_LIMIT,
    SetBudget: LedgerEventKind.SET_BUDGET,
}


def event_name(event: LedgerEvent) -> LedgerEventKind:
    """Return the kind of `event`."""
    return _KINDS[type(event)]
