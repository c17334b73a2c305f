"""Executions and steps of a worker: what may be launched, when a stop is certified, and what pages see of it."""

from __future__ import annotations

import random

import pytest

from kvescrow.reference.executions import Executions, Share, Step, holder_name
from kvescrow.reference.pages import Acquired, PagePool
from kvescrow.spec.vocabulary import Decision, ExecutionState, Key, PageState, PrefixScope, Reason, UserError

A, B = Key("tenant", "a"), Key("tenant", "b")
SCOPE = PrefixScope("tenant")


@pytest.fixture
def pool() -> PagePool:
    return PagePool(9, 2)


@pytest.fixture
def worker(pool: PagePool) -> Executions:
    worker = Executions(pool)
    for key in (A, B):
        worker.begin(key, 3)
        assert isinstance(pool.acquire(holder_name(key, 3), SCOPE, [1, 2, 3], 5), Acquired)
    return worker


def share(pool: PagePool, key: Key, generation: int = 3) -> Share:
    pages = pool.pages_of(holder_name(key, generation))
    return Share(key, generation, reads=pages, writes=pages[-1:])


def both(pool: PagePool, number: int) -> Step:
    return Step(number, (share(pool, A), share(pool, B)))


def test_begin(worker: Executions) -> None:
    assert worker.begin(A, 3).decision is Decision.RECORDED
    assert worker.begin(A, 4).reason is Reason.STALE_GENERATION
    assert worker.begin(Key("tenant", "c"), 1).decision is Decision.STARTED


def test_unknown_executions_are_refused() -> None:
    worker, stranger = Executions(PagePool(2, 1)), Key("tenant", "c")
    for event in (worker.close, worker.certify, worker.acknowledge):
        assert event(stranger).reason is Reason.UNKNOWN_KEY
    reply = worker.launch(Step(1, (Share(stranger, 1),)))
    assert (reply.reason, reply.refused_key) == (Reason.UNKNOWN_KEY, stranger)
    assert worker.state(stranger) is ExecutionState.ABSENT


def test_a_stop_is_certified_when_nothing_is_in_flight(worker: Executions, pool: PagePool) -> None:
    assert worker.launch(both(pool, 5)).decision is Decision.LAUNCHED
    assert worker.certify(A).reason is Reason.STILL_OPEN
    assert worker.acknowledge(A).reason is Reason.IN_FLIGHT
    assert worker.close(A).decision is Decision.ACCEPTED
    assert worker.close(A).decision is Decision.RECORDED
    assert worker.certify(A).reason is Reason.IN_FLIGHT
    assert worker.settle(5).decision is Decision.SETTLED
    receipt = worker.certify(A)
    assert (receipt.decision, receipt.generation, receipt.last_ticket) == (Decision.CERTIFIED, 3, 5)
    again = worker.certify(A)
    assert (again.decision, again.generation, again.last_ticket) == (Decision.RECORDED, 3, 5)
    assert worker.acknowledge(A).decision is Decision.FORGOTTEN
    assert worker.acknowledge(A).reason is Reason.UNKNOWN_KEY
    assert worker.begin(A, 4).decision is Decision.STARTED


def test_a_stopping_execution_launches_nothing_and_takes_nobody_down(worker: Executions, pool: PagePool) -> None:
    worker.close(A)
    before = pool.snapshot()
    reply = worker.launch(both(pool, 1))
    assert (reply.reason, reply.refused_key) == (Reason.STOPPING, A)
    assert (pool.snapshot(), worker.in_flight(B)) == (before, 0)
    assert worker.launch(Step(1, (share(pool, B),))).decision is Decision.LAUNCHED


def test_a_step_that_was_planned_for_an_older_generation_is_refused(worker: Executions, pool: PagePool) -> None:
    assert worker.launch(Step(1, (Share(A, 2),))).reason is Reason.STALE_GENERATION


def test_a_refused_page_refuses_the_step(worker: Executions, pool: PagePool) -> None:
    (foreign, *_) = pool.pages_of(holder_name(A, 3))
    before = pool.snapshot()
    reply = worker.launch(Step(1, (share(pool, A), Share(B, 3, reads=(foreign,)))))
    assert (reply.reason, reply.refused_key, reply.refused_page) == (Reason.NOT_HOLDER, B, foreign)
    assert (pool.snapshot(), worker.in_flight(A)) == (before, 0)


def test_steps_end_once_and_in_any_order(worker: Executions, pool: PagePool) -> None:
    for number in (1, 2, 4):
        worker.launch(both(pool, number))
    assert worker.launch(both(pool, 2)).decision is Decision.RECORDED
    assert worker.in_flight(A) == 3
    for number in (4, 1):
        assert worker.settle(number).decision is Decision.SETTLED
        assert worker.settle(number, ok=False).decision is Decision.RECORDED
        assert worker.launch(both(pool, number)).decision is Decision.RECORDED
    assert worker.settle(3).reason is Reason.UNKNOWN_TICKET
    assert worker.in_flight(A) == 1
    assert worker.settle(2).decision is Decision.SETTLED
    assert {page.readers + page.writers for page in pool.snapshot().pages} == {0}


def test_pages_of_a_stopped_execution_drain_until_its_step_ends(worker: Executions, pool: PagePool) -> None:
    pages = pool.pages_of(holder_name(A, 3))
    worker.launch(both(pool, 1))
    worker.close(A)
    pool.release(holder_name(A, 3))
    assert {pool.snapshot().pages[page].state for page in pages} == {PageState.DRAINING}
    worker.settle(1, ok=False)
    assert {pool.snapshot().pages[page].state for page in pages} == {PageState.FREE}
    assert worker.certify(A).decision is Decision.CERTIFIED


def test_names_of_holders_do_not_collide() -> None:
    keys = [Key("a/b", "c"), Key("a", "b/c"), Key("a", "b#1"), Key("a", "b"), Key("a", "b%231")]
    names = {holder_name(key, generation) for key in keys for generation in (1, 11)}
    assert len(names) == 2 * len(keys)
    assert holder_name(Key("a", "b"), 1) == "a/b#1"


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (Step(0, (Share(A, 3),)), "number 0"),
        (Step(1, ()), "lists no execution"),
        (Step(1, (Share(A, 3), Share(A, 3))), "twice"),
    ],
)
def test_a_step_that_is_none_is_a_users_mistake(worker: Executions, step: Step, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        worker.launch(step)


def test_a_generation_that_is_none_is_a_users_mistake(worker: Executions) -> None:
    with pytest.raises(UserError, match=r"^generation: 0"):
        worker.begin(Key("tenant", "c"), 0)


def test_random_runs_never_certify_early_and_leave_nothing_behind() -> None:
    """The runs keep their own list of steps in flight, by execution."""
    for seed in range(30):
        chance = random.Random(seed)
        pool = PagePool(12, 2)
        worker = Executions(pool)
        keys = [Key("tenant", name) for name in "abc"]
        flying: dict[int, set[Key]] = {}
        generation = dict.fromkeys(keys, 0)
        for number in range(1, 200):
            key = chance.choice(keys)
            holder = holder_name(key, generation[key])
            match worker.state(key), chance.randrange(3):
                case ExecutionState.ABSENT, _:
                    generation[key] += 1
                    holder = holder_name(key, generation[key])
                    if isinstance(pool.acquire(holder, SCOPE, [chance.randrange(2), 1, 2], 4), Acquired):
                        worker.begin(key, generation[key])
                case ExecutionState.OPEN, 0:
                    worker.close(key)
                    pool.release(holder)
                case ExecutionState.OPEN, _:
                    pages = pool.pages_of(holder)
                    step = Step(number, (Share(key, generation[key], reads=pages),))
                    assert worker.launch(step).decision is Decision.LAUNCHED
                    flying[number] = {key}
                case ExecutionState.CLOSING, _:
                    free = not any(key in listed for listed in flying.values())
                    assert (worker.certify(key).decision is Decision.CERTIFIED) == free
                case ExecutionState.STOPPED, _:
                    worker.acknowledge(key)
            for ended in [step for step in flying if chance.random() < 0.3]:
                worker.settle(ended, ok=chance.random() < 0.9)
                del flying[ended]
            pool.check()
        for ended in flying:
            worker.settle(ended)
        for key in keys:
            pool.release(holder_name(key, generation[key]))
        counts = pool.counts()
        assert (counts.free + counts.cached, counts.promised) == (counts.total, 0)
