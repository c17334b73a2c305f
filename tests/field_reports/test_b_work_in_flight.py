"""Family b: pages that are used again while a launched step or copy may still touch them."""

from __future__ import annotations

import pytest

from kvescrow.spec.vocabulary import MICROSECONDS_PER_SECOND as SECOND
from kvescrow.spec.vocabulary import ExecutionState, PageState, Reason, ReservationState, StopOutcome
from tests.field_reports.conftest import PagesOf, WorkerOf
from tests.field_reports.pages import SINK, Counts, text
from tests.field_reports.replies import (
    ACCEPTED,
    ADMITTED,
    CERTIFIED,
    DROPPED,
    GRANTED,
    LAUNCHED,
    MISS,
    NOTED,
    PUBLISHED,
    RECORDED,
    RELEASED,
    SETTLED,
    STARTED,
    queued,
    refused,
    told_to_stop,
)

CACHED, DRAINING, FREE, SHARED = PageState.CACHED, PageState.DRAINING, PageState.FREE, PageState.SHARED


def test_b15_pages_of_a_step_launched_ahead_are_not_handed_out(worker_of: WorkerOf) -> None:
    """vllm-project/vllm#45357: step N+1 was launched before step N showed that the request had ended.

    Wrong: B gets A's pages after the first step and is overwritten by the second.
    Right: the release is logical at the first end and physical at the second; A's last token is dropped.
    PAG-4 REC-2 LIF-3
    """
    # Given a pool of 4 pages; A runs on 2; steps 1 and 2 are both launched for it
    worker = worker_of(4)
    held = worker.runs("A", 2)
    assert worker.launch("A", 1, writes=held) == LAUNCHED
    assert worker.launch("A", 2, writes=held) == LAUNCHED
    # When step 1 ends and A is at its end
    assert worker.ends(1) == SETTLED
    assert worker.certify("A") == refused(Reason.STILL_OPEN)
    assert worker.close("A") == ACCEPTED
    worker.lets_go("A", held)
    # Then its pages wait for step 2
    assert worker.pages.state(*held) == [DRAINING] * 2
    assert worker.certify("A") == refused(Reason.IN_FLIGHT)
    # When B takes 2 pages
    others = worker.runs("B", 2)
    # Then they are the other two, and A's cannot be had
    assert set(others).isdisjoint(held)
    assert worker.ledger.reserve("C", 2) == refused(Reason.POOL_CAPACITY)
    assert worker.pages.admit("C", 2) == refused(Reason.POOL_CAPACITY)
    assert worker.pages.allocate(worker.holder("B"), held[1]) == refused(Reason.NOT_FREE)
    # When step 2 ends
    assert worker.ends(2) == SETTLED
    # Then A's pages are free, nothing it wrote can be found, and its stop is certified
    assert worker.pages.state(*held) == [FREE] * 2
    assert worker.pages.match(worker.holder("B"), text(1)) == []
    assert worker.certify("A") == CERTIFIED
    assert worker.ledger.finish("A", StopOutcome.COMPLETED) == RELEASED
    assert worker.ledger.reserve("C", 2) == ADMITTED
    assert worker.pages.admit("C", 2) == GRANTED


def test_b16_a_page_in_the_window_of_a_step_in_flight_is_not_reused(pages_of: PagesOf) -> None:
    """vllm-project/vllm#47728, vllm-project/vllm#47282: pages left the window by the scheduled position.

    Wrong: page 1 is reused during the step that reads it, and is gone for the next one, since drafts were rejected.
    Right: what a launched step reads is not reused; a step can no longer use a page that was given up. PAG-4 PAG-3
    """
    # Given pages of 4 tokens, a window of 8, and 12 confirmed tokens of A on pages 0 to 2
    pool = pages_of(4)
    window = pool.holding("A", 4)
    # And step 1 for tokens 12 to 15, whose first attends tokens 5 to 12: it reads pages 1 and 2 and writes page 3
    assert [pool.read("A", page) for page in window[1:3]] == [LAUNCHED] * 2
    assert pool.write("A", window[3]) == LAUNCHED
    # When pages 0 and 1 are released by the scheduled position 16
    assert [pool.drop("A", page) for page in window[:2]] == [DROPPED] * 2
    # Then only page 0 may go
    assert pool.state(*window[:2]) == [FREE, DRAINING]
    assert pool.holding("B", 1) == [window[0]]
    assert pool.admit("C", 1) == refused(Reason.POOL_CAPACITY)
    assert pool.allocate("C", window[1]) == refused(Reason.NOT_FREE)
    # When step 1 ends with 2 of its 4 tokens rejected, and the next attends page 1 again
    assert [pool.read_ends(page) for page in window[1:3]] == [SETTLED] * 2
    assert pool.write_ends(window[3], full=False) == SETTLED
    # Then the early release is told as an error: no step reads what is free or another's
    assert pool.read("A", window[1]) == refused(Reason.NOT_HOLDER)
    # And page 2, which was kept, is there
    assert pool.read("A", window[2]) == LAUNCHED


def test_b18_an_abort_does_not_free_the_target_of_a_remote_write(worker_of: WorkerOf) -> None:
    """sgl-project/sglang#35049, sgl-project/sglang#32564, sgl-project/sglang#24578: abort during a transfer.

    Wrong: B gets the pages at 2 s and the peer's write lands in them at 6 s: another user's context, with success.
    Right: A stays cancelling until the write has ended; B waits. LIF-3 REC-2 PAG-4
    """
    # Given a pool of 8 pages; a peer writes A's 5 from 0 s on
    worker = worker_of(8)
    held = worker.runs("A", 5)
    assert worker.launch("A", 1, writes=held, full=True) == LAUNCHED
    # When A is cancelled at 2 s
    assert worker.ledger.passes(2 * SECOND) == NOTED
    assert worker.ledger.cancel("A") == ACCEPTED
    assert worker.close("A") == ACCEPTED
    worker.lets_go("A", held)
    # Then 3 pages are free, and B, which needs 4, waits
    assert worker.ledger.record("A").state is ReservationState.CANCELLING
    assert worker.pages.counts() == Counts(free=3, draining=5)
    assert worker.ledger.reserve("B", 4, wait=60 * SECOND) == queued(Reason.POOL_CAPACITY)
    assert worker.pages.admit("B", 4) == refused(Reason.POOL_CAPACITY)
    assert worker.certify("A") == refused(Reason.IN_FLIGHT)
    # When the write lands at 6 s
    assert worker.ledger.passes(4 * SECOND) == NOTED
    assert worker.ledger.promote("B") == refused(Reason.POOL_CAPACITY)
    assert worker.ends(1) == SETTLED
    # Then what it wrote is free and unpublished, the stop is confirmed, and B has its pages
    assert worker.pages.counts() == Counts(free=8)
    assert worker.certify("A") == CERTIFIED
    assert worker.ledger.finish("A", StopOutcome.STOPPED) == RELEASED
    assert worker.ledger.promote("B") == ADMITTED
    assert worker.ledger.active() == 4
    assert worker.pages.admit("B", 4) == GRANTED


def test_b20_padding_rows_have_the_sink_and_nobodys_page(pages_of: PagesOf) -> None:
    """NVIDIA/TensorRT-LLM#13278, gty111/gLLM#174: padding rows of a fixed-size graph wrote to a parked request.

    Wrong: page 0 is D's, and the padding row writes its default index 0.
    Right: padding rows map to a sink that is never free, cached, matched or owned. PAG-2 PAG-3 ADM-11
    """
    # Given a pool of 8 pages; D is parked on one; A, B and C have one each
    pool = pages_of(8)
    (parked,) = pool.holding("D", 1)
    pool.computed("D", parked)
    batch = [pool.holding(name, 1)[0] for name in ("A", "B", "C")]
    before = pool.page(parked)
    # Then the sink is page 0, and D's page is another
    assert pool.state(SINK) == [PageState.SINK]
    assert parked != SINK
    # When a step for A, B and C is launched, padded to 4 rows
    assert [pool.write(name, page) for name, page in zip("ABC", batch, strict=True)] == [LAUNCHED] * 3
    # Then a row without a request can name D's page for nobody in the batch
    assert [pool.write(name, parked) for name in "ABC"] == [refused(Reason.NOT_HOLDER)] * 3
    # And the sink is nobody's to allocate, write, read, publish, match, release or evict
    assert pool.admit("E", 1) == GRANTED
    assert pool.allocate("E", SINK) == refused(Reason.SINK_PAGE)
    assert pool.write("E", SINK) == refused(Reason.SINK_PAGE)
    assert pool.read("E", SINK) == refused(Reason.SINK_PAGE)
    assert pool.write_ends(SINK) == refused(Reason.SINK_PAGE)
    assert pool.publish("E", SINK, text(1)) == refused(Reason.SINK_PAGE)
    assert pool.answer_to_claim("E", SINK, text(1)) == MISS
    assert pool.drop("E", SINK) == refused(Reason.SINK_PAGE)
    assert pool.evict(SINK) == refused(Reason.SINK_PAGE)
    # When the step ends and D goes on
    assert [pool.write_ends(page) for page in batch] == [SETTLED] * 3
    # Then D's page is as it was
    assert pool.page(parked) == before
    assert pool.write("D", parked) == LAUNCHED


def test_b21_the_sink_is_set_aside_before_anything_is_promised(pages_of: PagesOf) -> None:
    """NVIDIA/TensorRT-LLM#16072: the padding page came from the pool after admission had promised all of it.

    Wrong: A gets all 4 pages; the sink is never obtained, and every padded step falls back to the slow path.
    Right: admission works with the 3 usable pages; the sink is there under any load. ADM-11 ADM-6 PAG-2
    """
    # Given 4 pages, one of which is the sink
    pool = pages_of(3)
    assert len(pool.snapshot().pages) == 4
    # When A asks for 4
    # Then it is refused at once, since waiting cannot help
    assert pool.admit("A", 4) == refused(Reason.NEVER_FITS)
    # When the pool is full
    held = pool.holding("B", 3)
    # Then the sink is still there
    assert pool.state(SINK) == [PageState.SINK]
    assert pool.counts() == Counts(private=3)
    # When B is gone
    pool.leaves("B", held)
    # Then 3 are free, not 4
    assert pool.admit("C", 4) == refused(Reason.NEVER_FITS)
    assert pool.state(SINK) == [PageState.SINK]
    assert pool.counts() == Counts(free=3)


@pytest.mark.parametrize("ok", [True, False], ids=["copied", "failed"])
def test_b22_both_ends_of_a_copy_are_pinned(pages_of: PagesOf, ok: bool) -> None:
    """bytedance-iaas/sglang#638 (sgl-project/sglang#27444), sgl-project/sglang#31427: only the target was pinned.

    Wrong: the source on the host is evicted and reused during the copy; the target is matchable with other bytes.
    Right: both ends are held until the copy ends, and neither after it, well or badly. PAG-4 PAG-6 PAG-8 PAG-9
    """
    # Given a host and a device pool of 4 pages each; the prefix X lies on host pages h1 and h2 only
    host, device = pages_of(4), pages_of(4)
    source = host.cached(text(2))
    # When A's lookup hits, and a copy from h1, h2 to d1, d2 is launched
    assert host.admit("A", 2) == GRANTED
    assert host.match("A", text(2)) == source
    target = device.holding("A", 2)
    assert [host.read("A", page) for page in source] == [LAUNCHED] * 2
    assert [device.write("A", page) for page in target] == [LAUNCHED] * 2
    # And the host comes under pressure
    # Then h1 and h2 are not evicted, even after A has let go of them
    assert [host.evict(page) for page in source] == [refused(Reason.IN_USE)] * 2
    host.leaves("A", source)
    assert [host.evict(page) for page in source] == [refused(Reason.IN_USE)] * 2
    assert host.admit("Y", 3) == refused(Reason.POOL_CAPACITY)
    # And d1 and d2 cannot be published yet
    assert device.publish("A", target[0], text(2)[:4]) == refused(Reason.NOT_COMPUTED)
    # When the copy ends
    assert [host.read_ends(page, ok=ok) for page in source] == [SETTLED] * 2
    assert [device.write_ends(page, ok=ok) for page in target] == [SETTLED] * 2
    assert host.read_ends(source[0]) == refused(Reason.NOT_OUTSTANDING)
    # Then the source is evictable
    assert host.state(*source) == [CACHED] * 2
    assert host.counts() == Counts(free=2, cached=2)
    # And the target is published if, and only if, it was copied well
    assert device.publish("A", target[0], text(2)[:4]) == (PUBLISHED if ok else refused(Reason.NOT_COMPUTED))
    assert device.admit("B", 2) == GRANTED
    assert device.match("B", text(1)) == ([target[0]] if ok else [])
    # And no pin is left behind
    device.leaves("A", target)
    assert device.close("B") == (refused(Reason.HOLDING) if ok else RELEASED)
    assert device.counts() == (Counts(free=3, shared=1, promised=2) if ok else Counts(free=4))


def test_b23_a_channel_with_an_unread_answer_is_not_given_to_the_next(worker_of: WorkerOf) -> None:
    """OpenAI, "March 20 ChatGPT outage: Here's what happened" (openai.com/index/march-20-chatgpt-outage).

    A request was cancelled between its question and the answer, and its connection went back to the pool.
    Wrong: U2 is given the answer to U1's question; the types match, so nothing fails.
    Right: the channel drains until that answer came; an answer belongs to its request alone. PAG-4 REC-2 LIF-3 LIF-7
    """
    # Given a pool of one channel; U1 has it and asks q1; U2 waits
    worker = worker_of(1)
    (channel,) = worker.runs("U1", 1)
    assert worker.launch("U1", 1, writes=[channel]) == LAUNCHED
    assert worker.ledger.reserve("U2", 1, wait=60 * SECOND) == queued(Reason.POOL_CAPACITY)
    # When U1 disconnects before the answer
    assert worker.ledger.cancel("U1") == ACCEPTED
    assert worker.close("U1") == ACCEPTED
    worker.lets_go("U1", [channel])
    # Then the channel drains and is given to nobody
    assert worker.pages.state(channel) == [DRAINING]
    assert worker.certify("U1") == refused(Reason.IN_FLIGHT)
    assert worker.ledger.promote("U2") == refused(Reason.POOL_CAPACITY)
    assert worker.pages.admit("U2", 1) == refused(Reason.POOL_CAPACITY)
    # When the answer to q1 arrives
    assert worker.ends(1) == SETTLED
    assert worker.certify("U1") == CERTIFIED
    assert worker.ledger.finish("U1", StopOutcome.STOPPED) == RELEASED
    # Then U2 gets the channel, in another generation
    generation = worker.pages.page(channel).generation
    assert worker.ledger.promote("U2") == ADMITTED
    assert worker.ledger.start("U2", "w1") == STARTED
    assert worker.begin("U2", worker.ledger.record("U2").generation) == STARTED
    assert worker.pages.holding(worker.holder("U2"), 1) == [channel]
    assert worker.pages.page(channel).generation == generation + 1
    # When U2 asks q2, and an answer to q1 arrives again
    assert worker.launch("U2", 2, writes=[channel]) == LAUNCHED
    assert worker.ends(1) == RECORDED
    # Then q2 is still open
    assert worker.pages.page(channel).writers == 1
    assert worker.ends(2) == SETTLED
    assert worker.pages.page(channel).writers == 0


def test_b24_no_token_after_a_cancel_and_no_slot_left_behind(worker_of: WorkerOf) -> None:
    """sgl-project/sglang#34149, sgl-project/sglang#37295: the result of an earlier step came before a waiting cancel.

    Wrong: token 7 is shown after the cancel; or it is dropped first, and the slot allocated ahead leaks, since the
    length to release was taken from the tokens.
    Right: the cancel decides; what was allocated is released, however many tokens were kept. LIF-6 LIF-4 PAG-3
    """
    # Given a pool of 4 slots; A has 3 prompt tokens and one slot allocated ahead, all in its last chunk
    worker = worker_of(4)
    held = worker.runs("A", 4)
    assert worker.launch("A", 1, reads=held[:3], writes=held[3:]) == LAUNCHED
    # When the cancel is accepted, and then the chunk ends with a token
    assert worker.ledger.cancel("A") == ACCEPTED
    assert worker.close("A") == ACCEPTED
    assert worker.ends(1) == SETTLED
    # Then the owner that reports it is told to stop: there is no state in which it is shown
    assert worker.execution("A") is ExecutionState.CLOSING
    assert worker.ledger.extend("A", 5) == told_to_stop(Reason.CANCEL_ACCEPTED)
    assert worker.launch("A", 2, writes=held[3:]) == refused(Reason.STOPPING)
    # And all 4 slots come back, though 3 tokens were kept
    worker.lets_go("A", held)
    assert worker.pages.counts() == Counts(free=4)
    assert worker.certify("A") == CERTIFIED
    assert worker.ledger.finish("A", StopOutcome.COMPLETED, used=3) == RELEASED
    assert worker.ledger.record("A").state is ReservationState.CANCELLED
    assert worker.ledger.record("A").used == 3
    assert worker.ledger.active() == 0
