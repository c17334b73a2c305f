"""A trace and a configuration brought together: pages, amounts, and whether anything can run at all."""

from collections import Counter

from attrs import asdict, frozen

from kvescrow.reference.ledger import LedgerConfig, TenantConfig
from kvescrow.reference.replay.arrivals import offered
from kvescrow.reference.replay.config import DEFAULT_PAGE_LENGTH, ReplayConfig
from kvescrow.reference.replay.fields import LARGEST
from kvescrow.reference.scheduler import StepCost, StepWork
from kvescrow.reference.traces import Trace, TraceRequest
from kvescrow.spec.vocabulary import UserError

POOL = "replay"
"""Name of the pool; receipts are bound to it."""
LARGEST_POOL = 1 << 20
"""Most pages that are simulated."""
SYMBOLS_PER_PAGE = 1
"""The page pool is given one symbol a page, since a trace tells block ids and no tokens."""


@frozen
class Shape:
    """The pool in pages. Amounts are in tokens and whole pages (ADM-4)."""

    page_length: int
    pages: int
    """Usable pages, the sink not counted (ADM-11)."""
    tenant_tokens: int | None
    """Most that one tenant may hold; None where only the pool bounds it."""
    max_output: int | None = None
    """Output tokens that a request is allowed, unless it came to more; None where it is what it came to."""

    @property
    def tokens(self) -> int:
        """The usable pool in tokens."""
        return self.pages * self.page_length

    def pages_of(self, tokens: int) -> int:
        """Return the pages that hold `tokens`."""
        return -(-tokens // self.page_length)

    def allowed(self, request: TraceRequest) -> int:
        """Return the output tokens that `request` is allowed."""
        return max(request.output_tokens, self.max_output or 0)

    def amount(self, request: TraceRequest) -> int:
        """Return the worst case of a request: prompt and whole allowed output, rounded up to pages (ADM-4)."""
        return self.pages_of(request.input_tokens + self.allowed(request)) * self.page_length

    def content(self, request: TraceRequest) -> tuple[tuple[int, ...], ...]:
        """Return what each full prompt page holds, as far as the trace knows; equal content, equal tokens.

        A page lies inside one block, so the block's id and the page's place in it stand for the tokens.
        """
        if not request.block_ids:
            return ()
        parts = request.block_length // self.page_length
        full = request.input_tokens // self.page_length
        return tuple((request.block_ids[page // parts], page % parts) for page in range(full))


def shape_of(trace: Trace, config: ReplayConfig) -> Shape:
    """Bring `trace` and `config` together.

    Raises:
        UserError: The page length does not divide the trace's blocks, the pool has no page or too many, or a limit
            is below every request of the trace, so that each would be refused as NEVER_FITS.

    """
    block_length = max(request.block_length for request in trace.requests)
    page_length = config.pool.page_length or block_length or DEFAULT_PAGE_LENGTH
    if block_length % page_length:
        raise UserError(
            f"{config.source}: pool.page_length is {page_length}: blocks of {trace.name} have {block_length} tokens; "
            "set a page length that divides them"
        )
    pages = config.pool.tokens // page_length
    if not 1 <= pages <= LARGEST_POOL:
        raise UserError(
            f"{config.source}: pool.tokens is {config.pool.tokens}: that is {pages} pages of {page_length} tokens; "
            f"set it so that there are 1 to {LARGEST_POOL}"
        )
    shape = Shape(page_length, pages, config.pool.tenant_tokens, config.reservation.max_output)
    smallest = min(shape.amount(request) for request in trace.requests)
    for key, limit in (("pool.tokens", shape.tokens), ("pool.tenant_tokens", shape.tenant_tokens)):
        if limit is not None and limit < smallest:
            largest = max(shape.amount(request) for request in trace.requests)
            raise UserError(
                f"{config.source}: {key} is {limit}: every request of {trace.name} would be refused as NEVER_FITS, "
                f"since the smallest needs {smallest} tokens; set it to at least {largest} to admit each of them"
            )
    return shape


def ledger_config(trace: Trace, config: ReplayConfig, shape: Shape) -> LedgerConfig:
    """Return what the ledger starts with.

    A tenant without a limit of its own may hold all that it ever asks for. The pool's limit in its place would be
    reached together with the pool's, and then its small requests would pass its large ones: whoever is blocked by
    its own tenant's limit keeps nobody back (QUE-5). A tenant without a budget has one that no trace can spend.
    """
    totals: Counter[str] = Counter()
    for request in trace.requests:
        totals[request.tenant] += shape.amount(request)
    return LedgerConfig(
        pool=POOL,
        pool_limit=shape.tokens,
        tenants={
            tenant: TenantConfig(
                limit=_first(config.tokens_of(tenant), total),
                budget=_first(config.budget_of(tenant), LARGEST),
                queue_limit=config.pool.queue_limit,
            )
            for tenant, total in totals.items()
        },
        retention=config.times.lease,
    )


def _first(configured: int | None, otherwise: int) -> int:
    return otherwise if configured is None else configured


@frozen
class Capacity:
    """What ledger and page pool of a replay start with: what the header of a journal says, and a monitor needs."""

    ledger: LedgerConfig
    pages: int
    """Pages of the pool, the sink counted."""
    page_length: int
    """In symbols of the pool, of which each stands for the tokens of a page; see `replay.pages`."""

    def as_header(self) -> dict[str, object]:
        """Return the `config` of a journal that holds the events of ledger and page pool."""
        return {**asdict(self.ledger), "pages": self.pages, "page_length": self.page_length, "scope_limit": None}


def capacity_of(trace: Trace, config: ReplayConfig) -> Capacity:
    """Return what a replay of `trace` under `config` starts with. Raises `UserError` as `replay` does."""
    trace = offered(trace, config)
    shape = shape_of(trace, config)
    return Capacity(ledger_config(trace, config, shape), shape.pages + 1, SYMBOLS_PER_PAGE)


def least_service(request: TraceRequest, cost: StepCost) -> int:
    """Return the least time in microseconds in which a request can be served: alone, its prompt a whole hit (ADM-7)."""
    first = cost.duration(StepWork(prefill_tokens=1))
    return first + (request.output_tokens - 1) * cost.duration(StepWork(decode_sequences=1))
