"""Each vector can fail: the reports' faults, planted one by one, and the laws beneath every step, broken one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from attrs import evolve

from kvescrow.reference.pages import BrokenInvariant
from kvescrow.spec.vocabulary import (
    Cancel,
    Decision,
    Extend,
    Finish,
    Key,
    LedgerEvent,
    LedgerSnapshot,
    PageSnapshot,
    PageState,
    PoolSnapshot,
    PrefixScope,
    Promote,
    Reason,
    ReservationSnapshot,
    ReservationState,
    Reserve,
    StopOutcome,
    Sweep,
    TenantSnapshot,
)
from tests.field_reports import (
    test_a_leaks_and_double_frees as a,
)
from tests.field_reports import (
    test_b_work_in_flight as b,
)
from tests.field_reports import (
    test_c_prefix_cache as c_cache,
)
from tests.field_reports import (
    test_c_prefix_scope as c_scope,
)
from tests.field_reports import (
    test_d_admission_and_growth as d,
)
from tests.field_reports import (
    test_e_request_identity as e,
)
from tests.field_reports import (
    test_f_quota_ledgers as f,
)
from tests.field_reports import (
    test_g_leases as g,
)
from tests.field_reports.laws import broken_ledger_laws, broken_page_laws
from tests.field_reports.ledger import Ledger, Terms
from tests.field_reports.on_reference import OpenStore, ReferenceLedger, ReferencePages, ReferenceWorker, in_memory
from tests.field_reports.pages import PAGE_LENGTH, SINK, TENANT, Pages
from tests.field_reports.replies import (
    ACCEPTED,
    MISS,
    NOTHING_DUE,
    RELEASED,
    SETTLED,
    SUSPECTED,
    Answer,
    queued,
    refused,
)

# --- faults of page pools ---------------------------------------------------------------------------------------------


class FreesInFlight(ReferencePages):
    """A release frees the page at once, whatever may still touch it."""

    def _drop(self, holder: str, page: int) -> Answer:
        answer = super()._drop(holder, page)
        while self.page(page).readers + self.page(page).writers and not self.page(page).holders:
            super()._settle(page, self.page(page).writers > 0, False, False)
        return answer


class ForgetsFailures(ReferencePages):
    """The end of a copy is only noticed when it went well."""

    def _settle(self, page: int, write: bool, ok: bool, filled: bool) -> Answer:
        return super()._settle(page, write, ok, filled) if ok else SETTLED


class CountsPins(ReferencePages):
    """References are a count: any release takes one away."""

    def _drop(self, holder: str, page: int) -> Answer:
        holders = self.page(page).holders
        return super()._drop(min(holders) if holders and holder not in holders else holder, page)


class ForcesEvictions(ReferencePages):
    """Eviction takes every reference with it."""

    def _evict(self, page: int) -> Answer:
        for holder in self.page(page).holders:
            super()._drop(holder, page)
        return super()._evict(page)


class EvictsParents(ReferencePages):
    """Eviction does not ask what follows the page."""

    def _evict(self, page: int) -> Answer:
        self.pool._page(page).children = 0
        return super()._evict(page)


class KeepsTags(ReferencePages):
    """Eviction leaves the entry in the index."""

    def _evict(self, page: int) -> Answer:
        record = self.pool._page(page)
        account, chain = record.account, record.chain
        answer = super()._evict(page)
        if answer == RELEASED and account is not None and chain is not None:
            account.index[chain] = record
        return answer


class KeepsFailedTries(ReferencePages):
    """What a failed try took is not given back."""

    def _close(self, holder: str) -> Answer:
        return RELEASED


class PublishesEarly(ReferencePages):
    """A page is matchable as soon as it is registered."""

    def _seal(self, holder: str, page: int, tokens: tuple[int, ...], parent: int | None) -> Answer:
        if page != SINK:
            self.pool._page(page).computed = True
        return super()._seal(holder, page, tokens, parent)


class KeyedByTokens(ReferencePages):
    """The page key is made of tokens only."""

    def _admit(self, holder: str, scope: PrefixScope, units: int) -> Answer:
        return super()._admit(holder, self.scope, units)

    def _share(self, holder: str, page: int, path: tuple[int, ...], tokens: tuple[int, ...]) -> Answer:
        self._scopes[holder] = self.scope
        return super()._share(holder, page, path, tokens)


class TrustsHashes(ReferencePages):
    """An equal hash is an equal page."""

    def _share(self, holder: str, page: int, path: tuple[int, ...], tokens: tuple[int, ...]) -> Answer:
        return super()._share(holder, page, path, self.page(page).tokens or tokens)


class KeepsOldEpochs(ReferencePages):
    """A change of weights leaves the index as it is."""

    def _retire(self, page: int, scope: PrefixScope) -> Answer:
        return Answer(Decision.NOTED)


class WritesShared(ReferencePages):
    """A hit may be written in place."""

    def _touch(self, holder: str, page: int, write: bool) -> Answer:
        return super()._touch(holder, page, write and self.page(page).state is not PageState.SHARED)


# --- faults of ledgers ------------------------------------------------------------------------------------------------


class FreesOnDisconnect(ReferenceLedger):
    """A cancel of running work gives its capacity back at once."""

    def _apply(self, event: LedgerEvent, authentic: bool) -> Answer:
        answer = super()._apply(event, authentic)
        if isinstance(event, Cancel) and answer == ACCEPTED:
            self.finish(event.key, StopOutcome.STOPPED)
        return answer


class FreesOnTime(ReferenceLedger):
    """An expired lease is taken for a stop."""

    def _apply(self, event: LedgerEvent, authentic: bool) -> Answer:
        answer = super()._apply(event, authentic)
        if isinstance(event, Sweep) and answer in (SUSPECTED, NOTHING_DUE):
            super()._apply(self._ring.fence("field", event.key, self.record(event.key).owner), True)
        return answer


class TrustsAnyReceipt(ReferenceLedger):
    """A stop is a stop, whoever reports it and of whichever execution."""

    def _apply(self, event: LedgerEvent, authentic: bool) -> Answer:
        known = self.snapshot().reservations.get(event.key) if isinstance(event, Finish) else None
        if isinstance(event, Finish) and known is not None and known.generation:
            receipt = evolve(event.receipt, owner=known.owner, generation=known.generation)
            return super()._apply(Finish(receipt), True)
        return super()._apply(event, authentic)


class KeyedByRequest(ReferenceLedger):
    """The id that the caller chose is the key, whoever the caller is."""

    def _apply(self, event: LedgerEvent, authentic: bool) -> Answer:
        if isinstance(event, Reserve | Cancel):
            event = evolve(event, key=Key(TENANT, event.key.request))
        return super()._apply(event, authentic)


class UnboundKeys(ReferenceLedger):
    """A key answers for any parameters."""

    def _apply(self, event: LedgerEvent, authentic: bool) -> Answer:
        if isinstance(event, Reserve) and event.key in self.snapshot().reservations:
            return Answer(Decision.RECORDED)
        return super()._apply(event, authentic)


class CancelsAnyLife(ReferenceLedger):
    """A cancel names a key and no life."""

    def _apply(self, event: LedgerEvent, authentic: bool) -> Answer:
        if isinstance(event, Cancel):
            event = evolve(event, life=self.record(event.key).life)
        return super()._apply(event, authentic)


class RemembersRefusals(ReferenceLedger):
    """A refusal is the key's answer for ever."""

    def __init__(self, pool_limit: int, tenants: Mapping[str, Terms], store: OpenStore = in_memory) -> None:
        super().__init__(pool_limit, tenants, store)
        self._refusals: dict[Key, Answer] = {}

    def _apply(self, event: LedgerEvent, authentic: bool) -> Answer:
        if not isinstance(event, Reserve):
            return super()._apply(event, authentic)
        if event.key not in self._refusals:
            answer = super()._apply(event, authentic)
            if answer.decision is not Decision.REFUSED:
                return answer
            self._refusals[event.key] = answer
        return self._refusals[event.key]


class ReservesTheLoad(ReferenceLedger):
    """Only the first half of what a request needs is reserved; the rest is hoped for."""

    def _apply(self, event: LedgerEvent, authentic: bool) -> Answer:
        if isinstance(event, Reserve):
            event = evolve(event, amount=(event.amount + 1) // 2)
        return super()._apply(event, authentic)


class GrowsOnTop(ReferenceLedger):
    """The whole new size must be free, not the difference."""

    def _apply(self, event: LedgerEvent, authentic: bool) -> Answer:
        snapshot = self.snapshot()
        if isinstance(event, Extend) and snapshot.pool_active + event.bound > snapshot.pool_limit:
            return refused(Reason.POOL_CAPACITY)
        return super()._apply(event, authentic)


class ForgetsWhoWaits(ReferenceLedger):
    """A waiter that gave up or timed out stays first, so nobody behind it is asked."""

    def _apply(self, event: LedgerEvent, authentic: bool) -> Answer:
        waiting = self.snapshot().queue
        self._first = getattr(self, "_first", waiting[0] if waiting else None)
        if isinstance(event, Promote) and self._first is not None and event.key != self._first:
            return refused(Reason.BEHIND_OTHERS)
        answer = super()._apply(event, authentic)
        waiting = self.snapshot().queue
        self._first = self._first or (waiting[0] if waiting else None)
        return answer


class WaitsForEver(ReferenceLedger):
    """What can never fit waits like everything else."""

    def _apply(self, event: LedgerEvent, authentic: bool) -> Answer:
        answer = super()._apply(event, authentic)
        return queued(Reason.POOL_CAPACITY) if answer == refused(Reason.NEVER_FITS) else answer


class CountsOwnHits(ReferencePages):
    """The pages of a request's own prefix are room for its new pages."""

    def _admit(self, holder: str, scope: PrefixScope, units: int) -> Answer:
        return super()._admit(holder, scope, min(units, max(1, units - self.pool.counts().cached)))


class SharesTheTail(ReferencePages):
    """With a shared prefix, one page is all that an admission looks like."""

    def _admit(self, holder: str, scope: PrefixScope, units: int) -> Answer:
        return super()._admit(holder, scope, min(units, 1) if self.pool.counts().shared else units)


# --- planted, and caught ----------------------------------------------------------------------------------------------

CAUGHT = (AssertionError, BrokenInvariant)
PageVector = Callable[[Callable[..., Pages]], None]


@pytest.mark.parametrize(
    ("fault", "vector"),
    [
        (FreesInFlight, a.test_b05_the_slot_allocated_ahead_is_freed_once_and_after_its_step),
        (FreesInFlight, a.test_b14_the_end_of_a_copy_releases_for_a_cancelled_owner),
        (FreesInFlight, b.test_b16_a_page_in_the_window_of_a_step_in_flight_is_not_reused),
        (CountsPins, a.test_b13_a_second_unpin_takes_nobody_elses_pin),
        (ForcesEvictions, a.test_b12_eviction_takes_no_page_from_its_holder),
        (ForcesEvictions, c_cache.test_b33_a_hit_is_pinned_at_the_lookup),
        (ForcesEvictions, c_scope.test_b36_no_sleep_while_a_reset_has_failed),
        (EvictsParents, c_cache.test_b37_leaves_are_evicted_first_and_a_match_stops_at_the_first_hole),
        (KeepsTags, c_cache.test_b39_eviction_clears_index_and_tag_together),
        (KeepsFailedTries, a.test_b07_a_failed_try_keeps_neither_resource),
        (PublishesEarly, c_cache.test_b31_pages_that_no_step_filled_are_not_matched),
        (PublishesEarly, c_cache.test_b32_a_half_filled_page_is_not_matched_and_a_claim_keeps_the_entry),
        (KeyedByTokens, c_scope.test_b25_adapters_share_no_pages),
        (KeyedByTokens, c_scope.test_b28_scope_fields_are_compared_one_by_one),
        (KeyedByTokens, c_scope.test_b29_another_image_behind_the_same_tokens_is_another_scope),
        (KeyedByTokens, c_scope.test_b38_every_tier_has_the_same_scope_record),
        (KeyedByTokens, c_scope.test_b26_b35_a_page_published_before_the_change_stays_in_its_scope),
        (TrustsHashes, c_scope.test_b30_equal_hashes_are_not_equal_pages),
        (KeepsOldEpochs, c_scope.test_b26_a_reloaded_adapter_is_another_scope),
        (KeepsOldEpochs, c_scope.test_b35_new_weights_reuse_nothing_of_the_old),
        (CountsOwnHits, d.test_b41_a_hit_that_nobody_holds_is_counted_as_taken),
        (SharesTheTail, d.test_b47_growth_is_reserved_where_the_prefix_is_shared),
        (WritesShared, c_cache.test_b34_a_full_hit_computes_its_last_token_in_a_page_of_its_own),
    ],
)
def test_a_planted_fault_of_a_page_pool_is_caught(fault: type[ReferencePages], vector: PageVector) -> None:
    def build(pages: int, length: int = PAGE_LENGTH, *, weak: bool = False) -> Pages:
        return fault(pages, length, weak=weak)

    with pytest.raises(CAUGHT):
        vector(build)


@pytest.mark.parametrize("fault", [FreesInFlight, ForgetsFailures])
def test_a_planted_fault_of_a_copy_is_caught(fault: type[ReferencePages]) -> None:
    def build(pages: int, length: int = PAGE_LENGTH, *, weak: bool = False) -> Pages:
        return fault(pages, length, weak=weak)

    with pytest.raises(CAUGHT):
        b.test_b22_both_ends_of_a_copy_are_pinned(build, False)


def _ledger(fault: type[ReferenceLedger], pool_limit: int, tenants: Mapping[str, Terms] | None = None) -> Ledger:
    return fault(pool_limit, tenants or {TENANT: Terms()})


@pytest.mark.parametrize(
    ("fault", "vector"),
    [
        (KeyedByRequest, e.test_b58_one_id_is_one_request_in_each_tenant),
        (CancelsAnyLife, e.test_b59_a_key_stays_taken_until_its_stop_is_confirmed),
        (FreesOnTime, e.test_b60_a_worker_that_renews_keeps_its_request),
        (WaitsForEver, d.test_b45_what_can_never_fit_is_refused_at_once),
        (ReservesTheLoad, d.test_b46_the_output_is_reserved_with_the_prompt),
        (ReservesTheLoad, d.test_b54_n_answers_are_admitted_all_or_none),
        (ReservesTheLoad, d.test_b102_work_is_admitted_with_its_whole_need),
        (GrowsOnTop, d.test_b50_growth_is_one_transition),
        (GrowsOnTop, d.test_b51_only_the_difference_of_a_growth_is_charged),
        (ForgetsWhoWaits, d.test_b52_who_stood_behind_a_cancelled_head_is_admitted),
        (ForgetsWhoWaits, d.test_b53_a_unit_that_was_granted_and_not_taken_goes_to_the_next),
        (RemembersRefusals, e.test_b64_a_refusal_binds_nothing),
        (UnboundKeys, e.test_b63_a_key_is_bound_to_its_parameters),
        (UnboundKeys, f.test_b71_a_duplicate_charges_nothing),
        (FreesOnDisconnect, f.test_b66_every_way_out_passes_the_one_release),
        (FreesOnTime, f.test_b67_each_holder_has_a_lease_of_its_own),
        (FreesOnTime, f.test_b74_a_clock_step_neither_takes_nor_gives),
        (FreesOnTime, f.test_b77_a_worker_that_comes_back_still_runs_what_it_ran),
        (TrustsAnyReceipt, f.test_b70_a_settlement_happens_once_or_not_yet),
        (TrustsAnyReceipt, f.test_b72_a_release_by_who_holds_nothing_frees_nothing),
        (TrustsAnyReceipt, g.test_b80_the_failure_of_who_never_owned_it_fails_nothing),
        (TrustsAnyReceipt, g.test_b81_a_late_holder_releases_nothing_of_its_successor),
        (TrustsAnyReceipt, g.test_b83_a_release_that_had_arrived_takes_nothing_from_the_next_holder),
        (CancelsAnyLife, g.test_b82_who_was_replaced_while_a_call_hung_acts_in_vain),
    ],
)
def test_a_planted_fault_of_a_ledger_is_caught(
    fault: type[ReferenceLedger], vector: Callable[[Callable[..., Ledger]], None]
) -> None:
    with pytest.raises(CAUGHT):
        vector(lambda pool_limit, tenants=None: _ledger(fault, pool_limit, tenants))


@pytest.mark.parametrize(
    ("ledger", "pool", "vector"),
    [
        (FreesOnTime, ReferencePages, a.test_b01_a_dead_peer_does_not_keep_an_aborted_load_for_ever),
        (FreesOnTime, ReferencePages, e.test_b60_a_worker_that_lost_its_lease_sends_nothing_more),
        (FreesOnDisconnect, ReferencePages, b.test_b18_an_abort_does_not_free_the_target_of_a_remote_write),
        (FreesOnDisconnect, ReferencePages, a.test_b10_a_cancel_between_two_chunks_finds_its_request),
        (ReferenceLedger, FreesInFlight, b.test_b15_pages_of_a_step_launched_ahead_are_not_handed_out),
        (ReferenceLedger, FreesInFlight, b.test_b23_a_channel_with_an_unread_answer_is_not_given_to_the_next),
        (ReferenceLedger, FreesInFlight, a.test_b02_a_copy_that_fails_unpins_like_one_that_succeeds),
    ],
)
def test_a_planted_fault_of_a_worker_is_caught(
    ledger: type[ReferenceLedger],
    pool: type[ReferencePages],
    vector: Callable[[Callable[[int], ReferenceWorker]], None],
) -> None:
    def build(pages: int) -> ReferenceWorker:
        return ReferenceWorker(pool(pages, PAGE_LENGTH, weak=False), ledger(pages, {TENANT: Terms()}))

    with pytest.raises(CAUGHT):
        vector(build)


# --- the laws beneath every step --------------------------------------------------------------------------------------

SCOPE = PrefixScope(TENANT)


def page(state: PageState, *, holders: int = 0, readers: int = 0, writers: int = 0, tokens: int = 0) -> PageSnapshot:
    scope = None if state in (PageState.SINK, PageState.FREE) else SCOPE
    return PageSnapshot(
        state, frozenset(f"h{n}" for n in range(holders)), readers, writers, 1, scope, tuple(range(tokens))
    )


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (page(PageState.SINK), "the sink is page 0 alone of page 1"),
        (page(PageState.PRIVATE, holders=2), "holders fit the state of page 1"),
        (page(PageState.CACHED, readers=1, tokens=1), "nothing free or cached is in flight of page 1"),
        (page(PageState.DRAINING, tokens=1), "draining pages wait for something of page 1"),
        (page(PageState.SHARED, holders=1, writers=1, tokens=1), "shared pages have no writer of page 1"),
        (page(PageState.SHARED, holders=1, readers=-1, tokens=1), "counts are not negative of page 1"),
        (page(PageState.PRIVATE, holders=1, tokens=1), "only published pages carry tokens of page 1"),
        (page(PageState.CACHED), "cached pages carry tokens of page 1"),
        (evolve(page(PageState.FREE), scope=SCOPE), "content has a scope of page 1"),
    ],
)
def test_a_broken_law_of_a_page_is_named(broken: PageSnapshot, law: str) -> None:
    assert broken_page_laws(PoolSnapshot((page(PageState.SINK), broken), {})) == [law]


def test_a_page_may_wait_for_a_published_one_of_its_scope_that_is_in_use() -> None:
    waiting, law = page(PageState.DRAINING, tokens=1), "draining pages wait for something of page 1"
    for other, broken in (
        (page(PageState.SHARED, holders=1, tokens=1), []),
        (page(PageState.DRAINING, readers=1, tokens=1), []),
        (page(PageState.DRAINING, readers=1), [law]),
        (page(PageState.CACHED, tokens=1), [law]),
        (evolve(page(PageState.SHARED, holders=1, tokens=1), scope=PrefixScope("another")), [law]),
    ):
        assert broken_page_laws(PoolSnapshot((page(PageState.SINK), waiting, other), {})) == broken


def test_a_promise_that_cannot_be_kept_is_named() -> None:
    pages = (page(PageState.SINK), page(PageState.FREE))
    assert broken_page_laws(PoolSnapshot(pages, {"A": 1})) == []
    assert broken_page_laws(PoolSnapshot(pages, {"A": 1, "B": 1})) == ["promises can be kept"]


SOUND = LedgerSnapshot(
    clock=0,
    pool_active=2,
    pool_limit=2,
    tenants={TENANT: TenantSnapshot(active=2, limit=2, held=2, spent=0, budget=9, overrun=0, queued=1)},
    reservations={
        Key(TENANT, "A"): ReservationSnapshot(ReservationState.RUNNING, 2, 2, 0, 0, 1, 1, "w1", 9, 0),
        Key(TENANT, "B"): ReservationSnapshot(ReservationState.QUEUED, 2, 2, 0, 0, 2, 0, "", 0, 9),
    },
    queue=(Key(TENANT, "B"),),
)


@pytest.mark.parametrize(
    ("changed", "law"),
    [
        ({"pool_active": 1}, "the pool is charged the sum"),
        ({"pool_limit": 1}, "the pool is within its limit"),
        ({"queue": ()}, "the queue is who waits"),
        ({"tenants": {TENANT: evolve(SOUND.tenants[TENANT], active=1)}}, "t is charged the sum"),
        ({"tenants": {TENANT: evolve(SOUND.tenants[TENANT], limit=1)}}, "t is within its limit"),
        ({"tenants": {TENANT: evolve(SOUND.tenants[TENANT], queued=0)}}, "t has as many waiting"),
    ],
)
def test_a_broken_law_of_a_ledger_is_named(changed: dict[str, Any], law: str) -> None:
    assert broken_ledger_laws(SOUND) == []
    assert broken_ledger_laws(evolve(SOUND, **changed)) == [law]


def test_a_refusal_that_changes_something_is_noticed() -> None:
    class Liar(ReferencePages):
        def _admit(self, holder: str, scope: PrefixScope, units: int) -> Answer:
            super()._admit(holder, scope, units)
            return refused(Reason.POOL_CAPACITY)

    with pytest.raises(AssertionError, match="changed something"):
        Liar(2, PAGE_LENGTH, weak=False).admit("A", 1)


def test_two_pages_at_one_place_are_noticed() -> None:
    class Twins(ReferencePages):
        def _share(self, holder: str, page: int, path: tuple[int, ...], tokens: tuple[int, ...]) -> Answer:
            return Answer(Decision.RECORDED) if page else MISS

    pool = Twins(2, PAGE_LENGTH, weak=False)
    with pytest.raises(AssertionError, match=r"pages \[1, 2\] are published at one place"):
        pool.match("A", [1] * PAGE_LENGTH)
