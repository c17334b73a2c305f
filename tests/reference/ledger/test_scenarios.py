"""The worked figures of the requirements, told once and true of every store."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from kvescrow.reference.ledger import Ledger, LedgerConfig, LedgerReply, TenantConfig
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import (
    Cancel,
    Decision,
    Extend,
    Finish,
    ForceRelease,
    Forget,
    Key,
    LedgerEvent,
    Preempt,
    Promote,
    Reason,
    Renew,
    ReportUsage,
    ReservationState,
    Reserve,
    SetBudget,
    SetPoolLimit,
    SetTenantLimit,
    Start,
    StopOutcome,
    Sweep,
    Tick,
)

SECOND = 1_000_000
FAR = 10**12
D, R, S = Decision, Reason, ReservationState
Finisher = Callable[..., Finish]
Open = Callable[..., Ledger]


def ask(key: Key, amount: int, **more: int) -> Reserve:
    return Reserve(key, amount, "digest", more.pop("deadline", FAR), **more)


def said(reply: LedgerReply) -> tuple[Decision, Reason]:
    return reply.decision, reply.reason


def test_the_fourth_request_waits_two_seconds_and_expires(open_ledger: Open, config: LedgerConfig) -> None:
    ledger = open_ledger(config)
    a, b, c, d = Key("red", "A"), Key("red", "B"), Key("red", "C"), Key("blue", "D")

    for key, amount in ((a, 12_000), (b, 16_000), (c, 8_000)):
        assert said(ledger.submit(ask(key, amount))) == (D.ADMITTED, R.NONE)
    queued = ledger.submit(ask(d, 7_000, max_wait=2 * SECOND))
    assert said(queued) == (D.QUEUED, R.POOL_CAPACITY)
    assert (queued.free_pool, queued.asked, queued.state) == (4_000, 7_000, S.QUEUED)
    assert ledger.snapshot().pool_active == 36_000, "a queued request holds nothing"
    assert ledger.due() == []

    ledger.submit(Tick(2 * SECOND - 1))
    assert said(ledger.submit(Sweep(d))) == (D.NOTHING_DUE, R.NONE)
    ledger.submit(Tick(2 * SECOND))
    assert ledger.due() == [Sweep(d)]
    assert said(ledger.submit(Sweep(d))) == (D.EXPIRED, R.QUEUE_TIMEOUT)
    assert ledger.waiting() == ()
    assert ledger.snapshot().pool_active == 36_000


def test_sixteen_thousand_are_released_and_ten_thousand_billed(
    open_ledger: Open, config: LedgerConfig, finish: Finisher
) -> None:
    ledger = open_ledger(config)
    b = Key("red", "B")
    life = ledger.submit(ask(b, 16_000)).life
    generation = ledger.submit(Start(b, life, "worker")).generation

    stopped = ledger.submit(finish(b, "worker", generation, used=10_000))

    assert said(stopped) == (D.RELEASED, R.NONE)
    account = ledger.snapshot().tenants["red"]
    assert (account.active, account.held, account.spent, account.overrun) == (0, 0, 10_000, 0)
    assert ledger.snapshot().pool_active == 0


def test_the_tenants_limit_refuses_where_the_pool_has_room(open_ledger: Open) -> None:
    limited = TenantConfig(limit=15_000, budget=1_000_000, queue_limit=4)
    ledger = open_ledger(LedgerConfig("pool", 29_000, {"red": limited}, 0))
    ledger.submit(ask(Key("red", "first"), 9_000))

    refusal = ledger.submit(ask(Key("red", "second"), 8_000))

    assert said(refusal) == (D.REFUSED, R.TENANT_CAPACITY)
    assert (refusal.free_tenant, refusal.free_pool, refusal.asked) == (6_000, 20_000, 8_000)
    assert Key("red", "second") not in ledger.snapshot().reservations, "a refusal records nothing"


def test_nine_thousand_are_released_once(open_ledger: Open, config: LedgerConfig, finish: Finisher) -> None:
    ledger = open_ledger(config)
    key, other = Key("red", "work"), Key("blue", "other")
    life = ledger.submit(ask(key, 9_000)).life
    ledger.submit(ask(other, 500))
    generation = ledger.submit(Start(key, life, "worker")).generation
    assert said(ledger.submit(ReportUsage(key, "worker", generation, 2_000))) == (D.NOTED, R.NONE)

    assert said(ledger.submit(Cancel(key, life))) == (D.ACCEPTED, R.NONE)
    assert ledger.snapshot().pool_active == 9_500, "an accepted cancel only asks"
    assert said(ledger.submit(Extend(key, "worker", generation, 10_000))) == (D.STOP, R.CANCEL_ACCEPTED)

    stop = finish(key, "worker", generation, used=2_000, outcome=StopOutcome.STOPPED)
    first, second = ledger.submit(stop), ledger.submit(stop)
    assert said(first) == (D.RELEASED, R.NONE)
    assert said(second) == (D.RECORDED, R.NONE)
    assert (second.state, second.seq) == (S.CANCELLED, first.seq)
    snapshot = ledger.snapshot()
    assert snapshot.pool_active == 500
    assert snapshot.tenants["red"].spent == 2_000


def test_usage_above_the_bound_is_an_overrun_and_not_billed(
    open_ledger: Open, config: LedgerConfig, finish: Finisher
) -> None:
    ledger = open_ledger(config)
    key = Key("red", "work")
    life = ledger.submit(ask(key, 100)).life
    generation = ledger.submit(Start(key, life, "worker")).generation

    assert said(ledger.submit(ReportUsage(key, "worker", generation, 130))) == (D.NOTED, R.OVERRUN)
    ledger.submit(finish(key, "worker", generation, used=120))

    account = ledger.snapshot().tenants["red"]
    assert (account.spent, account.overrun) == (100, 30), "usage never goes back"
    assert ledger.snapshot().reservations[key].used == 130


def test_preempted_work_waits_again_under_a_new_generation(
    open_ledger: Open, config: LedgerConfig, finish: Finisher
) -> None:
    ledger = open_ledger(config)
    key, behind = Key("red", "work"), Key("blue", "behind")
    life = ledger.submit(ask(key, 30_000, max_wait=SECOND)).life
    ledger.submit(ask(behind, 20_000, max_wait=SECOND))
    generation = ledger.submit(Start(key, life, "worker")).generation
    ledger.submit(Preempt(key, generation))

    stop = finish(key, "worker", generation, 4_000, StopOutcome.STOPPED)
    assert said(ledger.submit(stop)) == (D.REQUEUED, R.NONE)
    assert ledger.waiting() == (behind, key), "it goes to the back"
    assert ledger.snapshot().pool_active == 0
    assert said(ledger.submit(stop)) == (D.RECORDED, R.NONE)
    assert said(ledger.submit(Promote(key))) == (D.REFUSED, R.BEHIND_OTHERS)
    assert said(ledger.submit(Promote(behind))) == (D.ADMITTED, R.NONE)
    ledger.submit(Cancel(behind, 2))
    assert said(ledger.submit(Promote(key))) == (D.ADMITTED, R.NONE)
    assert ledger.submit(Start(key, life, "worker")).generation > generation


def test_a_late_stop_of_an_earlier_life_touches_nothing(
    open_ledger: Open, config: LedgerConfig, finish: Finisher
) -> None:
    ledger = open_ledger(evolve(config, retention=5))
    key = Key("red", "work")
    life = ledger.submit(ask(key, 100)).life
    generation = ledger.submit(Start(key, life, "worker")).generation
    late = finish(key, "worker", generation, 10)
    ledger.submit(late)
    assert ledger.submit(Forget(key)).retry_after == 5
    ledger.submit(Tick(5))
    assert said(ledger.submit(Forget(key))) == (D.FORGOTTEN, R.NONE)
    assert said(ledger.submit(late)) == (D.REFUSED, R.UNKNOWN_KEY)

    again = ledger.submit(ask(key, 300))
    assert again.life > life
    assert ledger.submit(Start(key, again.life, "worker")).generation > generation
    assert said(ledger.submit(late)) == (D.REFUSED, R.STALE_GENERATION)
    assert said(ledger.submit(Cancel(key, life))) == (D.REFUSED, R.STALE_LIFE)
    assert ledger.snapshot().pool_active == 300


def test_a_retry_gets_the_recorded_outcome_and_other_parameters_a_conflict(
    open_ledger: Open, config: LedgerConfig
) -> None:
    ledger = open_ledger(config)
    key = Key("red", "work")
    first = ledger.submit(ask(key, 100))
    retry = ledger.submit(ask(key, 100))
    assert said(retry) == (D.RECORDED, R.NONE)
    assert (retry.life, retry.bound, retry.seq) == (first.life, 100, first.seq)
    assert said(ledger.submit(ask(key, 101))) == (D.REFUSED, R.CONFLICT_AMOUNT)
    assert said(ledger.submit(ask(key, 100, deadline=5))) == (D.REFUSED, R.CONFLICT_DEADLINE)
    assert said(ledger.submit(Reserve(key, 100, "another", FAR))) == (D.REFUSED, R.CONFLICT_DIGEST)
    assert said(ledger.submit(ask(Key("blue", "work"), 101))) == (D.ADMITTED, R.NONE)


def test_who_may_not_ask_is_told_nothing(open_ledger: Open, config: LedgerConfig) -> None:
    ledger = open_ledger(config)
    key = Key("red", "work")
    life = ledger.submit(ask(key, 100)).life

    known = ledger.submit(Cancel(key, life, authorised=False))
    absent = ledger.submit(Cancel(Key("red", "absent"), life, authorised=False))
    stranger = ledger.submit(ask(Key("green", "work"), 100))

    assert said(known) == said(stranger) == (D.REFUSED, R.FORBIDDEN)
    assert known == absent
    assert (known.state, known.life, known.bound, known.free_tenant, known.free_pool) == (None, 0, 0, 0, 0)
    assert (stranger.state, stranger.free_pool) == (None, 0)


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Promote(Key("green", "x")), R.UNKNOWN_KEY),
        (Sweep(Key("green", "x")), R.UNKNOWN_KEY),
        (Forget(Key("green", "x")), R.UNKNOWN_KEY),
        (Start(Key("green", "x"), 1, "w"), R.FORBIDDEN),
        (SetTenantLimit("green", 5), R.UNKNOWN_KEY),
        (SetBudget("green", -5), R.UNKNOWN_KEY),
        (SetBudget("red", -5), R.MALFORMED),
        (SetPoolLimit(-1), R.MALFORMED),
        (Start(Key("red", "x"), 1, "w"), R.UNKNOWN_KEY),
        (ask(Key("red", "x"), 0), R.MALFORMED),
        (ask(Key("red", "x"), 40_001), R.NEVER_FITS),
        (ask(Key("red", "x"), 1, deadline=9, least_service=10), R.TOO_LATE),
    ],
)
def test_a_refusal_changes_nothing(open_ledger: Open, config: LedgerConfig, event: LedgerEvent, reason: Reason) -> None:
    ledger = open_ledger(config)
    ledger.submit(ask(Key("red", "live"), 100))
    before, seq = ledger.snapshot(), ledger.journal()[-1].seq

    reply = ledger.submit(event)

    assert said(reply) == (D.REFUSED, reason)
    assert ledger.snapshot() == before
    assert reply.seq == seq
    assert len(ledger.journal()) == seq


def test_a_lowered_limit_takes_nothing_and_blocks_new_grants(open_ledger: Open, config: LedgerConfig) -> None:
    ledger = open_ledger(config)
    ledger.submit(ask(Key("red", "live"), 30_000))
    assert said(ledger.submit(SetPoolLimit(20_000))) == (D.NOTED, R.NONE)
    assert said(ledger.submit(SetPoolLimit(20_000))) == (D.RECORDED, R.NONE)
    assert ledger.snapshot().pool_active == 30_000
    refusal = ledger.submit(ask(Key("blue", "new"), 1))
    assert (said(refusal), refusal.free_pool) == ((D.REFUSED, R.POOL_CAPACITY), -10_000)


def test_the_budget_holds_in_an_idle_pool(open_ledger: Open, config: LedgerConfig) -> None:
    ledger = open_ledger(config)
    ledger.submit(SetBudget("red", 500))
    ledger.submit(ask(Key("red", "live"), 400, deadline=3 * SECOND))
    held_back = ledger.submit(ask(Key("red", "more"), 200))
    assert (said(held_back), held_back.retry_after) == ((D.REFUSED, R.BUDGET), 3 * SECOND)
    beyond = ledger.submit(ask(Key("red", "most"), 600))
    assert (said(beyond), beyond.retry_after) == ((D.REFUSED, R.BUDGET), None), "waiting cannot help"


def test_a_refusal_says_when_a_retry_may_do_better(open_ledger: Open, config: LedgerConfig) -> None:
    """VIS-1: the first deadline at which what is charged must have come back."""
    ledger = open_ledger(config)
    ledger.submit(ask(Key("red", "long"), 20_000, deadline=9 * SECOND))
    ledger.submit(ask(Key("blue", "short"), 20_000, deadline=4 * SECOND))
    assert ledger.submit(ask(Key("red", "x"), 1)).retry_after == 4 * SECOND
    assert ledger.submit(ask(Key("red", "y"), 20_001)).retry_after == 9 * SECOND, "its own limit refuses it"
    assert ledger.submit(ask(Key("red", "z"), 40_001)).retry_after is None
    ledger.submit(Tick(5 * SECOND))
    assert ledger.submit(ask(Key("red", "x"), 1)).retry_after == 10_000, "overdue work is not asked for at once"


def test_a_request_blocked_by_its_own_tenant_blocks_no_one(open_ledger: Open) -> None:
    tenants = {"red": TenantConfig(10, 1_000, 4), "blue": TenantConfig(20, 1_000, 4)}
    ledger = open_ledger(LedgerConfig("pool", 20, tenants, 0))
    ledger.submit(ask(Key("red", "live"), 10))
    assert said(ledger.submit(ask(Key("red", "blocked"), 5, max_wait=9))) == (D.QUEUED, R.TENANT_CAPACITY)
    assert said(ledger.submit(ask(Key("blue", "free"), 5))) == (D.ADMITTED, R.NONE)
    assert said(ledger.submit(ask(Key("blue", "large"), 12, max_wait=9))) == (D.QUEUED, R.POOL_CAPACITY)
    assert said(ledger.submit(ask(Key("blue", "small"), 1))) == (D.REFUSED, R.BEHIND_OTHERS)
    ledger.submit(Tick(9))
    assert said(ledger.submit(ask(Key("blue", "small"), 1))) == (D.ADMITTED, R.NONE), (
        "they have waited out, swept or not"
    )


def test_the_queue_is_bounded_for_each_tenant(open_ledger: Open) -> None:
    tenants = {"red": TenantConfig(10, 1_000, 1), "blue": TenantConfig(10, 1_000, 1)}
    ledger = open_ledger(LedgerConfig("pool", 10, tenants, 0))
    ledger.submit(ask(Key("red", "live"), 10))
    assert ledger.submit(ask(Key("red", "1"), 1, max_wait=9)).decision is D.QUEUED
    assert said(ledger.submit(ask(Key("red", "2"), 1, max_wait=9))) == (D.REFUSED, R.QUEUE_FULL)
    assert ledger.submit(ask(Key("blue", "1"), 1, max_wait=9)).decision is D.QUEUED


def test_the_clock_is_read_for_each_event_and_never_goes_back(open_ledger: Open, config: LedgerConfig) -> None:
    readings = iter([10, 5, 40])
    ledger = open_ledger(config, clock=lambda: next(readings))
    key = Key("red", "work")
    ledger.submit(ask(key, 100, lease=30))
    assert ledger.snapshot().reservations[key].lease == 40
    assert said(ledger.submit(Sweep(key))) == (D.NOTHING_DUE, R.NONE)
    assert ledger.snapshot().clock == 10
    assert said(ledger.submit(Start(key, 1, "worker"))) == (D.EXPIRED, R.LEASE_EXPIRED)
    assert [entry.now for entry in ledger.journal()] == [10, 40]


def test_suspect_work_stays_charged_and_recovers(open_ledger: Open, config: LedgerConfig) -> None:
    ledger = open_ledger(config)
    key = Key("red", "work")
    life = ledger.submit(ask(key, 100)).life
    generation = ledger.submit(Start(key, life, "worker", lease=10)).generation
    ledger.submit(Tick(10))
    assert said(ledger.submit(Sweep(key))) == (D.SUSPECTED, R.NONE)
    assert ledger.snapshot().pool_active == 100
    assert said(ledger.submit(Renew(key, life, "worker", generation + 1))) == (D.REFUSED, R.STALE_GENERATION)
    assert said(ledger.submit(Renew(key, life, "worker", generation))) == (D.RENEWED, R.NONE)
    assert ledger.snapshot().reservations[key].state is S.RUNNING


def test_the_fence_releases_all_work_of_its_owner(
    open_ledger: Open, config: LedgerConfig, finish: Finisher, keyring: Keyring
) -> None:
    ledger = open_ledger(config)
    keys = [Key("red", "a"), Key("blue", "b")]
    for key in keys:
        life = ledger.submit(ask(key, 100)).life
        ledger.submit(Start(key, life, "worker"))
    ledger.submit(ReportUsage(keys[0], "worker", 1, 60))
    ledger.submit(Cancel(keys[1], 2))
    for key, state in zip(keys, (S.FAILED, S.CANCELLED), strict=True):
        reply = ledger.submit(keyring.fence("pool", key, "worker"))
        assert (said(reply), reply.state) == ((D.RELEASED, R.OWNER_FENCED), state)
    assert said(ledger.submit(finish(keys[0], "worker", 1, 90))) == (D.RECORDED, R.NONE)
    snapshot = ledger.snapshot()
    assert (snapshot.pool_active, snapshot.tenants["red"].spent) == (0, 60)


SILENT = {S.ORPHANED: (S.FAILED, Sweep), S.CANCELLING: (S.CANCELLED, Cancel), S.PREEMPTING: (S.FAILED, Preempt)}


@pytest.mark.parametrize("state", SILENT, ids=lambda state: state.value.lower())
def test_an_operator_releases_silent_work_and_the_record_says_so(
    open_ledger: Open, config: LedgerConfig, finish: Finisher, state: ReservationState
) -> None:
    ledger = open_ledger(config)
    key, (end, event) = Key("red", "A"), SILENT[state]
    life = ledger.submit(ask(key, 9_000)).life
    ledger.submit(Start(key, life, "w1", lease=10))
    ledger.submit(ReportUsage(key, "w1", 1, 2_000))
    if event is not Sweep:
        ledger.submit(event(key, 1))
    assert said(ledger.submit(ForceRelease(key, 1))) == (D.REFUSED, R.LIVE), "its lease has not run out"
    ledger.submit(Tick(10))
    if event is Sweep:
        ledger.submit(Sweep(key))
    assert ledger.snapshot().reservations[key].state is state

    assert said(ledger.submit(ForceRelease(key, 1, authorised=False))) == (D.REFUSED, R.FORBIDDEN)
    assert said(ledger.submit(ForceRelease(key, 2))) == (D.REFUSED, R.STALE_GENERATION)
    assert said(ledger.submit(ForceRelease(key, 1))) == (D.RELEASED, R.FORCED)

    record, tenant = ledger.snapshot().reservations[key], ledger.snapshot().tenants["red"]
    assert (record.state, record.owner, record.generation) == (end, "", 1), "nobody vouches for its stop"
    assert (ledger.snapshot().pool_active, tenant.held, tenant.spent) == (0, 0, 2_000)
    assert said(ledger.submit(finish(key, "w1", 1, 5_000))) == (D.REFUSED, R.NOT_OWNER), "a late stop releases nothing"
    assert said(ledger.submit(ForceRelease(key, 1))) == (D.REFUSED, R.CLOSED)
    assert ledger.journal()[-1].reply.reason is R.FORCED


def test_a_group_is_decided_in_order_and_the_journal_has_only_changes(open_ledger: Open, config: LedgerConfig) -> None:
    seen = []
    ledger = open_ledger(config, recorder=seen.append)
    key = Key("red", "work")
    events = [ask(key, 100), ask(key, 100), ask(Key("red", "large"), 50_000), Cancel(key, 1)]

    replies = ledger.submit_many(events)

    assert [reply.decision for reply in replies] == [D.ADMITTED, D.RECORDED, D.REFUSED, D.RELEASED]
    assert [reply.seq for reply in replies] == [1, 1, 1, 2]
    assert [(entry.event, entry.reply) for entry in seen] == list(zip(events, replies, strict=True))
    assert ledger.journal() == [seen[0], seen[3]]
    assert ledger.journal(after=1) == [seen[3]]
    assert ledger.journal(after=2) == []
