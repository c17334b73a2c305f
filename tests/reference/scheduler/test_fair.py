"""The fair queue: its rules one by one, its bounds under any history, and that the bounds are attained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from fractions import Fraction
from itertools import count

import pytest
from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st

from kvescrow.reference.scheduler.fair import ClassTerms, FairQueue, Room, TenantTerms, Waiting
from kvescrow.reference.scheduler.fairness import (
    FairnessWatch,
    Party,
    refunded_bound,
    reserved_bound,
    shortfall,
)
from kvescrow.spec.vocabulary import Key, Reason, UserError

FOREVER = 10**9
INTERACTIVE, BULK = "interactive", "bulk"


@define(eq=False)
class Pool:
    """A pool with limits of tenants, which answers for heads and remembers who holds what."""

    size: int
    limits: Mapping[str, int] = field(factory=dict)
    held: list[Waiting] = field(factory=list)

    def active(self, tenant: str | None = None) -> int:
        return sum(each.amount for each in self.held if tenant in (None, each.key.tenant))

    def ask(self, request: Waiting) -> Room:
        room = self.answer(request)
        if room is Room.ADMITTED:
            self.held.append(request)
        return room

    def answer(self, request: Waiting) -> Room:
        tenant = request.key.tenant
        if self.active(tenant) + request.amount > self.limits.get(tenant, FOREVER):
            return Room.OWN_LIMIT
        return Room.ADMITTED if self.active() + request.amount <= self.size else Room.NO_ROOM


def waiting(tenant: str, name: str, amount: int, *, expires: int = FOREVER, latest: int = FOREVER) -> Waiting:
    return Waiting(Key(tenant, name), amount, expires, latest)


def one_class(weights: Mapping[str, int], watch: FairnessWatch | None = None, places: int = 100) -> FairQueue:
    tenants = {name: TenantTerms(INTERACTIVE, weight) for name, weight in weights.items()}
    return FairQueue({INTERACTIVE: ClassTerms(1, places)}, tenants, TenantTerms(INTERACTIVE), watch)


def watch_of(weights: Mapping[str, int]) -> FairnessWatch:
    return FairnessWatch({(INTERACTIVE, name): weight for name, weight in weights.items()})


def names(requests: list[Waiting]) -> list[str]:
    return [each.key.request for each in requests]


# --- one rule each --------------------------------------------------------------------------------------------------


def test_forty_small_against_four_large_equal_in_total_neither_blocks() -> None:
    """FAI-5: after each large one its ten small ones have been served, and the other way round."""
    queue, pool = one_class({}), Pool(10)
    for number in range(40):
        assert queue.join(waiting("small", f"s{number}", 1)) is Reason.NONE
    for number in range(4):
        assert queue.join(waiting("large", f"l{number}", 10)) is Reason.NONE
    served: list[str] = []
    while len(queue):
        served += names(queue.dispatch(0, pool.ask))
        pool.held.clear()
        small, large = (sum(name.startswith(letter) for name in served) for letter in "sl")
        assert abs(small - 10 * large) <= 10 + 1
    assert len(served) == 44


def test_a_tenant_that_returns_from_idle_has_gathered_no_credit() -> None:
    """FAI-2: without the lift, `late` would be served ten times in a row."""
    queue, pool = one_class({}), Pool(1)
    for number in range(20):
        queue.join(waiting("early", f"e{number}", 1))
    for _ in range(10):
        queue.dispatch(0, pool.ask)
        pool.held.clear()
    for number in range(10):
        queue.join(waiting("late", f"l{number}", 1))
    served: list[str] = []
    for _ in range(6):
        served += names(queue.dispatch(0, pool.ask))
        pool.held.clear()
    assert [name[0] for name in served] == ["e", "l", "e", "l", "e", "l"]


def test_the_first_after_an_empty_queue_starts_where_the_last_one_left() -> None:
    queue, pool = one_class({}), Pool(9)
    queue.join(waiting("a", "a1", 9))
    queue.dispatch(0, pool.ask)
    for name in ("b1", "b2"):
        queue.join(waiting("b", name, 1))
    queue.join(waiting("a", "a2", 1))
    pool.held.clear()
    assert names(queue.dispatch(0, pool.ask)) == ["a2", "b1", "b2"]


def test_a_head_blocked_by_its_own_limit_passes_nobody_back_but_its_own() -> None:
    """QUE-5: others go on; the tenant's own small request does not overtake its large one."""
    queue, pool = one_class({}), Pool(100, {"a": 10})
    queue.join(waiting("a", "first", 8))
    queue.join(waiting("a", "large", 8))
    queue.join(waiting("a", "small", 1))
    queue.join(waiting("b", "other", 8))
    assert names(queue.dispatch(0, pool.ask)) == ["first", "other"]
    assert queue.dispatch(0, pool.ask) == []
    pool.held.clear()
    assert names(queue.dispatch(0, pool.ask)) == ["large", "small"]


def test_a_blocked_head_that_is_cancelled_frees_its_own() -> None:
    """QUE-4: a change of the head asks again."""
    queue, pool = one_class({}), Pool(100, {"a": 5})
    queue.join(waiting("a", "first", 4))
    queue.join(waiting("a", "large", 5))
    queue.join(waiting("a", "small", 1))
    assert names(queue.dispatch(0, pool.ask)) == ["first"]
    assert queue.leave(Key("a", "large")).amount == 5
    assert names(queue.dispatch(0, pool.ask)) == ["small"]


def test_a_tenant_gathers_no_credit_behind_its_own_limit() -> None:
    queue, pool = one_class({}), Pool(100, {"a": 1})
    for number in range(9):
        queue.join(waiting("a", f"a{number}", 1))
        queue.join(waiting("b", f"b{number}", 10))
    assert [name[0] for name in names(queue.dispatch(0, pool.ask))] == ["a", *"bbbbbbbbb"]
    pool.held.clear()
    pool.limits = {}
    for number in range(9):
        queue.join(waiting("c", f"c{number}", 1))
    assert [name[0] for name in names(queue.dispatch(0, pool.ask))] == [*"acacacacacacacac", "c"]


def test_a_large_head_is_passed_only_by_debt() -> None:
    """QUE-5: the small ones pass until each is one largest request ahead, then the room is kept for the large one."""
    queue, pool = one_class({}), Pool(12)
    pool.held.append(waiting("z", "z", 4))
    queue.join(waiting("a", "large", 10))
    for number in range(50):
        queue.join(waiting("b", f"b{number}", 1))
    passed = 0
    for _ in range(50):
        passed += len(queue.dispatch(0, pool.ask))
        del pool.held[1:]
    assert passed == 10
    pool.held.clear()
    assert names(queue.dispatch(0, pool.ask))[0] == "large"


def test_a_full_queue_refuses_and_nothing_changes() -> None:
    """QUE-1: the bound is of a tenant."""
    queue = one_class({}, places=1)
    assert queue.join(waiting("a", "1", 1)) is Reason.NONE
    assert queue.join(waiting("a", "2", 99)) is Reason.QUEUE_FULL
    assert queue.join(waiting("b", "1", 1)) is Reason.NONE
    assert (len(queue), queue.largest) == (2, 1)


def test_waits_are_bounded_and_deadlines_are_checked_again() -> None:
    """QUE-2, QUE-3: overdue requests leave before anyone is asked for."""
    queue, pool = one_class({}), Pool(10)
    queue.join(waiting("a", "patient", 1))
    queue.join(waiting("a", "impatient", 1, expires=5))
    queue.join(waiting("a", "hopeless", 1, latest=5))
    assert queue.expire(4) == []
    assert [(each.key.request, why) for each, why in queue.expire(5)] == [("impatient", Reason.QUEUE_TIMEOUT)]
    with pytest.raises(ValueError, match="overdue at 6"):
        deepcopy(queue).dispatch(6, lambda each: Room.REFUSED if each.key.request == "patient" else Room.ADMITTED)
    assert [(each.key.request, why) for each, why in queue.expire(6)] == [("hopeless", Reason.TOO_LATE)]
    assert names(queue.dispatch(6, pool.ask)) == ["patient"]


def test_a_refund_moves_the_counter_to_what_was_used() -> None:
    """FAI-4: x reserves ten times what it uses; after each refund both get the same service."""
    queue, pool = one_class({}), Pool(20)
    used = {"x": 2, "y": 20}
    got = dict.fromkeys(used, 0)
    for number in range(60):
        queue.join(waiting("x", f"x{number}", 20))
        queue.join(waiting("y", f"y{number}", 20))
    for _ in range(55):
        for request in queue.dispatch(0, pool.ask):
            queue.adjust(request.key.tenant, used[request.key.tenant] - request.amount)
            got[request.key.tenant] += used[request.key.tenant]
        pool.held.clear()
    assert got == {"x": 100, "y": 100}


def test_classes_share_by_weight_whatever_the_number_of_tenants() -> None:
    """FAI-3: the bulk class has 1 of 4 parts, with one tenant against three."""
    classes = {INTERACTIVE: ClassTerms(3, 99), BULK: ClassTerms(1, 99)}
    watch = FairnessWatch({(INTERACTIVE,): 3, (BULK,): 1})
    queue = FairQueue(classes, {"batch": TenantTerms(BULK)}, TenantTerms(INTERACTIVE), watch)
    for number in range(40):
        queue.join(waiting("batch", f"b{number}", 1))
        for tenant in "xyz":
            queue.join(waiting(tenant, f"{tenant}{number}", 1))
    pool = Pool(40)
    served = names(queue.dispatch(0, pool.ask))
    assert sum(name[0] == "b" for name in served) == 10
    pair = ((BULK,), (INTERACTIVE,))
    assert shortfall(watch.gaps[pair], 1, 3) <= 1


@pytest.mark.parametrize(
    ("classes", "tenants", "message"),
    [
        ({}, {}, "classes: there is none"),
        ({BULK: ClassTerms(0, 1)}, {}, "classes.bulk: its share is 0: while others wait it is never served"),
        ({BULK: ClassTerms(1, 0)}, {}, "classes.bulk: its queue has no place"),
        ({BULK: ClassTerms(1, 1)}, {"a": TenantTerms(BULK, 0)}, "tenants.a: its weight is 0: it would never be served"),
        ({BULK: ClassTerms(1, 1)}, {"a": TenantTerms("x")}, "tenants.a: there is no class 'x'; there are bulk"),
    ],
)
def test_terms_that_starve_are_refused(
    classes: dict[str, ClassTerms], tenants: dict[str, TenantTerms], message: str
) -> None:
    with pytest.raises(UserError) as caught:
        FairQueue(classes, tenants, TenantTerms(BULK))
    assert str(caught.value).startswith(message)


# --- any history ----------------------------------------------------------------------------------------------------

SIZE = 24
MOVES = st.one_of(
    st.tuples(st.just("join"), st.sampled_from("abcde"), st.integers(1, 12), st.integers(1, 40)),
    st.tuples(st.just("finish"), st.integers(0, 20), st.integers(0, 12)),
    st.tuples(st.just("cancel"), st.integers(0, 20)),
    st.tuples(st.just("pass"), st.integers(1, 9)),
)
PLAN = st.lists(MOVES, max_size=120)
TENANTS = {"a": TenantTerms(INTERACTIVE, 2), "b": TenantTerms(INTERACTIVE), "d": TenantTerms(BULK, 3)}
DEFAULT = TenantTerms(BULK)
WEIGHTS: dict[Party, int] = {(INTERACTIVE,): 4, (BULK,): 1, (INTERACTIVE, "a"): 2, (BULK, "d"): 3}


def check_work_conservation(queue: FairQueue, pool: Pool) -> None:
    """After a dispatch, a head that would be admitted waits only where others would be passed beyond the debt."""
    heads: dict[str, Waiting] = {}
    for each in queue.waiting():
        heads.setdefault(each.key.tenant, each)
    stuck = [each for each in heads.values() if pool.answer(each) is Room.NO_ROOM]
    for head in heads.values():
        assert pool.answer(head) is not Room.ADMITTED or stuck, f"{head.key} fits and nobody is in its way"


@settings(max_examples=60, deadline=None)
@given(PLAN, st.booleans())
def test_bounds_hold_under_any_history(plan: list[tuple[object, ...]], refunds: bool) -> None:
    watch = FairnessWatch(WEIGHTS)
    classes = {INTERACTIVE: ClassTerms(4, 6), BULK: ClassTerms(1, 6)}
    queue, pool, names_of = FairQueue(classes, TENANTS, DEFAULT, watch), Pool(SIZE, {"b": 12, "e": 20}), count()
    now = 0
    order: dict[str, list[str]] = {}
    for move in plan:
        match move:
            case ("join", str(tenant), int(amount), int(patience)):
                request = waiting(tenant, str(next(names_of)), amount, expires=now + patience)
                lined_up = sum(each.key.tenant == tenant for each in queue.waiting())
                assert (queue.join(request) is Reason.QUEUE_FULL) == (lined_up == 6)
            case ("finish", int(which), int(unused)) if pool.held:
                ended = pool.held.pop(which % len(pool.held))
                if refunds:
                    queue.adjust(ended.key.tenant, -min(unused, ended.amount))
            case ("cancel", int(which)) if len(queue):
                queue.leave([*queue.waiting()][which % len(queue)].key)
            case ("pass", int(time)):
                now += time
        assert all(why is Reason.QUEUE_TIMEOUT and each.expires <= now for each, why in queue.expire(now))
        for each in queue.dispatch(now, pool.ask):
            order.setdefault(each.key.tenant, []).append(each.key.request)
        check_work_conservation(queue, pool)
        assert pool.active() <= SIZE
        assert not watch.broken(queue.largest, SIZE)
    assert all([int(name) for name in served] == sorted(int(name) for name in served) for served in order.values())


# --- every history of small instances -------------------------------------------------------------------------------


@define(eq=False)
class Small:
    """Two tenants that always wait. An adversary picks the sizes, which work ends, and how much of it was used."""

    queue: FairQueue
    watch: FairnessWatch
    pool: Pool
    serial: int = 0
    settled: bool = False
    """The last dispatch admitted nobody."""

    @property
    def ahead(self) -> Fraction:
        """Normalised service of `i` over that of `j`, by what the watch saw."""
        one, other = (
            Fraction(self.watch.service.get(party, 0), self.watch.weight(party))
            for party in ((INTERACTIVE, "i"), (INTERACTIVE, "j"))
        )
        return one - other

    @property
    def state(self) -> tuple[object, ...]:
        """What its future depends on."""
        held = tuple(sorted((each.key.tenant, each.amount) for each in self.pool.held))
        return self.ahead, tuple(each.amount for each in self.queue.waiting()), held, self.settled

    def join(self, tenant: str, amount: int) -> None:
        self.serial += 1
        self.queue.join(waiting(tenant, str(self.serial), amount))

    def dispatch_one(self, following: int) -> None:
        """Admit one head, if any; its tenant's next request, of size `following`, is there before it leaves."""
        admitted: list[Waiting] = []

        def ask(request: Waiting) -> Room:
            if admitted:
                return Room.NO_ROOM
            room = self.pool.ask(request)
            if room is Room.ADMITTED:
                admitted.append(request)
                self.join(request.key.tenant, following)
            return room

        self.queue.dispatch(0, ask)
        self.settled = not admitted

    def finish(self, which: int, unused: int) -> None:
        ended = self.pool.held.pop(which)
        if unused:
            self.queue.adjust(ended.key.tenant, -unused)
        self.settled = False


def moves(small: Small, largest: int, refunds: bool) -> Iterator[Small]:
    if small.settled:
        for which, held in enumerate(small.pool.held):
            for unused in range(held.amount + 1 if refunds else 1):
                after = deepcopy(small)
                after.finish(which, unused)
                yield after
        return
    for following in range(1, largest + 1):
        after = deepcopy(small)
        after.dispatch_one(following)
        yield after
        if after.settled:
            return


def every_state(start: Small, largest: int, refunds: bool) -> list[Small]:
    """Search to the fixpoint."""
    seen, found, border = {start.state}, [start], [start]
    while border:
        border = [
            after
            for small in border
            for after in moves(small, largest, refunds)
            if after.state not in seen and not seen.add(after.state)  # type: ignore[func-returns-value]
        ]
        found += border
    return found


def widest_gap(largest: int, size: int, weights: tuple[int, int], refunds: bool) -> tuple[Fraction, int]:
    """The widest gap inside one interval over all histories, and the number of states."""
    named = dict(zip("ij", weights, strict=True))
    watch = watch_of(named)
    small = Small(one_class(named, watch), watch, Pool(size))
    for tenant in named:
        small.join(tenant, largest)
    states = every_state(small, largest, refunds)
    lowest = min(states, key=lambda each: each.ahead)
    highest = max(each.ahead for each in every_state(lowest, largest, refunds))
    return highest - lowest.ahead, len(states)


@pytest.mark.parametrize(("largest", "size", "weights"), [(2, 4, (1, 1)), (3, 3, (2, 3)), (2, 3, (1, 3))])
def test_the_bound_in_reserved_tokens_is_attained_and_never_passed(
    largest: int, size: int, weights: tuple[int, int]
) -> None:
    gap, states = widest_gap(largest, size, weights, refunds=False)
    assert gap == reserved_bound(*weights, largest)
    assert states > 10


@pytest.mark.parametrize(("largest", "size", "weights"), [(2, 2, (1, 1)), (2, 3, (1, 2))])
def test_the_bound_with_refunds_is_attained_and_never_passed(largest: int, size: int, weights: tuple[int, int]) -> None:
    gap, states = widest_gap(largest, size, weights, refunds=True)
    assert gap == refunded_bound(*weights, largest, size)
    assert states > 10


def test_a_class_is_never_more_than_a_largest_request_below_its_share() -> None:
    """R >= m*T - E, which is the bound of the pair put for one of the two."""
    gap, _ = widest_gap(2, 3, (1, 3), refunds=False)
    assert shortfall(gap, 1, 3) == shortfall(gap, 3, 1) == 2
