"""Each vector of family h can fail: the reports' faults, planted one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from attrs import evolve

from kvescrow.reference.scheduler import fair
from kvescrow.reference.scheduler.fair import ClassTerms, FairQueue, TenantTerms, Waiting
from kvescrow.spec.vocabulary import MICROSECONDS_PER_SECOND as SECOND
from kvescrow.spec.vocabulary import Key, Reason
from tests.field_reports import test_h_fairness as h
from tests.field_reports.conftest import DEFAULT_TENANTS
from tests.field_reports.ledger import Ledger, Terms
from tests.field_reports.on_reference import ReferenceLedger
from tests.field_reports.queues import CLASS, FOREVER, QueueOf
from tests.field_reports.replies import Answer, refused

POOL_CAPACITY = refused(Reason.POOL_CAPACITY)


class ForgetsCosts(FairQueue):
    """The difference between estimate and use is never charged."""

    def adjust(self, tenant: str, amount: int) -> None:
        """Leave the counters where they are."""


class ForgetsDeadlines(FairQueue):
    """Who is late is due now."""

    def join(self, request: Waiting) -> Reason:
        """Let it wait for as long as it takes."""
        return super().join(evolve(request, latest=FOREVER))


class LongestMatchFirst(FairQueue):
    """Whoever needs least, since most of it is cached, goes first, whoever waits."""

    def _next(self, full: set[tuple[str, ...]]) -> tuple[fair._Class, fair._Tenant] | None:
        group = self._classes[CLASS]
        for tenant in group.tenants.values():
            tenant.requests = type(tenant.requests)(sorted(tenant.requests.items(), key=lambda item: item[1].amount))
        waiting = [tenant for tenant in group.tenants.values() if tenant.requests and tenant.name not in full]
        return min(((group, each) for each in waiting), key=lambda pair: pair[1].head.amount, default=None)


class KeepsCredit(fair._Level):
    """Who returns goes on from its own counter."""

    def enter(self, party: fair._Party) -> None:
        """Wait again, without a lift."""
        party.waits = True
        self.active[party.name] = party


class QueuesBeforeHolders(ReferenceLedger):
    """A growth waits behind everyone in the queue."""

    def extend(self, name: str | Key, bound: int, *, owner: str | None = None, generation: int | None = None) -> Answer:
        """Deny what would pass a newcomer."""
        if self.snapshot().queue:
            return POOL_CAPACITY
        return super().extend(name, bound, owner=owner, generation=generation)


class KeepsWaiters(ReferenceLedger):
    """A wait that is over is no reason to leave."""

    def reserve(
        self, name: str | Key, amount: int, *, wait: int = 0, digest: str = "P", lease: int = 30 * SECOND
    ) -> Answer:
        """Let it wait for ever."""
        return super().reserve(name, amount, wait=FOREVER if wait else 0, digest=digest, lease=lease)


def queue_of(kind: type[FairQueue]) -> QueueOf:
    """The builder of such queues."""
    return lambda weights: kind({CLASS: ClassTerms(1, 1_000)}, {}, TenantTerms(CLASS))


@pytest.mark.parametrize(
    ("vector", "kind"),
    [
        (h.test_b87_a_deadline_that_has_passed_is_no_urgency, ForgetsDeadlines),
        (h.test_b89_who_estimates_low_gets_no_more_service, ForgetsCosts),
        (h.test_b89_a_cancelled_run_is_charged_what_it_used, ForgetsCosts),
    ],
)
def test_a_wrong_queue_is_caught(vector: Callable[[QueueOf], None], kind: type[FairQueue]) -> None:
    vector(queue_of(FairQueue))
    with pytest.raises(AssertionError):
        vector(queue_of(kind))


@pytest.mark.parametrize("tenant", ["hot", "unlucky"])
def test_an_order_by_match_alone_is_caught(tenant: str) -> None:
    with pytest.raises(AssertionError):
        h.test_b85_a_request_without_a_hit_is_admitted_within_a_stated_number_of_others(
            queue_of(LongestMatchFirst), tenant
        )


@pytest.mark.parametrize(
    "vector",
    [h.test_b84_who_asked_for_less_gathers_no_credit, h.test_b84_who_was_away_gathers_no_credit],
)
def test_credit_is_caught(vector: Callable[[QueueOf], None]) -> None:
    vector(queue_of(FairQueue))

    class Crediting(FairQueue):
        """Every level keeps credit."""

        def __init__(self, classes: Mapping[str, ClassTerms], tenants: Mapping[str, TenantTerms], default: TenantTerms):
            super().__init__(classes, tenants, default)
            for group in self._classes.values():
                group.level = KeepsCredit()

    with pytest.raises(AssertionError):
        vector(queue_of(Crediting))


@pytest.mark.parametrize(
    ("vector", "kind"),
    [
        (h.test_b86_who_holds_pages_and_needs_one_more_is_served_before_all_who_hold_none, QueuesBeforeHolders),
        (h.test_b87_a_waiter_of_the_ledger_expires_at_its_wait_and_holds_up_nobody, KeepsWaiters),
    ],
)
def test_a_wrong_ledger_is_caught(
    vector: Callable[[Callable[[int, Mapping[str, Terms]], Ledger]], None], kind: type[ReferenceLedger]
) -> None:
    opened: list[ReferenceLedger] = []

    def ledger_of(pool: int, tenants: Mapping[str, Terms] = DEFAULT_TENANTS) -> Ledger:
        opened.append(kind(pool, tenants))
        return opened[-1]

    with pytest.raises(AssertionError):
        vector(ledger_of)
    for each in opened:
        each.ledger.close()
