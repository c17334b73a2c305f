"""Family f: counters that leak, quotas that are charged in two steps, settlements that happen twice or never."""

from __future__ import annotations

import pytest

from kvescrow.spec.vocabulary import MICROSECONDS_PER_SECOND as SECOND
from kvescrow.spec.vocabulary import Key, Reason, ReservationState, StopOutcome, Tick
from tests.field_reports.conftest import EVERY_STORE, LedgerOf
from tests.field_reports.ledger import Ledger, Terms
from tests.field_reports.pages import TENANT
from tests.field_reports.replies import (
    ACCEPTED,
    ADMITTED,
    EXTENDED,
    FENCED,
    NOTED,
    OVERRUN,
    RECORDED,
    RELEASED,
    RENEWED,
    REQUEUED,
    STARTED,
    SUSPECTED,
    Answer,
    refused,
)

pytestmark = pytest.mark.parametrize("ledger_of", EVERY_STORE, indirect=True)


def runs(ledger: Ledger, name: str | Key, amount: int, *, owner: str = "w1", lease: int = 10 * SECOND) -> None:
    """Reserve and start, which must succeed."""
    assert ledger.reserve(name, amount) == ADMITTED
    assert ledger.start(name, owner, lease=lease) == STARTED


def committed(ledger: Ledger) -> int:
    """What the tenant has spent and what its live work holds back."""
    tenant = ledger.tenant()
    return tenant.spent + tenant.held


def test_b66_every_way_out_passes_the_one_release(ledger_of: LedgerOf) -> None:
    """BerriAI/litellm#27955, BerriAI/litellm#30020: cancelled streams never gave their slot back.

    Wrong: four cancelled streams count as running for ever, and the fifth request is refused.
    Right: whatever way a request ends, its slot comes back once, when it has stopped.
    LIF-2 LIF-4 LIF-10 ADM-9
    """
    # Given a limit of 4; four streams run and are cancelled midway
    ledger = ledger_of(4)
    for name in "abcd":
        runs(ledger, name, 1)
        assert ledger.cancel(name) == ACCEPTED
    # Then they count until they have stopped, and not longer
    assert ledger.active() == 4
    for name in "abcd":
        assert ledger.finish(name, StopOutcome.STOPPED) == RELEASED
    assert ledger.active() == 0
    # When others complete, fail, end before their start, or are turned away
    runs(ledger, "completes", 1)
    runs(ledger, "fails", 1)
    assert ledger.reserve("never starts", 1) == ADMITTED
    assert ledger.reserve("turned away", 5) == refused(Reason.NEVER_FITS)
    assert ledger.active() == 3
    assert ledger.finish("completes", StopOutcome.COMPLETED) == RELEASED
    assert ledger.finish("fails", StopOutcome.FAILED) == RELEASED
    assert ledger.cancel("never starts") == RELEASED
    # Then nothing is left of any of them
    assert ledger.active() == 0
    assert ledger.reserve("E", 4) == ADMITTED


def test_b67_each_holder_has_a_lease_of_its_own(ledger_of: LedgerOf) -> None:
    """BerriAI/litellm#28160: one shared counter whose time to live every increment prolongs.

    Wrong: other traffic keeps the unit of a crashed owner alive for ever, or a quiet hour frees one that runs.
    Right: A's lease ends at its own moment; A is suspect, still charged, and comes back when its owner is fenced off.
    LEA-2 LEA-3 LEA-4
    """
    # Given a limit of 2; A's owner crashes, and others come and go every 30 seconds
    ledger = ledger_of(2)
    runs(ledger, "A", 1, owner="crashed", lease=60 * SECOND)
    for name in ("b1", "b2"):
        runs(ledger, name, 1)
        assert ledger.finish(name, StopOutcome.COMPLETED) == RELEASED
        assert ledger.passes(30 * SECOND) == NOTED
    # When A's 60 seconds are over
    assert ledger.sweep("A") == SUSPECTED
    # Then time alone frees nothing
    assert ledger.active() == 1
    assert ledger.reserve("two", 2) == refused(Reason.POOL_CAPACITY)
    # And proof that its owner is gone does
    assert ledger.fence("A", "crashed") == FENCED
    assert ledger.reserve("two", 2) == ADMITTED


def test_b67_a_long_run_stays_counted_without_other_traffic(ledger_of: LedgerOf) -> None:
    """BerriAI/litellm#28160: the counter's time to live ran out under a run that took longer.

    Wrong: the count falls to 0 after 60 seconds, and three run where two may.
    Right: the owner renews, and the run counts until it ends.
    LEA-2 LEA-3
    """
    # Given a limit of 2; one run of 100 seconds renews its lease of 60 every 50
    ledger = ledger_of(2)
    runs(ledger, "long", 1, lease=60 * SECOND)
    for _ in range(2):
        assert ledger.passes(50 * SECOND) == NOTED
        assert ledger.renew("long", lease=60 * SECOND) == RENEWED
    # Then one more fits, and not two
    assert ledger.active() == 1
    assert ledger.reserve("second", 1) == ADMITTED
    assert ledger.reserve("third", 1) == refused(Reason.POOL_CAPACITY)
    assert ledger.finish("long", StopOutcome.COMPLETED) == RELEASED
    assert ledger.reserve("third", 1) == ADMITTED


def test_b68_what_one_limit_refuses_no_other_limit_charges(ledger_of: LedgerOf) -> None:
    """BerriAI/litellm#39309: a request turned away by one limit had used up the other.

    Wrong: the refused 90 count against the period's 100, and C is refused with 90 unused.
    Right: all limits are checked and charged in one step.
    ADM-5 ADM-8 ADM-9 ADM-10
    """
    # Given 100 for the period and 90 at once; A runs on 10
    ledger = ledger_of(1_000, {TENANT: Terms(limit=90, budget=100)})
    runs(ledger, "A", 10)
    # When B of 90 is refused, for there is no room beside A
    assert ledger.reserve("B", 90) == refused(Reason.TENANT_CAPACITY)
    # Then the period was not charged for it
    assert committed(ledger) == 10
    assert ledger.finish("A", StopOutcome.COMPLETED, used=10) == RELEASED
    assert ledger.reserve("C", 50) == ADMITTED
    assert committed(ledger) == 60


@pytest.mark.parametrize("first, second", [("B", "C"), ("C", "B")])
def test_b69_a_budget_is_charged_where_it_is_checked(ledger_of: LedgerOf, first: str, second: str) -> None:
    """BerriAI/litellm#26845, BerriAI/litellm#34732, membrane/api-gateway#3210: spend was booked after the run.

    Wrong: both see 60 of 100 used and pass: 120.
    Right: whoever comes first holds its 30 back at once, and the other is refused.
    ADM-2 ADM-8
    """
    # Given 60 of a budget of 100 are spent
    ledger = ledger_of(1_000, {TENANT: Terms(budget=100)})
    runs(ledger, "before", 60)
    assert ledger.finish("before", StopOutcome.COMPLETED, used=60) == RELEASED
    # When two ask for 30 each, in either order
    assert ledger.reserve(first, 30) == ADMITTED
    assert ledger.reserve(second, 30) == refused(Reason.BUDGET)
    # Then 90 are spent or held, and still are when the first has ended
    assert committed(ledger) == 90
    assert ledger.start(first, "w1") == STARTED
    assert ledger.finish(first, StopOutcome.COMPLETED, used=30) == RELEASED
    assert committed(ledger) == 90
    assert ledger.reserve(second, 30) == refused(Reason.BUDGET)


def test_b70_a_settlement_happens_once_or_not_yet(ledger_of: LedgerOf) -> None:
    """BerriAI/litellm#35569, BerriAI/litellm#35570, BerriAI/litellm#36305: the clean-up guessed what had been settled.

    Wrong: reservation and actual cost are both booked, 115, or neither, 50.
    Right: 90 until the settlement is known to have happened, then 75, however often it is sent.
    LIF-4 LIF-5 REC-1 REC-3 GRO-4
    """
    # Given 50 of 200 are spent, and A holds 40
    ledger = ledger_of(1_000, {TENANT: Terms(budget=200)})
    runs(ledger, "before", 50)
    assert ledger.finish("before", StopOutcome.COMPLETED, used=50) == RELEASED
    runs(ledger, "A", 40)
    assert committed(ledger) == 90
    # When A's settlement arrives spoiled, and that of another execution in its place
    assert ledger.finish("A", StopOutcome.COMPLETED, used=25, authentic=False) == refused(Reason.FORGED)
    assert ledger.finish("A", StopOutcome.COMPLETED, used=25, generation=1) == refused(Reason.STALE_GENERATION)
    # Then the books stay on the safe side
    assert committed(ledger) == 90
    # When it arrives, three times
    assert ledger.finish("A", StopOutcome.COMPLETED, used=25) == RELEASED
    assert ledger.finish("A", StopOutcome.COMPLETED, used=25) == RECORDED
    assert ledger.finish("A", StopOutcome.FAILED, used=40) == RECORDED
    # Then what it cost is booked once
    assert (ledger.tenant().spent, ledger.tenant().held) == (75, 0)


def test_b71_a_duplicate_charges_nothing(ledger_of: LedgerOf) -> None:
    """kubernetes/kubernetes#61530, kubernetes/kubernetes#76787, kubernetes/kubernetes#119593: charged, then refused.

    Wrong: seven submissions of an object that exists fill the quota, and others are locked out.
    Right: a duplicate is answered from the record; charge and creation are one step.
    ADM-2 IDN-2 IDN-3
    """
    # Given a quota of 8; r1 exists with 1
    ledger = ledger_of(1_000, {TENANT: Terms(limit=8)})
    assert ledger.reserve("r1", 1) == ADMITTED
    # When it is submitted again seven times, and once with other contents
    for _ in range(7):
        assert ledger.reserve("r1", 1) == RECORDED
    assert ledger.reserve("r1", 1, digest="Q") == refused(Reason.CONFLICT_DIGEST)
    # Then 1 is used, and what is left can be had
    assert ledger.tenant().active == 1
    assert ledger.reserve("r2", 7) == ADMITTED


def test_b72_a_release_by_who_holds_nothing_frees_nothing(ledger_of: LedgerOf) -> None:
    """bluetape4k/bluetape4k-projects#944, redisson/redisson#4086, redisson/redisson#604: permits were a bare number.

    Wrong: repeated, foreign and late releases free 6 of a pool of 3.
    Right: each is told what it is, and frees nothing.
    LIF-5 REC-1 LEA-4
    """
    # Given a pool of 3; A and B hold 1 each
    ledger = ledger_of(3)
    runs(ledger, "A", 1, owner="wa")
    runs(ledger, "B", 1, owner="wb")

    def free() -> int:
        return 3 - ledger.active()

    assert free() == 1
    # When A stops, and says so twice
    assert ledger.finish("A", StopOutcome.COMPLETED) == RELEASED
    assert ledger.finish("A", StopOutcome.COMPLETED) == RECORDED
    assert free() == 2
    # And one that holds nothing releases: what nobody holds, and what B holds
    assert ledger.finish("X", StopOutcome.COMPLETED, owner="wx", generation=9) == refused(Reason.UNKNOWN_KEY)
    assert ledger.finish("B", StopOutcome.COMPLETED, owner="wx", generation=2) == refused(Reason.NOT_OWNER)
    assert free() == 2
    # And B's lease ends, its owner is fenced off, and B's own stop comes late
    assert ledger.passes(10 * SECOND) == NOTED
    assert ledger.sweep("B") == SUSPECTED
    assert ledger.fence("B", "wb") == FENCED
    assert free() == 3
    assert ledger.finish("B", StopOutcome.COMPLETED) == RECORDED
    # Then all 3 are free, and no more
    assert free() == 3


def test_b73_being_full_earns_nothing(ledger_of: LedgerOf) -> None:
    """avifenesh/glide-mq#281: time spent at capacity was credited later.

    Wrong: after 100 idle seconds two requests of the whole capacity pass at once: 20 of 10.
    Right: the first takes all, and the second is refused.
    ADM-5 LEA-6
    """
    # Given a capacity of 10 that was idle for 100 seconds
    ledger = ledger_of(10)
    assert ledger.passes(100 * SECOND) == NOTED
    # When two ask for 10 at the same moment
    # Then one gets them
    assert ledger.reserve("first", 10) == ADMITTED
    assert ledger.reserve("second", 10) == refused(Reason.POOL_CAPACITY)
    assert ledger.active() == 10


def test_b74_a_clock_step_neither_takes_nor_gives(ledger_of: LedgerOf) -> None:
    """ProfessionalWiki/MediaWiki-MCP-Server#557, SandeepVashishtha/Eventra#6489: elapsed time was not clamped.

    Wrong: a step back takes 11 units away and locks the caller out; a step forward refills out of nothing.
    Right: time never goes back, and its passing alone frees nothing that runs.
    LEA-3 LEA-6
    """
    # Given a pool of 10 at second 100; A runs on 6, so 4 are free
    ledger = ledger_of(10)
    assert ledger.passes(100 * SECOND) == NOTED
    runs(ledger, "A", 6)
    # When the clock steps back by 11 seconds
    assert ledger.submit(Tick(89 * SECOND)) == RECORDED
    # Then it still shows 100, nothing has lapsed, and 1 of the 4 can be had
    assert ledger.snapshot().clock == 100 * SECOND
    runs(ledger, "B", 1)
    assert 10 - ledger.active() == 3
    # When it steps forward by more than an hour
    assert ledger.submit(Tick(4_000 * SECOND)) == NOTED
    assert [ledger.sweep(name) for name in ("A", "B")] == [SUSPECTED, SUSPECTED]
    # Then there are still 3
    assert ledger.reserve("C", 10) == refused(Reason.POOL_CAPACITY)
    assert ledger.reserve("C", 3) == ADMITTED


def test_b75_the_estimate_is_not_the_bill(ledger_of: LedgerOf) -> None:
    """octos-org/octos#1599: the estimate made before the run was booked as its cost.

    Wrong: 20 are booked for a run that used 420, and the budget never refuses anyone.
    Right: a run gets no further than it was granted; what it used is billed, and what it used above is on record.
    GRO-2 GRO-3 GRO-4 GRO-6
    """
    # Given a budget of 100; A runs on an estimate of 20 and needs more
    ledger = ledger_of(1_000, {TENANT: Terms(budget=100)})
    runs(ledger, "A", 20)
    assert ledger.extend("A", 420) == refused(Reason.BUDGET)
    assert ledger.extend("A", 90) == EXTENDED
    # Then what it was granted is held back, and B of 20 does not fit beside it
    assert ledger.reserve("B", 20) == refused(Reason.BUDGET)
    # When the runtime runs on regardless, to 420
    assert ledger.report("A", 420) == OVERRUN
    assert ledger.finish("A", StopOutcome.COMPLETED, used=420) == RELEASED
    # Then its 90 are billed, the other 330 are flagged, and B still does not fit
    assert (ledger.tenant().spent, ledger.tenant().overrun) == (90, 330)
    assert ledger.record("A").overrun == 330
    assert ledger.reserve("B", 20) == refused(Reason.BUDGET)
    # And a run that used less than its estimate is billed what it used
    runs(ledger, "C", 10)
    assert ledger.finish("C", StopOutcome.COMPLETED, used=4) == RELEASED
    assert ledger.tenant().spent == 94


def test_b77_a_worker_that_comes_back_still_runs_what_it_ran(ledger_of: LedgerOf) -> None:
    """ai-dynamo/dynamo#13513: a transient removal dropped the entries of requests that were still running.

    Wrong: the worker returns under the same name with load 0, and gets 10 more beside its 8.
    Right: its 8 stay charged; the same incarnation goes on with them, and 2 more fit.
    LEA-2 LEA-3 LEA-5
    """
    # Given a worker of capacity 10 with 8 requests, which is out of sight until its leases are over
    ledger = ledger_of(10)
    for number in range(8):
        runs(ledger, f"r{number}", 1, owner="W, first start")
    assert ledger.passes(10 * SECOND) == NOTED
    assert [ledger.sweep(f"r{number}") for number in range(8)] == [SUSPECTED] * 8
    assert ledger.active() == 8
    # When the same process is seen again
    assert [ledger.renew(f"r{number}") for number in range(8)] == [RENEWED] * 8
    # Then of ten that ask, two fit
    answers = [ledger.reserve(f"n{number}", 1) for number in range(10)]
    assert answers == [ADMITTED] * 2 + [refused(Reason.POOL_CAPACITY)] * 8


def test_b77_a_new_start_of_the_worker_is_proof_for_the_old_one(ledger_of: LedgerOf) -> None:
    """ai-dynamo/dynamo#13513: the worker had really restarted.

    Wrong: its old requests count for ever, or the new process may end them as its own.
    Right: the new incarnation owns none of them; proof that the old one is gone closes all 8 as failed.
    LEA-2 LEA-4
    """
    # Given a worker of capacity 10 whose 8 requests died with its process
    ledger = ledger_of(10)
    for number in range(8):
        runs(ledger, f"r{number}", 1, owner="W, first start")
    # When the new process speaks of one of them
    assert ledger.renew("r0", owner="W, second start") == refused(Reason.NOT_OWNER)
    assert ledger.finish("r0", StopOutcome.FAILED, owner="W, second start") == refused(Reason.NOT_OWNER)
    assert ledger.active() == 8
    # And the old incarnation is proved gone
    assert [ledger.fence(f"r{number}", "W, first start") for number in range(8)] == [FENCED] * 8
    # Then they are over, and the whole capacity can be had
    assert {ledger.record(f"r{number}").state for number in range(8)} == {ReservationState.FAILED}
    assert ledger.reserve("next", 10) == ADMITTED


def test_b103_a_retry_is_counted_once_and_where_its_request_is(ledger_of: LedgerOf) -> None:
    """envoyproxy/envoy#30205, envoyproxy/envoy#30738, envoyproxy/envoy-mobile#811: retries shrank their own limit.

    Wrong: each retry that waits counts as used and no longer as live, so that the last three of six are refused.
    Right: a request has one identity whether it runs or waits to run again, and all six come back.
    LIF-9 LIF-10 QUE-6
    """
    # Given 6 requests fill a pool of 6, of a tenant that may let 3 wait
    ledger = ledger_of(6, {TENANT: Terms(limit=6, queue_limit=3)})
    names = [f"r{number}" for number in range(6)]
    for name in names:
        runs(ledger, name, 1)
    # When all are stopped to be tried again
    assert [ledger.preempt(name) for name in names] == [ACCEPTED] * 6
    assert [ledger.finish(name, StopOutcome.STOPPED) for name in names] == [REQUEUED] * 6
    # Then all wait, hold nothing, and are the same six
    assert (ledger.active(), ledger.tenant().queued, len(ledger.snapshot().reservations)) == (0, 6, 6)
    assert [ledger.reserve(name, 1) for name in names] == [RECORDED] * 6
    # And all six run again
    again: list[Answer] = [ledger.promote(name) for name in names]
    assert again == [ADMITTED] * 6
    assert [ledger.start(name, "w2") for name in names] == [STARTED] * 6
    assert (ledger.active(), ledger.tenant().queued) == (6, 0)
