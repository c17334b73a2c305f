"""The decision how many prompt tokens the next step computes beside waiting decodes (CHK-1, CHK-3, CHK-4).

A question is asked of one moment: how much of the token gap is left, and what the decodes take alone. Then the chunks
on offer are weighed from the largest down, each with its predicted figures, until one fits; so the first that fits is
the largest. What is predicted is the cost model's to say, and whether the model may be trusted is asked first.

`room` is what is left of the token-gap budget: the budget less the time that the decodes have waited for their next
token. A chunk's `duration` is the predicted time until every waiting decode has its next token if the chunk goes first:
the step that carries both, or the chunk's step and the decodes' step after it.
"""

from enum import Enum

from kvescrow.spec.language.expressions import Entity, Kind, all_of, before, if_else, implies
from kvescrow.spec.language.table import (
    Assumption,
    Event,
    Invariant,
    Reply,
    Sometimes,
    StepRule,
    Table,
    merged_event_entity,
)
from kvescrow.spec.tables.authoring import RECORDED, refused, rows_of
from kvescrow.spec.vocabulary import Decision, Reason

INT, BOOL = Kind.INTEGER, Kind.BOOLEAN


class ChunkSearch(Enum):
    """How far the choice of a chunk is."""

    IDLE = "IDLE"
    """No question is open; the chunk that was chosen last, if any, is recorded."""
    WEIGHING = "WEIGHING"
    """A question is open: chunks are weighed from the largest down."""


IDLE, WEIGHING = ChunkSearch.IDLE, ChunkSearch.WEIGHING
ANY = (IDLE, WEIGHING)

search = Entity(
    "search",
    {
        "state": ChunkSearch,
        "at": INT,
        "seen": BOOL,
        "chosen": INT,
        "waiting": BOOL,
        "room": INT,
        "time_left": INT,
    },
    note="the choice: the chunk at hand, 0 where none is left; whether one inside the model's range was weighed; the "
    "chunk chosen, 0 until then; and the moment that it is asked of",
)
batch = Entity("batch", {"consecutive": INT}, note="chunks launched since the waiting decodes had their last token")
worker = Entity(
    "worker",
    {"trusted": BOOL, "mixed": BOOL, "bound": INT},
    settled=True,
    note="whether the cost model is trusted, whether a chunk's step carries the decodes too, and how many chunks may "
    "go before decodes that wait",
)
rival = Entity(
    "rival",
    {"on_offer": BOOL, "tokens": INT, "duration": INT, "in_range": BOOL},
    settled=True,
    note="any chunk; laws that hold of it hold of every chunk",
)

EVENTS = (
    Event(
        "ask",
        {"largest": INT, "waiting": BOOL, "room": INT, "time_left": INT, "alone": INT, "in_range": BOOL},
        "which chunk goes next? The largest on offer; whether decodes wait, what is left of their gap and of the "
        "prompt's time, what the decodes take alone, and whether they are inside the model's range",
    ),
    Event(
        "weigh",
        {"tokens": INT, "below": INT, "duration": INT, "finish": INT, "in_range": BOOL},
        "the figures of the chunk at hand: the next smaller one on offer, or 0; the predicted time; the least time to "
        "the end of the prompt in chunks like it; whether it is inside the model's range",
    ),
    Event("decode", {}, "a step that carries the waiting decodes was launched"),
)
event = merged_event_entity(EVENTS)
row = rows_of("chunk_choice")
NOTED = Reply(Decision.NOTED)
TO_THE_NEXT = search.at.becomes(event.below)

cannot_wait = event.waiting & (event.alone > event.room)
must_wait = event.waiting & (batch.consecutive >= worker.bound)
overlong = search.waiting & (event.duration > search.room)
misplaced = (event.tokens != search.at) | (event.below < 0) | (event.below >= search.at)

ROWS = (
    row("ask.malformed", ANY, refused(Reason.MALFORMED), "ADM-9", "there is no chunk of no token",
        when=event.largest < 1),
    row("ask.model_failed", ANY, refused(Reason.MODEL_FAILED), "CHK-5",
        "a model that left its band predicts nothing", when=~worker.trusted),
    row("ask.out_of_range", ANY, refused(Reason.OUT_OF_MODEL_RANGE), "CHK-2 CHK-3",
        "nothing was measured of such decodes, whatever the chunk", when=event.waiting & ~event.in_range),
    row("ask.gap_too_small", ANY, refused(Reason.GAP_TOO_SMALL_FOR_DECODE), "CHK-3",
        "no chunk is small enough: the decodes alone take longer", when=cannot_wait),
    row("ask.decodes_first", ANY, refused(Reason.DECODES_FIRST), "CHK-4",
        "as many chunks as may have gone before them", when=must_wait),
    row("ask.asked", ANY, NOTED, "CHK-1", "the largest is weighed first", to=WEIGHING,
        do=[search.at.becomes(event.largest), search.seen.becomes(False), search.chosen.becomes(0),
            search.waiting.becomes(event.waiting), search.room.becomes(event.room),
            search.time_left.becomes(event.time_left)]),
    row("weigh.recorded", [IDLE], RECORDED, "CHK-1", "no question is open: the choice stands"),
    row("weigh.none_fits", [WEIGHING], refused(Reason.NO_CHUNK_FITS), "CHK-1 CHK-3",
        "beside these decodes the smallest chunk is too long", when=(search.at == 0) & search.seen),
    row("weigh.none_in_range", [WEIGHING], refused(Reason.OUT_OF_MODEL_RANGE), "CHK-2 CHK-3",
        "nothing was measured of any chunk on offer", when=search.at == 0),
    row("weigh.malformed", [WEIGHING], refused(Reason.MALFORMED), "ADM-9",
        "these are not the figures of the chunk at hand", when=misplaced),
    row("weigh.out_of_range", [WEIGHING], NOTED, "CHK-2", "nothing was measured of such a step: a smaller one",
        when=~event.in_range, do=[TO_THE_NEXT]),
    row("weigh.too_long", [WEIGHING], NOTED, "CHK-1", "the decodes would wait beyond their gap: a smaller one",
        when=overlong, do=[TO_THE_NEXT, search.seen.becomes(True)]),
    row("weigh.unreachable", [WEIGHING], refused(Reason.DEADLINE_UNREACHABLE), "CHK-3",
        "the largest chunk that fits is too small for the prompt's deadline", when=event.finish > search.time_left),
    row("weigh.chosen", [WEIGHING], Reply(Decision.CHOSEN), "CHK-1 CHK-4", "it fits, and nothing larger does", to=IDLE,
        do=[search.chosen.becomes(search.at),
            batch.consecutive.becomes(if_else(search.waiting & ~worker.mixed, batch.consecutive + 1, 0))]),
    row("decode.served", ANY, NOTED, "CHK-4", "they have waited for nothing yet, and the moment is over", to=IDLE,
        do=[search.at.becomes(0), search.chosen.becomes(0), batch.consecutive.becomes(0)]),
)  # fmt: skip

rival_counts = rival.on_offer & rival.in_range
rival_is_overlong = search.waiting & (rival.duration > search.room)
open_now = search.state == WEIGHING
answerable = all_of(event.largest >= 1, worker.trusted, ~(event.waiting & ~event.in_range), ~cannot_wait, ~must_wait)
at_hand = before(open_now & (search.at > 0)) & ~before(misplaced)
fits = event.in_range & ~before(overlong)

CHUNK_CHOICE = Table(
    name="chunk_choice",
    moves=search,
    state_type=ChunkSearch,
    entities=(search, batch, worker, rival),
    events=EVENTS,
    rows=ROWS,
    initial=all_of(search.state == IDLE, search.at == 0, search.chosen == 0, batch.consecutive == 0),
    note="How many prompt tokens may the next step compute? The most that leave the decodes beside them their gap.",
    invariants=(
        Invariant("what_was_passed_over_does_not_fit",
                  implies(open_now & rival_counts & (rival.tokens > search.at), rival_is_overlong), ("CHK-1",),
                  "no chunk on offer above the one at hand fits the gap"),
        Invariant("seen_says_whether_any_was_in_range",
                  implies(open_now & ~search.seen & rival.on_offer & (rival.tokens > search.at), ~rival.in_range),
                  ("CHK-3",), "nothing fits and nothing was measured are two answers"),
        Invariant("consecutive_chunks_are_bounded",
                  (batch.consecutive >= 0) & (batch.consecutive <= worker.bound), ("CHK-4",),
                  "decodes that wait are never passed over more often"),
        Invariant("an_open_question_may_be_answered",
                  implies(open_now, (search.chosen == 0)
                          & implies(search.waiting, batch.consecutive < worker.bound)), ("CHK-4",),
                  "one more chunk may go before the decodes"),
        Invariant("sizes_are_not_negative", (search.at >= 0) & (search.chosen >= 0), ("CHK-1",),
                  "0 stands for no chunk"),
    ),
    rules=(
        StepRule("the_chosen_chunk_fits",
                 implies(search.chosen != before(search.chosen),
                         all_of(search.chosen == event.tokens, fits, event.finish <= search.time_left)),
                 ("CHK-1", "CHK-3"), "in range, inside the gap, and in time", events=frozenset({"weigh"})),
        StepRule("nothing_larger_would_fit",
                 implies((search.chosen != before(search.chosen)) & rival_counts & (rival.tokens > search.chosen),
                         rival_is_overlong), ("CHK-1",),
                 "of any chunk on offer", events=frozenset({"weigh"})),
        StepRule("a_chunk_that_fits_is_chosen",
                 implies(at_hand & fits & (event.finish <= before(search.time_left)),
                         (search.state == IDLE) & (search.chosen == before(search.at))), ("CHK-1",),
                 "nothing is refused for another cause", events=frozenset({"weigh"})),
        StepRule("the_choice_goes_down_where_it_must",
                 implies(at_hand, (search.at == if_else(fits, before(search.at), event.below))), ("CHK-1",),
                 "a chunk is passed over exactly when it does not fit, for the next smaller",
                 events=frozenset({"weigh"})),
        StepRule("a_question_is_opened_exactly_when_it_can_be_answered",
                 if_else(before(answerable),
                         open_now & (search.at == event.largest) & (search.room == event.room)
                         & (search.waiting == event.waiting) & (search.time_left == event.time_left) & ~search.seen,
                         (search.state == before(search.state)) & (search.at == before(search.at))
                         & (search.chosen == before(search.chosen))), ("CHK-3", "CHK-4", "CHK-5"),
                 "infeasible moments open none, and every other does", events=frozenset({"ask"})),
        StepRule("a_chunk_before_decodes_is_counted",
                 implies((search.chosen != before(search.chosen)) & search.waiting & ~worker.mixed,
                         (batch.consecutive == before(batch.consecutive) + 1) & (event.duration <= search.room)),
                 ("CHK-4",), "they wait once more, and still inside their gap", events=frozenset({"weigh"})),
        StepRule("a_step_that_serves_the_decodes_is_not",
                 implies((search.chosen != before(search.chosen)) & (worker.mixed | ~search.waiting),
                         batch.consecutive == 0), ("CHK-4",), "nobody waits longer", events=frozenset({"weigh"})),
        StepRule("asking_counts_nothing", batch.consecutive == before(batch.consecutive), ("CHK-4",),
                 "only launches count", events=frozenset({"ask"})),
        StepRule("a_decode_step_starts_anew",
                 (batch.consecutive == 0) & ~open_now & (search.chosen == 0) & (search.at == 0), ("CHK-4",),
                 "the gap begins again", events=frozenset({"decode"})),
    ),
    assumptions=(
        Assumption("a_chunk_may_go_first", worker.bound >= 1, "a bound of none would starve prompts"),
        Assumption("chunks_on_offer_have_tokens", implies(rival.on_offer, rival.tokens >= 1), "and no chunk is empty"),
        Assumption("the_largest_is_asked_first", implies(rival.on_offer, rival.tokens <= event.largest),
                   "nothing on offer is larger", events=frozenset({"ask"})),
        Assumption("none_is_left_out",
                   implies(rival.on_offer, (rival.tokens >= event.tokens) | (rival.tokens <= event.below)),
                   "nothing on offer lies between a chunk and the next smaller", events=frozenset({"weigh"})),
        Assumption("predictions_are_functions",
                   implies(rival.on_offer & (rival.tokens == event.tokens),
                           (rival.duration == event.duration) & (rival.in_range == event.in_range)),
                   "a chunk has one predicted duration", events=frozenset({"weigh"})),
    ),
    sometimes=(
        Sometimes("a_chunk_is_chosen", search.chosen > 0, "prompts go on"),
        Sometimes("a_large_one_is_passed_over", open_now & search.seen & (search.at > 0), "the gap decides"),
        Sometimes("the_bound_is_attained", batch.consecutive == worker.bound, "chunks go before decodes"),
    ),
)  # fmt: skip
