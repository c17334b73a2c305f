"""The rows of a KV page's life, event by event, first match first."""

from kvescrow.spec.language.expressions import NOBODY, as_count
from kvescrow.spec.language.table import Reply, Row
from kvescrow.spec.tables.authoring import RECORDED, all_but, refused, rows_of
from kvescrow.spec.tables.page.view import claim, event, holder, index, page, parent, pool, scope
from kvescrow.spec.vocabulary import Decision, HolderState, PageState, Reason

P = PageState
D = Decision
R = Reason
row = rows_of("page")

MISS = Reply(D.MISS)
GRANTED = Reply(D.GRANTED)
HELD = (P.PRIVATE, P.SHARED)

# --- What rows have in common ---------------------------------------------------------------------------------------

stranger = ~claim.holds
tickets = page.readers + page.writers
touched = tickets > 0
last_ticket = tickets <= 1
waits_for_children = page.busy > 0
"""A page that follows it is in use. Leaves go first, so this one could not be evicted now, and must not count as
evictable capacity (PAG-1, PAG-8)."""

UNPUBLISH = (
    page.matchable.becomes(False),
    page.chain.becomes(NOBODY),
    scope.published.loses(1),
    parent.children.loses(1),
)
"""Take the page out of the index and clear its tag in the same step (PAG-8)."""

SCRUB = (page.scope.becomes(NOBODY), page.computed.becomes(False), page.spoiled.becomes(False))
"""What a page forgets when it becomes free."""

LET_GO = (page.holders.loses(1), claim.holds.becomes(False))
TAKE_HOLD = (page.holders.adds(1), claim.holds.becomes(True), holder.shares.adds(1))
END_TICKET = (
    page.writers.loses(as_count(event.write)),
    page.readers.loses(as_count(~event.write)),
)
DRAW = (pool.promised.loses(1), holder.promised.loses(1))
"""Use one unit of the holder's promise."""

# --- allocate, seal -------------------------------------------------------------------------------------------------

ALLOCATE = (
    row("allocate.sink", [P.SINK], refused(R.SINK_PAGE), "PAG-2 ADM-11", "the sink is never handed out"),
    row("allocate.not_admitted", [P.FREE], refused(R.NO_PROMISE), "PAG-1 ADM-1",
        "no page without admission", when=holder.state != HolderState.ADMITTED),
    row("allocate.no_unit", [P.FREE], refused(R.NO_PROMISE), "PAG-1 GRO-3",
        "the promise is used up: grow first", when=holder.promised <= 0),
    row("allocate.granted", [P.FREE], GRANTED, "PAG-1 PAG-4",
        "one unit moves from promised to held; the page starts a new generation", to=P.PRIVATE,
        do=[*DRAW, pool.free.loses(1), pool.private.adds(1), page.holders.becomes(1), claim.holds.becomes(True),
            holder.pages.adds(1), page.scope.becomes(holder.scope), page.generation.adds(1)]),
    row("allocate.not_free", all_but(P, P.SINK, P.FREE), refused(R.NOT_FREE), "PAG-4 PAG-8",
        "held, cached, or a step may still touch it"),
)  # fmt: skip

SEAL = (
    row("seal.sink", [P.SINK], refused(R.SINK_PAGE), "PAG-2", "the sink is never matched"),
    row("seal.not_private", [P.FREE, P.CACHED, P.DRAINING], refused(R.NOT_PRIVATE), "PAG-6",
        "only a held private page is published"),
    row("seal.not_holder", HELD, refused(R.NOT_HOLDER), "PAG-3", "only its holder publishes it", when=stranger),
    row("seal.recorded", [P.SHARED], RECORDED, "PAG-6 PAG-8", "published before under this chain",
        when=page.matchable & (page.chain == event.chain)),
    row("seal.published_before", [P.SHARED], refused(R.NOT_PRIVATE), "PAG-7 PAG-8",
        "a page has one place in the index at most"),
    row("seal.retired_scope", [P.PRIVATE], refused(R.RETIRED_SCOPE), "SCO-5",
        "computed under old weights: never matched by anyone", when=~scope.live),
    row("seal.not_computed", [P.PRIVATE], refused(R.NOT_COMPUTED), "PAG-6",
        "a step that writes it has not ended, or failed, or left slots empty",
        when=~page.computed | page.spoiled | (page.writers > 0)),
    row("seal.parent_unpublished", [P.PRIVATE], refused(R.PARENT_UNPUBLISHED), "PAG-8",
        "no lookup could reach it", when=~parent.matchable),
    row("seal.parent_not_held", [P.PRIVATE], refused(R.PARENT_NOT_HELD), "PAG-8 PAG-1",
        "an evictable page would get a child that is in use", when=parent.cached),
    row("seal.duplicate", [P.PRIVATE], refused(R.DUPLICATE), "PAG-8",
        "another page has this place; this one stays private", when=index.occupied),
    row("seal.scope_capacity", [P.PRIVATE], refused(R.SCOPE_CAPACITY), "SCO-3",
        "the scope's own account is full", when=scope.published >= scope.limit),
    row("seal.published", [P.PRIVATE], Reply(D.PUBLISHED), "PAG-5 PAG-6 SCO-1",
        "it moves from the holder's account to the scope's; the pool's sum is unchanged", to=P.SHARED,
        do=[page.matchable.becomes(True), page.chain.becomes(event.chain), parent.children.adds(1), parent.busy.adds(1),
            pool.private.loses(1), pool.shared.adds(1), holder.pages.loses(1), holder.shares.adds(1),
            scope.shared.adds(1), scope.published.adds(1)]),
)  # fmt: skip

# --- share: one answer for every kind of miss (SCO-4) ---------------------------------------------------------------

PUBLISHED = (P.SHARED, P.CACHED, P.DRAINING)

SHARE = (
    row("share.not_admitted", tuple(P), refused(R.NO_PROMISE), "ADM-1", "no claim without admission",
        when=holder.state != HolderState.ADMITTED),
    row("share.miss_unpublished", [P.SINK, P.FREE, P.PRIVATE], MISS, "PAG-6 SCO-4", "provisional pages never match"),
    row("share.miss_scope", PUBLISHED, MISS, "SCO-1 SCO-4",
        "another scope: the same answer as if the page did not exist", when=page.scope != holder.scope),
    row("share.miss_retired", PUBLISHED, MISS, "SCO-5 SCO-4", "weights or adapter have changed since",
        when=~page.matchable | ~scope.live),
    row("share.miss_chain", PUBLISHED, MISS, "SCO-2 PAG-8", "another prefix", when=page.chain != event.chain),
    row("share.miss_tokens", PUBLISHED, MISS, "SCO-2",
        "the hashes collide, the tokens differ", when=~event.tokens_equal),
    row("share.recorded", [P.SHARED], RECORDED, "PAG-3", "in the set of holders already", when=claim.holds),
    row("share.joined", [P.SHARED], GRANTED, "PAG-5 PAG-9",
        "others hold it: the pool is charged for it already, so it costs no unit", do=TAKE_HOLD),
    row("share.no_unit", [P.CACHED], refused(R.NO_PROMISE), "PAG-5 PAG-1",
        "a hit that nobody holds takes evictable capacity, and must have been promised", when=holder.promised <= 0),
    row("share.parent_not_held", [P.CACHED], refused(R.PARENT_NOT_HELD), "PAG-9 PAG-1",
        "a lookup claims a chain from its front", when=parent.cached),
    row("share.revived", [P.CACHED], GRANTED, "PAG-5 PAG-9",
        "an evictable page becomes a charged one; pinned from here on", to=P.SHARED,
        do=[*TAKE_HOLD, *DRAW, pool.cached.loses(1), pool.shared.adds(1), scope.shared.adds(1), parent.busy.adds(1)]),
    row("share.rescued", [P.DRAINING], GRANTED, "PAG-5 PAG-9",
        "readers of it are still in flight; it was not evictable, so it costs no unit", to=P.SHARED,
        do=[*TAKE_HOLD, pool.draining.loses(1), pool.shared.adds(1), scope.shared.adds(1)]),
)  # fmt: skip

# --- drop -----------------------------------------------------------------------------------------------------------

_DROP_PRIVATE = (*LET_GO, holder.pages.loses(1), pool.private.loses(1))
_DROP_LAST = (*LET_GO, holder.shares.loses(1), pool.shared.loses(1), scope.shared.loses(1))

DROP = (
    row("drop.sink", [P.SINK], refused(R.SINK_PAGE), "PAG-2 PAG-3", "nobody holds the sink"),
    row("drop.unheld", [P.FREE, P.CACHED, P.DRAINING], refused(R.NOT_HOLDER), "PAG-3 LIF-5",
        "released before; counts are never clamped"),
    row("drop.not_holder", HELD, refused(R.NOT_HOLDER), "PAG-3", "someone else's claim", when=stranger),
    row("drop.private_draining", [P.PRIVATE], Reply(D.DROPPED), "PAG-4",
        "logically released; a launched step may still touch it", when=touched, to=P.DRAINING,
        do=[*_DROP_PRIVATE, pool.draining.adds(1)]),
    row("drop.private_free", [P.PRIVATE], Reply(D.DROPPED), "PAG-4 PAG-6",
        "never published, so its content is worth nothing", to=P.FREE,
        do=[*_DROP_PRIVATE, *SCRUB, pool.free.adds(1)]),
    row("drop.shared_stays", [P.SHARED], Reply(D.DROPPED), "PAG-5",
        "sharers keep it, and the pool stays charged for it once", when=page.holders > 1,
        do=[*LET_GO, holder.shares.loses(1)]),
    row("drop.shared_draining", [P.SHARED], Reply(D.DROPPED), "PAG-4",
        "the last holder left before the last reader ended, or before a page that follows it was given up",
        when=touched | waits_for_children, to=P.DRAINING,
        do=[*_DROP_LAST, pool.draining.adds(1)]),
    row("drop.shared_cached", [P.SHARED], Reply(D.DROPPED), "PAG-5", "its content stays, evictable",
        when=page.matchable, to=P.CACHED, do=[*_DROP_LAST, pool.cached.adds(1), parent.busy.loses(1)]),
    row("drop.shared_free", [P.SHARED], Reply(D.DROPPED), "SCO-5", "of a retired scope: no one may match it again",
        to=P.FREE, do=[*_DROP_LAST, *SCRUB, pool.free.adds(1)]),
)  # fmt: skip

# --- evict, touch, settle, retire_scope -----------------------------------------------------------------------------

EVICT = (
    row("evict.sink", [P.SINK], refused(R.SINK_PAGE), "PAG-2", "the sink has no content"),
    row("evict.not_cached", [P.FREE], refused(R.NOT_CACHED), "PAG-8", "there is nothing to evict"),
    row("evict.in_use", [P.PRIVATE, P.SHARED, P.DRAINING], refused(R.IN_USE), "PAG-8",
        "never a page that is held or in flight"),
    row("evict.has_children", [P.CACHED], refused(R.HAS_CHILDREN), "PAG-8",
        "leaves first: no published page loses the one before it", when=page.children > 0),
    row("evict.gone", [P.CACHED], Reply(D.RELEASED), "PAG-8", "index and tag are cleared together", to=P.FREE,
        do=[*UNPUBLISH, *SCRUB, pool.cached.loses(1), pool.free.adds(1)]),
)  # fmt: skip

TOUCH = (
    row("touch.sink", [P.SINK], refused(R.SINK_PAGE), "PAG-2", "padding rows are no one's work"),
    row("touch.unheld", [P.FREE, P.CACHED, P.DRAINING], refused(R.NOT_HOLDER), "PAG-3 LIF-3",
        "no new step touches a page without a holder"),
    row("touch.not_holder", HELD, refused(R.NOT_HOLDER), "PAG-3", "someone else's page", when=stranger),
    row("touch.read_only", [P.SHARED], refused(R.READ_ONLY), "PAG-7", "shared pages are never written",
        when=event.write),
    row("touch.write", [P.PRIVATE], Reply(D.LAUNCHED), "PAG-4 PAG-6", "a step will write it", when=event.write,
        do=[page.writers.adds(1)]),
    row("touch.read", HELD, Reply(D.LAUNCHED), "PAG-4", "a step will read it", do=[page.readers.adds(1)]),
)  # fmt: skip

_none_of_that_kind = (event.write & (page.writers <= 0)) | (~event.write & (page.readers <= 0))

SETTLE = (
    row("settle.sink", [P.SINK], refused(R.SINK_PAGE), "PAG-2", "padding rows are no one's work"),
    row("settle.untouched", [P.FREE, P.CACHED], refused(R.NOT_OUTSTANDING), "PAG-4", "every ticket ended before"),
    row("settle.not_outstanding", [P.PRIVATE, P.SHARED, P.DRAINING], refused(R.NOT_OUTSTANDING), "PAG-4",
        "no such ticket is outstanding: each ends once", when=_none_of_that_kind),
    row("settle.write_failed", [P.PRIVATE], Reply(D.SETTLED), "PAG-4 PAG-6",
        "good or bad, it is the same end; but the content is never published",
        when=event.write & ~event.ok, do=[page.writers.loses(1), page.spoiled.becomes(True)]),
    row("settle.write_filled", [P.PRIVATE], Reply(D.SETTLED), "PAG-6",
        "the step that computed its last slot has finished", when=event.write & event.filled,
        do=[page.writers.loses(1), page.computed.becomes(True)]),
    row("settle.write_partly", [P.PRIVATE], Reply(D.SETTLED), "PAG-6", "slots are still empty", when=event.write,
        do=[page.writers.loses(1)]),
    row("settle.read", HELD, Reply(D.SETTLED), "PAG-4", "one reader less", do=[page.readers.loses(1)]),
    row("settle.more_to_come", [P.DRAINING], Reply(D.SETTLED), "PAG-4 PAG-8",
        "other steps may still touch it, or a page that follows it is in use",
        when=~last_ticket | waits_for_children, do=END_TICKET),
    row("settle.cached", [P.DRAINING], Reply(D.SETTLED), "PAG-4 PAG-5", "its content stays, evictable",
        when=page.matchable, to=P.CACHED,
        do=[*END_TICKET, pool.draining.loses(1), pool.cached.adds(1), parent.busy.loses(1)]),
    row("settle.freed", [P.DRAINING], Reply(D.SETTLED), "PAG-4", "the last ticket ended: physically free", to=P.FREE,
        do=[*END_TICKET, *SCRUB, pool.draining.loses(1), pool.free.adds(1)]),
)  # fmt: skip

PARK = (
    row("park.sink", [P.SINK], refused(R.SINK_PAGE), "PAG-2", "the sink waits for nothing"),
    row("park.nothing_due", all_but(P, P.SINK, P.DRAINING), Reply(D.NOTHING_DUE), "PAG-4", "it is not draining"),
    row("park.in_flight", [P.DRAINING], refused(R.IN_FLIGHT), "PAG-4", "a step may still touch it", when=touched),
    row("park.in_use", [P.DRAINING], refused(R.IN_USE), "PAG-8", "a page that follows it is in use",
        when=waits_for_children),
    row("park.cached", [P.DRAINING], Reply(D.SETTLED), "PAG-8 PAG-5", "all that follows it is evictable; now it is too",
        when=page.matchable, to=P.CACHED, do=[pool.draining.loses(1), pool.cached.adds(1), parent.busy.loses(1)]),
    row("park.freed", [P.DRAINING], Reply(D.SETTLED), "PAG-4 SCO-5", "unpublished while it waited", to=P.FREE,
        do=[*SCRUB, pool.draining.loses(1), pool.free.adds(1)]),
)  # fmt: skip

RETIRE_SCOPE = (
    row("retire_scope.closed", [P.SINK], Reply(D.NOTED), "SCO-5", "first the scope is closed, then its pages follow",
        when=scope.live, do=[scope.live.becomes(False)]),
    row("retire_scope.recorded", [P.SINK], RECORDED, "SCO-5", "closed before"),
    row("retire_scope.still_live", all_but(P, P.SINK), refused(R.LIVE), "SCO-5", "the scope is closed first",
        when=scope.live),
    row("retire_scope.nothing_published", [P.FREE, P.PRIVATE], RECORDED, "SCO-5", "it can never be published now"),
    row("retire_scope.unpublished", [P.SHARED, P.DRAINING], RECORDED, "SCO-5", "unpublished before",
        when=~page.matchable),
    row("retire_scope.has_children", PUBLISHED, refused(R.HAS_CHILDREN), "PAG-8", "leaves first",
        when=page.children > 0),
    row("retire_scope.unpublish", [P.SHARED, P.DRAINING], Reply(D.NOTED), "SCO-5",
        "holders keep it; it drains and is never matched again", do=[*UNPUBLISH, parent.busy.loses(1)]),
    row("retire_scope.evict", [P.CACHED], Reply(D.RELEASED), "SCO-5 PAG-8", "nobody holds it: it is free at once",
        to=P.FREE, do=[*UNPUBLISH, *SCRUB, pool.cached.loses(1), pool.free.adds(1)]),
)  # fmt: skip

ROWS: tuple[Row, ...] = (*ALLOCATE, *SEAL, *SHARE, *DROP, *EVICT, *TOUCH, *SETTLE, *PARK, *RETIRE_SCOPE)
