"""The front that does what becomes due: every change of the queue's head runs admission again (QUE-4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from attrs import evolve

from kvescrow.reference.ledger import Admission, FollowUp, Ledger, LedgerConfig, TenantConfig
from kvescrow.spec.vocabulary import (
    Cancel,
    Decision,
    Finish,
    Forget,
    Key,
    LedgerEvent,
    Preempt,
    Promote,
    Reason,
    Renew,
    Reserve,
    SetBudget,
    SetPoolLimit,
    SetTenantLimit,
    Start,
    StopOutcome,
    Sweep,
    Tick,
)

FAR = 10**12
Open = Callable[..., Ledger]
Finisher = Callable[..., Finish]


def ask(tenant: str, request: str, amount: int, **more: int) -> Reserve:
    return Reserve(Key(tenant, request), amount, "digest", more.pop("deadline", FAR), **more)


def told(follow_ups: tuple[FollowUp, ...]) -> list[tuple[LedgerEvent, Decision, Reason]]:
    return [(each.event, each.reply.decision, each.reply.reason) for each in follow_ups]


def admitted(follow_ups: tuple[FollowUp, ...]) -> list[str]:
    return [
        each.event.key.request
        for each in follow_ups
        if isinstance(each.event, Promote) and each.reply.decision is Decision.ADMITTED
    ]


@pytest.fixture
def small() -> LedgerConfig:
    tenants = {"red": TenantConfig(10, 100, 9), "blue": TenantConfig(10, 100, 9)}
    return LedgerConfig("pool", 10, tenants, 50)


@pytest.fixture
def full(open_ledger: Open, small: LedgerConfig) -> Ledger:
    """A pool of 10 with 4 and 6 running for red, and 3, 4 and 5 of blue waiting."""
    ledger = open_ledger(small)
    for life, (request, amount) in enumerate((("four", 4), ("six", 6)), start=1):
        ledger.submit(ask("red", request, amount))
        ledger.submit(Start(Key("red", request), life, "worker", lease=1_000))
    for request, amount in (("3", 3), ("4", 4), ("5", 5)):
        assert ledger.submit(ask("blue", request, amount, max_wait=100)).decision is Decision.QUEUED
    return ledger


def test_a_confirmed_stop_promotes_along_the_queue_until_the_head_lacks_room(full: Ledger, finish: Finisher) -> None:
    front = Admission(full, lease=77)
    served = front.submit(finish(Key("red", "six"), "worker", 2, 6))
    assert served.reply.decision is Decision.RELEASED
    assert told(served.follow_ups) == [
        (Promote(Key("blue", "3"), 77), Decision.ADMITTED, Reason.NONE),
        (Promote(Key("blue", "4"), 77), Decision.REFUSED, Reason.POOL_CAPACITY),
    ]
    assert full.snapshot().reservations[Key("blue", "3")].lease == 77
    assert full.waiting() == (Key("blue", "4"), Key("blue", "5"))


def test_a_cancel_of_the_head_lets_the_next_one_in(full: Ledger, finish: Finisher) -> None:
    front = Admission(full)
    full.submit(SetPoolLimit(14))
    front.submit(Cancel(Key("blue", "3"), 3))
    assert full.waiting() == (Key("blue", "5"),)


def test_an_expiry_lets_the_next_one_in(full: Ledger, finish: Finisher) -> None:
    full.submit(ask("blue", "last", 2, max_wait=200))
    full.submit(SetPoolLimit(12))
    served = Admission(full).submit(Tick(100))
    expired = [(Sweep(Key("blue", name)), Decision.EXPIRED, Reason.QUEUE_TIMEOUT) for name in "345"]
    assert told(served.follow_ups)[:3] == expired
    assert admitted(served.follow_ups) == ["last"]


@pytest.mark.parametrize(
    ("tight", "loosen"),
    [
        (SetPoolLimit(9), SetPoolLimit(10)),
        (SetTenantLimit("blue", 0), SetTenantLimit("blue", 10)),
        (SetBudget("blue", 0), SetBudget("blue", 10)),
    ],
)
def test_a_change_of_limits_runs_admission_again(
    open_ledger: Open, small: LedgerConfig, tight: LedgerEvent, loosen: LedgerEvent
) -> None:
    ledger = open_ledger(small)
    ledger.submit(ask("red", "live", 5))
    ledger.submit(ask("red", "brief", 5))
    ledger.submit(ask("blue", "waits", 5, max_wait=100))
    front = Admission(ledger)
    front.submit(tight)
    assert admitted(front.submit(Cancel(Key("red", "brief"), 2)).follow_ups) == []
    assert admitted(front.submit(loosen).follow_ups) == ["waits"]


def test_a_requeue_gives_its_room_to_those_before_it(full: Ledger, finish: Finisher) -> None:
    front = Admission(full)
    front.submit(Preempt(Key("red", "six"), 2))
    served = front.submit(finish(Key("red", "six"), "worker", 2, 1, StopOutcome.STOPPED))
    assert served.reply.decision is Decision.REQUEUED
    assert admitted(served.follow_ups) == ["3"]
    assert full.waiting()[-1] == Key("red", "six"), "it never asked to wait, but it did not choose to stop either"


def test_one_tenants_limit_does_not_stop_the_walk(open_ledger: Open, small: LedgerConfig) -> None:
    ledger = open_ledger(evolve(small, pool_limit=20))
    ledger.submit(ask("red", "a", 8))
    ledger.submit(ask("blue", "b", 8))
    ledger.submit(ask("red", "waits", 5, max_wait=100))
    ledger.submit(ask("blue", "next", 4, max_wait=100))
    served = Admission(ledger).submit(Cancel(Key("blue", "b"), 2))
    assert [each.reply.reason for each in served.follow_ups] == [Reason.TENANT_CAPACITY, Reason.NONE]
    assert admitted(served.follow_ups) == ["next"]


def test_a_request_that_waited_away_its_useful_life_is_not_launched(open_ledger: Open, small: LedgerConfig) -> None:
    ledger = open_ledger(small)
    ledger.submit(ask("red", "live", 10))
    ledger.submit(ask("blue", "late", 1, max_wait=100, deadline=60, least_service=20))
    front = Admission(ledger)
    assert front.submit(Tick(40)).follow_ups == ()
    assert told(front.submit(Tick(41)).follow_ups) == [(Sweep(Key("blue", "late")), Decision.EXPIRED, Reason.TOO_LATE)]


def test_time_alone_is_served_by_advance(open_ledger: Open, small: LedgerConfig) -> None:
    now = [0]
    ledger = open_ledger(small, clock=lambda: now[0])
    front = Admission(ledger)
    front.submit(ask("red", "lapses", 10, lease=30))
    front.submit(ask("blue", "waits", 10, max_wait=100))
    assert front.advance() == ()
    now[0] = 30
    assert admitted(front.advance()) == ["waits"]
    now[0] = 80
    assert told(front.advance()) == [(Forget(Key("red", "lapses")), Decision.FORGOTTEN, Reason.NONE)]


def test_suspect_work_makes_no_room(full: Ledger) -> None:
    served = Admission(full).submit(Tick(1_000))
    suspected = [each.event.key for each in served.follow_ups if each.reply.decision is Decision.SUSPECTED]  # type: ignore[union-attr]  # sweeps have keys
    assert suspected == [Key("red", "four"), Key("red", "six")]
    assert full.snapshot().pool_active == 10


def test_an_event_that_changes_nothing_has_no_follow_ups(full: Ledger) -> None:
    full.submit(Tick(500))
    assert full.due() != []
    assert Admission(full).submit(Sweep(Key("red", "four"))).follow_ups == ()


def test_a_record_without_retention_is_forgotten_at_once(open_ledger: Open, small: LedgerConfig) -> None:
    ledger = open_ledger(evolve(small, retention=0))
    front = Admission(ledger)
    front.submit(ask("red", "brief", 1))
    served = front.submit(Cancel(Key("red", "brief"), 1))
    assert told(served.follow_ups) == [(Forget(Key("red", "brief")), Decision.FORGOTTEN, Reason.NONE)]
    assert ledger.snapshot().reservations == {}


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (Start(Key("red", "held"), 1, "worker"), Reason.LEASE_EXPIRED),
        (Renew(Key("red", "held"), 1), Reason.LEASE_EXPIRED),
        (Promote(Key("blue", "brief")), Reason.QUEUE_TIMEOUT),
        (Promote(Key("blue", "hopeless")), Reason.TOO_LATE),
    ],
)
def test_expiry_is_decided_at_read_time_not_only_by_a_sweeper(
    open_ledger: Open, small: LedgerConfig, event: LedgerEvent, reason: Reason
) -> None:
    """Given a hold and waits that are over at 50 and that nobody swept, whatever speaks of one finds it over (LEA-1).

    And whoever waits behind what is over gets its room at once, before any sweeper has come by.
    """
    now = [0]
    ledger = open_ledger(small, clock=lambda: now[0])
    front = Admission(ledger)
    front.submit(ask("red", "held", 10, lease=50))
    front.submit(ask("blue", "brief", 10, max_wait=50))
    front.submit(ask("blue", "hopeless", 10, max_wait=100, deadline=69, least_service=20))
    front.submit(ask("blue", "patient", 10, max_wait=100))
    now[0] = 49
    assert ledger.due() == [], "a moment before it, nothing is over"
    now[0] = 50

    served = front.submit(event)

    assert (served.reply.decision, served.reply.reason) == (Decision.EXPIRED, reason)
    assert admitted(served.follow_ups) == ["patient"]
    assert ledger.snapshot().pool_active == 10


def test_what_has_lapsed_refuses_nobody(open_ledger: Open, small: LedgerConfig) -> None:
    """Given a hold of 8 whose gateway died and whom nobody has swept, a newcomer of 6 is admitted (LEA-1)."""
    ledger = open_ledger(small)
    front = Admission(ledger)
    front.submit(ask("red", "dead", 8, lease=5))
    ledger.submit(Tick(5))

    served = front.submit(ask("blue", "new", 6))

    assert served.reply.decision is Decision.ADMITTED
    assert told(served.cleared) == [(Sweep(Key("red", "dead")), Decision.EXPIRED, Reason.LEASE_EXPIRED)]
    assert served.follow_ups == ()
    assert ledger.snapshot().pool_active == 6


def test_who_waits_comes_before_the_newcomer_in_what_has_lapsed(open_ledger: Open, small: LedgerConfig) -> None:
    ledger = open_ledger(small)
    front = Admission(ledger)
    front.submit(ask("red", "dead", 8, lease=5))
    front.submit(ask("red", "waiting", 7, max_wait=1000))
    ledger.submit(Tick(5))

    served = front.submit(ask("blue", "new", 6))

    assert admitted(served.cleared) == ["waiting"]
    assert (served.reply.decision, served.reply.reason) == (Decision.REFUSED, Reason.POOL_CAPACITY)
    assert ledger.snapshot().pool_active == 7


def test_a_hold_that_has_not_lapsed_refuses(open_ledger: Open, small: LedgerConfig) -> None:
    ledger = open_ledger(small)
    front = Admission(ledger)
    front.submit(ask("red", "alive", 8, lease=6))
    ledger.submit(Tick(5))

    served = front.submit(ask("blue", "new", 6))

    assert (served.reply.reason, served.cleared) == (Reason.POOL_CAPACITY, ())
