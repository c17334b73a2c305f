"""Family a: pages that leak, or are freed twice, or are counted wrongly."""

from __future__ import annotations

import pytest

from kvescrow.spec.vocabulary import MICROSECONDS_PER_SECOND as SECOND
from kvescrow.spec.vocabulary import ExecutionState, PageState, Reason, ReservationState, StopOutcome
from tests.field_reports.conftest import LedgerOf, PagesOf, WorkerOf
from tests.field_reports.pages import Counts, text
from tests.field_reports.replies import (
    ACCEPTED,
    ADMITTED,
    CERTIFIED,
    DROPPED,
    FENCED,
    FORGOTTEN,
    GRANTED,
    LAUNCHED,
    NOTED,
    NOTHING_DUE,
    RECORDED,
    RELEASED,
    REQUEUED,
    SETTLED,
    STARTED,
    queued,
    refused,
)

CACHED, DRAINING, FREE, SHARED = PageState.CACHED, PageState.DRAINING, PageState.FREE, PageState.SHARED


def test_b01_a_dead_peer_does_not_keep_an_aborted_load_for_ever(worker_of: WorkerOf) -> None:
    """vllm-project/vllm#46283: an aborted load kept its pages, since only the lost peer could end it.

    Wrong: A stays cancelling for ever and B waits for ever. As wrong: pages come back before the peer is fenced off.
    Right: a fence is the bounded second exit; the pages come back once, and the late end is ignored.
    REC-2 LEA-3 LEA-4 LIF-3 LIF-5 PAG-4
    """
    # Given a pool of 8 pages; A runs on 6 of them, and its peer P1 writes all 6; B waits for 4
    worker = worker_of(8)
    held = worker.runs("A", 6, owner="P1")
    assert worker.launch("A", 1, writes=held) == LAUNCHED
    assert worker.ledger.reserve("B", 4, wait=9_000 * SECOND) == queued(Reason.POOL_CAPACITY)
    # When A is cancelled while the write goes on
    assert worker.ledger.cancel("A") == ACCEPTED
    assert worker.close("A") == ACCEPTED
    worker.lets_go("A", held)
    # Then nothing is free yet: the pages drain and the stop cannot be certified
    assert worker.pages.counts() == Counts(free=2, draining=6)
    assert worker.certify("A") == refused(Reason.IN_FLIGHT)
    # When P1 dies, and all hold times pass
    assert worker.ledger.passes(480 * SECOND) == NOTED
    # Then time alone releases nothing
    assert worker.ledger.sweep("A") == NOTHING_DUE
    assert worker.ledger.promote("B") == refused(Reason.POOL_CAPACITY)
    # And neither does a forged proof, nor the proof that another incarnation is gone
    assert worker.ledger.fence("A", "P1", authentic=False) == refused(Reason.FORGED)
    assert worker.ledger.fence("A", "P2") == refused(Reason.NOT_OWNER)
    assert worker.ledger.active() == 6
    # When a supervisor proves that P1 is fenced off, which ends its write
    assert worker.ends(1, ok=False) == SETTLED
    assert worker.ledger.fence("A", "P1") == FENCED
    # Then the 6 pages are back, once, and B is admitted
    assert worker.ledger.record("A").state is ReservationState.CANCELLED
    assert worker.pages.counts() == Counts(free=8)
    assert worker.ledger.active() == 0
    assert worker.ledger.promote("B") == ADMITTED
    # When the end of the write, the receipt and the fence arrive after all
    # Then they change nothing
    assert worker.ends(1) == RECORDED
    assert worker.ledger.finish("A", StopOutcome.STOPPED) == RECORDED
    assert worker.ledger.fence("A", "P1") == refused(Reason.CLOSED)
    assert worker.ledger.active() == 4
    assert worker.pages.counts() == Counts(free=8)


def test_b02_a_copy_that_fails_unpins_like_one_that_succeeds(worker_of: WorkerOf) -> None:
    """vllm-project/vllm#43742: the counter of copies in flight went down on success only.

    Wrong: after a failed copy A's 4 pages stay pinned until the process ends.
    Right: the end of a copy, good or bad, is one event; the pages come back once. PAG-4 REC-2 LIF-4
    """
    # Given a pool of 8 pages; A runs on 4 of them, and a copy reads them; B waits for 6
    worker = worker_of(8)
    held = worker.runs("A", 4)
    assert worker.launch("A", 1, reads=held) == LAUNCHED
    assert worker.ledger.reserve("B", 6, wait=60 * SECOND) == queued(Reason.POOL_CAPACITY)
    # When A reaches its end
    assert worker.close("A") == ACCEPTED
    worker.lets_go("A", held)
    # Then it waits for the copy
    assert worker.certify("A") == refused(Reason.IN_FLIGHT)
    assert worker.pages.counts() == Counts(free=4, draining=4)
    # When the copy ends with an error
    assert worker.ends(1, ok=False) == SETTLED
    # Then all 4 pages are free and the stop is certified
    assert worker.pages.counts() == Counts(free=8)
    assert worker.certify("A") == CERTIFIED
    assert worker.ledger.finish("A", StopOutcome.COMPLETED) == RELEASED
    assert worker.ledger.promote("B") == ADMITTED
    assert worker.ledger.active() == 6
    # And neither end counts twice
    assert worker.ends(1, ok=False) == RECORDED
    assert worker.ledger.finish("A", StopOutcome.COMPLETED) == RECORDED
    assert worker.ledger.active() == 6


def test_b04_a_finished_request_is_no_victim(worker_of: WorkerOf) -> None:
    """sgl-project/sglang#18694: the preemption pass freed a request that had just finished.

    Wrong: A's pages are released twice, so 4 count as free while B holds 2.
    Right: preempting a terminal request is refused; C is served only after B's stop is confirmed. LIF-5 LIF-8 LIF-9
    """
    # Given a pool of 4 pages; A and B run on 2 each; the list of victims names both; C waits for 4
    worker = worker_of(4)
    of_a = worker.runs("A", 2)
    of_b = worker.runs("B", 2)
    assert worker.ledger.reserve("C", 4, wait=60 * SECOND) == queued(Reason.POOL_CAPACITY)
    # When A finishes
    assert worker.close("A") == ACCEPTED
    worker.lets_go("A", of_a)
    assert worker.certify("A") == CERTIFIED
    assert worker.ledger.finish("A", StopOutcome.COMPLETED) == RELEASED
    # And the stale list names A first
    # Then A is no victim, nothing of it is released again, and C still waits
    assert worker.ledger.preempt("A") == refused(Reason.CLOSED)
    assert [worker.drop("A", page) for page in of_a] == [refused(Reason.NOT_HOLDER)] * 2
    assert worker.ledger.active() == 2
    assert worker.pages.counts() == Counts(free=2, private=2)
    assert worker.ledger.promote("C") == refused(Reason.POOL_CAPACITY)
    # When B is the victim
    assert worker.ledger.preempt("B") == ACCEPTED
    assert worker.close("B") == ACCEPTED
    # Then C waits on, until B's stop is confirmed
    assert worker.ledger.promote("C") == refused(Reason.POOL_CAPACITY)
    worker.lets_go("B", of_b)
    assert worker.certify("B") == CERTIFIED
    assert worker.ledger.finish("B", StopOutcome.STOPPED) == REQUEUED
    assert worker.ledger.promote("C") == ADMITTED
    assert worker.ledger.record("B").state is ReservationState.QUEUED
    assert worker.ledger.promote("B") == refused(Reason.POOL_CAPACITY)
    assert worker.ledger.active() == 4


def test_b05_the_slot_allocated_ahead_is_freed_once_and_after_its_step(pages_of: PagesOf) -> None:
    """sgl-project/sglang#12224, sgl-project/sglang-jax#994: two paths freed the slot of the next decode step.

    Wrong: the free list holds slot 3 twice, and two requests get it.
    Right: the second release is refused; slot 3 is not reusable before its step ends. PAG-2 PAG-3 PAG-4
    """
    # Given a pool of 4 slots, all held by A: s1 writes the third, s2, launched ahead, the fourth
    pool = pages_of(4, length=1)
    slots = pool.holding("A", 4)
    assert pool.write("A", slots[2]) == LAUNCHED
    assert pool.write("A", slots[3]) == LAUNCHED
    # When s1 ends, A is at its end, and the finish path releases all 4
    assert pool.write_ends(slots[2]) == SETTLED
    assert [pool.drop("A", slot) for slot in slots] == [DROPPED] * 4
    # And the overlap path releases "the extra" one again
    # Then it is refused, and the slot still waits for s2
    assert pool.drop("A", slots[3]) == refused(Reason.NOT_HOLDER)
    assert pool.counts() == Counts(free=3, draining=1)
    # When B and C take slots until there are none
    # Then they get 3 different ones, and no fourth is promised
    taken = [*pool.holding("B", 2), *pool.holding("C", 1)]
    assert sorted(taken) == sorted(slots[:3])
    assert pool.admit("D", 1) == refused(Reason.POOL_CAPACITY)
    assert pool.allocate("D", slots[3]) == refused(Reason.NOT_FREE)
    # When s2 ends
    assert pool.write_ends(slots[3]) == SETTLED
    # Then the fourth can be taken, once
    assert pool.holding("D", 1) == [slots[3]]
    assert pool.write_ends(slots[3]) == refused(Reason.NOT_OUTSTANDING)
    assert pool.admit("E", 1) == refused(Reason.POOL_CAPACITY)


def test_b06_after_the_hand_over_to_the_cache_the_request_holds_nothing(pages_of: PagesOf) -> None:
    """sgl-project/sglang-omni#1607: a compensating free hit a page that the prefix cache owned by then.

    Wrong: the page is on the free list and in the prefix tree at once, and C attends B's data.
    Right: the late release is refused; the page has one state; C gets A's content. PAG-2 PAG-3 PAG-8
    """
    # Given a pool of 4 pages; A ended and left 3 of them to the prefix cache
    pool = pages_of(4)
    chain = pool.cached(text(3), by="A")
    # When the overrun handler releases the third for A, late
    # Then it is refused and the page stays cached
    assert pool.drop("A", chain[2]) == refused(Reason.NOT_HOLDER)
    assert pool.counts() == Counts(free=1, cached=3)
    # When B allocates a page
    (own,) = pool.holding("B", 1)
    # Then it gets the free one, and cannot get a cached one
    assert own not in chain
    assert pool.admit("B2", 1) == GRANTED
    assert pool.allocate("B2", chain[2]) == refused(Reason.NOT_FREE)
    assert pool.close("B2") == RELEASED
    # When C looks A's prefix up
    assert pool.admit("C", 3) == GRANTED
    # Then it finds all 3 pages, and holds them alone
    assert pool.match("C", text(3)) == chain
    assert [pool.holders(page) for page in chain] == [{"C"}] * 3
    assert pool.counts() == Counts(private=1, shared=3)


def test_b07_a_failed_try_keeps_neither_resource(pages_of: PagesOf) -> None:
    """sgl-project/sglang#16067: each failed try kept the state slot that it took before the page check.

    Wrong: two failed tries use up both slots, and A can never start.
    Right: a failed try leaves both pools as they were; A is admitted once the pages are free. ADM-10 LIF-4 LIF-5
    """
    # Given 6 pages, of which C holds 2, and 2 state slots
    pages, slots = pages_of(6), pages_of(2, length=1)
    of_c = pages.holding("C", 2)
    # When A needs 5 pages and a slot, and is tried three times, the slot first
    for attempt in ("A1", "A2", "A3"):
        assert slots.admit(attempt, 1) == GRANTED
        assert pages.admit(attempt, 5) == refused(Reason.POOL_CAPACITY)
        assert slots.close(attempt) == RELEASED
        # Then the slot is back, once, and the pages know nothing of it
        assert slots.close(attempt) == RECORDED
        assert slots.counts() == Counts(free=2)
        assert pages.counts() == Counts(free=4, private=2)
    # When C's stop is confirmed
    pages.leaves("C", of_c)
    # Then A has both
    assert slots.holding("A4", 1)
    assert pages.holding("A4", 5)
    assert slots.counts() == Counts(free=1, private=1)
    assert pages.counts() == Counts(free=1, private=5)


@pytest.mark.parametrize("order", [(1, 2), (2, 1)], ids=("receive-then-send", "send-then-receive"))
def test_b08_pages_return_after_the_last_of_two_copies(worker_of: WorkerOf, order: tuple[int, int]) -> None:
    """vllm-project/vllm#56089, vllm-project/vllm#46240: an abort with a receive and a send in flight.

    Wrong: the first completion frees the pages while the other still reads them; the second one crashes.
    Right: what is in flight is a set; the pages return once, after its last member, in either order. PAG-4 REC-2
    """
    # Given a pool of 6 pages; A runs on 4; a receive writes them and a send reads them; B waits for 4
    worker = worker_of(6)
    held = worker.runs("A", 4)
    assert worker.launch("A", 1, writes=held) == LAUNCHED
    assert worker.launch("A", 2, reads=held) == LAUNCHED
    assert worker.ledger.reserve("B", 4, wait=60 * SECOND) == queued(Reason.POOL_CAPACITY)
    # When A is cancelled
    assert worker.ledger.cancel("A") == ACCEPTED
    assert worker.close("A") == ACCEPTED
    worker.lets_go("A", held)
    # And one of the copies ends
    first, last = order
    assert worker.ends(first) == SETTLED
    # Then the pages still drain, no stop is certified, B waits
    assert worker.pages.state(*held) == [DRAINING] * 4
    assert worker.certify("A") == refused(Reason.IN_FLIGHT)
    assert worker.ledger.promote("B") == refused(Reason.POOL_CAPACITY)
    # When the other ends
    assert worker.ends(last) == SETTLED
    # Then all pages are free and B is admitted
    assert worker.pages.counts() == Counts(free=6)
    assert worker.certify("A") == CERTIFIED
    assert worker.ledger.finish("A", StopOutcome.STOPPED) == RELEASED
    assert worker.ledger.promote("B") == ADMITTED
    # And a second receipt, or a second end of either, changes nothing
    assert worker.certify("A") == RECORDED
    assert worker.ledger.finish("A", StopOutcome.STOPPED) == RECORDED
    assert worker.ledger.active() == 4
    assert [worker.ends(ticket) for ticket in order] == [RECORDED] * 2
    assert worker.pages.counts() == Counts(free=6)


def test_b09_a_page_that_is_listed_twice_is_freed_once(pages_of: PagesOf) -> None:
    """vllm-project/vllm#42612 (also vllm-project/vllm-ascend#14301, ModelEngine-Group/unified-cache-management#1053).

    A sliding-window layout named one physical page twice in the list to free.
    Wrong: its count falls to -1, 5 of 4 pages are free, and it is handed out twice.
    Right: references are a set of holders; the duplicate is refused, not absorbed. PAG-2 PAG-3 LIF-5
    """
    # Given a pool of 4 pages; A's page table is [p, q, q]
    pool = pages_of(4)
    p, q = pool.holding("A", 2)
    assert pool.holders(q) == {"A"}
    # When the whole list is released
    # Then q is released once, and the duplicate is told
    assert [pool.drop("A", page) for page in (p, q, q)] == [DROPPED, DROPPED, refused(Reason.NOT_HOLDER)]
    assert pool.counts() == Counts(free=4)
    # When all pages are allocated
    # Then there are 4 different ones and no fifth
    assert pool.close("A") == RELEASED
    assert len(set(pool.holding("B", 4))) == 4
    assert pool.admit("C", 1) == refused(Reason.POOL_CAPACITY)
    assert pool.counts() == Counts(private=4)


def test_b10_a_cancel_between_two_chunks_finds_its_request(worker_of: WorkerOf) -> None:
    """sgl-project/sglang-jax#1471, sgl-project/sglang-jax#984: between two chunks a request was in no list.

    Wrong: the cancel misses silently; the pages of the first chunk are held for ever.
    Right: there is one record; the cancel is accepted at once and the stop confirmed when the chunk ends.
    LIF-1 LIF-3 LIF-4 REC-2
    """
    # Given a pool of 8 pages; A needs 6; its first chunk, on 2 pages, is launched; B waits for all 8
    worker = worker_of(8)
    held = worker.runs("A", 6, drawn=2)
    assert worker.launch("A", 1, writes=held, full=True) == LAUNCHED
    assert worker.ledger.reserve("B", 8, wait=60 * SECOND) == queued(Reason.POOL_CAPACITY)
    # When A is cancelled before its next chunk
    assert worker.ledger.cancel("A") == ACCEPTED
    assert worker.close("A") == ACCEPTED
    # Then the next chunk is not launched
    assert worker.ledger.record("A").state is ReservationState.CANCELLING
    assert worker.launch("A", 2, writes=held) == refused(Reason.STOPPING)
    assert worker.certify("A") == refused(Reason.IN_FLIGHT)
    assert worker.acknowledge("A") == refused(Reason.IN_FLIGHT)
    # When the first chunk ends
    assert worker.ends(1) == SETTLED
    # Then the stop is confirmed, everything is back, and B is admitted
    assert worker.certify("A") == CERTIFIED
    worker.lets_go("A", held)
    assert worker.pages.counts() == Counts(free=8)
    assert worker.ledger.finish("A", StopOutcome.STOPPED) == RELEASED
    assert worker.ledger.promote("B") == ADMITTED
    # And the request ends once
    assert worker.ledger.record("A").state is ReservationState.CANCELLED
    assert worker.ledger.finish("A", StopOutcome.STOPPED) == RECORDED
    assert worker.ledger.cancel("A") == RECORDED
    # And once the worker knows that the ledger has the receipt, nothing of the request is left there
    assert worker.acknowledge("A") == FORGOTTEN
    assert worker.execution("A") is ExecutionState.ABSENT
    assert worker.acknowledge("A") == refused(Reason.UNKNOWN_KEY)
    assert worker.launch("A", 2) == refused(Reason.UNKNOWN_KEY)


def test_b11_an_accepted_cancel_decides_over_the_last_result(worker_of: WorkerOf) -> None:
    """vllm-project/vllm#29987, vllm-project/vllm#29906: the last step's result was read before the waiting cancel.

    Wrong: A completes, and 6 pages stay pinned for a consumer that will never come.
    Right: a cancel accepted first decides; the pages are free right after the step; the tie rule is fixed.
    LIF-6 LIF-4 PAG-4
    """
    # Given a pool of 8 pages; A runs its last step on 6; B waits for 4
    worker = worker_of(8)
    held = worker.runs("A", 6)
    assert worker.launch("A", 1, writes=held, full=True) == LAUNCHED
    assert worker.ledger.reserve("B", 4, wait=60 * SECOND) == queued(Reason.POOL_CAPACITY)
    # When A is cancelled, and then the step ends with "finished"
    assert worker.ledger.cancel("A") == ACCEPTED
    assert worker.close("A") == ACCEPTED
    assert worker.ends(1) == SETTLED
    assert worker.certify("A") == CERTIFIED
    worker.lets_go("A", held)
    assert worker.ledger.finish("A", StopOutcome.COMPLETED, used=6) == RELEASED
    # Then A is cancelled, its pages are free at once, and B is admitted
    assert worker.ledger.record("A").state is ReservationState.CANCELLED
    assert worker.pages.counts() == Counts(free=8)
    assert worker.ledger.active() == 0
    assert worker.ledger.promote("B") == ADMITTED


def test_b11_a_committed_result_decides_over_a_later_cancel(ledger_of: LedgerOf) -> None:
    """vllm-project/vllm#29987, the other order of the same tie: the result was committed first. LIF-6 LIF-8"""
    # Given A runs on 6 of 8
    ledger = ledger_of(8)
    assert ledger.reserve("A", 6) == ADMITTED
    assert ledger.start("A", "w1") == STARTED
    # When its result is committed, and then it is cancelled
    assert ledger.finish("A", StopOutcome.COMPLETED, used=6) == RELEASED
    # Then the cancel changes nothing
    assert ledger.cancel("A") == RECORDED
    assert ledger.record("A").state is ReservationState.COMPLETED
    assert ledger.active() == 0


def test_b12_eviction_takes_no_page_from_its_holder(pages_of: PagesOf) -> None:
    """Avarok-Cybersecurity/atlas#373: eviction forced a count to zero, and freed a page in use.

    Wrong: p1 is put on the free list and given to C while B runs.
    Right: a held page is not evicted; it is free only after B has released it. PAG-3 PAG-8 PAG-1
    """
    # Given a pool of 4 pages; p1 is cached, and B holds it after a hit
    pool = pages_of(4)
    (p1,) = pool.cached(text(1))
    assert pool.admit("B", 1) == GRANTED
    assert pool.match("B", text(1)) == [p1]
    # When p1 is evicted
    # Then it is refused: B still holds it
    assert pool.evict(p1) == refused(Reason.IN_USE)
    assert pool.holders(p1) == {"B"}
    # When its content is unpublished all the same
    assert pool.retire(pool.scope) == NOTED
    assert pool.retire(pool.scope, p1) == NOTED
    # Then nobody matches it any more, and it is still not free
    assert pool.admit("C", 3) == GRANTED
    assert pool.match("C", text(1)) == []
    assert p1 not in pool.draw("C", 3)
    assert pool.state(p1) == [SHARED]
    assert pool.counts() == Counts(private=3, shared=1)
    # When B releases it
    assert pool.drop("B", p1) == DROPPED
    # Then it is free
    assert pool.state(p1) == [FREE]
    assert pool.counts() == Counts(free=1, private=3)


def test_b12_a_failed_admission_keeps_no_share(pages_of: PagesOf) -> None:
    """Avarok-Cybersecurity/atlas#373, second part: shares taken for a prefill that failed were never returned.

    Right: a request that is not admitted can take no share, and one that gives up returns all. ADM-1 ADM-10 PAG-3
    """
    # Given a pool of 4 pages: p1 is cached, C holds 2
    pool = pages_of(4)
    (p1,) = pool.cached(text(1))
    pool.holding("C", 2)
    # When D needs p1 and 2 pages of its own
    # Then it is refused, and it gets no claim on p1
    assert pool.admit("D", 3) == refused(Reason.POOL_CAPACITY)
    assert pool.answer_to_claim("D", p1, text(1)) == refused(Reason.NO_PROMISE)
    assert pool.allocate("D", 4) == refused(Reason.NO_PROMISE)
    assert pool.holders(p1) == set()
    # When it was promised too little, and fails after the share
    assert pool.admit("D", 2) == GRANTED
    assert pool.match("D", text(1)) == [p1]
    assert len(pool.draw("D", 1)) == 1
    assert pool.allocate("D", p1) == refused(Reason.NOT_FREE)
    assert pool.grow("D", 1) == refused(Reason.POOL_CAPACITY)
    # Then giving up returns everything
    (own,) = [page for page in range(1, 5) if pool.holders(page) == {"D"} and page != p1]
    pool.leaves("D", [p1, own])
    assert pool.state(p1) == [CACHED]
    assert pool.counts() == Counts(free=1, private=2, cached=1)


def test_b13_a_second_unpin_takes_nobody_elses_pin(pages_of: PagesOf) -> None:
    """LMCache/LMCache#5098, LMCache/LMCache#3381: pins were a bare counter, clamped at zero.

    Wrong: A unpins twice, the counter is 0, and p1 is evicted under B.
    Right: pins are a set of holders; the second is refused and told; no counter is clamped. PAG-3 PAG-8 LIF-5
    """
    # Given one cached page, pinned by the lookups of A and B
    pool = pages_of(2)
    (p1,) = pool.cached(text(1))
    assert pool.admit("A", 1) == GRANTED
    assert pool.match("A", text(1)) == [p1]
    assert pool.admit("B", 1) == GRANTED
    assert pool.match("B", text(1)) == [p1]
    assert pool.holders(p1) == {"A", "B"}
    # When A's load ends, and A's clean-up unpins again
    assert pool.drop("A", p1) == DROPPED
    assert pool.drop("A", p1) == refused(Reason.NOT_HOLDER)
    # Then B's pin stands, and p1 is not evicted
    assert pool.holders(p1) == {"B"}
    assert pool.evict(p1) == refused(Reason.IN_USE)
    # When B loads p1 and is done
    assert pool.read("B", p1) == LAUNCHED
    assert pool.read_ends(p1) == SETTLED
    assert pool.drop("B", p1) == DROPPED
    # Then it may be evicted
    assert pool.evict(p1) == RELEASED
    assert pool.counts() == Counts(free=2, promised=1)


def test_b14_the_end_of_a_copy_releases_for_a_cancelled_owner(pages_of: PagesOf) -> None:
    """LMCache/LMCache#5006, vllm-project/vllm#44100: pins of an aborted lookup waited for the next lookup.

    Wrong: in a quiet system the pages stay pinned, and a write that needs them never fits.
    Right: the end of the copy itself releases; no other event is needed. PAG-4 PAG-2
    """
    # Given a host tier of 4 pages, of which 2 are cached; A's lookup pins them and a prefetch reads them
    host = pages_of(4)
    h1, h2 = host.cached(text(2))
    assert host.admit("A", 2) == GRANTED
    assert host.match("A", text(2)) == [h1, h2]
    assert [host.read("A", page) for page in (h1, h2)] == [LAUNCHED] * 2
    # When A is cancelled
    host.leaves("A", [h1, h2])
    # Then the pages wait for the prefetch, and a write of 4 pages does not fit
    assert host.state(h1, h2) == [DRAINING] * 2
    assert host.admit("W", 4) == refused(Reason.POOL_CAPACITY)
    # When the prefetch ends, and nothing else happens
    assert [host.read_ends(page) for page in (h1, h2)] == [SETTLED] * 2
    # Then they are evictable
    assert host.state(h1, h2) == [CACHED] * 2
    # And the write fits
    assert host.admit("W", 4) == GRANTED
    assert [host.evict(page) for page in (h2, h1)] == [RELEASED] * 2
    assert len(host.draw("W", 4)) == 4
    assert host.counts() == Counts(private=4)
