"""Family d: admission that promises too much or forgets someone, growth, and prompts that keep decodes waiting."""

from __future__ import annotations

import pytest
from attrs import define

from kvescrow.reference.scheduler import BatchLimits, next_step
from kvescrow.spec.vocabulary import MICROSECONDS_PER_SECOND as SECOND
from kvescrow.spec.vocabulary import Key, PageState, Reason, ReservationState, StopOutcome, Tick
from tests.field_reports.conftest import LedgerOf, PagesOf, WorkerOf
from tests.field_reports.ledger import Ledger, Terms
from tests.field_reports.pages import TENANT, Counts, text
from tests.field_reports.replies import (
    ACCEPTED,
    ADMITTED,
    CERTIFIED,
    EXTENDED,
    GRANTED,
    LAUNCHED,
    NOTED,
    NOTHING_DUE,
    RECORDED,
    RELEASED,
    REQUEUED,
    SETTLED,
    STARTED,
    Answer,
    expired,
    queued,
    refused,
)

LONG = 9_000 * SECOND
FULL = refused(Reason.POOL_CAPACITY)
WAITS = queued(Reason.POOL_CAPACITY)


def ends(ledger: Ledger, name: str, used: int = 0) -> Answer:
    """The request completes."""
    return ledger.finish(name, StopOutcome.COMPLETED, used=used)


def test_b41_a_hit_that_nobody_holds_is_counted_as_taken(pages_of: PagesOf) -> None:
    """vllm-project/vllm#11565, RBLN-SW/vllm-rbln#158, NVIDIA/Megatron-LM#5822: own hits were counted as free room.

    Wrong: 4 new pages are found in 3 free and the 2 that are the request's own hits. As wrong: hits that others hold
    are taken off what is free.
    Right: a hit on a cached page needs its unit, a hit on a held page needs none. PAG-1 PAG-5
    """
    # Given 3 free pages, 2 cached ones, and 1 that X holds; A matches the 2 and needs 4 new ones
    pages = pages_of(6)
    cached = pages.cached(text(2))
    pages.holding("X", 1)
    # When it asks for all of them
    # Then it is refused, and no share is taken
    assert pages.admit("A", 4 + 2) == FULL
    assert pages.state(*cached) == [PageState.CACHED] * 2
    # Given instead that D holds the 2 matched pages; A needs 3 new ones
    pages = pages_of(5)
    held = pages.published("D", text(2))
    # Then the 3 that are free are enough
    assert pages.admit("A", 3) == GRANTED
    assert pages.match("A", text(2)) == held
    assert len(pages.draw("A", 3)) == 3


@pytest.mark.parametrize(("pool", "first", "second"), [(7, 5, 4), (20, 16, 12)], ids=["b42", "b43"])
def test_b42_b43_what_is_needed_to_run_is_reserved_with_the_load(
    ledger_of: LedgerOf, pool: int, first: int, second: int
) -> None:
    """vllm-project/vllm#57104, vllm-project/vllm#45388: only the loaded part was reserved, and two halves met.

    Wrong: each holds its load and waits for the page that the other holds; nothing runs any more.
    Right: one has all that it needs, the other holds nothing and runs afterwards. ADM-4 QUE-6 PAG-1
    """
    # Given a pool in which the loads of both fit, and the needs of both do not
    ledger = ledger_of(pool)
    # When both ask for what they need in all
    assert ledger.reserve("A", first) == ADMITTED
    assert ledger.reserve("B", second, wait=LONG) == WAITS
    # Then B holds nothing, and A runs and ends
    assert ledger.active() == first
    assert ledger.start("A", "w") == STARTED
    assert ends(ledger, "A", first) == RELEASED
    # And then B runs
    assert ledger.promote("B") == ADMITTED
    assert ledger.start("B", "w") == STARTED
    assert ends(ledger, "B", second) == RELEASED
    assert ledger.active() == 0


def test_b45_what_can_never_fit_is_refused_at_once(ledger_of: LedgerOf) -> None:
    """m87-labs/kestrel#135, inference-sim/inference-sim#373, FlashML-org/FreeToken#111: it waited for ever.

    Wrong: it is tried again for ever, or the scheduler dies, and others suffer.
    Right: above the pool or above the tenant's limit is a refusal; what could fit later waits. ADM-6 ADM-5 ADM-9
    """
    # Given a pool of 50 and a tenant limit of 30
    ledger = ledger_of(50, {TENANT: Terms(limit=30)})
    # Then 57 and 35 are refused, and change no counter
    assert ledger.reserve("A", 57, wait=LONG) == refused(Reason.NEVER_FITS)
    assert ledger.reserve("B", 35, wait=LONG) == refused(Reason.NEVER_FITS)
    assert (ledger.active(), ledger.tenant().queued) == (0, 0)
    # And 10 are admitted; with 25 of 30 in use, 20 more wait
    assert ledger.reserve("C", 10) == ADMITTED
    assert ledger.reserve("C2", 15) == ADMITTED
    assert ledger.reserve("D", 20, wait=LONG) == queued(Reason.TENANT_CAPACITY)


def test_b46_the_output_is_reserved_with_the_prompt(ledger_of: LedgerOf) -> None:
    """pegainfer-project/pegainfer#254, vllm-project/vllm#52530: only the prompt's length was checked.

    Wrong: both are admitted on 4 pages of 8, and at the eighth every request is aborted.
    Right: A gets 6 and B waits; a growth that is refused touches only who asked; 6 + 3 of 8 is refused. ADM-4 GRO-3
    """
    # Given a pool of 8; A and B have prompts of 2 and may generate 4
    ledger = ledger_of(8)
    assert ledger.reserve("A", 6) == ADMITTED
    assert ledger.reserve("B", 6, wait=LONG) == WAITS
    # When C takes the rest, and A wants to grow beyond what it was allowed
    assert ledger.cancel("B") == RELEASED
    assert ledger.reserve("C", 2) == ADMITTED
    assert [ledger.start(name, "w") for name in "AC"] == [STARTED] * 2
    before = ledger.record("C")
    # Then only A is told that there is no room
    assert ledger.extend("A", 7) == FULL
    assert (ledger.record("A").bound, ledger.record("C")) == (6, before)
    # And a prompt of 6 with an output of 3 is refused when it comes
    assert ledger.reserve("D", 9, wait=LONG) == refused(Reason.NEVER_FITS)


def test_b47_growth_is_reserved_where_the_prefix_is_shared(pages_of: PagesOf) -> None:
    """mstar-project/mstar#280: with a shared prefix each admission looked cheap; numbers are made smaller here.

    Wrong: 8 are admitted with a tail page each, and then each waits for the page that it wants to grow by.
    Right: each reserves its growth too: 5 shared and 2 for each of 4 fill 13; the others hold nothing. PAG-1 PAG-5
    """
    # Given 13 pages, 5 of them a prefix that is held once
    pages = pages_of(13)
    prefix = pages.published("first", text(5))
    # When 8 requests that share it ask for a tail page and one to grow by
    answers = [pages.admit(f"r{number}", 2) for number in range(8)]
    # Then 4 are admitted
    assert answers == [GRANTED] * 4 + [FULL] * 4
    # And each shares the prefix and draws both pages
    for number in range(4):
        for count, page in enumerate(prefix, start=1):
            assert pages.claim(f"r{number}", page, text(count))
        pages.draw(f"r{number}", 2)
    assert pages.counts() == Counts(shared=5, private=8)


def test_b48_a_victim_in_flight_yields_nothing_yet(worker_of: WorkerOf) -> None:
    """vllm-project/vllm#49675: victims whose pages a step still touched were preempted one after the other for nothing.

    Wrong: C, then B, then A lose their work, and no page is gained.
    Right: one victim is marked; its page comes with the end of the step, and the growth is asked for again; B goes on.
    LIF-9 GRO-3 PAG-4 REC-2
    """
    # Given a pool of 6; A, B and C hold 2 each, and a step covers all three
    worker = worker_of(6)
    held = {name: worker.runs(name, 2) for name in "ABC"}
    for ticket, name in enumerate("ABC", start=1):
        assert worker.launch(name, ticket, writes=held[name][1:]) == LAUNCHED
    # When A's growth is refused and C is told to stop
    assert worker.ledger.extend("A", 3) == FULL
    assert worker.ledger.preempt("C") == ACCEPTED
    assert worker.close("C") == ACCEPTED
    worker.lets_go("C", held["C"])
    # Then nothing is gained yet: it stays charged, and the page that the step touches drains
    assert worker.certify("C") == refused(Reason.IN_FLIGHT)
    assert worker.ledger.extend("A", 3) == FULL
    assert worker.ledger.record("B").state is ReservationState.RUNNING
    # When the step ends
    for ticket in (1, 2, 3):
        assert worker.ends(ticket) == SETTLED
    assert worker.certify("C") == CERTIFIED
    assert worker.ledger.finish("C", StopOutcome.STOPPED) == REQUEUED
    # Then A grows, B has lost nothing, and C waits and holds nothing
    assert worker.ledger.extend("A", 3) == EXTENDED
    assert worker.pages.grow(worker.holder("A"), 1) == EXTENDED
    assert worker.ledger.record("B").generation == 2
    assert worker.ledger.record("C").state is ReservationState.QUEUED


def test_b50_growth_is_one_transition(ledger_of: LedgerOf) -> None:
    """kubernetes-sigs/kueue#11195: the old size was given up before the new one was granted.

    Wrong: another slips in between, and what runs is on no book.
    Right: 4 becomes 6 at once and 7 wait; a growth that is refused leaves the old size. GRO-2 GRO-3
    """
    # Given a pool of 10 in which J runs with 4
    ledger = ledger_of(10)
    assert ledger.reserve("J", 4) == ADMITTED
    assert ledger.start("J", "w") == STARTED
    # When it grows to 6, and K asks for 7
    assert ledger.extend("J", 6) == EXTENDED
    assert ledger.reserve("K", 7, wait=LONG) == WAITS
    # Then 6 are charged, and a growth beyond the pool leaves them
    assert ledger.extend("J", 11) == refused(Reason.NEVER_FITS)
    assert (ledger.active(), ledger.record("J").bound) == (6, 6)


def test_b51_only_the_difference_of_a_growth_is_charged(ledger_of: LedgerOf) -> None:
    """kubernetes-sigs/kueue#9322: the whole new size was counted on top of the old one.

    Wrong: 3 + 5 is more than 5, and the growth is refused.
    Right: the difference is 2, and fits; asking again charges nothing; the end gives 5 back, once. GRO-2 LIF-4
    """
    # Given a pool of 5 in which J runs with 3
    ledger = ledger_of(5)
    assert ledger.reserve("J", 3) == ADMITTED
    assert ledger.start("J", "w") == STARTED
    # When it grows to 5, and asks again
    assert ledger.extend("J", 5) == EXTENDED
    assert ledger.extend("J", 5) == RECORDED
    # Then 5 are charged, until they come back once
    assert ledger.active() == 5
    assert [ends(ledger, "J", 4) for _ in range(2)] == [RELEASED, RECORDED]
    assert ledger.active() == 0


def test_b52_who_stood_behind_a_cancelled_head_is_admitted(ledger_of: LedgerOf) -> None:
    """golang/go#37852, embassy-rs/embassy#6964: a cancel of the first waiter did not look at the next.

    Wrong: L waits with 2 free until somebody else releases something.
    Right: the cancel changes who is first, so L is admitted. QUE-4 QUE-5
    """
    # Given a pool of 10, of which A holds 8; H waits for 5, and L for 2 behind it
    ledger = ledger_of(10)
    assert ledger.reserve("A", 8) == ADMITTED
    assert ledger.reserve("H", 5, wait=LONG) == WAITS
    assert ledger.reserve("L", 2, wait=LONG) == queued(Reason.BEHIND_OTHERS)
    assert ledger.promote("L") == refused(Reason.BEHIND_OTHERS)
    # When H is cancelled
    assert ledger.cancel("H") == RELEASED
    # Then L is next, and fits
    assert ledger.snapshot().queue == (Key(TENANT, "L"),)
    assert ledger.promote("L") == ADMITTED


def test_b53_a_unit_that_was_granted_and_not_taken_goes_to_the_next(ledger_of: LedgerOf) -> None:
    """python/cpython#93222, agronholm/anyio#947: a cancel between grant and take-over lost the unit.

    Wrong: 1 is in use and nobody has it; or the newcomer overtakes C.
    Right: the cancel gives the unit back in the same step, and C gets it; D waits. LIF-2 QUE-4 QUE-5
    """
    # Given a pool of 1 that A holds; B and C wait
    ledger = ledger_of(1)
    assert ledger.reserve("A", 1) == ADMITTED
    assert ledger.start("A", "w") == STARTED
    assert [ledger.reserve(name, 1, wait=LONG) for name in "BC"] == [WAITS] * 2
    # When A ends, B is granted the unit, and is cancelled before its start
    assert ends(ledger, "A") == RELEASED
    assert ledger.promote("B") == ADMITTED
    assert ledger.cancel("B") == RELEASED
    assert ledger.start("B", "w") == refused(Reason.CLOSED)
    # Then a newcomer waits behind C, and C gets it
    assert ledger.reserve("D", 1, wait=LONG) == queued(Reason.BEHIND_OTHERS)
    assert ledger.promote("C") == ADMITTED
    assert (ledger.active(), ledger.record("C").state) == (1, ReservationState.RESERVED)


def test_b54_n_answers_are_admitted_all_or_none(ledger_of: LedgerOf) -> None:
    """vllm-project/vllm#53936: capacity was checked for n and taken one by one.

    Wrong: 5 of 4 slots are in use, or P is admitted in part; a cancel leaves a child.
    Right: P takes 3 at once; Q waits, and gets its 2 when P's 3 come back together. ADM-10 ADM-2
    """
    # Given 4 slots; P wants 3 and Q wants 2
    ledger = ledger_of(4)
    assert ledger.reserve("P", 3) == ADMITTED
    assert ledger.reserve("Q", 2, wait=LONG) == WAITS
    assert ledger.active() == 3
    # When P is cancelled
    assert ledger.cancel("P") == RELEASED
    # Then all three are free, and Q has its two
    assert ledger.active() == 0
    assert ledger.promote("Q") == ADMITTED


@define(eq=False)
class Sequence:
    """A sequence of a batch, by the prompt tokens that are left."""

    prompt_left: int


def test_b55_overlapping_prompts_stretch_a_gap_by_one_chunk() -> None:
    """tenstorrent/vllm-tt-plugin#119, MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks#110, FlashML-org/FreeToken#483.

    Wrong: prompts come first as long as there are any, and D gets no token for 8 steps.
    Right: D is in every step beside one chunk; both prompts end within their 8 steps. CHK-4
    """
    # Given D decodes, and P1 and P2 have 4 chunks each
    decoding, first, second = Sequence(0), Sequence(4 * 2048), Sequence(4 * 2048)
    limits = BatchLimits(sequences=8, prefill_chunk=2048)
    # When 8 steps are chosen
    for _ in range(8):
        choice = next_step([decoding, first, second], limits)
        # Then each has one token of D, and one chunk
        assert choice is not None
        assert decoding in choice.decodes
        assert choice.chunk is not None
        choice.chunk.sequence.prompt_left -= choice.chunk.length
    assert (first.prompt_left, second.prompt_left) == (0, 0)


def test_b56_one_clock_decides_what_has_expired(ledger_of: LedgerOf) -> None:
    """sgl-project/sglang#37143: each rank judged the deadline by its own clock.

    Wrong: rank 0 drops A and rank 1 admits it, so their batches differ and they hang.
    Right: the ledger decides once, by a clock that never goes back; both ranks are told the same. LEA-6 QUE-2
    """
    # Given a full pool, and A that may wait for 10 s
    ledger = ledger_of(1)
    assert ledger.reserve("X", 1) == ADMITTED
    assert ledger.reserve("A", 1, wait=10 * SECOND) == WAITS
    # When rank 0 brings the time 10.000 s, and rank 1 brings 9.999 s
    assert ledger.passes(10 * SECOND) == NOTED
    assert ledger.submit(Tick(10 * SECOND - 1_000)).decision.changes_nothing
    # Then A has expired for both, once
    assert ledger.sweep("A") == expired(Reason.QUEUE_TIMEOUT)
    assert [ledger.promote("A") for _ in range(2)] == [refused(Reason.NOT_QUEUED)] * 2
    assert [ledger.start("A", rank) for rank in ("rank-0", "rank-1")] == [refused(Reason.CLOSED)] * 2


@pytest.mark.parametrize("swept", [True, False], ids=["swept", "not-swept-yet"])
def test_b57_a_waiter_that_timed_out_keeps_nobody_back(ledger_of: LedgerOf, swept: bool) -> None:
    """BerriAI/litellm#20817, BerriAI/litellm#20062: the entry stayed first in the queue after its caller had gone.

    Wrong: A is still first, nobody asks for it, and B is never first.
    Right: at 5 s A is over, out of the queue and of its counter; B is admitted when the slot is free. QUE-2 QUE-4
    """
    # Given a busy slot; A waits for 5 s, B for 60 s
    ledger = ledger_of(1)
    assert ledger.reserve("X", 1) == ADMITTED
    assert ledger.start("X", "w") == STARTED
    assert ledger.reserve("A", 1, wait=5 * SECOND) == WAITS
    assert ledger.reserve("B", 1, wait=60 * SECOND) == WAITS
    # When 6 s pass, and the slot is freed at 7 s
    assert ledger.passes(6 * SECOND) == NOTED
    if swept:
        assert ledger.sweep("A") == expired(Reason.QUEUE_TIMEOUT)
        assert ledger.tenant().queued == 1
    assert ledger.passes(1 * SECOND) == NOTED
    assert ends(ledger, "X") == RELEASED
    # Then B has it, and A never gets it
    assert ledger.promote("B") == ADMITTED
    assert ledger.promote("A") == (refused(Reason.NOT_QUEUED) if swept else expired(Reason.QUEUE_TIMEOUT))


def test_b100_what_the_engine_sets_aside_is_not_promised(worker_of: WorkerOf) -> None:
    """RBLN-SW/vllm-rbln#957, vllm-project/vllm#35541, vllm-project/vllm#35570: one page can never be given out.

    Wrong: 13 pages of 13 are promised, and that request is tried again for ever.
    Right: 12 are usable: 12 are admitted, 13 are refused at once, and the next one is served. ADM-11 ADM-6
    """
    # Given 13 pages, one of them the sink
    worker = worker_of(12)
    assert len(worker.pages.snapshot().pages) == 13
    # Then 12 run, and can all be drawn
    held = worker.runs("A", 12)
    worker.lets_go("A", held)
    assert worker.close("A") == ACCEPTED
    assert ends(worker.ledger, "A") == RELEASED
    # And 13 are refused by the ledger and by the pool, while 1 is admitted
    assert worker.ledger.reserve("B", 13, wait=LONG) == refused(Reason.NEVER_FITS)
    assert worker.pages.admit("B", 13).decision.changes_nothing
    assert worker.ledger.reserve("C", 1) == ADMITTED


def test_b101_parked_work_gives_its_slot_back(ledger_of: LedgerOf) -> None:
    """vllm-project/vllm#53130, vllm-project/vllm#54348: parked requests held every slot without any limit of time.

    Wrong: 4 of 4 slots are taken, nothing runs, and E waits for ever.
    Right: what is admitted and not started has a lease; it lapses, and E is admitted. LEA-1 QUE-4
    """
    # Given 4 slots, each admitted to work that waits for what never comes; E waits
    ledger = ledger_of(4)
    assert [ledger.reserve(f"P{number}", 1, lease=30 * SECOND) for number in range(4)] == [ADMITTED] * 4
    assert ledger.reserve("E", 1, wait=LONG) == WAITS
    # When their leases have not passed, and when they have
    assert ledger.passes(29 * SECOND) == NOTED
    assert ledger.sweep("P0") == NOTHING_DUE
    assert ledger.passes(1 * SECOND) == NOTED
    # Then each gives its slot back, and E is admitted
    assert [ledger.sweep(f"P{number}") for number in range(4)] == [expired(Reason.LEASE_EXPIRED)] * 4
    assert ledger.promote("E") == ADMITTED
    assert ledger.active() == 1


def test_b102_work_is_admitted_with_its_whole_need(ledger_of: LedgerOf) -> None:
    """vllm-project/vllm#25538, vllm-project/vllm#28018: admitted on its first chunk, preempted again and again.

    Wrong: X starts in 2 pages, loses them to R1's growth, starts again, and never ends its prompt.
    Right: X waits for its 6 and holds nothing; the others grow; when they have ended X runs through. ADM-4 QUE-6 GRO-2
    """
    # Given a pool of 10 in which R1 and R2 run with 4 each, and X that needs 6
    ledger = ledger_of(10)
    for name in ("R1", "R2"):
        assert ledger.reserve(name, 4) == ADMITTED
        assert ledger.start(name, "w", lease=LONG) == STARTED
    assert ledger.reserve("X", 6, wait=LONG) == WAITS
    # When R1 and R2 grow by one
    assert [ledger.extend(name, 5) for name in ("R1", "R2")] == [EXTENDED] * 2
    # Then X waits until there is room for all of it
    assert ledger.promote("X") == FULL
    assert ends(ledger, "R1") == RELEASED
    assert ledger.promote("X") == FULL
    assert ends(ledger, "R2") == RELEASED
    # And then it starts, once
    assert ledger.promote("X") == ADMITTED
    assert ledger.start("X", "w") == STARTED
    assert ledger.record("X").generation == 3
