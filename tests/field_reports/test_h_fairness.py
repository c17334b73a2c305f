"""Family h: unfair queues, and requests that starve in them."""

from __future__ import annotations

from collections import Counter

import pytest

from kvescrow.spec.vocabulary import MICROSECONDS_PER_SECOND as SECOND
from kvescrow.spec.vocabulary import Key, Reason, ReservationState, StopOutcome
from tests.field_reports.conftest import LedgerOf
from tests.field_reports.ledger import Terms
from tests.field_reports.pages import TENANT
from tests.field_reports.queues import QueueOf, Site
from tests.field_reports.replies import ADMITTED, EXTENDED, RELEASED, STARTED, queued, refused


def seconds_of(site: Site, demand: dict[str, int], seconds: int) -> Counter[str]:
    """What each tenant got in so many seconds: each asks for so many units a second, and each unit takes a second."""
    got: Counter[str] = Counter()
    for _ in range(seconds):
        for tenant, units in demand.items():
            for _ in range(units):
                site.waits(tenant)
        got.update(each.key.tenant for each in site.admits())
        site.finishes_all()
    return got


def test_b84_who_asked_for_less_gathers_no_credit(queue_of: QueueOf) -> None:
    """kubernetes/kubernetes#95986: a queue below its share got twice the share for as long again.

    Wrong: from second 20 on, Q2 gets 2 a second and Q1 one.
    Right: whoever returns starts at the least counter that waits; both get 1.5 a second.
    FAI-2
    """
    # Given 3 units a second and equal weights; for 20 seconds Q1 asks for 2 a second and Q2 for 1
    site = Site(queue_of({}), 3)
    assert seconds_of(site, {"Q1": 2, "Q2": 1}, 20) == {"Q1": 40, "Q2": 20}
    # When Q2 asks for 2 a second as well, and both always have something that waits
    got = seconds_of(site, {"Q1": 2, "Q2": 2}, 20)
    # Then both get the same, but for one request of each
    assert got.total() == 60
    assert abs(got["Q1"] - got["Q2"]) <= 2


def test_b84_who_was_away_gathers_no_credit(queue_of: QueueOf) -> None:
    """kubernetes/kubernetes#95986, volcano-sh/kthena#1399: an idle queue came back with a thousand seconds of credit.

    Wrong: the flood of Q2 has the machine to itself.
    Right: Q1 keeps its half from the first second on.
    FAI-2
    """
    # Given Q2 fully idle for 1,000 seconds in which Q1 uses everything
    site = Site(queue_of({}), 3)
    assert seconds_of(site, {"Q1": 3}, 1_000) == {"Q1": 3_000}
    # When Q2 floods
    for _ in range(100):
        site.waits("Q2")
    got = seconds_of(site, {"Q1": 3}, 20)
    # Then neither has more than its half, but for one request of each
    assert abs(got["Q1"] - got["Q2"]) <= 2


@pytest.mark.parametrize("tenant", ["hot", "unlucky"])
def test_b85_a_request_without_a_hit_is_admitted_within_a_stated_number_of_others(
    queue_of: QueueOf, tenant: str
) -> None:
    """sgl-project/sglang#31954: with longest match first, who matches nothing waits while hot traffic flows.

    Wrong: C is never admitted.
    Right: no term of the order grows with the match; C is next of its own tenant, and at most one largest request
    behind another one.
    FAI-2 QUE-1
    """
    # Given one admission a tick; C matches nothing, so it needs 9 units where a hot request needs 1
    site = Site(queue_of({}), 9)
    cold = site.waits(tenant, 9)
    admitted: list[str] = []
    # When one hot request comes every tick, always a new one
    for _ in range(100):
        site.waits("hot", 1)
        admitted.append(site.admits_one().key.request)
        site.finishes_all()
    # Then C was admitted by tick 5
    assert cold in admitted[:5]


def test_b86_who_holds_pages_and_needs_one_more_is_served_before_all_who_hold_none(ledger_of: LedgerOf) -> None:
    """teradata-labs/loom#376: aged newcomers were lifted into the class of holders, which then waited behind them all.

    Wrong: H is served last, and keeps its six pages all the while.
    Right: who holds is a fact, not a rank: growth asks the pool, not the queue. Then the oldest newcomer is next.
    GRO-2 GRO-3 QUE-6 QUE-4
    """
    # Given a pool of 7; H holds 6, and the last one is taken; 40 newcomers have waited long
    ledger = ledger_of(7, {TENANT: Terms(queue_limit=100)})
    for name, amount in (("H", 6), ("X", 1)):
        assert ledger.reserve(name, amount) == ADMITTED
        assert ledger.start(name, "w1", lease=9_000 * SECOND) == STARTED
    newcomers = [f"N{number:02}" for number in range(40)]
    for name in newcomers:
        assert ledger.reserve(name, 1, wait=9_000 * SECOND) == queued(Reason.POOL_CAPACITY)
    ledger.passes(5_000 * SECOND)
    # When H needs one more, it is denied and keeps what it has
    assert ledger.extend("H", 7) == refused(Reason.POOL_CAPACITY)
    assert ledger.record("H").bound == 6
    # And when a page becomes free, H asks again
    assert ledger.finish("X", StopOutcome.COMPLETED, used=1) == RELEASED
    assert ledger.extend("H", 7) == EXTENDED
    # Then the newcomers wait, each in its place, until H has ended
    assert ledger.promote(newcomers[0]) == refused(Reason.POOL_CAPACITY)
    assert ledger.finish("H", StopOutcome.COMPLETED, used=7) == RELEASED
    assert ledger.promote(newcomers[0]) == ADMITTED
    assert ledger.snapshot().queue[0] == Key(TENANT, newcomers[1])


def test_b87_a_deadline_that_has_passed_is_no_urgency(queue_of: QueueOf) -> None:
    """llm-d/llm-d-batch-gateway#296: remaining time below zero was clamped to zero, the most urgent of all.

    Wrong: A goes first at second 12, and B misses its deadline.
    Right: A leaves the queue at its last useful moment, unstarted; B starts at 12.
    QUE-3 ADM-7
    """
    # Given one slot, taken; A must start by 10, B by 14
    site = Site(queue_of({}), 1)
    site.waits("other")
    assert len(site.admits(0)) == 1
    late = site.waits("bulk", latest=10)
    timely = site.waits("interactive", latest=14)
    # When second 10 is over, A is told, and is not launched
    assert site.queue.expire(10) == []
    assert [(each.key.request, why) for each, why in site.queue.expire(11)] == [(late, Reason.TOO_LATE)]
    # And when the slot is free at 12
    site.finishes_all()
    assert site.queue.expire(12) == []
    # Then B has it
    assert [each.key.request for each in site.admits(12)] == [timely]


def test_b87_a_waiter_of_the_ledger_expires_at_its_wait_and_holds_up_nobody(ledger_of: LedgerOf) -> None:
    """llm-d/llm-d-batch-gateway#296: the same where the ledger keeps the queue.

    Right: A ends without a start as soon as it is asked for; B is admitted when the slot is free.
    QUE-2 QUE-3
    """
    # Given one slot, taken; A may wait for 10 seconds, B for 14
    ledger = ledger_of(1)
    assert ledger.reserve("other", 1) == ADMITTED
    assert ledger.start("other", "w1") == STARTED
    assert ledger.reserve("A", 1, wait=10 * SECOND) == queued(Reason.POOL_CAPACITY)
    assert ledger.reserve("B", 1, wait=14 * SECOND) == queued(Reason.POOL_CAPACITY)
    # When the slot is free at 12
    ledger.passes(12 * SECOND)
    assert ledger.finish("other", StopOutcome.COMPLETED, used=1) == RELEASED
    # Then A has expired, whoever asks, and B is admitted
    ledger.promote("A")
    assert ledger.record("A").state is ReservationState.EXPIRED
    assert ledger.record("A").generation == 0
    assert ledger.promote("B") == ADMITTED


USED = {"X": 100, "Y": 10}
"""What a request uses; both estimate 10."""


def test_b89_who_estimates_low_gets_no_more_service(queue_of: QueueOf) -> None:
    """ClickHouse/ClickHouse#116800: counters followed the estimates, so who under-estimated got ten times as much.

    Wrong: after 20 grants both counters are equal, with 1,000 units used by X and 100 by Y.
    Right: a counter moves to the real cost at settlement; service stays within one request of equal.
    FAI-4 GRO-4
    """
    # Given two equal tenants with an estimate of 10, of which X uses 100
    site = Site(queue_of({}), 10)
    service = dict.fromkeys(USED, 0)
    for _ in range(40):
        for tenant in USED:
            site.waits(tenant, 10)
    # When 20 and more are granted and settled, one after the other
    for grant in range(33):
        (granted,) = site.admits()
        site.finishes_all()
        tenant = granted.key.tenant
        service[tenant] += USED[tenant]
        site.queue.adjust(tenant, USED[tenant] - granted.amount)
        # Then at no moment is one ahead by more than a request
        assert abs(service["X"] - service["Y"]) <= max(USED.values()) + 10, f"after {grant + 1} grants"
    assert service == {"X": 300, "Y": 300}


def test_b89_a_cancelled_run_is_charged_what_it_used(queue_of: QueueOf) -> None:
    """ClickHouse/ClickHouse#116800: not its estimate, and not nothing.

    Right: X, whose runs end at 1 of 10, is served ten times as often as Y.
    FAI-4
    """
    # Given two equal tenants with an estimate of 10; each run of X is cancelled after 1
    site = Site(queue_of({}), 10)
    for _ in range(60):
        for tenant in USED:
            site.waits(tenant, 10)
    got: Counter[str] = Counter()
    # When 44 are granted and settled
    for _ in range(44):
        (granted,) = site.admits()
        site.finishes_all()
        used = 1 if granted.key.tenant == "X" else 10
        site.queue.adjust(granted.key.tenant, used - granted.amount)
        got[granted.key.tenant] += 1
    # Then both were served the same, in units
    assert got == {"X": 40, "Y": 4}
