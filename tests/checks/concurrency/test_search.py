"""The search for an order: histories without commit numbers, whole and in parts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest
from attrs import evolve

from kvescrow.checks.concurrency import Answer, Call, Terms, find_order
from kvescrow.checks.concurrency.parts import parts_of
from kvescrow.spec.vocabulary import (
    Cancel,
    Decision,
    Key,
    LedgerEvent,
    Reason,
    ReservationState,
    Reserve,
    Start,
    Tick,
    UserError,
)
from kvescrow.spec.world.ledger import TenantTerms
from tests.checks.concurrency.conftest import Record, changes

FAR = 10**12
S = ReservationState


def reserve(request: str, amount: int = 4, tenant: str = "red") -> Reserve:
    return Reserve(Key(tenant, request), amount, "d", FAR)


def admitted(life: int) -> Answer:
    return Answer(Decision.ADMITTED, Reason.NONE, S.RESERVED, life)


def refused(reason: Reason, state: S = S.ABSENT) -> Answer:
    return Answer(Decision.REFUSED, reason, state)


def without_numbers(calls: Sequence[Call]) -> list[Call]:
    return [c if c.answer is None else evolve(c, answer=evolve(c.answer, seq=None, free=None)) for c in calls]


@pytest.fixture
def narrow() -> Terms:
    """Six in the pool, so that one of two reservations of four is refused."""
    return Terms(6, {"red": TenantTerms(6, 100, 0), "blue": TenantTerms(6, 100, 0)}, 0)


def test_one_of_two_wins_in_whatever_order(narrow: Terms) -> None:
    first = Call("a", reserve("1"), 1, 10, refused(Reason.TENANT_CAPACITY))
    second = Call("b", reserve("2"), 5, 6, admitted(1))
    verdict = find_order([first, second], narrow)
    assert (verdict.verdict, verdict.by) == ("passed", "whole")


def test_real_time_is_respected(narrow: Terms) -> None:
    first = Call("a", reserve("1"), 1, 4, refused(Reason.TENANT_CAPACITY))
    second = Call("b", reserve("2"), 5, 6, admitted(1))
    verdict = find_order([first, second], narrow)
    assert verdict.verdict == "failed"
    assert verdict.findings[0].where == "a: reserve red/1"


def test_two_winners_are_found(narrow: Terms) -> None:
    calls = [Call("a", reserve("1"), 1, 10, admitted(1)), Call("b", reserve("2"), 5, 6, admitted(2))]
    assert find_order(calls, narrow).verdict == "failed"


class TestUnanswered:
    """A call whose answer never came may have been made, at any later time, or not."""

    lost = Call("a", reserve("1"), 1)

    def test_made(self, narrow: Terms) -> None:
        assert find_order(
            [self.lost, Call("b", reserve("2"), 5, 6, refused(Reason.TENANT_CAPACITY))], narrow
        ).verdict == ("passed")

    def test_not_made(self, narrow: Terms) -> None:
        assert find_order([self.lost, Call("b", reserve("2"), 5, 6, admitted(1))], narrow).verdict == "passed"

    def test_made_later(self, narrow: Terms) -> None:
        cancel = Cancel(Key("red", "2"), 1)
        calls = [
            self.lost,
            Call("b", reserve("2"), 5, 6, admitted(1)),
            Call("b", cancel, 7, 8, Answer(Decision.RELEASED, Reason.NONE, S.CANCELLED, 1)),
            Call("b", reserve("3"), 9, 10, refused(Reason.TENANT_CAPACITY)),
        ]
        assert find_order(calls, narrow).verdict == "passed"

    def test_not_before_it_began(self, narrow: Terms) -> None:
        late = Call("a", reserve("1"), 7)
        calls = [Call("b", reserve("2"), 5, 6, refused(Reason.TENANT_CAPACITY)), late]
        assert find_order(calls, narrow).verdict == "failed"

    def test_one_that_the_ledger_did_not_keep_explains_nothing(self, narrow: Terms) -> None:
        calls = [evolve(self.lost, failed=True), Call("b", reserve("2"), 5, 6, refused(Reason.TENANT_CAPACITY))]
        assert find_order(calls, narrow).verdict == "failed"


def test_the_search_agrees_with_every_order_tried(narrow: Terms) -> None:
    """All answers to three overlapping calls: a brute-force trial of each order says which sets are possible."""
    events: list[LedgerEvent] = [reserve("1"), reserve("2"), Cancel(Key("red", "1"), 1)]
    times = [(1, 5), (2, 9), (3, 8)]
    answers: list[set[Answer]] = [set() for _ in events]
    possible: set[tuple[Answer, ...]] = set()
    for order in permutations(range(3)):
        world = narrow.world()
        given: dict[int, Answer] = {}
        for index in order:
            outcome = world.apply(events[index])
            record = world.reservations.get(Key("red", "12"[index % 2]))
            state, life = (S(record["state"]), record["life"]) if record else (S.ABSENT, 0)
            assert isinstance(life, int)
            given[index] = Answer(outcome.decision, outcome.reason, state, life)
            answers[index].add(given[index])
        possible.add(tuple(given[index] for index in range(3)))
    tried = [(x, y, z) for x in answers[0] for y in answers[1] for z in answers[2]]
    assert len(tried) > len(possible) > 1
    for combination in tried:
        calls = [
            Call("p", event, began, ended, answer)
            for event, (began, ended), answer in zip(events, times, combination, strict=True)
        ]
        assert (find_order(calls, narrow).verdict == "passed") == (combination in possible)


def test_the_history_of_many_threads_has_an_order(record: Record) -> None:
    run = record(threads=4, lives=6)
    verdict = find_order(without_numbers(run.calls), run.terms)
    assert (verdict.verdict, verdict.findings) == ("passed", ())


def test_a_corrupted_reply_is_named(record: Record) -> None:
    """One thread, so that no other order can explain the reply."""
    run = record(threads=1, lives=6)
    index = changes(run.calls, Decision.STARTED)[2]
    answer = run.calls[index].answer
    assert answer is not None
    calls = without_numbers(run.calls)
    calls[index] = evolve(calls[index], answer=evolve(answer, generation=answer.generation + 5, seq=None, free=None))
    verdict = find_order(calls, run.terms)
    assert verdict.verdict == "failed"
    assert verdict.findings[0].where == str(run.calls[index])


def test_out_of_steps_nothing_is_known(record: Record) -> None:
    run = record(threads=4, lives=6)
    verdict = find_order(without_numbers(run.calls), run.terms, most_steps=20)
    assert (verdict.verdict, verdict.steps) == ("unknown", 20)


class TestParts:
    """What cannot touch each other is searched apart, and nothing else."""

    wide = Terms(1000, {"red": TenantTerms(100, 100, 0), "blue": TenantTerms(10, 100, 0)}, 0)

    def test_keys_where_nothing_can_refuse(self) -> None:
        calls = [Call("a", reserve(str(n)), n, n + 9, admitted(n + 1)) for n in range(5)]
        assert (parts_of(calls, self.wide).by, len(parts_of(calls, self.wide).parts)) == ("key", 5)
        assert find_order(calls, self.wide).verdict == "passed"

    def test_tenants_where_only_their_limits_can(self) -> None:
        calls = [Call("a", reserve(str(n), tenant="blue"), n, n + 9, admitted(n + 1)) for n in range(2)]
        calls += [Call("a", reserve("x", tenant="blue"), 2, 11, refused(Reason.TENANT_CAPACITY))]
        calls += [Call("b", reserve("y"), 3, 5, admitted(3))]
        verdict = find_order(calls, self.wide)
        assert (verdict.verdict, verdict.by) == ("passed", "tenant")

    @pytest.mark.parametrize(
        "event", [Tick(1), Reserve(Key("red", "q"), 1, "d", FAR, max_wait=1), reserve("large", amount=1000)]
    )
    def test_the_whole_where_they_meet(self, event: LedgerEvent) -> None:
        calls = [Call("a", reserve("1"), 1, 2, admitted(1)), Call("a", event, 3, 4)]
        assert parts_of(calls, self.wide).by == "whole"

    def test_a_life_or_generation_drawn_twice_is_found_across_parts(self) -> None:
        calls = [Call("a", reserve("1"), 1, 2, admitted(1)), Call("b", reserve("2"), 1, 2, admitted(1))]
        verdict = find_order(calls, self.wide)
        assert verdict.verdict == "failed"
        assert "life 1" in verdict.findings[0].what

    def test_a_part_that_has_no_order_fails(self) -> None:
        start = Start(Key("red", "1"), 1, "w")
        running = Answer(Decision.STARTED, Reason.NONE, S.RUNNING, 1, 1)
        calls = [
            Call("a", reserve("1"), 1, 2, admitted(1)),
            Call("a", start, 3, 4, running),
            Call("b", start, 5, 6, evolve(running, generation=2)),
            Call("c", reserve("2"), 1, 2, admitted(2)),
        ]
        verdict = find_order(calls, self.wide)
        assert (verdict.verdict, verdict.by) == ("failed", "key")
        assert verdict.findings[0].where == "b: start red/1"


def test_empty_histories_are_refused(narrow: Terms) -> None:
    with pytest.raises(UserError, match="nothing was checked"):
        find_order([Call("a", reserve("1"), 1)], narrow)
