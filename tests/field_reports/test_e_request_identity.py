"""Family e: a request that runs twice, is cancelled for another, or is over for the ledger but not for the runtime."""

from __future__ import annotations

import pytest

from kvescrow.spec.vocabulary import MICROSECONDS_PER_SECOND as SECOND
from kvescrow.spec.vocabulary import Key, Reason, ReservationState, StopOutcome
from tests.field_reports.conftest import LedgerOf, WorkerOf
from tests.field_reports.ledger import RETENTION, Terms
from tests.field_reports.replies import (
    ACCEPTED,
    ADMITTED,
    CERTIFIED,
    EXTENDED,
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

MINUTE = 60 * SECOND
R1, R1_OF_T2 = Key("t", "r1"), Key("t2", "r1")


def test_b58_one_id_is_one_request_in_each_tenant(ledger_of: LedgerOf) -> None:
    """vllm-project/vllm#10583, vllm-project/vllm#11036, vllm-project/vllm#15041: the caller's id was the key.

    Wrong: the second request overwrites the first: 4 pages are lost, one caller hangs, one cancel hits both.
    Right: the second is the first; a cancel ends one thing; the same id in another tenant is another request.
    IDN-1 IDN-3 LIF-10
    """
    # Given a pool of 8 pages; r1 of tenant t runs on 4
    ledger = ledger_of(8, {"t": Terms(), "t2": Terms()})
    assert ledger.reserve(R1, 4) == ADMITTED
    assert ledger.start(R1, "w1") == STARTED
    # When r1 is reserved again with the same parameters
    # Then it is the same reservation, charged once
    assert ledger.reserve(R1, 4) == RECORDED
    assert ledger.active() == 4
    # And a worker that was told of the retry does not start it again
    assert ledger.start(R1, "w2") == refused(Reason.NOT_OWNER)
    assert ledger.record(R1).generation == 1
    # When t2 reserves an r1 of its own, and t cancels its r1
    assert ledger.reserve(R1_OF_T2, 4) == ADMITTED
    assert ledger.cancel(R1) == ACCEPTED
    # Then each has its own 4, and only t's is cancelling
    assert ledger.active() == 8
    assert [ledger.tenant(name).active for name in ("t", "t2")] == [4, 4]
    assert ledger.record(R1).state is ReservationState.CANCELLING
    assert ledger.record(R1_OF_T2).state is ReservationState.RESERVED


def test_b59_a_key_stays_taken_until_its_stop_is_confirmed(ledger_of: LedgerOf) -> None:
    """vllm-project/vllm#23697, vllm-project/vllm#15326, vllm-project/vllm#24382: an id was reused too early.

    Wrong: the delayed cancel of the first life kills the second, or the first leaks.
    Right: the id stays taken until the stop; a cancel, a start or a stop of the first life cannot touch the second.
    IDN-5 IDN-6 IDN-3 REC-1
    """
    # Given a pool of 4 pages; r1 runs in its first life
    ledger = ledger_of(4)
    assert ledger.reserve("r1", 4) == ADMITTED
    assert ledger.start("r1", "w1") == STARTED
    first = ledger.record("r1")
    # When it is cancelled, and reserved anew before the engine has stopped
    assert ledger.cancel("r1") == ACCEPTED
    # Then the retry is told of the life that is ending, other parameters are a conflict, and nothing is forgotten
    assert ledger.reserve("r1", 4) == RECORDED
    assert ledger.reserve("r1", 4, digest="Q") == refused(Reason.CONFLICT_DIGEST)
    assert ledger.forget("r1") == refused(Reason.LIVE)
    assert ledger.record("r1").state is ReservationState.CANCELLING
    assert ledger.active() == 4
    # When the stop is confirmed, its retention passes, and r1 is reserved anew and started by the same worker
    assert ledger.finish("r1", StopOutcome.STOPPED) == RELEASED
    assert ledger.forget("r1") == refused(Reason.RETAINED)
    assert ledger.passes(RETENTION) == NOTED
    assert ledger.forget("r1") == FORGOTTEN
    assert ledger.reserve("r1", 4) == ADMITTED
    assert ledger.start("r1", "w1") == STARTED
    second = ledger.record("r1")
    # Then it is another life and another generation
    assert second.life > first.life
    assert second.generation > first.generation
    # And nothing late of the first can touch it
    assert ledger.cancel("r1", life=first.life) == refused(Reason.STALE_LIFE)
    assert ledger.start("r1", "w1", life=first.life) == refused(Reason.STALE_LIFE)
    assert ledger.renew("r1", life=first.life, owner="w1", generation=first.generation) == refused(Reason.STALE_LIFE)
    assert ledger.extend("r1", 5, owner="w1", generation=first.generation) == refused(Reason.STALE_GENERATION)
    assert ledger.preempt("r1", generation=first.generation) == refused(Reason.STALE_GENERATION)
    assert ledger.finish("r1", StopOutcome.STOPPED, owner="w1", generation=first.generation) == refused(
        Reason.STALE_GENERATION
    )
    assert ledger.record("r1") == second
    assert ledger.active() == 4


def test_b60_a_worker_that_lost_its_lease_sends_nothing_more(worker_of: WorkerOf) -> None:
    """vllm-project/aibrix#2546: 70 minutes of retries under a lock of 5 minutes.

    Wrong: W2 takes the request over while W1 still retries, and two generations run.
    Right: an expired lease makes W1 suspect; W2 starts only after W1 is fenced off; what W1 sends later is refused.
    LEA-2 LEA-3 LEA-4 IDN-5
    """
    # Given W1 runs r under a lease of 5 minutes, and retries
    worker = worker_of(4)
    ledger = worker.ledger
    assert ledger.reserve("r", 2) == ADMITTED
    assert ledger.start("r", "W1", lease=5 * MINUTE) == STARTED
    first = ledger.record("r")
    # When 5 minutes pass without a renewal
    assert ledger.passes(5 * MINUTE) == NOTED
    assert ledger.sweep("r") == SUSPECTED
    # Then r stays charged, and W2 does not get it
    assert ledger.record("r").state is ReservationState.ORPHANED
    assert ledger.active() == 2
    assert ledger.start("r", "W2") == refused(Reason.SUSPECT)
    # When W1 is fenced off, and r is sent again under its id after the retention
    assert ledger.fence("r", "W1") == FENCED
    assert ledger.start("r", "W2") == refused(Reason.CLOSED)
    assert ledger.passes(RETENTION) == NOTED
    assert ledger.forget("r") == FORGOTTEN
    assert ledger.reserve("r", 2) == ADMITTED
    assert ledger.start("r", "W2") == STARTED
    second = ledger.record("r")
    assert worker.begin("r", second.generation) == STARTED
    assert worker.begin("r", second.generation) == RECORDED
    # Then W1's next retry is refused by the runtime and by the ledger
    assert worker.begin("r", first.generation) == refused(Reason.STALE_GENERATION)
    assert worker.launch("r", 1, generation=first.generation) == refused(Reason.STALE_GENERATION)
    assert ledger.renew("r", life=first.life, owner="W1", generation=first.generation) == refused(Reason.STALE_LIFE)
    assert ledger.extend("r", 3, owner="W1", generation=first.generation) == refused(Reason.NOT_OWNER)
    assert ledger.finish("r", StopOutcome.COMPLETED, owner="W1", generation=first.generation) == refused(
        Reason.NOT_OWNER
    )
    # And W2's generation is the one that runs
    assert worker.launch("r", 1) == LAUNCHED
    assert ledger.record("r") == second
    assert ledger.active() == 2


def test_b60_a_worker_that_renews_keeps_its_request(ledger_of: LedgerOf) -> None:
    """vllm-project/aibrix#2546, the other right way: the retries are tied to the renewal. LEA-2 LEA-5"""
    # Given W1 runs r under a lease of 5 minutes
    ledger = ledger_of(4)
    assert ledger.reserve("r", 2) == ADMITTED
    assert ledger.start("r", "W1", lease=5 * MINUTE) == STARTED
    # When it renews every 4 minutes for 70 minutes, and once comes late
    for _ in range(17):
        assert ledger.passes(4 * MINUTE) == NOTED
        assert ledger.renew("r", lease=5 * MINUTE) == RENEWED
    assert ledger.passes(6 * MINUTE) == NOTED
    assert ledger.sweep("r") == SUSPECTED
    assert ledger.renew("r", lease=5 * MINUTE) == RENEWED
    # Then W2 never gets it, and there was one generation
    assert ledger.start("r", "W2") == refused(Reason.NOT_OWNER)
    assert ledger.record("r").state is ReservationState.RUNNING
    assert ledger.record("r").generation == 1


def test_b61_a_retry_of_running_work_attaches_to_it(ledger_of: LedgerOf) -> None:
    """nex-crm/wuphf#826, vectorize-io/hindsight#1567: only a success was remembered, so a timeout ran it again.

    Wrong: 3 generations of one request run on a capacity of 2.
    Right: in flight is an outcome like done; both retries attach; after the end a retry is told the outcome. IDN-3
    """
    # Given a capacity of 2; r1 runs
    ledger = ledger_of(2)
    assert ledger.reserve("r1", 1) == ADMITTED
    assert ledger.start("r1", "w1", lease=100 * SECOND) == STARTED
    # When the client's retries come at 30 s and at 60 s
    for _ in range(2):
        assert ledger.passes(30 * SECOND) == NOTED
        assert ledger.reserve("r1", 1) == RECORDED
        # Then one generation runs, charged once
        assert ledger.record("r1").generation == 1
        assert ledger.active() == 1
    # And w1, asking again after a lost reply, gets its own generation; another worker gets none
    assert ledger.start("r1", "w1") == RECORDED
    assert ledger.start("r1", "w2") == refused(Reason.NOT_OWNER)
    # When the run ends at 90 s
    assert ledger.passes(30 * SECOND) == NOTED
    assert ledger.finish("r1", StopOutcome.COMPLETED, used=1) == RELEASED
    # Then a retry is told its outcome, and nothing runs
    assert ledger.reserve("r1", 1) == RECORDED
    assert ledger.record("r1").state is ReservationState.COMPLETED
    assert ledger.start("r1", "w1") == refused(Reason.CLOSED)
    assert ledger.active() == 0


@pytest.mark.parametrize("stops", [True, False], ids=["upstream-stops", "upstream-is-fenced-off"])
def test_b62_a_disconnect_frees_the_slot_when_the_upstream_has_stopped(worker_of: WorkerOf, stops: bool) -> None:
    """BerriAI/litellm#30245, #30020 and #30223, ggml-org/llama.cpp#24496, sgl-project/mini-sglang#15.

    The proxy's slot was released when the client went away; the model server went on.
    Wrong: the ledger counts 1 and the runtime runs 2.
    Right: a disconnect asks for a stop; the slot is free when that is confirmed, or the upstream is fenced off.
    LIF-7 LIF-3 LIF-4 LEA-4 REC-2
    """
    # Given a limit of 1; A streams
    worker = worker_of(1)
    ledger = worker.ledger
    held = worker.runs("A", 1)
    assert worker.launch("A", 1, writes=held) == LAUNCHED
    # When its client disconnects
    assert ledger.cancel("A") == ACCEPTED
    assert worker.close("A") == ACCEPTED
    # Then the slot is still taken while the upstream goes on for 20 s, and B waits
    assert ledger.active() == 1
    assert ledger.reserve("B", 1, wait=MINUTE) == queued(Reason.POOL_CAPACITY)
    assert ledger.passes(20 * SECOND) == NOTED
    assert ledger.sweep("A").decision.changes_nothing
    assert ledger.promote("B") == refused(Reason.POOL_CAPACITY)
    assert worker.certify("A") == refused(Reason.IN_FLIGHT)
    # When the upstream stops, or is proved gone
    if stops:
        assert worker.ends(1) == SETTLED
        assert worker.certify("A") == CERTIFIED
        assert ledger.finish("A", StopOutcome.STOPPED) == RELEASED
    else:
        assert ledger.fence("A", "w1") == FENCED
    # Then the slot is free once, and B has it
    assert ledger.record("A").state is ReservationState.CANCELLED
    assert ledger.promote("B") == ADMITTED
    assert ledger.active() == 1
    assert ledger.finish("A", StopOutcome.STOPPED) == RECORDED
    assert ledger.active() == 1


def test_b63_a_key_is_bound_to_its_parameters(ledger_of: LedgerOf) -> None:
    """josipmusa/idempotency4j#12, novuhq/novu#4472: the same key with another body got the first answer.

    Wrong: {max=900} gets the stored result of {max=100}, or rides on a reservation of 100.
    Right: both are conflicts; no counter moves; the original stays valid. IDN-2 IDN-3
    """
    # Given a tenant limit of 1000 tokens; r1 with {max=100} has completed, r2 with {max=100} runs
    ledger = ledger_of(2_000, {"t": Terms(limit=1_000)})
    assert ledger.reserve("r1", 100, digest="max=100") == ADMITTED
    assert ledger.start("r1", "w1") == STARTED
    assert ledger.finish("r1", StopOutcome.COMPLETED, used=80) == RELEASED
    assert ledger.reserve("r2", 100, digest="max=100") == ADMITTED
    assert ledger.start("r2", "w1") == STARTED
    before = ledger.snapshot()
    # When either is sent again with {max=900}
    for name in ("r1", "r2"):
        # Then it is a conflict, whichever of the amount and the digest differ
        assert ledger.reserve(name, 900, digest="max=900") == refused(Reason.CONFLICT_AMOUNT)
        assert ledger.reserve(name, 900, digest="max=100") == refused(Reason.CONFLICT_AMOUNT)
        assert ledger.reserve(name, 100, digest="max=900") == refused(Reason.CONFLICT_DIGEST)
    # And nothing has moved, and the originals answer as before
    assert ledger.snapshot() == before
    assert ledger.tenant().active == 100
    assert [ledger.reserve(name, 100, digest="max=100") for name in ("r1", "r2")] == [RECORDED] * 2
    # And two identical first uses, one after the other on the record, are one reservation
    assert [ledger.reserve("r3", 100, digest="max=100") for _ in range(2)] == [ADMITTED, RECORDED]
    assert ledger.tenant().active == 200


def test_b64_a_refusal_binds_nothing(ledger_of: LedgerOf) -> None:
    """KanishJebaMathewM/Truxify#2885: a stored failure blocked every retry; the key lacked the operation.

    Wrong: "queue full" is replayed for ever; the extend is answered with the reserve's answer.
    Right: what started nothing is not bound; only outcomes of a started life are replayed, each operation its own.
    IDN-4 IDN-3 QUE-1
    """
    # Given a pool of 2 that A holds, and a queue of one, in which B waits
    ledger = ledger_of(2, {"t": Terms(queue_limit=1)})
    assert ledger.reserve("A", 2) == ADMITTED
    assert ledger.start("A", "w1") == STARTED
    assert ledger.reserve("B", 2, wait=MINUTE) == queued(Reason.POOL_CAPACITY)
    # When r1 is refused
    assert ledger.reserve("r1", 1, wait=MINUTE) == refused(Reason.QUEUE_FULL)
    # Then there is no record of it, and another request may have the key
    assert Key("t", "r1") not in ledger.snapshot().reservations
    assert ledger.reserve("r1", 2, digest="Q") == refused(Reason.POOL_CAPACITY)
    # When there is room later, and r1 is sent again
    assert ledger.finish("A", StopOutcome.COMPLETED) == RELEASED
    assert ledger.cancel("B") == RELEASED
    # Then it is admitted
    assert ledger.reserve("r1", 1, wait=MINUTE) == ADMITTED
    # And another operation with the same key has an answer of its own, before the start and after it
    assert ledger.extend("r1", 2) == refused(Reason.NOT_RUNNING)
    assert ledger.start("r1", "w1") == STARTED
    assert ledger.extend("r1", 2) == EXTENDED
    assert ledger.reserve("r1", 1, wait=MINUTE) == RECORDED
    # When it has failed
    assert ledger.finish("r1", StopOutcome.FAILED, used=1) == RELEASED
    # Then this outcome of a started life is what a retry is told
    assert ledger.reserve("r1", 1, wait=MINUTE) == RECORDED
    assert ledger.record("r1").state is ReservationState.FAILED
