"""What a third party implements to have its ledger, its page pool or its cache manager checked (TGT-1).

Small protocols, of two sorts. Targets that follow the tables event by event are compared with them step by step. Cache
managers, schedulers and ledgers that go by rules of their own are judged from outside, by laws that their declared
capabilities say apply; the protocol of such a ledger is in `capacity`. What is said about a target is in `subject`.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol

from attrs import frozen

from kvescrow.spec.vocabulary import (
    Decision,
    ExecutionState,
    Fence,
    GradeVerdict,
    Key,
    LedgerEvent,
    LedgerSnapshot,
    PoolSnapshot,
    PrefixScope,
    Reason,
    Receipt,
    ReleaseSnapshot,
    ReservationState,
)

# --- ledgers ----------------------------------------------------------------------------------------------------------


@frozen
class TenantSetup:
    """What one tenant is granted, in the pool's unit; `queue_limit` counts requests."""

    limit: int
    budget: int
    queue_limit: int


@frozen
class LedgerSetup:
    """How a ledger is opened for one run."""

    pool_limit: int
    tenants: Mapping[str, TenantSetup]
    retention: int
    """Microseconds."""
    pool: str = "pool"
    """The pool's name, to which receipts are bound."""


@frozen
class LedgerFacts:
    """What of a reply is compared."""

    decision: Decision
    reason: Reason
    state: ReservationState | None = None
    """State after the event; None where the reply does not tell, or there is no record."""
    life: int = 0
    generation: int = 0


class LedgerTarget(Protocol):
    """An admission ledger under test. It starts empty, its clock at 0, and moves time by `Tick` alone."""

    def submit(self, event: LedgerEvent) -> LedgerFacts:
        """Decide one event."""

    def snapshot(self) -> LedgerSnapshot:
        """Return the whole projected state."""

    def sign(self, receipt: Receipt) -> Receipt:
        """Return `receipt` as its owner would sign it: with a key id and a MAC that the ledger accepts."""

    def sign_fence(self, fence: Fence) -> Fence:
        """Return `fence` with a proof that the ledger accepts."""

    def restart(self) -> None:
        """Close and open again, as after the end of the process; called only where it is declared durable."""

    def close(self) -> None:
        """Give up everything that is held open."""


# --- page pools -------------------------------------------------------------------------------------------------------

Tokens = tuple[int, ...]
Digest = Callable[[Hashable, Tokens], Hashable]
"""(digest of the pages before, tokens of this page) -> digest of this page."""


@frozen
class PoolSetup:
    """How a page pool is opened for one run."""

    pages: int
    """The sink included."""
    page_length: int
    scope_limit: int | None
    """Most pages that one scope may have published; None for the whole pool."""
    weak_digest: bool = False
    """Whether digests see no more of a prefix than whether the page's first token is odd, so that many collide."""


@frozen
class PageFacts:
    """What of a reply is compared."""

    decision: Decision
    reason: Reason


class PageTarget(Protocol):
    """A page pool under test, event by event as the tables have them; page 0 is the sink."""

    def admit(self, holder: str, scope: PrefixScope, units: int) -> PageFacts:
        """Ask for a promise of `units` pages for `holder`, which works in `scope`."""

    def grow(self, holder: str, units: int) -> PageFacts:
        """Ask for `units` more."""

    def close(self, holder: str) -> PageFacts:
        """Return the units that were not drawn."""

    def forget(self, holder: str) -> PageFacts:
        """Forget that a closed holder was here, so that its name may be used anew."""

    def allocate(self, holder: str, page: int) -> PageFacts:
        """Draw the free page `page` for `holder`."""

    def seal(self, holder: str, page: int, tokens: Tokens, parent: int | None) -> PageFacts:
        """Publish `page`, which holds `tokens` after the chain that ends with page `parent`."""

    def share(self, holder: str, page: int, tokens: Tokens, parent: int | None) -> PageFacts:
        """Claim `page` for `holder`, whose prompt goes on with `tokens` after page `parent`."""

    def drop(self, holder: str, page: int) -> PageFacts:
        """Give up the claim of `holder` on `page`."""

    def evict(self, page: int) -> PageFacts:
        """Take back the content of `page`."""

    def touch(self, holder: str, page: int, *, write: bool) -> PageFacts:
        """Launch a step of `holder` that reads or writes `page`."""

    def settle(self, page: int, *, write: bool, ok: bool, filled: bool) -> PageFacts:
        """End such a step; `filled`: it wrote the last slot."""

    def park(self, page: int) -> PageFacts:
        """Look whether the draining `page` has still to wait."""

    def retire_page(self, page: int, scope: PrefixScope) -> PageFacts:
        """Apply the retirement of `scope` to one page; the sink stands for the scope itself."""

    def snapshot(self) -> PoolSnapshot:
        """Return the whole projected state."""


# --- a ledger, a page pool and a worker together ----------------------------------------------------------------------


@frozen
class ComposedSetup:
    """How all three are opened for one run."""

    ledger: LedgerSetup
    pages: PoolSetup


@frozen
class StepShare:
    """The share of one execution in a step; `filled` are those of `writes` whose last slot the step writes."""

    key: Key
    generation: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    filled: tuple[int, ...]


@frozen
class ExecutionFacts:
    """What of a worker's reply is compared."""

    decision: Decision
    reason: Reason


def holder_of(key: Key, generation: int) -> str:
    """Return the name under which an execution holds pages: `tenant/request#generation`."""
    return f"{key.tenant}/{key.request}#{generation}"


class WorkerTarget(Protocol):
    """A worker's executions and tickets under test, over its page pool."""

    def begin(self, key: Key, generation: int) -> ExecutionFacts:
        """Open the execution of `key` under `generation`."""

    def close(self, key: Key) -> ExecutionFacts:
        """Launch nothing more for `key`."""

    def certify(self, key: Key) -> ExecutionFacts:
        """Certify that nothing of `key` can run any more."""

    def acknowledge(self, key: Key) -> ExecutionFacts:
        """Forget the receipt of `key`, which the ledger has."""

    def launch(self, number: int, shares: tuple[StepShare, ...]) -> ExecutionFacts:
        """Launch a step for all executions that it lists, or for none."""

    def settle(self, number: int, ok: bool) -> ExecutionFacts:
        """End a step."""

    def state(self, key: Key) -> ExecutionState:
        """Return where the execution of `key` is."""


class ComposedTarget(Protocol):
    """A ledger, a page pool and a worker that work together."""

    ledger: LedgerTarget
    pages: PageTarget
    worker: WorkerTarget


# --- releases ---------------------------------------------------------------------------------------------------------


@frozen
class ReleaseSetup:
    """How the release of one candidate is opened for one run."""

    looks: int
    """Planned."""
    limit: int
    """Microseconds from the canary's start to a decision."""
    epoch: int
    """In force at the start."""


@frozen
class ReleaseFacts:
    """What of a reply is compared."""

    decision: Decision
    reason: Reason


class ReleaseTarget(Protocol):
    """A release process under test; its clock moves by `tick` alone."""

    def tick(self, now: int) -> ReleaseFacts:
        """Read the clock, in microseconds."""

    def measure(self, requests: int) -> ReleaseFacts:
        """Record a run of the baseline with so many requests."""

    def start(self) -> ReleaseFacts:
        """Let the candidate serve its share."""

    def grant(self, epoch: int) -> ReleaseFacts:
        """Admit one request of the candidate under `epoch`."""

    def settle(self, orphan: bool) -> ReleaseFacts:
        """Confirm the stop of one request, in flight or marked orphaned."""

    def look(self, verdict: GradeVerdict) -> ReleaseFacts:
        """Take in a planned look."""

    def breach(self) -> ReleaseFacts:
        """Take in that an invariant was violated."""

    def sweep(self) -> ReleaseFacts:
        """Look whether the time limit has passed."""

    def ship(self, authorised: bool) -> ReleaseFacts:
        """Let the candidate serve everything."""

    def abandon(self, authorised: bool) -> ReleaseFacts:
        """Give the candidate up."""

    def raise_epoch(self, epoch: int) -> ReleaseFacts:
        """Fence the candidate's epoch off."""

    def orphan(self) -> ReleaseFacts:
        """Mark what is in flight as orphaned."""

    def drain(self) -> ReleaseFacts:
        """Look whether anything is in flight."""

    def verify(self, charged: int) -> ReleaseFacts:
        """Compare with the requests that the ledger charges for the candidate."""

    def switch(self) -> ReleaseFacts:
        """Route everything to the baseline."""

    def snapshot(self) -> ReleaseSnapshot:
        """Return the whole projected state."""


# --- cache managers ---------------------------------------------------------------------------------------------------


@frozen
class Granted:
    """Room for a request's tokens, and how many of them need no computing."""

    cached_tokens: int = 0


@frozen
class Denied:
    """No room now."""


@frozen
class ManagerPool:
    """Where every page of a manager is: free, held by requests, or cached without a holder."""

    total: int
    free: frozenset[int]
    cached: frozenset[int]
    holders: Mapping[int, int]
    """Page -> how many requests hold it by the manager's own count; pages without holder are left out."""


class CacheManager(Protocol):
    """A KV cache manager of a serving engine. Pages are opaque integers; the harness owns time and the runtime."""

    def submit(self, request: str, prompt: Sequence[int], scope: PrefixScope) -> Granted:
        """Announce a request; what is cached of its prompt is claimed for it."""

    def reserve(self, request: str, tokens: int) -> Granted | Denied:
        """Make room for the next `tokens` positions of the request. All or nothing."""

    def launch(self, request: str, tokens: int) -> None:
        """The runtime has been handed a step that computes the next `tokens` positions."""

    def complete(self, request: str, sampled: Sequence[int]) -> None:
        """That step has ended well; `sampled` are tokens that it added to the sequence."""

    def release(self, request: str) -> None:
        """The request is over, cancelled or finished."""

    def pages_of(self, request: str) -> tuple[int, ...]:
        """Return the request's pages by position; empty where it is unknown."""

    def evict(self) -> None:
        """Give back what is cached and held by no one, or some of it."""

    def pool(self) -> ManagerPool:
        """Return where every page is."""

    def close(self) -> None:
        """Give up everything that is held open."""


@frozen
class ManagerSetup:
    """How a cache manager is opened for one run."""

    pages: int
    page_length: int


# --- whole schedulers -------------------------------------------------------------------------------------------------


@frozen
class SchedulerSetup:
    """How a scheduler is opened for one run."""

    pages: int
    page_length: int
    step_tokens: int
    """Most tokens that one step computes."""
    long_prefill: int
    """Most tokens that one step computes of one prompt, where others run too."""
    priority: bool
    """Whether requests have priorities, of which the least number comes first. Else the first come is first served."""


@frozen
class Scheduled:
    """The share of one request in a step: it computes `start` to `end`, and takes the positions before as computed."""

    request: str
    start: int
    end: int


class ServingScheduler(Protocol):
    """A serving engine's scheduler with the cache manager under it; the harness stands for the executor."""

    def submit(self, request: str, prompt: Sequence[int], scope: PrefixScope, priority: int) -> None:
        """Queue a request."""

    def step(self, sampled: Mapping[str, int]) -> tuple[Scheduled, ...]:
        """The step in flight, if any, has ended well and sampled a token for each of these requests; plan the next one.

        What is returned is launched at once. It is empty where nothing can run.
        """

    def cancel(self, request: str) -> None:
        """The request is over; a step of it may be in flight."""

    def pages_of(self, request: str) -> tuple[int, ...]:
        """Return the request's pages by position; empty where it has none."""

    def pool(self) -> ManagerPool:
        """Return where every page is."""

    def close(self) -> None:
        """Give up everything that is held open."""
