"""Whole requests and steps: all or nothing, in the right order, and told to the recorder."""

from __future__ import annotations

import random
from typing import Any

import pytest
from attrs import evolve

from kvescrow.reference.pages import Acquired, PageEvent, PagePool, PageReply, PageUse, pack
from kvescrow.spec.vocabulary import Decision, PageState, PrefixScope, Reason, UserError

SCOPE = PrefixScope("tenant", model="m", page_length=2)


def compute(pool: PagePool, holder: str, sequence: list[int]) -> int:
    pages = pool.pages_of(holder)
    writes = tuple(page for page in pages if pool.chain(page) is None)
    use = [PageUse(holder, writes=writes, filled=frozenset(pages[: len(sequence) // pool.page_length]) & set(writes))]
    assert pool.launch(use).decision is Decision.LAUNCHED
    pool.finish(use, ok=True)
    return pool.publish(holder, sequence)


def acquire(pool: PagePool, holder: str, prompt: list[int], total: int | None = None) -> Acquired:
    got = pool.acquire(holder, SCOPE, prompt, total or len(prompt))
    assert isinstance(got, Acquired)
    return got


def test_output_pages_are_promised_and_drawn_later() -> None:
    pool = PagePool(6, 2)
    got = acquire(pool, "a#1", [1, 2, 3], total=9)
    assert (len(got.pages), got.promised) == (2, 3)
    assert pool.acquire("b#1", SCOPE, [7], 2).reason is Reason.POOL_CAPACITY
    drawn = [pool.allocate("a#1").page for _ in range(3)]
    assert pool.pages_of("a#1") == (*got.pages, *drawn)
    assert pool.allocate("a#1").reason is Reason.NO_PROMISE


def test_a_release_gives_back_all_and_a_second_one_nothing() -> None:
    pool = PagePool(4, 2)
    acquire(pool, "a#1", [1, 2, 3], total=5)
    assert pool.release("a#1").decision is Decision.RELEASED
    assert (pool.counts().free, pool.counts().promised) == (3, 0)
    assert pool.release("a#1").decision is Decision.RECORDED
    assert pool.acquire("a#1", SCOPE, [1], 1).reason is Reason.CLOSED
    assert pool.forget("a#1").decision is Decision.FORGOTTEN
    assert pool.forget("a#1").reason is Reason.UNKNOWN_KEY
    assert pool.release("a#1").reason is Reason.UNKNOWN_KEY


def test_the_least_recently_held_chain_goes_first_from_its_end() -> None:
    pool = PagePool(7, 2)
    for holder, prompt in (("a#1", [1, 2, 3, 4, 5, 6]), ("b#1", [7, 8, 9, 10])):
        acquire(pool, holder, prompt)
        compute(pool, holder, prompt)
        pool.release(holder)
    a = pool.lookup(SCOPE, [1, 2, 3, 4, 5, 6, 0])
    assert (a, pool.counts().free) == (6, 1)
    acquire(pool, "c#1", [20], total=1)
    found = []
    for number in range(5):
        acquire(pool, f"d#{number}", [30])
        found.append((pool.lookup(SCOPE, [1, 2, 3, 4, 5, 6, 0]), pool.lookup(SCOPE, [7, 8, 9, 10, 0])))
    assert found == [(4, 4), (2, 4), (0, 4), (0, 2), (0, 0)]
    pool.check()


def test_a_page_that_becomes_a_leaf_late_is_still_evicted() -> None:
    """The pages of a chain are dropped from its front, so each drains until those after it are cached."""
    pool = PagePool(5, 2)
    acquire(pool, "a#1", [1, 2, 3, 4, 5, 6])
    compute(pool, "a#1", [1, 2, 3, 4, 5, 6])
    first, second, third = pool.pages_of("a#1")
    for page in (first, second, third):
        assert pool.park(page).decision is Decision.NOTHING_DUE
        pool.drop("a#1", page)
    assert (pool.counts().draining, pool.counts().cached) == (2, 1)
    assert pool.park(first).reason is Reason.IN_USE
    acquire(pool, "b#1", [9, 9, 9])
    assert (pool.counts().draining, pool.counts().cached) == (0, 2)
    assert pool.snapshot().pages[third].state is PageState.PRIVATE
    acquire(pool, "c#1", [8, 8, 8])
    assert pool.counts().cached == 0
    pool.check()


def test_retiring_a_scope_unpublishes_leaf_first_and_holders_keep_theirs() -> None:
    events: list[PageEvent] = []
    pool = PagePool(8, 2, recorder=events.append)
    for holder, prompt in (("a#1", [1, 2, 3, 4, 5, 6]), ("b#1", [1, 2, 9, 9])):
        acquire(pool, holder, prompt)
        compute(pool, holder, prompt)
    pool.release("a#1")
    assert pool.retire_scope(SCOPE).decision is Decision.NOTED
    assert {event.decision for event in events if event.name == "retire_scope"} == {Decision.NOTED, Decision.RELEASED}
    assert pool.lookup(SCOPE, [1, 2, 0]) == 0
    counts = pool.counts()
    assert (counts.cached, counts.shared, counts.free) == (0, 2, 5)
    assert pool.retire_scope(SCOPE).decision is Decision.RECORDED
    pool.release("b#1")
    assert pool.counts().free == 7
    acquire(pool, "c#1", [1, 2, 3])
    assert compute(pool, "c#1", [1, 2, 3]) == 0
    pool.check()


def test_a_step_is_launched_whole_or_not_at_all() -> None:
    pool = PagePool(6, 2)
    acquire(pool, "a#1", [1, 2, 3])
    compute(pool, "a#1", [1, 2, 3])
    shared, private = pool.pages_of("a#1")
    before = pool.snapshot()
    reply = pool.launch([PageUse("a#1", reads=(shared,), writes=(private,)), PageUse("a#1", writes=(shared,))])
    assert (reply.reason, reply.holder, reply.page) == (Reason.READ_ONLY, "a#1", shared)
    assert pool.snapshot() == before


def test_what_a_failed_step_wrote_is_never_published() -> None:
    pool = PagePool(6, 2)
    (page,) = acquire(pool, "a#1", [1, 2]).pages
    for ok in (False, True):
        use = [PageUse("a#1", writes=(page,), filled=frozenset({page}))]
        pool.launch(use)
        pool.finish(use, ok=ok)
    assert pool.publish("a#1", [1, 2]) == 0
    pool.release("a#1")
    assert pool.counts().free == 5


def test_a_released_page_drains_until_its_last_step_ends() -> None:
    pool = PagePool(3, 2)
    (page,) = acquire(pool, "a#1", [1, 2]).pages
    use = [PageUse("a#1", reads=(page,), writes=(page,), filled=frozenset({page}))]
    pool.launch(use)
    pool.release("a#1")
    assert (pool.counts().draining, pool.counts().free) == (1, 1)
    assert pool.acquire("b#1", SCOPE, [1], 4).reason is Reason.POOL_CAPACITY
    pool.finish(use, ok=True)
    assert (pool.counts().draining, pool.counts().free) == (0, 2)


def test_pages_of_a_duplicate_stay_private_and_go_back() -> None:
    pool = PagePool(8, 2)
    for holder in ("a#1", "b#1"):
        acquire(pool, holder, [1, 2, 3, 4])
    assert compute(pool, "a#1", [1, 2, 3, 4]) == 2
    assert compute(pool, "b#1", [1, 2, 3, 4]) == 0
    pool.release("b#1")
    pool.release("a#1")
    assert (pool.counts().cached, pool.counts().free) == (2, 5)


def chain_of_two_holders(pool: PagePool) -> tuple[int, int]:
    """The page of "a#1" is the first of a chain, that of "b#1" the second."""
    acquire(pool, "a#1", [1, 2])
    compute(pool, "a#1", [1, 2])
    (first,) = pool.pages_of("a#1")
    (second,) = acquire(pool, "b#1", [3, 4]).pages
    pool.touch("b#1", second, True)
    pool.settle(second, True, True, True)
    assert pool.seal("b#1", second, [3, 4], first).decision is Decision.PUBLISHED
    return first, second


def test_a_page_whose_follower_is_held_is_not_promised_to_anyone() -> None:
    pool = PagePool(4, 2)
    first, second = chain_of_two_holders(pool)
    pool.release("a#1")
    assert pool.snapshot().pages[first].state is PageState.DRAINING
    reply = pool.acquire("c#1", SCOPE, [9, 9, 9], 4)
    assert isinstance(reply, PageReply) and reply.reason is Reason.POOL_CAPACITY
    assert acquire(pool, "c#1", [9, 9]).pages == (3,)
    pool.release("c#1")
    pool.release("b#1")
    assert pool.snapshot().pages[first].state is pool.snapshot().pages[second].state is PageState.CACHED
    acquire(pool, "d#1", [9, 9, 9], 6)
    pool.check()


def test_whoever_follows_a_cached_page_holds_it_first() -> None:
    pool = PagePool(5, 2)
    first, second = chain_of_two_holders(pool)
    pool.release("b#1")
    pool.release("a#1")
    (third,) = acquire(pool, "c#1", [5, 6], total=6).pages
    pool.touch("c#1", third, True)
    pool.settle(third, True, True, True)
    assert pool.seal("c#1", third, [5, 6], first).reason is Reason.PARENT_NOT_HELD
    assert pool.share("c#1", second, [3, 4], pool.chain(first)).reason is Reason.PARENT_NOT_HELD
    assert pool.share("c#1", first, [1, 2], None).decision is Decision.GRANTED
    assert pool.share("c#1", second, [3, 4], pool.chain(first)).decision is Decision.GRANTED
    assert pool.seal("c#1", third, [5, 6], second).decision is Decision.PUBLISHED
    pool.check()


def test_a_page_waits_for_its_step_and_for_what_follows_it_in_either_order() -> None:
    for step_ends_first in (True, False):
        events: list[PageEvent] = []
        pool = PagePool(4, 2, recorder=events.append)
        first, _ = chain_of_two_holders(pool)
        step = [PageUse("a#1", reads=(first,))]
        pool.launch(step)
        pool.release("a#1")
        assert pool.park(first).reason is Reason.IN_FLIGHT
        for ends in (step_ends_first, not step_ends_first):
            assert pool.snapshot().pages[first].state is PageState.DRAINING
            if ends:
                pool.finish(step, ok=True)
            else:
                pool.release("b#1")
        assert (pool.counts().cached, pool.counts().draining) == (2, 0)
        parked = [event for event in events if event.name == "park" and event.decision is Decision.SETTLED]
        assert len(parked) == step_ends_first
        pool.check()


def test_retirement_frees_a_page_that_waited_for_another() -> None:
    pool = PagePool(4, 2)
    first, _ = chain_of_two_holders(pool)
    pool.release("a#1")
    pool.retire_scope(SCOPE)
    assert pool.snapshot().pages[first].state is PageState.FREE
    pool.release("b#1")
    assert pool.counts().free == 3
    pool.check()


def test_unused_scopes_are_forgotten_and_retired_ones_are_not() -> None:
    pool = PagePool(4, 2)
    scopes = [PrefixScope(f"t{number}") for number in range(50)]
    for number, scope in enumerate(scopes):
        pool.acquire(f"a#{number}", scope, [1, 2, 3], 3)
        pool.release(f"a#{number}")
    pool.retire_scope(scopes[0])
    assert list(pool._accounts) == scopes[:1]
    pool.acquire("b#1", scopes[0], [1, 2], 2)
    pool.release("b#1")
    assert compute(pool, "b#1", [1, 2]) == 0
    assert pool.close_scope(scopes[0]).decision is Decision.RECORDED


def busy_run(pool: PagePool, seed: int) -> None:
    """Requests that come, compute in steps that overlap and sometimes fail, and leave at any moment."""
    chance, scope = random.Random(seed), SCOPE
    live: dict[str, list[int]] = {}
    flying: list[tuple[list[PageUse], bool]] = []
    for number in range(150):
        prompt = [chance.randint(0, 1) for _ in range(chance.randint(1, 7))]
        if isinstance(pool.acquire(f"r#{number}", scope, prompt, len(prompt) + chance.randint(0, 3)), Acquired):
            live[f"r#{number}"] = prompt
        for holder in [name for name in live if chance.random() < 0.6]:
            pages, sequence = pool.pages_of(holder), live[holder]
            writes = tuple(page for page in pages if pool.chain(page) is None)
            filled = frozenset(pages[: len(sequence) // 2]) & frozenset(writes)
            step = [PageUse(holder, reads=pages, writes=writes, filled=filled)]
            if pool.launch(step).decision is Decision.LAUNCHED:
                flying.append((step, chance.random() < 0.9))
            if chance.random() < 0.3:
                pool.allocate(holder)
        while flying and chance.random() < 0.7:
            step, ok = flying.pop(chance.randrange(len(flying)))
            pool.finish(step, ok=ok)
            if step[0].holder in live:
                pool.publish(step[0].holder, live[step[0].holder])
        for holder in [name for name in live if chance.random() < 0.3]:
            pool.release(holder)
            del live[holder]
            if chance.random() < 0.5:
                pool.forget(holder)
        if chance.random() < 0.03:
            pool.retire_scope(scope)
            scope = evolve(scope, weight_epoch=number)
        pool.check()


def test_batches_do_what_their_events_do_one_by_one() -> None:
    """A recorded run is repeated event by event; one without a recorder, which counts in bulk, ends alike."""
    names: set[tuple[str, Decision]] = set()
    for seed in range(20):
        events: list[PageEvent] = []
        recorded, silent, again = PagePool(9, 2, 5, recorder=events.append), PagePool(9, 2, 5), PagePool(9, 2, 5)
        busy_run(recorded, seed)
        busy_run(silent, seed)
        for event in events:
            repeat(again, event)
        names |= {(event.name, event.decision) for event in events}
        assert again.snapshot() == recorded.snapshot() == silent.snapshot()
        assert again.seq == recorded.seq == silent.seq
        assert again.counts() == recorded.counts() == silent.counts()
    assert names >= {
        *((name, Decision.GRANTED) for name in ("admit", "share", "allocate")),
        ("seal", Decision.PUBLISHED),
        ("seal", Decision.REFUSED),
        ("evict", Decision.RELEASED),
        ("drop", Decision.DROPPED),
        ("touch", Decision.LAUNCHED),
        ("touch", Decision.REFUSED),
        ("settle", Decision.SETTLED),
        ("retire_scope", Decision.RELEASED),
        ("park", Decision.SETTLED),
        ("close", Decision.RELEASED),
        ("forget", Decision.FORGOTTEN),
    }


def test_a_recorder_that_fails_leaves_a_whole_pool() -> None:
    failed = 0
    for last in range(1, 60):
        left = last

        def recorder(event: PageEvent) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise OSError("no space left on device")

        pool = PagePool(9, 2, recorder=recorder)
        try:
            busy_run(pool, last)
        except OSError:
            failed += 1
        pool.check()
    assert failed == 59


def repeat(pool: PagePool, event: PageEvent) -> None:
    holder, page, values = event.holder or "", event.page or 0, dict(event.parameters)
    match event.name:
        case "admit":
            reply = pool.admit(holder, values["scope"], values["units"])
        case "seal":
            reply = pool.seal(holder, page, values["tokens"], values["parent"])
        case "share":
            found = pool._pages[page]
            reply = pool.share(holder, page, pool.snapshot().pages[page].tokens, found.parent.chain)
        case "touch":
            reply = pool.touch(holder, page, values["write"])
        case "settle":
            reply = pool.settle(page, values["write"], values["ok"], values["filled"])
        case "retire_scope":
            reply = pool.retire_page(values["scope"], page)
        case "evict" | "park":
            reply = getattr(pool, event.name)(page)
        case "allocate":
            reply = pool.allocate(holder, event.page)
        case "drop":
            reply = pool.drop(holder, page)
        case "close" | "forget":
            reply = getattr(pool, event.name)(holder)
        case _:
            raise AssertionError(event)
    assert (reply.decision, reply.reason, reply.seq) == (event.decision, event.reason, event.seq), event


def test_packed_tokens_serve_as_well() -> None:
    pool = PagePool(8, 2)
    sequence = pack([1, 2, 3, 4, -5])
    assert len(sequence) == 5
    assert len(pool.acquire("a#1", SCOPE, sequence, 5).pages) == 3
    compute(pool, "a#1", [1, 2, 3, 4, -5])
    assert pool.publish("a#1", sequence) == 2
    assert pool.lookup(SCOPE, sequence) == pool.lookup(SCOPE, [1, 2, 3, 4, 9]) == 4


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: PagePool(1, 16), "pages"),
        (lambda: PagePool(8, 0), "page_length"),
        (lambda: PagePool(8, 16, -1), "scope_limit"),
        (lambda: PagePool(8, 2).evict(8), "page"),
        (lambda: PagePool(8, 2).evict(-1), "page"),
        (lambda: PagePool(8, 2).lookup(SCOPE, []), "tokens"),
        (lambda: PagePool(8, 2).lookup(SCOPE, [2**31]), "tokens"),
        (lambda: PagePool(8, 2).lookup(SCOPE, ["a"]), "tokens"),
        (lambda: PagePool(8, 2).acquire("a#1", SCOPE, [1, 2], 1), "total_tokens"),
        (lambda: PagePool(8, 2).seal("a#1", 1, [1], None), "tokens"),
        (lambda: PagePool(8, 2).launch([PageUse("a#1", reads=(9,))]), "page"),
    ],
)
def test_a_users_mistake_names_the_field(make: object, field: str) -> None:
    with pytest.raises(UserError, match=f"^{field}: "):
        make()


@pytest.mark.parametrize("units", [2.0, 1.5, True, "2", None])
def test_units_are_integers(units: Any) -> None:
    pool = PagePool(8, 4)
    for ask in (lambda: pool.admit("h", PrefixScope("a", page_length=4), units), lambda: pool.grow("h", units)):
        with pytest.raises(UserError, match=r"^units is .*: give an integer of pages"):
            ask()
    assert (pool.seq, pool.snapshot().promised) == (0, {})
