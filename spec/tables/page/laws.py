"""What holds of every page: invariants, rules over a step, non-interference, what is assumed and what is reached."""

from kvescrow.spec.language.expressions import (
    NOBODY,
    Expression,
    Field,
    all_of,
    as_count,
    before,
    if_else,
    implies,
)
from kvescrow.spec.language.table import Assumption, Invariant, NonInterference, Sometimes, StepRule
from kvescrow.spec.tables.page.view import (
    EVENTS,
    claim,
    event,
    holder,
    index,
    other,
    page,
    parent,
    pool,
    rest,
    scope,
)
from kvescrow.spec.vocabulary import HolderState, PageState

P = PageState

held = page.state.is_in((P.PRIVATE, P.SHARED))
published_state = page.state.is_in((P.SHARED, P.CACHED, P.DRAINING))
tickets = page.readers + page.writers
in_scope = page.scope == scope.identity


def _count(name: str, state: PageState) -> Expression:
    total: Field = getattr(pool, name)
    others: Field = getattr(rest, name)
    return total == as_count(page.state == state) + others


COUNTED = {
    "free": P.FREE,
    "private": P.PRIVATE,
    "shared": P.SHARED,
    "cached": P.CACHED,
    "draining": P.DRAINING,
}

INVARIANTS = (
    *(Invariant(f"{name}_pages_are_counted", _count(name, state), ("PAG-2",),
                f"the pool's count of {state.value} pages is exact") for name, state in COUNTED.items()),
    Invariant("every_page_is_in_one_account",
              pool.total == pool.free + pool.private + pool.shared + pool.cached + pool.draining, ("PAG-2",),
              "the states add up to the pool, sink aside"),
    Invariant("promised_is_the_sum", pool.promised == holder.promised + rest.promised, ("PAG-1",),
              "the pool's promise is the sum over holders"),
    Invariant("promises_can_be_kept", pool.promised <= pool.free + pool.cached, ("PAG-1", "PAG-5"),
              "every promised unit is free or evictable now"),
    Invariant("promises_are_not_negative", holder.promised >= 0, ("PAG-1",), "no holder draws more than its promise"),
    Invariant("holders_are_a_set", page.holders == as_count(claim.holds) + rest.holders, ("PAG-3",),
              "the number of holders is the size of the set"),
    Invariant("holding_fits_the_state",
              if_else(page.state == P.PRIVATE, page.holders == 1,
                      if_else(page.state == P.SHARED, page.holders >= 1, page.holders == 0)), ("PAG-2", "PAG-5"),
              "private has one holder, shared at least one, all others none"),
    Invariant("tickets_fit_the_state",
              (page.readers >= 0) & (page.writers >= 0)
              & implies(page.state.is_in((P.SINK, P.FREE, P.CACHED)), tickets == 0)
              & implies(page.state == P.SHARED, page.writers == 0), ("PAG-4", "PAG-7"),
              "nothing free or evictable can be touched; shared pages have no writer"),
    Invariant("matchable_pages_are_computed",
              implies(page.matchable, published_state & page.computed & ~page.spoiled & (page.writers == 0)),
              ("PAG-6",), "whatever a lookup can find was computed by a step that ended well"),
    Invariant("cached_pages_are_matchable", implies(page.state == P.CACHED, page.matchable), ("PAG-8",),
              "evictable content is content that can be found"),
    Invariant("what_follows_a_cached_page_is_cached",
              (page.busy >= 0) & (page.busy <= page.children) & implies(page.state == P.CACHED, page.busy == 0),
              ("PAG-1", "PAG-8"),
              "so every cached page can be evicted, leaves first, and promises count no page that cannot"),
    Invariant("tag_and_index_agree",
              (page.children >= 0) & if_else(page.matchable, page.chain != NOBODY,
                                             (page.chain == NOBODY) & (page.children == 0)), ("PAG-8",),
              "an unpublished page has no tag, and no published page follows it"),
    Invariant("free_pages_are_blank", implies(page.state.is_in((P.SINK, P.FREE)), ~page.computed & ~page.spoiled),
              ("PAG-4", "PAG-6"), "a new use starts without the content of the last one"),
    Invariant("one_page_for_each_place",
              ~(page.matchable & other.matchable & (page.scope == other.scope) & (page.chain == other.chain)),
              ("PAG-8",), "no two pages are published under one scope and chain"),
    Invariant("pages_in_use_have_a_scope",
              page.state.is_in((P.SINK, P.FREE)) == (page.scope == NOBODY), ("SCO-1",),
              "a page's content belongs to exactly one scope"),
    Invariant("holders_are_of_the_scope", implies(claim.holds, page.scope == holder.scope), ("SCO-1", "SCO-2"),
              "nobody holds a page of another scope"),
    Invariant("holders_are_admitted", implies(claim.holds, holder.state == HolderState.ADMITTED), ("ADM-1",),
              "nobody holds a page without admission"),
    Invariant("private_pages_are_the_holders",
              holder.pages == as_count((page.state == P.PRIVATE) & claim.holds) + rest.holder_pages, ("PAG-2",),
              "a holder's private pages are counted"),
    Invariant("shared_pages_are_the_holders",
              holder.shares == as_count((page.state == P.SHARED) & claim.holds) + rest.holder_shares, ("PAG-5",),
              "and so are its shared ones"),
    Invariant("scope_is_charged_once_a_page",
              scope.shared == as_count((page.state == P.SHARED) & in_scope) + rest.scope_shared, ("PAG-5",),
              "a shared page is charged to its scope once, however many hold it"),
    Invariant("published_pages_are_counted",
              scope.published == as_count(page.matchable & in_scope) + rest.scope_published, ("SCO-3",),
              "the scope's account counts what is published"),
)  # fmt: skip

_NAMES = frozenset(e.name for e in EVENTS)

RULES = (
    StepRule("only_the_end_of_a_ticket_ends_it", tickets >= before(tickets), ("PAG-4",),
             "no release, eviction or retirement forgets a step in flight", events=_NAMES - {"settle"}),
    StepRule("pages_in_flight_are_not_reused",
             implies((before(tickets) > 0) & (page.state != before(page.state)),
                     page.state.is_in((P.SHARED, P.DRAINING))
                     | ((tickets == 0) & page.state.is_in((P.FREE, P.CACHED)))),
             ("PAG-4",), "a page that a step may touch is not handed out"),
    StepRule("no_claim_is_lost_or_taken_from_others",
             implies(before(page.holders) - as_count(before(claim.holds)) >= 1,
                     page.holders - as_count(claim.holds) == before(page.holders) - as_count(before(claim.holds))),
             ("PAG-3", "PAG-5"), "one holder's step leaves the claims of all others"),
    StepRule("a_hit_is_exact",
             implies(claim.holds & ~before(claim.holds),
                     before(page.matchable) & scope.live & (before(page.scope) == holder.scope)
                     & (before(page.chain) == event.chain) & event.tokens_equal), ("SCO-1", "SCO-2", "PAG-6"),
             "published, of the caller's scope, of the same chain, and of equal tokens", events=frozenset({"share"})),
    StepRule("a_revived_page_was_promised",
             implies((before(page.state) == P.CACHED) & (page.state == P.SHARED),
                     pool.promised == before(pool.promised) - 1), ("PAG-5", "PAG-1"),
             "a hit on evictable capacity uses a promised unit"),
    StepRule("publishing_follows_computing",
             implies(page.matchable & ~before(page.matchable),
                     before(page.computed) & ~before(page.spoiled) & (before(page.writers) == 0) & scope.live),
             ("PAG-6", "SCO-5"), "a page becomes matchable only when its steps have ended well"),
    StepRule("only_seal_publishes", implies(page.matchable, before(page.matchable)), ("PAG-6",),
             "nothing else puts a page in the index", events=_NAMES - {"seal"}),
    StepRule("shared_pages_are_read_only", implies(page.writers > before(page.writers), page.state == P.PRIVATE),
             ("PAG-7",), "only a private page gets a writer"),
    StepRule("leaves_go_first", implies(before(page.matchable) & ~page.matchable, before(page.children) == 0),
             ("PAG-8",), "no published page loses the page before it"),
    StepRule("parents_are_published_first",
             implies(page.matchable & ~before(page.matchable), before(parent.matchable)), ("PAG-8",),
             "a page that no lookup could reach is not published", events=frozenset({"seal"})),
    StepRule("only_holders_touch", implies(tickets > before(tickets), before(claim.holds)), ("PAG-3", "LIF-3"),
             "a step touches the pages of its own executions only", events=frozenset({"touch"})),
    StepRule("a_touch_is_what_it_says",
             (page.readers <= before(page.readers) + as_count(~event.write))
             & (page.writers <= before(page.writers) + as_count(event.write)), ("PAG-7",),
             "no step writes as a reader", events=frozenset({"touch"})),
    StepRule("a_settled_ticket_has_ended",
             (page.readers == before(page.readers) - as_count(~event.write & (before(page.readers) > 0)))
             & (page.writers == before(page.writers) - as_count(event.write & (before(page.writers) > 0))), ("PAG-4",),
             "exactly one, of that kind, well or badly alike", events=frozenset({"settle"})),
    StepRule("a_failed_write_spoils",
             implies((before(page.state) == P.PRIVATE) & (before(page.writers) > 0) & event.write & ~event.ok,
                     page.spoiled), ("PAG-6",), "what a failed step wrote is never published",
             events=frozenset({"settle"})),
    StepRule("a_page_is_computed_by_its_last_write",
             (page.state == P.FREE) | (page.computed == (before(page.computed) | (
                 (before(page.state) == P.PRIVATE) & (before(page.writers) > 0) & event.write & event.ok & event.filled
             ))), ("PAG-6",), "a step that ended well and wrote the last slot", events=frozenset({"settle"})),
    StepRule("generations_count_grants",
             page.generation == before(page.generation)
             + as_count((before(page.state) == P.FREE) & (page.state == P.PRIVATE)), ("PAG-4", "CON-2"),
             "a page's generation tells one use of it from the next"),
    StepRule("pages_leave_free_only_by_a_grant",
             implies((before(page.state) == P.FREE) & (page.state != P.FREE), page.state == P.PRIVATE), ("PAG-4",),
             "every use starts with an allocation", events=_NAMES),
    StepRule("the_sink_stays", (before(page.state) == P.SINK) == (page.state == P.SINK), ("PAG-2", "ADM-11"),
             "the sink is set aside for good"),
    StepRule("scopes_are_not_mixed",
             implies((before(page.scope) != NOBODY) & (page.scope != NOBODY), page.scope == before(page.scope)),
             ("SCO-1", "SCO-5"), "content never changes its scope"),
    StepRule("a_retired_scope_is_closed_first",
             implies(before(page.state) == P.SINK, ~scope.live)
             & implies(before(page.matchable) & ~page.matchable, ~before(scope.live)), ("SCO-5",),
             "so nothing new is published while its pages follow", events=frozenset({"retire_scope"})),
    StepRule("retired_scopes_stay_retired", implies(~before(scope.live), ~scope.live), ("SCO-5",),
             "a change of weights starts a new scope"),
    StepRule("publishing_respects_the_account",
             (scope.published <= before(scope.published)) | (scope.published <= scope.limit), ("SCO-3",),
             "a scope never publishes more than its limit"),
)  # fmt: skip

_own = tuple(getattr(entity, name) for entity in (page, scope, parent) for name in entity.fields)

NON_INTERFERENCE = (
    NonInterference(
        name="lookups_tell_nothing_of_other_scopes",
        event="share",
        same=(
            *(getattr(holder, name) for name in holder.fields),
            claim.holds,
            pool.free,
            pool.cached,
            pool.promised,
        ),
        same_when=((page.scope == holder.scope, _own),),
        cites=("SCO-4",),
        note="the reply is a function of the caller's own scope, its own account and public counters",
    ),
)

ASSUMPTIONS = (
    Assumption("others_contribute_no_less_than_nothing",
               all_of(*(getattr(rest, name) >= 0 for name in rest.fields)),
               "sums and counts over other pages and other holders"),
    Assumption("the_account_is_the_pages", implies(page.scope != NOBODY, in_scope),
               "the scope in view is the page's", events=_NAMES - {"allocate"}),
    Assumption("the_account_is_the_holders", scope.identity == holder.scope,
               "a new page belongs to the holder's scope", events=frozenset({"allocate"})),
    Assumption("holders_have_a_scope", holder.scope != NOBODY, "no request is without scope"),
    Assumption("chains_have_names", event.chain != NOBODY, "a digest is never the empty name",
               events=frozenset({"seal", "share"})),
    Assumption("the_index_is_complete",
               index.occupied | ~(other.matchable & (other.scope == page.scope) & (other.chain == event.chain)),
               "the index knows every published page", events=frozenset({"seal"})),
    Assumption("the_parent_counts_its_children",
               parent.children == as_count(page.matchable) + rest.siblings,
               "this page, where published, is one of its parent's children"),
    Assumption("the_parent_counts_its_busy_children",
               (parent.busy == as_count(page.matchable & (page.state != P.CACHED)) + rest.busy_siblings)
               & (rest.busy_siblings <= rest.siblings),
               "and one of those in use, unless it is cached"),
    Assumption("what_follows_a_cached_parent_is_cached", implies(parent.cached, parent.busy == 0),
               "the parent satisfies the same invariants"),
    Assumption("cached_parents_are_matchable", implies(parent.cached, parent.matchable),
               "the parent satisfies the same invariants"),
    Assumption("the_other_page_is_valid", implies(other.matchable, (other.chain != NOBODY) & (other.scope != NOBODY)),
               "it satisfies the same invariants"),
    Assumption("generations_are_not_negative", page.generation >= 0, "a count of grants"),
)  # fmt: skip

SOMETIMES = (
    *(Sometimes(f"a_page_is_{state.value.lower()}", page.state == state, "every state is reached") for state in P),
    Sometimes("a_page_has_several_holders", page.holders >= 2, "sharing happens"),
    Sometimes("a_shared_page_is_of_a_retired_scope", (page.state == P.SHARED) & ~page.matchable,
              "weights change under a running request"),
    Sometimes("a_page_waits_for_its_children", (page.state == P.DRAINING) & (page.busy >= 1) & (tickets == 0),
              "its last holder leaves while another holds a page that follows it"),
    Sometimes("a_published_page_drains", (page.state == P.DRAINING) & page.matchable,
              "its last holder leaves while a step reads it"),
    Sometimes("everything_is_promised", (pool.promised == pool.free + pool.cached) & (pool.promised >= 1),
              "the promise bound is attained"),
)  # fmt: skip

INITIAL = all_of(
    page.state.is_in((P.SINK, P.FREE)),
    *(getattr(page, name) == 0 for name in ("holders", "readers", "writers", "children", "busy", "generation")),
    ~page.computed, ~page.spoiled, ~page.matchable, page.scope == NOBODY, page.chain == NOBODY, ~claim.holds,
    holder.state == HolderState.ABSENT, holder.promised == 0, holder.pages == 0, holder.shares == 0,
    scope.shared == 0, scope.published == 0, scope.live, ~other.matchable,
    pool.private == 0, pool.shared == 0, pool.cached == 0, pool.draining == 0, pool.promised == 0,
    pool.free == pool.total, pool.free == as_count(page.state == P.FREE) + rest.free,
    *(getattr(rest, name) == 0 for name in rest.fields if name != "free"),
)  # fmt: skip
