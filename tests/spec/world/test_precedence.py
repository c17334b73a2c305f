"""Which reason is told where several apply: the first in the order that the tables state.

Each scenario breaks two neighbours of that order at once, and mends the first to hear the second.
"""

from __future__ import annotations

from typing import Any

import pytest

from kvescrow.spec.vocabulary import (
    Extend,
    Key,
    Promote,
    Reason,
    Renew,
    ReportUsage,
    Reserve,
    SetPoolLimit,
    Start,
    Tick,
)
from kvescrow.spec.world.ledger import LedgerWorld, TenantTerms
from tests.field_reports.replies import ADMITTED, EXTENDED, RECORDED, RENEWED, STARTED, Answer, queued, refused
from tests.spec.world.conftest import LedgerWorldOf, answer

X, Y, Z = (Key("a", name) for name in "xyz")
FAR = 1_000


def terms(limit: int = 10, budget: int = 100, queue_limit: int = 2) -> TenantTerms:
    """What tenant `a` is granted."""
    return TenantTerms(limit, budget, queue_limit)


def reserve(world: LedgerWorld, key: Key = X, amount: int = 2, **more: Any) -> Answer:
    """Ask for `amount` until a far deadline."""
    event = Reserve(key, amount, **{"digest": "d", "deadline": FAR, **more})
    return answer(world.apply(event))


def running(world: LedgerWorld, key: Key = X, amount: int = 2) -> None:
    """Reserve and start."""
    assert reserve(world, key, amount) == ADMITTED
    assert answer(world.apply(Start(key, life=1, owner="w", lease=FAR))) == STARTED


def test_a_conflict_names_the_first_field_that_differs(ledger_world_of: LedgerWorldOf) -> None:
    """IDN-2: amount, then deadline, then digest."""
    world = ledger_world_of(10, terms())
    assert reserve(world) == ADMITTED
    assert reserve(world, amount=3, deadline=7, digest="e") == refused(Reason.CONFLICT_AMOUNT)
    assert reserve(world, deadline=7, digest="e") == refused(Reason.CONFLICT_DEADLINE)
    assert reserve(world, digest="e") == refused(Reason.CONFLICT_DIGEST)
    assert reserve(world) == RECORDED


def test_shape_then_what_never_fits_then_deadline_then_budget(ledger_world_of: LedgerWorldOf) -> None:
    """ADM-6 ADM-7 ADM-8 ADM-9: each is told before what comes after it."""
    world = ledger_world_of(10, terms(limit=5, budget=3))
    world.apply(Tick(50))
    late = {"deadline": 10}
    assert reserve(world, amount=6, max_wait=-1, **late) == refused(Reason.MALFORMED)
    assert reserve(world, amount=6, **late) == refused(Reason.NEVER_FITS)
    assert reserve(world, amount=5, **late) == refused(Reason.TOO_LATE)
    assert reserve(world, amount=5) == refused(Reason.BUDGET)


def test_what_the_pool_never_fits_comes_before_the_deadline(ledger_world_of: LedgerWorldOf) -> None:
    """ADM-6 ADM-11: waiting cannot help, and neither can another deadline."""
    world = ledger_world_of(4, terms())
    world.apply(Tick(50))
    assert reserve(world, amount=5, deadline=10) == refused(Reason.NEVER_FITS)
    assert reserve(world, amount=4, deadline=10) == refused(Reason.TOO_LATE)


def test_budget_then_tenant_then_pool_then_order(ledger_world_of: LedgerWorldOf) -> None:
    """ADM-5 ADM-8 QUE-5: whoever waits is told for what, and a full queue only then."""
    world = ledger_world_of(10, terms(limit=6, budget=9, queue_limit=1))
    assert reserve(world, X, 4) == ADMITTED
    assert reserve(world, Y, 6) == refused(Reason.BUDGET)
    assert reserve(world, Y, 5) == refused(Reason.TENANT_CAPACITY)
    world.apply(SetPoolLimit(5))
    assert reserve(world, Y, 3) == refused(Reason.TENANT_CAPACITY)
    assert reserve(world, Y, 2) == refused(Reason.POOL_CAPACITY)
    assert reserve(world, Y, 2, max_wait=9) == queued(Reason.POOL_CAPACITY)
    assert reserve(world, Z, 1) == refused(Reason.BEHIND_OTHERS)
    assert reserve(world, Z, 1, max_wait=9) == refused(Reason.QUEUE_FULL)


@pytest.mark.parametrize("reason", [Reason.TENANT_CAPACITY, Reason.POOL_CAPACITY])
def test_who_may_not_wait_is_told_what_is_short(ledger_world_of: LedgerWorldOf, reason: Reason) -> None:
    """QUE-1: that the queue is full too is of no use to who would not wait in it."""
    tenant_is_short = reason is Reason.TENANT_CAPACITY
    world = ledger_world_of(10 if tenant_is_short else 4, terms(limit=4 if tenant_is_short else 10, queue_limit=0))
    assert reserve(world, X, 4) == ADMITTED
    assert reserve(world, Y, 1) == refused(reason)
    assert reserve(world, Y, 1, max_wait=9) == refused(Reason.QUEUE_FULL)


@pytest.mark.parametrize(
    "wrong",
    [{"amount": 0}, {"amount": -1}, {"max_wait": -1}, {"least_service": -1}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_value_outside_its_domain_is_malformed(ledger_world_of: LedgerWorldOf, wrong: dict[str, int]) -> None:
    """ADM-9: refused with its reason, and nothing is recorded."""
    world = ledger_world_of(10, terms())
    assert reserve(world, **wrong) == refused(Reason.MALFORMED)
    assert world.reservations == {}


def test_at_promotion_the_deadline_comes_before_the_budget(ledger_world_of: LedgerWorldOf) -> None:
    """QUE-3 ADM-8: who waited away its useful life ends, whatever the budget says."""
    world = ledger_world_of(4, terms(budget=6))
    running(world, X, 4)
    assert reserve(world, Y, 2, deadline=5, max_wait=FAR) == queued(Reason.POOL_CAPACITY)
    world.tenants["a"]["budget"] = 4
    assert answer(world.apply(Promote(Y))) == refused(Reason.BUDGET)
    world.apply(Tick(6))
    assert answer(world.apply(Promote(Y))).reason is Reason.TOO_LATE


def test_growth_that_stands_is_recorded_whatever_the_limits_are_now(ledger_world_of: LedgerWorldOf) -> None:
    """GRO-2 IDN-3: a retry asks for nothing, so no limit can refuse it."""
    world = ledger_world_of(10, terms())
    running(world, X, 4)
    world.tenants["a"]["limit"] = 3
    assert answer(world.apply(Extend(X, "w", 1, 4))) == RECORDED
    assert answer(world.apply(Extend(X, "w", 1, 5))) == refused(Reason.NEVER_FITS)


def test_growth_that_never_fits_the_pool_is_told_before_the_budget(ledger_world_of: LedgerWorldOf) -> None:
    """GRO-3 ADM-6 ADM-8: waiting for the next period cannot help."""
    world = ledger_world_of(6, terms(budget=6))
    running(world, X, 4)
    assert answer(world.apply(Extend(X, "w", 1, 7))) == refused(Reason.NEVER_FITS)
    world.apply(SetPoolLimit(7))
    assert answer(world.apply(Extend(X, "w", 1, 7))) == refused(Reason.BUDGET)
    assert answer(world.apply(Extend(X, "w", 1, 6))) == EXTENDED


def test_a_foreign_owner_is_told_so_before_its_generation(ledger_world_of: LedgerWorldOf) -> None:
    """LEA-2: another owner's generation means nothing here."""
    world = ledger_world_of(10, terms())
    running(world)
    assert answer(world.apply(Renew(X, 1, "v", 0))) == refused(Reason.NOT_OWNER)
    assert answer(world.apply(Renew(X, 1, "w", 0))) == refused(Reason.STALE_GENERATION)
    assert answer(world.apply(Renew(X, 1, "w", 1))) == RENEWED


def test_at_promotion_budget_then_tenant_then_pool_then_order(ledger_world_of: LedgerWorldOf) -> None:
    """ADM-5 ADM-8 QUE-5: as at the reservation."""
    world = ledger_world_of(6, terms(limit=6, budget=9))
    running(world, X, 5)
    for key in (Y, Z):
        assert reserve(world, key, 2, max_wait=FAR) == queued(Reason.TENANT_CAPACITY)
    world.tenants["a"]["budget"] = 6
    assert answer(world.apply(Promote(Z))) == refused(Reason.BUDGET)
    world.tenants["a"]["budget"] = 9
    assert answer(world.apply(Promote(Z))) == refused(Reason.TENANT_CAPACITY)
    world.tenants["a"]["limit"] = 9
    assert answer(world.apply(Promote(Z))) == refused(Reason.POOL_CAPACITY)
    world.apply(SetPoolLimit(9))
    assert answer(world.apply(Promote(Z))) == refused(Reason.BEHIND_OTHERS)
    assert answer(world.apply(Promote(Y))) == ADMITTED


def test_growth_budget_comes_before_the_tenants_limit(ledger_world_of: LedgerWorldOf) -> None:
    """GRO-3 ADM-5 ADM-8: two executions of one tenant; either reason would refuse."""
    world = ledger_world_of(20, terms(limit=8, budget=8))
    running(world, X, 4)
    assert reserve(world, Y, 4) == ADMITTED
    assert answer(world.apply(Extend(X, "w", 1, 5))) == refused(Reason.BUDGET)
    world.tenants["a"]["budget"] = 20
    assert answer(world.apply(Extend(X, "w", 1, 5))) == refused(Reason.TENANT_CAPACITY)


def test_a_stale_report_is_refused_also_where_it_says_nothing_new(ledger_world_of: LedgerWorldOf) -> None:
    """LEA-2 IDN-5: another execution's usage is not this one's."""
    world = ledger_world_of(10, terms())
    running(world)
    assert answer(world.apply(ReportUsage(X, "w", 2, 0))) == refused(Reason.STALE_GENERATION)
    assert answer(world.apply(ReportUsage(X, "w", 1, 0))) == RECORDED
