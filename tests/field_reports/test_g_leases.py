"""Family g: leases that end while someone still acts under them, and holders who release what is no longer theirs."""

from __future__ import annotations

import pytest

from kvescrow.spec.vocabulary import MICROSECONDS_PER_SECOND as SECOND
from kvescrow.spec.vocabulary import Reason, ReservationState, StopOutcome
from tests.field_reports.conftest import EVERY_STORE, LedgerOf, WorkerOf
from tests.field_reports.ledger import RETENTION, Ledger
from tests.field_reports.replies import (
    ACCEPTED,
    ADMITTED,
    CERTIFIED,
    FENCED,
    FORGOTTEN,
    LAUNCHED,
    NOTED,
    RECORDED,
    RELEASED,
    RENEWED,
    SETTLED,
    STARTED,
    SUSPECTED,
    queued,
    refused,
)

pytestmark = pytest.mark.parametrize("ledger_of", EVERY_STORE, indirect=True)


def takes(ledger: Ledger, name: str, owner: str, *, lease: int = 10 * SECOND) -> None:
    """Take the one unit of capacity as a lock is taken: reserve and start, which must succeed."""
    assert ledger.reserve(name, 1) == ADMITTED
    assert ledger.start(name, owner, lease=lease) == STARTED


def is_taken_over(ledger: Ledger, name: str, before: str, after: str) -> None:
    """Let `before` be fenced off, and `after` take the same name in a new life once it may be taken."""
    assert ledger.fence(name, before) == FENCED
    assert ledger.passes(RETENTION) == NOTED
    assert ledger.forget(name) == FORGOTTEN
    takes(ledger, name, after)


def test_b79_pages_of_a_lapsed_lease_are_not_handed_on(worker_of: WorkerOf) -> None:
    """aws-samples/aws-do-eks#84, vllm-project/vllm#47021, vllm-project/vllm#41383: a late reader got others' bytes.

    Wrong: the lease ends at 30, the pages go to B, and D, which had A queued until 51, decodes on B's content.
    Right: the lapsed lease makes D suspect and keeps its pages; what D reads at 51 is still A's.
    LEA-3 PAG-4
    """
    # Given a producer of 8 pages; 4 of them are leased to consumer D, for request A
    worker = worker_of(8)
    ledger = worker.ledger
    pages = worker.runs("A", 4, owner="D")
    # When the lease ends while D keeps A queued, and B asks for all 8
    assert ledger.passes(31 * SECOND) == NOTED
    assert ledger.sweep("A") == SUSPECTED
    # Then B waits
    assert ledger.reserve("B", 8, wait=3_600 * SECOND) == queued(Reason.POOL_CAPACITY)
    # And D's read at 51 finds the pages as it left them, and its renewal puts everything right
    assert ledger.passes(20 * SECOND) == NOTED
    assert worker.launch("A", 1, reads=pages) == LAUNCHED
    assert all(worker.holder("A") in worker.pages.page(page).holders for page in pages)
    assert worker.ends(1) == SETTLED
    assert ledger.renew("A") == RENEWED
    assert ledger.promote("B") == refused(Reason.POOL_CAPACITY)


def test_b79_a_read_under_a_lease_that_was_taken_away_is_refused(worker_of: WorkerOf) -> None:
    """aws-samples/aws-do-eks#84, vllm-project/vllm#47021: the late read was not turned away.

    Wrong: D reads at 51 what B wrote at 31, and goes on.
    Right: the read names its execution, and that is over.
    LEA-4 REC-2 IDN-5
    """
    # Given D's lease on A's 4 pages of 8 ends, and D is fenced off
    worker = worker_of(8)
    ledger = worker.ledger
    pages = worker.runs("A", 4, owner="D")
    assert ledger.passes(31 * SECOND) == NOTED
    assert ledger.sweep("A") == SUSPECTED
    assert worker.close("A") == ACCEPTED
    assert worker.certify("A") == CERTIFIED
    worker.lets_go("A", pages)
    assert ledger.fence("A", "D") == FENCED
    # When B gets all 8 pages
    assert set(worker.runs("B", 8, owner="P")) >= set(pages)
    # Then D's read at 51 touches none of them
    assert worker.launch("A", 1, reads=pages, generation=1) == refused(Reason.STOPPING)
    assert ledger.renew("A", owner="D") == refused(Reason.CLOSED)
    assert worker.launch("B", 2, writes=pages[:1]) == LAUNCHED
    assert worker.ends(2) == SETTLED


def test_b80_the_failure_of_who_never_owned_it_fails_nothing(ledger_of: LedgerOf) -> None:
    """apache/airflow#58441, apache/airflow#60855, apache/airflow#64052, celery/celery#5935: delivered twice.

    Wrong: the second worker cannot start the running job, reports a failure, and the job is failed under the first.
    Right: whoever does not own the execution has no say in its outcome.
    IDN-3 LEA-2 REC-1
    """
    # Given W1 runs r on 4 pages
    ledger = ledger_of(4)
    assert ledger.reserve("r", 4) == ADMITTED
    assert ledger.start("r", "W1") == STARTED
    # When r is delivered to W2, which may not start it, and says that it failed
    assert ledger.start("r", "W2") == refused(Reason.NOT_OWNER)
    assert ledger.finish("r", StopOutcome.FAILED, owner="W2") == refused(Reason.NOT_OWNER)
    assert ledger.finish("r", StopOutcome.FAILED, owner="W2", generation=2) == refused(Reason.NOT_OWNER)
    # Then r runs on, and its 4 pages are charged
    assert (ledger.record("r").state, ledger.record("r").generation) == (ReservationState.RUNNING, 1)
    assert ledger.active() == 4
    assert ledger.finish("r", StopOutcome.COMPLETED) == RELEASED


def test_b81_a_late_holder_releases_nothing_of_its_successor(ledger_of: LedgerOf) -> None:
    """laravel/framework#26213, nexspence/nexspence#226: a release deleted the lock, whoever held it.

    Wrong: A's late release frees what B holds, and C enters beside B.
    Right: A is told that it owns nothing, and C is refused.
    REC-1 IDN-5 LEA-4
    """
    # Given A took L for 10 seconds, is fenced off, and B has L
    ledger = ledger_of(1)
    takes(ledger, "L", "A")
    assert ledger.passes(10 * SECOND) == NOTED
    assert ledger.sweep("L") == SUSPECTED
    is_taken_over(ledger, "L", "A", "B")
    # When A releases at last
    assert ledger.finish("L", StopOutcome.COMPLETED, owner="A", generation=1) == refused(Reason.NOT_OWNER)
    # Then B still holds it, and C does not get in
    assert ledger.record("L").state is ReservationState.RUNNING
    assert ledger.reserve("C", 1) == refused(Reason.POOL_CAPACITY)


def test_b82_who_was_replaced_while_a_call_hung_acts_in_vain(ledger_of: LedgerOf) -> None:
    """kubernetes/kubernetes#44887: a renewal hung for longer than the lease, and the old leader went on.

    Wrong: between 17 and 62 both lead, and what the old one starts and extends is accepted.
    Right: the record has seen the new execution, and refuses the old one, the hung renewal too.
    LEA-2 IDN-5
    """
    # Given A leads for 15 seconds, and its renewal hangs
    ledger = ledger_of(2)
    takes(ledger, "lead", "A", lease=15 * SECOND)
    first = ledger.record("lead")
    # When its lease ends and B takes over, and B starts r
    assert ledger.passes(17 * SECOND) == NOTED
    assert ledger.sweep("lead") == SUSPECTED
    is_taken_over(ledger, "lead", "A", "B")
    takes(ledger, "r", "B")
    leading = ledger.record("lead")
    # Then nothing that A does under its old lease has an effect
    assert ledger.start("r", "A") == refused(Reason.NOT_OWNER)
    assert ledger.extend("lead", 2, owner="A", generation=first.generation) == refused(Reason.NOT_OWNER)
    assert ledger.preempt("lead", generation=first.generation) == refused(Reason.STALE_GENERATION)
    assert ledger.cancel("lead", life=first.life) == refused(Reason.STALE_LIFE)
    # And its renewal, answered at last, is refused
    assert ledger.renew("lead", life=first.life, owner="A", generation=1) == refused(Reason.STALE_LIFE)
    assert ledger.record("lead") == leading


def test_b83_a_release_whose_answer_was_lost_is_sent_again(ledger_of: LedgerOf) -> None:
    """redis/redis-py#4258, redis/redis-py#489: the holder forgot its token before it knew the answer.

    Wrong: the lock stays taken until its 600 seconds are over.
    Right: the receipt is kept and sent again: the first to arrive releases, and every other is told so.
    REC-3 LIF-5
    """
    # Given A holds L for 600 seconds; its release never arrived
    ledger = ledger_of(1)
    takes(ledger, "L", "A", lease=600 * SECOND)
    assert ledger.reserve("C", 1) == refused(Reason.POOL_CAPACITY)
    # When it is sent again, and once more
    assert ledger.finish("L", StopOutcome.COMPLETED, used=1) == RELEASED
    assert ledger.finish("L", StopOutcome.COMPLETED, used=1) == RECORDED
    # Then L was released once, and can be had at once
    assert (ledger.active(), ledger.tenant().spent) == (0, 1)
    assert ledger.reserve("C", 1) == ADMITTED


def test_b83_a_release_that_had_arrived_takes_nothing_from_the_next_holder(ledger_of: LedgerOf) -> None:
    """redis/redis-py#4258: the first try had been applied, and L has another holder.

    Wrong: the second try frees what B holds.
    Right: it is told that it owns nothing, and B keeps L.
    REC-1 REC-3 IDN-5
    """
    # Given A's release was applied, its answer was lost, and B holds L now
    ledger = ledger_of(1)
    takes(ledger, "L", "A")
    assert ledger.finish("L", StopOutcome.COMPLETED) == RELEASED
    assert ledger.passes(RETENTION) == NOTED
    assert ledger.forget("L") == FORGOTTEN
    takes(ledger, "L", "B")
    # When A sends it again
    assert ledger.finish("L", StopOutcome.COMPLETED, owner="A", generation=1) == refused(Reason.NOT_OWNER)
    # Then B keeps it
    assert ledger.record("L").owner == "B"
    assert ledger.active() == 1
