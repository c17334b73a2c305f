"""What of a state is compared: the projection of a ledger and of a page pool.

The model and every implementation produce these records; they must be equal after each step.
"""

from collections.abc import Mapping

from attrs import frozen

from kvescrow.spec.vocabulary.events import Key
from kvescrow.spec.vocabulary.scope import PrefixScope
from kvescrow.spec.vocabulary.states import PageState, ReleaseState, ReservationState


@frozen
class ReservationSnapshot:
    """One reservation. Times are absolute microseconds; amounts are in the pool's unit."""

    state: ReservationState
    amount: int
    bound: int
    """What is, or was last, charged for it; it is in the active counters while the state is charged."""
    used: int
    overrun: int
    life: int
    generation: int
    owner: str
    lease: int
    """When the gateway's or the owner's lease runs out; 0 where there is none."""
    expires: int
    """When its wait in the queue ends; 0 where it never queued."""


@frozen
class TenantSnapshot:
    """One tenant's accounts."""

    active: int
    limit: int
    held: int
    """Part of the budget held by live reservations."""
    spent: int
    """Part of the budget billed."""
    budget: int
    overrun: int
    queued: int


@frozen
class LedgerSnapshot:
    """The whole projected state of a ledger."""

    clock: int
    pool_active: int
    pool_limit: int
    tenants: Mapping[str, TenantSnapshot]
    reservations: Mapping[Key, ReservationSnapshot]
    queue: tuple[Key, ...]
    """Queued keys, first come first."""


@frozen
class PageSnapshot:
    """One page."""

    state: PageState
    holders: frozenset[str]
    readers: int
    writers: int
    generation: int
    scope: PrefixScope | None
    tokens: tuple[int, ...]
    """Tokens of the page where it is published; empty otherwise."""


@frozen
class PoolSnapshot:
    """The whole projected state of a page pool; the page with number 0 is the sink."""

    pages: tuple[PageSnapshot, ...]
    promised: Mapping[str, int]
    """Pages that each admitted holder may still draw."""


@frozen
class ReleaseSnapshot:
    """The whole projected state of one release. Times are absolute microseconds; work is counted in requests."""

    state: ReleaseState
    looks: int
    """Taken in so far."""
    until: int
    """When its time limit ends; 0 before the start."""
    clock: int
    grants: bool
    """Whether the candidate may grant."""
    routed: bool
    """Whether traffic is routed to it."""
    epoch: int
    """In force at the ledger."""
    under: int
    """The epoch that the candidate was started under; 0 before."""
    in_flight: int
    """Work of the candidate that was granted and has not ended."""
    orphaned: int
    """Work of it that nobody confirmed; still charged."""
