"""The chunk rule beside its decision table, over a grid and over drawn moments, and by hand (CHK-1 to CHK-4).

The oracle weighs every chunk on offer, from the largest down. What it is told of each is computed here, step by step;
the rule uses closed forms and bisection.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvescrow.reference.scheduler import (
    ChunkReply,
    ChunkRule,
    CostModel,
    GapBudget,
    Moment,
    StepCost,
    StepWork,
    WorkRange,
    of_decodes,
)
from kvescrow.spec.tables.chunk_choice import CHUNK_CHOICE
from kvescrow.spec.vocabulary import Decision, Reason, UserError
from kvescrow.spec.world import chunks as world
from kvescrow.spec.world.outcome import MutableRecord, Outcome

NO_DEADLINE = 10**18
COST = StepCost(fixed=1_000, per_prefill_token=1_000, per_decode_sequence=500, per_context_token=100)
"""A microsecond a step and a token; half a one a decode, a tenth a token read."""
MODEL = CostModel(COST)


# --- figures, computed the long way -----------------------------------------------------------------------------------


def femtoseconds(cost: StepCost, work: StepWork) -> int:
    nanoseconds = cost.fixed + cost.per_prefill_token * work.prefill_tokens
    nanoseconds += cost.per_decode_sequence * work.decode_sequences + cost.per_context_token * work.context_tokens
    return nanoseconds * 10**6 + cost.per_attended_pair * work.attended_pairs


def up(amount: int, unit: int) -> int:
    return (amount + unit - 1) // unit


def upper_edge(model: CostModel, work: StepWork) -> int:
    return up(femtoseconds(model.cost, work) * (1000 + model.band), 10**12)


def chunk_work(start: int, tokens: int) -> StepWork:
    """Token by token: each attends to itself and to all before it."""
    pairs = sum(position + 1 for position in range(start, start + tokens))
    return StepWork(tokens, 0, start, pairs)


def in_range(model: CostModel, work: StepWork) -> bool:
    limit = model.range
    return limit is None or all(
        getattr(work, name) <= getattr(limit, name)
        for name in ("prefill_tokens", "decode_sequences", "context_tokens", "attended_pairs")
    )


def on_offer(budget: GapBudget, left: int) -> list[int]:
    """Every multiple of the granule, and the end of the prompt, from the largest down."""
    multiples = range(budget.granule, min(left, budget.largest) + 1, budget.granule)
    return sorted({*multiples, *([left] if left <= budget.largest else [])}, reverse=True)


def finish(rule: ChunkRule, moment: Moment, tokens: int) -> int:
    """Step by step to the end of the prompt, with the decode steps that must go between."""
    total, position, end, passed = 0, moment.start, moment.start + moment.left, rule.passed_over
    waiting = moment.decodes.decode_sequences > 0
    while position < end:
        if waiting and not rule.budget.mixed and passed == rule.budget.consecutive:
            total += femtoseconds(rule.model.cost, moment.decodes)
            passed = 0
        size = min(tokens, end - position)
        work = chunk_work(position, size)
        total += femtoseconds(rule.model.cost, work + moment.decodes if rule.budget.mixed else work)
        position += size
        passed += 1
    return up(total, 10**9)


def offered(rule: ChunkRule, moment: Moment, tokens: int) -> world.Offered:
    work = chunk_work(moment.start, tokens)
    both = work + moment.decodes
    if rule.budget.mixed:
        duration = upper_edge(rule.model, both)
    else:
        waiting = moment.decodes.decode_sequences > 0
        duration = upper_edge(rule.model, work) + (upper_edge(rule.model, moment.decodes) if waiting else 0)
    measured = in_range(rule.model, both if rule.budget.mixed else work)
    return world.Offered(tokens, duration, finish(rule, moment, tokens), measured)


class SeenWorld(world.ChunkWorld):
    """The table's world, with the rows that fired."""

    rows: set[str]

    def _fire(self, event: str, parameters: MutableRecord) -> Outcome:
        outcome = super()._fire(event, parameters)
        self.rows.add(outcome.row)
        return outcome


class Beside:
    """A rule and its table, asked the same."""

    def __init__(self, model: CostModel, budget: GapBudget) -> None:
        self.rule = ChunkRule(model, budget)
        self.world = SeenWorld(budget.consecutive, mixed=budget.mixed)
        self.world.rows = set()

    def choose(self, moment: Moment) -> ChunkReply:
        waiting = moment.decodes.decode_sequences > 0
        asked = world.Moment(
            waiting=waiting,
            room=self.rule.budget.gap - moment.waited,
            alone=upper_edge(self.rule.model, moment.decodes) if waiting else 0,
            time_left=NO_DEADLINE if moment.time_left is None else moment.time_left,
            in_range=in_range(self.rule.model, moment.decodes),
        )
        offers = [offered(self.rule, moment, tokens) for tokens in on_offer(self.rule.budget, moment.left)]
        self.world.trust(self.rule.trusted)
        expected = self.world.choose(asked, offers)
        reply = self.rule.choose(moment)
        assert reply.reason is expected.reason, (moment, expected)
        assert (reply.tokens > 0) == (expected.decision is Decision.CHOSEN)
        assert self.rule.passed_over == self.world.consecutive
        if reply.tokens:
            assert reply.tokens == self.world.chosen
            assert reply.duration == next(each.duration for each in offers if each.tokens == reply.tokens)
        return reply

    def decoded(self) -> None:
        self.rule.decoded()
        self.world.decode()


def moments() -> Iterator[Moment]:
    for start, left, decodes, waited, time_left in product(
        (0, 3), (1, 4, 7), ((), (5,), (5, 0, 9)), (0, 4), (None, 4, 13)
    ):
        yield Moment(start, left, of_decodes(decodes), waited, time_left)


@pytest.mark.parametrize("mixed", [True, False])
@pytest.mark.parametrize("granule", [1, 2])
def test_rule_and_table_agree_over_a_grid(mixed: bool, granule: int) -> None:
    """Every gap from none that fits to one that all fit, from every count of chunks that went before."""
    seen: set[Reason] = set()
    rows: set[str] = set()
    limits = (None, WorkRange(4, 2, 20, 18), WorkRange(0, 2, 20, 18))
    for gap, limit, trusted in product((1, 2, 3, 4, 5, 6, 8, 11, 17), limits, (True, False)):
        budget = GapBudget(gap, largest=5, granule=granule, consecutive=2, mixed=mixed)
        for moment in moments():
            beside = Beside(CostModel(COST, limit, band=100), budget)
            beside.rule.trusted = trusted
            seen |= {beside.choose(moment).reason for _ in range(3)}
            beside.decoded()
            seen.add(beside.choose(moment).reason)
            rows |= beside.world.rows
    named = {Reason.MODEL_FAILED, Reason.OUT_OF_MODEL_RANGE, Reason.GAP_TOO_SMALL_FOR_DECODE, Reason.NO_CHUNK_FITS}
    named |= {Reason.DEADLINE_UNREACHABLE, Reason.NONE}
    assert seen == (named if mixed else named | {Reason.DECODES_FIRST})
    # Every row decides, but those that a caller cannot reach who asks as he must.
    unreached = {"ask.malformed", "weigh.malformed", "weigh.recorded", *(["ask.decodes_first"] if mixed else [])}
    assert {row.id for row in CHUNK_CHOICE.rows} - rows == {f"chunk_choice.{name}" for name in unreached}


small = st.integers(0, 40)
costs = st.builds(
    StepCost,
    fixed=st.integers(1, 5_000),
    per_prefill_token=st.integers(0, 3_000),
    per_decode_sequence=st.integers(0, 3_000),
    per_context_token=st.integers(0, 300),
    per_attended_pair=st.integers(0, 10**8),
)
ranges = st.none() | st.builds(WorkRange, small, st.integers(0, 4), st.integers(0, 120), st.integers(0, 900))
models = st.builds(CostModel, costs, ranges, st.integers(0, 900))
budgets = st.builds(
    lambda gap, granule, more, consecutive, mixed: GapBudget(gap, granule + more, granule, consecutive, mixed),
    st.integers(1, 200),
    st.integers(1, 6),
    st.integers(0, 30),
    st.integers(1, 3),
    st.booleans(),
)
asked = st.builds(
    Moment,
    start=small,
    left=st.integers(1, 50),
    decodes=st.lists(small, max_size=4).map(of_decodes),
    waited=st.integers(0, 60),
    time_left=st.none() | st.integers(0, 400),
)


@given(models, budgets, st.lists(st.tuples(asked, st.booleans()), min_size=1, max_size=8))
@settings(max_examples=250, deadline=None, derandomize=True, database=None)
def test_rule_and_table_agree_on_drawn_histories(
    model: CostModel, budget: GapBudget, history: list[tuple[Moment, bool]]
) -> None:
    beside = Beside(model, budget)
    for moment, decoded in history:
        beside.choose(moment)
        assert beside.rule.passed_over <= budget.consecutive
        if decoded:
            beside.decoded()


# --- by hand ----------------------------------------------------------------------------------------------------------


def test_the_largest_chunk_that_fits() -> None:
    """CHK-1: 1 for the step, 1 for the decode and what it reads, so 8 of 10 microseconds are left for the chunk."""
    moment = Moment(start=0, left=100, decodes=of_decodes([5]))
    assert ChunkRule(MODEL, GapBudget(10, largest=64)).choose(moment) == ChunkReply(8, 10)
    assert ChunkRule(MODEL, GapBudget(10, largest=64, granule=4)).choose(moment) == ChunkReply(8, 10)
    assert ChunkRule(MODEL, GapBudget(10, largest=64, granule=5)).choose(moment) == ChunkReply(5, 7)
    assert ChunkRule(MODEL, GapBudget(10, largest=6)).choose(moment) == ChunkReply(6, 8)
    assert ChunkRule(CostModel(COST, band=250), GapBudget(10, largest=64)).choose(moment) == ChunkReply(6, 10)


def test_attention_makes_later_chunks_smaller() -> None:
    """CHK-2: a token at position 1,000 attends to a thousand others."""
    rule = ChunkRule(CostModel(StepCost(1_000, 0, 0, 0, per_attended_pair=10**7)), GapBudget(101, largest=512))
    first = rule.choose(Moment(start=0, left=512, decodes=of_decodes([1])))
    later = rule.choose(Moment(start=1_000, left=512, decodes=of_decodes([1])))
    assert (first.tokens, later.tokens) == (140, 9)


def test_the_rest_of_a_prompt_is_on_offer_whatever_the_granule() -> None:
    moment = Moment(start=0, left=7)
    assert ChunkRule(MODEL, GapBudget(1, largest=8, granule=4)).choose(moment).tokens == 7
    beside = Moment(start=0, left=3, decodes=of_decodes([5]))
    assert ChunkRule(MODEL, GapBudget(4, largest=8, granule=4)).choose(beside).reason is Reason.NO_CHUNK_FITS


def test_infeasible_cases_have_names() -> None:
    """CHK-3: what is wrong decides what an operator changes: budget, admission, or calibration."""
    five = of_decodes([10] * 5)
    prompt = Moment(start=0, left=100, decodes=five)
    refused = ChunkReply(0, 9, Reason.GAP_TOO_SMALL_FOR_DECODE)
    assert ChunkRule(MODEL, GapBudget(8, largest=64)).choose(prompt) == refused
    assert ChunkRule(MODEL, GapBudget(9, largest=64)).choose(prompt) == ChunkReply(0, 9, Reason.NO_CHUNK_FITS)
    late = Moment(start=0, left=100, decodes=five, time_left=100)
    assert ChunkRule(MODEL, GapBudget(20, largest=64)).choose(late).reason is Reason.DEADLINE_UNREACHABLE
    narrow = CostModel(COST, WorkRange(8, 4, 1_000, 10_000))
    assert ChunkRule(narrow, GapBudget(20, largest=64)).choose(prompt).reason is Reason.OUT_OF_MODEL_RANGE
    assert ChunkRule(MODEL, GapBudget(20, largest=64), trusted=False).choose(prompt).reason is Reason.MODEL_FAILED


def test_overlapping_prompts_cannot_stretch_the_gap() -> None:
    """CHK-4: steps of their own for two prompts, one chunk between two tokens of a decode, whoever comes."""
    rule = ChunkRule(MODEL, GapBudget(10, largest=4, consecutive=1, mixed=False))
    prompts = [Moment(start=0, left=4, decodes=of_decodes([5])), Moment(start=0, left=4, decodes=of_decodes([5]))]
    assert rule.choose(prompts[0]).tokens == 4
    assert rule.choose(prompts[1]).reason is Reason.DECODES_FIRST
    rule.decoded()
    assert rule.choose(prompts[1]).tokens == 4


def test_what_was_waited_already_counts() -> None:
    """CHK-4: two chunks may go before a decode, but the second must leave it its gap as well."""
    rule = ChunkRule(MODEL, GapBudget(14, largest=16, consecutive=2, mixed=False))
    first = rule.choose(Moment(start=0, left=40, decodes=of_decodes([5])))
    assert first == ChunkReply(11, 14)
    second = rule.choose(Moment(start=11, left=29, decodes=of_decodes([5]), waited=12))
    assert second.reason is Reason.NO_CHUNK_FITS


def test_a_granule_above_the_largest_chunk_is_refused() -> None:
    with pytest.raises(UserError, match="set the granule to at most that"):
        GapBudget(10, largest=8, granule=16)
