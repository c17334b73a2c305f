"""Reservation policies by hand, and the guarantee of estimates with growth by every order of events that is drawn."""

from __future__ import annotations

from itertools import permutations

import pytest
from attrs import define
from hypothesis import given, settings
from hypothesis import strategies as st

from kvescrow.reference.scheduler.reservations import (
    LEARNED,
    EstimateWithGrowth,
    FullMaximum,
    NoEvict,
    Pages,
    PeakFormula,
    Watermark,
    can_all_end,
    peak,
    reserved_peak,
)

PAGE = 4
POOL = 40
PAGES = Pages(PAGE, POOL)


@define(eq=False)
class Work:
    """A request by its numbers."""

    tokens: int
    left: int
    bound: int = 0
    generated: int = 0
    tenant: str = "t"

    def step(self) -> None:
        self.tokens += 1
        self.generated += 1
        self.left -= 1


def taught(policy: EstimateWithGrowth, outputs: list[int], tenant: str = "t") -> EstimateWithGrowth:
    for output in outputs:
        policy.ended(Work(0, 0, generated=output, tenant=tenant), reserved=0)
    return policy


def test_the_worst_case_is_prompt_and_whole_allowed_output_in_pages() -> None:
    policy = FullMaximum(PAGES)
    assert policy.reserve(Work(5, 6)) == 12
    assert policy.grown(Work(5, 6, bound=12), [], 99) == 12


def test_an_estimate_is_a_percentile_of_the_tenants_own_past_and_the_worst_case_before_there_is_one() -> None:
    policy = taught(EstimateWithGrowth(PAGES, percent=50), list(range(1, LEARNED)))
    assert policy.reserve(Work(5, 30)) == 36
    taught(policy, [LEARNED])
    assert policy.reserve(Work(5, 30)) == PAGES.rounded(5 + 4)
    assert policy.reserve(Work(5, 2)) == 8
    assert policy.reserve(Work(5, 30, tenant="other")) == 36
    # What is stopped and starts again keeps what it has generated, so less is still to come.
    assert policy.reserve(Work(9, 26, generated=4)) == PAGES.rounded(9 + 1)


def test_an_estimate_forgets_what_is_long_ago() -> None:
    policy = taught(EstimateWithGrowth(PAGES, percent=90), [30] * 300)
    assert policy.reserve(Work(4, 30)) == 36
    taught(policy, [2] * 256)
    assert policy.reserve(Work(4, 30)) == 8


def test_growth_is_a_page_and_never_above_the_worst_case() -> None:
    policy = EstimateWithGrowth(PAGES)
    growing, whole = Work(4, 6, bound=4), Work(4, 2, bound=8)
    assert policy.grown(growing, [growing], 36) == 8
    assert policy.grown(whole, [whole], 32) == 8


def test_growth_waits_where_then_nobody_could_end() -> None:
    """Two that may each need 8 more, with 8 free: the first page that both took would stop both."""
    policy = EstimateWithGrowth(PAGES)
    first, second = Work(8, 16, bound=16), Work(8, 16, bound=16)
    assert policy.grown(first, [first, second], 8) == 20
    first.bound = 20
    assert policy.grown(second, [first, second], 4) == 16
    assert policy.grown(first, [first, second], 4) == 24


def test_one_more_joins_only_where_all_could_end() -> None:
    policy = taught(EstimateWithGrowth(PAGES, percent=50), [4] * LEARNED)
    running = Work(8, 24, bound=12)
    assert policy.reserve(Work(8, 12)) == 12
    assert policy.admits(Work(8, 12), 12, [running], 28)
    # The same while another holds so much that neither could be given its worst case.
    other = Work(12, 12, bound=12)
    assert not policy.admits(Work(8, 12), 12, [running, other], 16)


@pytest.mark.parametrize(("free", "joins"), [(24, True), (23, False)])
def test_no_evict_counts_what_everyone_may_still_need(free: int, joins: bool) -> None:
    """12 more for the one that runs, 12 for the new one."""
    policy = NoEvict(PAGES)
    running = Work(8, 16, bound=12)
    assert policy.reserve(Work(8, 4)) == 12
    assert policy.admits(Work(8, 4), 12, [running], free) is joins
    assert policy.grown(running, [running], 0) == 16


def test_the_watermark_is_waived_where_nothing_runs() -> None:
    policy = Watermark(PAGES, permille=100)
    running = Work(8, 16, bound=12)
    assert policy.reserve(Work(8, 90)) == 12
    assert policy.admits(Work(8, 90), 12, [], 12)
    assert policy.admits(Work(8, 90), 12, [running], 16)
    assert not policy.admits(Work(8, 90), 12, [running], 15)


def test_the_peak_formula_is_the_published_one() -> None:
    """Sorted by what is left, most first: (10, 5) and (4, 8): 10 + 5, then twice 4 and 13."""
    assert peak([(4, 8), (10, 5)]) == max(10 + 5, 4 * 2 + 13)
    assert peak([]) == 0
    policy = PeakFormula(Pages(PAGE, 30), expected=5)
    # 5 + 6 are expected of each, so both would hold 8 + 22.
    assert policy.admits(Work(3, 90), 4, [Work(3, 90, bound=4)], 0)
    assert not policy.admits(Work(3, 90), 4, [Work(3, 90, bound=8)], 0)


def test_what_will_be_reserved_is_the_bound_until_it_is_outgrown() -> None:
    """A holds 12 of which it has 8, and B has 4 of 4; both get 6 more: A ends at 14, B at 10."""
    assert reserved_peak([(6, 8, 12), (6, 4, 4)]) == 14 + 10
    assert reserved_peak([(1, 8, 12), (6, 4, 4)]) == 12 + 5


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=5), st.integers(0, 12))
def test_that_all_can_end_is_what_some_order_shows(needs: list[tuple[int, int]], free: int) -> None:
    def ends(order: tuple[tuple[int, int], ...]) -> bool:
        left = free
        for more, held in order:
            if more > left:
                return False
            left += held
        return True

    assert can_all_end(needs, free) == any(ends(order) for order in permutations(needs))


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_everyone_ends_without_preemption_whatever_the_lengths(data: st.DataObject) -> None:
    """GRO-3, PAG-1: as long as someone runs, someone can take its next step; all ends, and nothing is stopped."""
    policy = taught(EstimateWithGrowth(PAGES, percent=data.draw(st.integers(1, 100))), [3] * LEARNED)
    coming = [
        Work(data.draw(st.integers(1, 12)), data.draw(st.integers(1, 24))) for _ in range(data.draw(st.integers(1, 8)))
    ]
    lengths = {id(work): data.draw(st.integers(1, work.left)) for work in coming}
    running: list[Work] = []
    for _ in range(2_000):
        free = POOL - sum(work.bound for work in running)
        assert free >= 0
        if coming and policy.admits(coming[0], bound := policy.reserve(coming[0]), running, free):
            coming[0].bound = bound
            running.append(coming.pop(0))
            continue
        if not running:
            break
        moved = False
        for work in list(running):
            if work.tokens + 1 > work.bound:
                work.bound = policy.grown(work, running, POOL - sum(each.bound for each in running))
            if work.tokens + 1 <= work.bound:
                work.step()
                moved = True
                if work.generated == lengths[id(work)]:
                    running.remove(work)
        assert moved, "all that runs waits to grow"
    assert not running
    assert not coming
