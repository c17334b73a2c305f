"""Ledgers with one planted error each: the machine finds every one, and its diff names the field that differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve, frozen

from kvescrow.checks.fuzz.profiles import PROFILES
from kvescrow.checks.fuzz.run import fuzz
from kvescrow.checks.targets.ledgers import memory_subject
from kvescrow.reference.ledger import books
from kvescrow.reference.ledger.books import Books
from kvescrow.reference.ledger.records import Outcome, Posting, Situation, TenantAccount
from kvescrow.spec.vocabulary import (
    Cancel,
    Decision,
    Extend,
    Finish,
    Forget,
    Key,
    Reason,
    ReservationState,
    Reserve,
    Tick,
)

S = ReservationState
Decide = Callable[[Any, Situation], Outcome]
Plant = Callable[[pytest.MonkeyPatch], None]


def decision(change: Callable[[Decide, Any, Situation], Outcome]) -> Plant:
    """Plant an error in the one function through which every decision about a reservation goes."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right: Decide = books.decide
        patch.setattr(books, "decide", lambda event, situation: change(right, event, situation))

    return plant


def cancel_releases(right: Decide, event: Any, situation: Situation) -> Outcome:
    record, outcome = situation.record, right(event, situation)
    if isinstance(event, Cancel) and record is not None and outcome.decision is Decision.ACCEPTED:
        released = evolve(record, state=S.CANCELLED)
        return Outcome(Decision.RELEASED, Reason.NONE, released, Posting(charged=-record.bound))
    return outcome


def duplicate_stop_releases_again(right: Decide, event: Any, situation: Situation) -> Outcome:
    record, outcome = situation.record, right(event, situation)
    if isinstance(event, Finish) and record is not None and outcome.decision is Decision.RECORDED:
        return Outcome(Decision.RELEASED, Reason.NONE, record, Posting(charged=-record.bound))
    return outcome


def conflict_is_accepted(right: Decide, event: Any, situation: Situation) -> Outcome:
    if isinstance(event, Reserve) and situation.record is not None:
        event = evolve(event, digest=situation.record.digest)
    return right(event, situation)


def stale_generation_is_accepted(right: Decide, event: Any, situation: Situation) -> Outcome:
    if isinstance(event, Finish) and situation.record is not None:
        event = Finish(evolve(event.receipt, generation=situation.record.generation))
    return right(event, situation)


def forgery_is_accepted(right: Decide, event: Any, situation: Situation) -> Outcome:
    return right(event, situation._replace(vouched=situation.vouched or isinstance(event, Finish)))


def growth_charges_the_whole(right: Decide, event: Any, situation: Situation) -> Outcome:
    outcome = right(event, situation)
    if outcome.decision is Decision.EXTENDED:
        return outcome._replace(posting=Posting(charged=event.bound))
    return outcome


def growth_ignores_the_pool(right: Decide, event: Any, situation: Situation) -> Outcome:
    if isinstance(event, Extend):
        situation = situation._replace(pool=evolve(situation.pool, limit=situation.pool.limit + 100))
    return right(event, situation)


def expiry_releases_running_work(right: Decide, event: Any, situation: Situation) -> Outcome:
    record, outcome = situation.record, right(event, situation)
    if record is not None and outcome.decision is Decision.SUSPECTED:
        expired = evolve(record, state=S.EXPIRED)
        return Outcome(Decision.EXPIRED, Reason.LEASE_EXPIRED, expired, Posting(charged=-record.bound))
    return outcome


def the_queue_is_jumped(right: Decide, event: Any, situation: Situation) -> Outcome:
    return right(event, situation._replace(others_first=lambda: False))


def the_queue_holds_capacity(right: Decide, event: Any, situation: Situation) -> Outcome:
    outcome = right(event, situation)
    if outcome.decision is Decision.QUEUED:
        return outcome._replace(posting=Posting(charged=event.amount, queued=1))
    return outcome


def a_receipt_may_lower_the_usage(right: Decide, event: Any, situation: Situation) -> Outcome:
    record = situation.record
    if isinstance(event, Finish) and record is not None:
        situation = situation._replace(record=evolve(record, used=min(record.used, event.receipt.used)))
    return right(event, situation)


def a_refusal_charges(patch: pytest.MonkeyPatch) -> None:
    right = Books.handle

    def handle(self: Books, event: Any) -> Any:
        entry = right(self, event)
        if entry.reply.reason is Reason.TENANT_CAPACITY and entry.reply.decision is Decision.REFUSED:
            self.pool.active += 1
        return entry

    patch.setattr(Books, "handle", handle)


def the_budget_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TenantAccount, "covers", lambda self, amount: True)


def the_tenant_limit_is_off_by_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TenantAccount, "has_room", lambda self, amount: self.active + amount <= self.limit + 1)


def the_clock_goes_back(patch: pytest.MonkeyPatch) -> None:
    right = Books.handle

    def handle(self: Books, event: Any) -> Any:
        entry = right(self, event)
        if isinstance(event, Tick):
            self.pool.clock = max(0, event.now)
        return entry

    patch.setattr(Books, "handle", handle)


def generations_start_again_after_a_forgetting(patch: pytest.MonkeyPatch) -> None:
    right = Books.handle

    def handle(self: Books, event: Any) -> Any:
        entry = right(self, event)
        if isinstance(event, Forget) and entry.reply.decision is Decision.FORGOTTEN:
            self.pool.next_generation = 1
        return entry

    patch.setattr(Books, "handle", handle)


def keys_of_tenants_are_joined(patch: pytest.MonkeyPatch) -> None:
    """The request id alone names a reservation."""
    right = Books.handle

    def handle(self: Books, event: Any) -> Any:
        if isinstance(event, Cancel) and event.key not in self.records:
            event = evolve(event, key=Key("a", event.key.request))
        return right(self, event)

    patch.setattr(Books, "handle", handle)


@frozen
class Sabotage:
    """A planted error, and a field that must be named when it is found."""

    plant: Plant
    field: str
    name: str = ""


SABOTAGES = (
    Sabotage(decision(cancel_releases), "reply.decision", "release on cancel"),
    Sabotage(decision(duplicate_stop_releases_again), "snapshot.pool_active", "double release on a duplicate stop"),
    Sabotage(decision(conflict_is_accepted), "reply.reason", "conflict accepted"),
    Sabotage(decision(stale_generation_is_accepted), "reply.reason", "stale generation accepted"),
    Sabotage(decision(forgery_is_accepted), "reply.reason", "forged receipt accepted"),
    Sabotage(a_refusal_charges, "snapshot.pool_active", "refusal that charges"),
    Sabotage(decision(growth_charges_the_whole), "snapshot.pool_active", "growth charges the whole bound"),
    Sabotage(decision(expiry_releases_running_work), "reply.decision", "expiry releases running work"),
    Sabotage(the_budget_is_ignored, "reply.reason", "budget ignored"),
    Sabotage(the_tenant_limit_is_off_by_one, "TENANT_CAPACITY", "tenant limit off by one"),
    Sabotage(decision(the_queue_holds_capacity), "snapshot.pool_active", "queue holds capacity"),
    Sabotage(the_clock_goes_back, "snapshot.clock", "clock goes back"),
    Sabotage(generations_start_again_after_a_forgetting, "reply.generation", "generation used again"),
    Sabotage(keys_of_tenants_are_joined, "reply.reason", "tenant left out of the key"),
    Sabotage(decision(the_queue_is_jumped), "reply.decision", "queue jumped"),
    Sabotage(decision(a_receipt_may_lower_the_usage), "used", "receipt lowers the usage"),
    Sabotage(decision(growth_ignores_the_pool), "reply.decision", "growth ignores the pool"),
)


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: str(sabotage.name))
def test_a_planted_error_is_found_and_named(sabotage: Sabotage, monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage.plant(monkeypatch)
    result = fuzz("sabotaged", memory_subject(), PROFILES["pr"])
    assert result.verdict == "failed"
    told, _, steps = result.failure.partition("Least steps:")
    assert sabotage.field in told
    assert "specification" in told and "implementation" in told
    assert len([line for line in steps.splitlines() if "->" in line]) <= 12
    assert f"kvescrow fuzz --target sabotaged --seed {result.seed}" in result.failure
