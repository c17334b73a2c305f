"""A granted promise is kept to the last unit (PAG-1): no state of the prefix cache can stand in its way."""

from __future__ import annotations

from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from kvescrow.reference.pages import PagePool, PageReply, PageUse
from kvescrow.spec.vocabulary import Decision, PageState, PrefixScope, Reason
from kvescrow.spec.world.outcome import Outcome
from kvescrow.spec.world.pages import PageWorld

SCOPE = PrefixScope("tenant")
LENGTH = 1


class Both:
    """A pool and a page world, which are asked the same and must answer alike."""

    def __init__(self, pages: int) -> None:
        self.pool, self.world = PagePool(pages, LENGTH), PageWorld(pages)

    def same(self, reply: PageReply, outcome: Outcome) -> tuple[Decision, Reason]:
        """Return the answer of both."""
        assert (reply.decision, reply.reason) == (outcome.decision, outcome.reason), outcome.row
        self.pool.check()
        assert self.world.violations() == []
        assert self.pool.snapshot() == self.world.snapshot()
        return reply.decision, reply.reason

    def admit(self, holder: str, units: int) -> tuple[Decision, Reason]:
        return self.same(self.pool.admit(holder, SCOPE, units), self.world.admit(holder, SCOPE, units))

    def allocate(self, holder: str, page: int) -> tuple[Decision, Reason]:
        return self.same(self.pool.allocate(holder, page), self.world.allocate(holder, page))

    def drop(self, holder: str, page: int) -> tuple[Decision, Reason]:
        return self.same(self.pool.drop(holder, page), self.world.drop(holder, page))

    def park(self, page: int) -> tuple[Decision, Reason]:
        return self.same(self.pool.park(page), self.world.park(page))

    def evict(self, page: int) -> tuple[Decision, Reason]:
        return self.same(self.pool.evict(page), self.world.evict(page))

    def publish(self, holder: str, page: int, parent: int | None) -> None:
        """Draw the page, compute it and publish it after `parent`."""
        assert self.allocate(holder, page)[0] is Decision.GRANTED
        self.same(self.pool.touch(holder, page, True), self.world.touch(holder, page, write=True))
        ended = self.world.settle(page, write=True, ok=True, filled=True)
        self.same(self.pool.settle(page, True, True, True), ended)
        sealed = self.world.seal(holder, page, (page,), parent)
        assert self.same(self.pool.seal(holder, page, [page], parent), sealed)[0] is Decision.PUBLISHED


def test_a_page_before_one_in_use_is_not_counted_as_evictable() -> None:
    """Three usable pages, 1 and 2 in a chain; the holder gives up the first and keeps the second."""
    both = Both(4)
    both.admit("a", 2)
    both.publish("a", 1, None)
    both.publish("a", 2, 1)
    both.drop("a", 1)
    assert both.pool.snapshot().pages[1].state is PageState.DRAINING
    assert both.evict(1) == (Decision.REFUSED, Reason.IN_USE)
    assert both.admit("b", 2) == (Decision.REFUSED, Reason.POOL_CAPACITY)
    assert both.admit("b", 1) == (Decision.GRANTED, Reason.NONE)
    assert both.allocate("b", 3) == (Decision.GRANTED, Reason.NONE)
    both.drop("a", 2)
    assert both.park(1) == (Decision.SETTLED, Reason.NONE)
    assert both.admit("c", 2) == (Decision.GRANTED, Reason.NONE)
    for page in (2, 1):
        assert both.evict(page) == (Decision.RELEASED, Reason.NONE)
        assert both.allocate("c", page) == (Decision.GRANTED, Reason.NONE)


@frozen
class Move:
    """One thing that happens to the pool; the numbers choose among what there is."""

    kind: str
    who: int
    which: int
    after: int


KINDS = ("acquire", "grow", "write", "publish", "seal", "share", "drop", "release", "launch", "finish")
MOVES = st.builds(Move, st.sampled_from(KINDS), st.integers(0, 3), st.integers(0, 7), st.integers(0, 7))
SEQUENCE = (0, 1, 0, 1, 2, 2, 2)


class Disorder:
    """Holders that take pages, publish them after each other's, and give them up in any order."""

    def __init__(self) -> None:
        self.pool = PagePool(7, LENGTH)
        self.flying: list[PageUse] = []

    def do(self, move: Move) -> None:
        """Do it; where nobody is there to do it, a holder comes."""
        holders = sorted(self.pool.snapshot().promised)
        if move.kind == "acquire" or not holders:
            self.come(f"h{move.who}", move)
            return
        holder = holders[move.who % len(holders)]
        pages = self.pool.pages_of(holder)
        if pages:
            self.use(move, holder, pages[move.which % len(pages)], pages)
        else:
            self.part(move, holder)
        self.pool.check()

    def come(self, holder: str, move: Move) -> None:
        prompt = SEQUENCE[: 1 + move.which % 4]
        self.pool.acquire(holder, SCOPE, prompt, len(prompt) + move.after // 3)

    def use(self, move: Move, holder: str, page: int, pages: tuple[int, ...]) -> None:
        pool, another = self.pool, 1 + move.after % 6
        match move.kind:
            case "write" | "publish":
                for own in pages:
                    pool.touch(holder, own, True)
                    pool.settle(own, True, True, True)
                if move.kind == "publish":
                    pool.publish(holder, SEQUENCE[: len(pages)])
            case "seal":
                pool.seal(holder, page, [move.which % 3], another)
            case "share":
                found = pool._pages[another]
                if found.parent is not None:
                    pool.share(holder, another, pool.snapshot().pages[another].tokens, found.parent.chain)
            case "drop":
                pool.drop(holder, page)
            case "launch":
                self.flying.append(PageUse(holder, reads=(page,)))
                pool.launch(self.flying[-1:])
            case _:
                self.part(move, holder)

    def part(self, move: Move, holder: str) -> None:
        match move.kind:
            case "release":
                self.pool.release(holder)
                self.pool.forget(holder)
            case "finish" if self.flying:
                self.pool.finish([self.flying.pop(move.which % len(self.flying))], ok=True)
            case _:
                self.pool.grow(holder, 1 + move.which % 2)

    def draw_all(self, turns: list[int]) -> int:
        """Draw what is promised to anyone, in the order that `turns` chooses; return how many units that was."""
        drawn = 0
        while promised := sorted(name for name, units in self.pool.snapshot().promised.items() if units):
            holder = promised[turns[drawn % len(turns)] % len(promised)]
            assert self.pool.allocate(holder).decision is Decision.GRANTED
            self.pool.check()
            drawn += 1
        return drawn


@settings(max_examples=300, derandomize=True, deadline=None, database=None)
@given(
    moves=st.lists(MOVES, min_size=10, max_size=30),
    units=st.integers(0, 6),
    turns=st.lists(st.integers(0, 7), min_size=1, max_size=6),
)
def test_all_that_is_promised_can_be_drawn_in_any_order(moves: list[Move], units: int, turns: list[int]) -> None:
    """After any history the most that is granted, to a newcomer too, is there to the last unit."""
    run = Disorder()
    for move in moves:
        run.do(move)
    while run.pool.admit("newcomer", SCOPE, units).decision is not Decision.GRANTED:
        units -= 1
    promised = run.pool.counts().promised
    assert run.draw_all(turns) == promised
    assert run.pool.counts().promised == 0
