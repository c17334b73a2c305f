"""How many prompt tokens the next step may compute beside waiting decodes."""

from __future__ import annotations

import pytest

from kvescrow.spec.vocabulary import Decision, Reason
from kvescrow.spec.world.chunks import Moment, Offered
from tests.field_reports.replies import NOTED, RECORDED, Answer, refused
from tests.spec.world.conftest import ChunksOf, answer

CHOSEN = Answer(Decision.CHOSEN)
OFFERS = (Offered(8, 80, 10), Offered(4, 40, 20), Offered(2, 20, 40))
"""Ten microseconds a token; a prompt that takes at least 10, 20 or 40 more in chunks of 8, 4 or 2."""


def moment(room: int = 100, *, waiting: bool = True, alone: int = 5, time_left: int = 100) -> Moment:
    return Moment(waiting, room, alone, time_left)


@pytest.mark.parametrize(("room", "chosen"), [(80, 8), (79, 4), (40, 4), (39, 2), (20, 2)])
def test_the_largest_chunk_that_leaves_the_decodes_their_gap_is_chosen(
    chunks_of: ChunksOf, room: int, chosen: int
) -> None:
    """CHK-1: both sides of each boundary."""
    chunks = chunks_of(1, True)
    assert answer(chunks.choose(moment(room), OFFERS)) == CHOSEN
    assert chunks.chosen == chosen


def test_without_decodes_no_gap_binds(chunks_of: ChunksOf) -> None:
    """CHK-1: a gap is between tokens of somebody."""
    chunks = chunks_of(1, True)
    assert answer(chunks.choose(moment(0, waiting=False), OFFERS)) == CHOSEN
    assert chunks.chosen == 8


def test_a_gap_that_no_chunk_fits_is_told_apart_from_one_that_the_decodes_do_not(chunks_of: ChunksOf) -> None:
    """CHK-3: in the first the decodes go on and the prompt waits, in the second the budget is not to be kept."""
    chunks = chunks_of(1, True)
    assert answer(chunks.choose(moment(19), OFFERS)) == refused(Reason.NO_CHUNK_FITS)
    assert answer(chunks.choose(moment(5), OFFERS)) == refused(Reason.NO_CHUNK_FITS)
    assert answer(chunks.choose(moment(4), OFFERS)) == refused(Reason.GAP_TOO_SMALL_FOR_DECODE)
    assert answer(chunks.choose(moment(4, waiting=False), OFFERS)) == CHOSEN


@pytest.mark.parametrize(("time_left", "fits"), [(20, True), (19, False)])
def test_a_deadline_out_of_reach_at_the_allowed_chunk_is_told(chunks_of: ChunksOf, time_left: int, fits: bool) -> None:
    """CHK-3: a larger chunk would reach it, but does not fit."""
    reply = answer(chunks_of(1, True).choose(moment(79, time_left=time_left), OFFERS))
    assert reply == (CHOSEN if fits else refused(Reason.DEADLINE_UNREACHABLE))


def test_what_was_never_measured_is_not_predicted(chunks_of: ChunksOf) -> None:
    """CHK-2: a chunk outside the range is passed over; where all are, or the decodes alone, the answer says so."""
    chunks = chunks_of(1, True)
    some = (Offered(8, 1, 1, in_range=False), *OFFERS[1:])
    assert answer(chunks.choose(moment(), some)) == CHOSEN
    assert chunks.chosen == 4
    none = tuple(Offered(each.tokens, 1, 1, in_range=False) for each in OFFERS)
    assert answer(chunks.choose(moment(), none)) == refused(Reason.OUT_OF_MODEL_RANGE)
    assert answer(chunks.choose(moment(19), some)) == refused(Reason.NO_CHUNK_FITS)
    unmeasured = Moment(waiting=True, room=100, alone=1, time_left=100, in_range=False)
    assert answer(chunks.choose(unmeasured, OFFERS)) == refused(Reason.OUT_OF_MODEL_RANGE)
    idle = Moment(waiting=False, room=100, alone=1, time_left=100, in_range=False)
    assert answer(chunks.choose(idle, OFFERS)) == CHOSEN


def test_a_failed_model_is_not_trusted(chunks_of: ChunksOf) -> None:
    """CHK-5: not even where it would say yes."""
    chunks = chunks_of(1, True)
    chunks.trust(False)
    assert answer(chunks.choose(moment(), OFFERS)) == refused(Reason.MODEL_FAILED)
    chunks.trust(True)
    assert answer(chunks.choose(moment(), OFFERS)) == CHOSEN


def test_chunks_in_steps_of_their_own_are_bounded(chunks_of: ChunksOf) -> None:
    """CHK-4: decodes that wait are passed over twice, not more, however small the chunks."""
    chunks = chunks_of(2, False)
    for number in (1, 2):
        assert answer(chunks.choose(moment(), OFFERS)) == CHOSEN
        assert chunks.consecutive == number
    assert answer(chunks.choose(moment(), OFFERS)) == refused(Reason.DECODES_FIRST)
    assert chunks.chosen == 8
    assert answer(chunks.decode()) == NOTED
    assert (chunks.consecutive, chunks.chosen) == (0, 0)
    assert answer(chunks.choose(moment(), OFFERS)) == CHOSEN


def test_a_decode_step_ends_an_open_question(chunks_of: ChunksOf) -> None:
    """CHK-4: it was asked of a moment that is over."""
    chunks = chunks_of(2, False)
    assert answer(chunks.ask(moment(), 8)) == NOTED
    assert answer(chunks.decode()) == NOTED
    assert answer(chunks.weigh(OFFERS[0], 4)) == RECORDED
    assert chunks.chosen == 0


@pytest.mark.parametrize(("mixed", "waiting"), [(True, True), (True, False), (False, False)])
def test_a_step_that_keeps_nobody_waiting_is_not_counted(chunks_of: ChunksOf, mixed: bool, waiting: bool) -> None:
    """CHK-4: the step carries the decodes, or there are none; what was counted before is over."""
    chunks = chunks_of(3, mixed)
    for _ in range(5):
        assert answer(chunks.choose(moment(waiting=waiting), OFFERS)) == CHOSEN
        assert chunks.consecutive == 0


def test_nobody_waiting_clears_the_count(chunks_of: ChunksOf) -> None:
    """CHK-4: the decodes that waited have ended."""
    chunks = chunks_of(3, False)
    assert answer(chunks.choose(moment(), OFFERS)) == CHOSEN
    assert answer(chunks.choose(moment(waiting=False), OFFERS)) == CHOSEN
    assert chunks.consecutive == 0


def test_what_is_no_question_and_no_answer_is_malformed(chunks_of: ChunksOf) -> None:
    """ADM-9: nothing on offer, the figures of another chunk, or a ladder that does not go down."""
    chunks = chunks_of(1, True)
    assert answer(chunks.choose(moment(), ())) == refused(Reason.MALFORMED)
    assert answer(chunks.ask(moment(), 1)) == NOTED
    assert answer(chunks.weigh(Offered(2, 20, 40), 0)) == refused(Reason.MALFORMED)
    assert answer(chunks.weigh(Offered(1, 10, 80), 1)) == refused(Reason.MALFORMED)
    assert answer(chunks.weigh(Offered(1, 10, 80), -1)) == refused(Reason.MALFORMED)
    assert answer(chunks.weigh(Offered(1, 10, 80), 0)) == CHOSEN
    assert chunks.chosen == 1


def test_a_choice_stands_until_it_is_asked_anew(chunks_of: ChunksOf) -> None:
    """CHK-1: nothing is weighed after the choice, and a new question forgets it."""
    chunks = chunks_of(1, True)
    assert answer(chunks.choose(moment(), OFFERS)) == CHOSEN
    assert answer(chunks.weigh(OFFERS[1], 2)) == RECORDED
    assert chunks.chosen == 8
    assert answer(chunks.ask(moment(19), 4)) == NOTED
    assert chunks.chosen == 0
    assert answer(chunks.ask(moment(40, time_left=20), 8)) == NOTED
    assert answer(chunks.weigh(OFFERS[0], 4)) == NOTED
    assert answer(chunks.ask(moment(80, time_left=10), 8)) == NOTED
    assert answer(chunks.weigh(OFFERS[0], 4)) == CHOSEN
    assert chunks.chosen == 8


def test_a_new_question_forgets_what_was_seen(chunks_of: ChunksOf) -> None:
    """CHK-3: that something was measured last time says nothing of now."""
    chunks = chunks_of(1, True)
    assert answer(chunks.choose(moment(19), OFFERS)) == refused(Reason.NO_CHUNK_FITS)
    none = tuple(Offered(each.tokens, 1, 1, in_range=False) for each in OFFERS)
    assert answer(chunks.choose(moment(19), none)) == refused(Reason.OUT_OF_MODEL_RANGE)


def test_a_chunk_outside_the_range_is_passed_over_whatever_is_predicted(chunks_of: ChunksOf) -> None:
    """CHK-2: it counts as not measured, not as too long."""
    chunks = chunks_of(1, True)
    assert answer(chunks.ask(moment(19), 8)) == NOTED
    assert answer(chunks.weigh(Offered(8, 80, 10, in_range=False), 0)) == NOTED
    assert answer(chunks.weigh(Offered(0, 0, 0), 0)) == refused(Reason.OUT_OF_MODEL_RANGE)


def test_of_several_obstacles_the_first_is_named(chunks_of: ChunksOf) -> None:
    """CHK-3: what no moment cures comes before what another moment does."""
    chunks = chunks_of(1, False)
    assert answer(chunks.choose(moment(), OFFERS)) == CHOSEN
    chunks.trust(False)
    hopeless = Moment(waiting=True, room=0, alone=1, time_left=0, in_range=False)
    assert answer(chunks.ask(hopeless, 0)) == refused(Reason.MALFORMED)
    assert answer(chunks.ask(hopeless, 8)) == refused(Reason.MODEL_FAILED)
    chunks.trust(True)
    assert answer(chunks.ask(hopeless, 8)) == refused(Reason.OUT_OF_MODEL_RANGE)
    assert answer(chunks.ask(moment(0), 8)) == refused(Reason.GAP_TOO_SMALL_FOR_DECODE)
    assert answer(chunks.ask(moment(), 8)) == refused(Reason.DECODES_FIRST)
    assert chunks.chosen == 8
