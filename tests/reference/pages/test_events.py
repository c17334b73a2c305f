"""The pool against a naive one, event by event, under pressure: few pages, few holders, two scopes, two tokens."""

from __future__ import annotations

import importlib.util
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from kvescrow.reference.pages import PageEvent, PagePool
from kvescrow.spec.vocabulary import Decision, PageState, PrefixScope, Reason

PAGES = 5
LENGTH = 2
SCOPES = (PrefixScope("a"), PrefixScope("b"))


def load(name: str) -> ModuleType:
    """Load a helper that lies beside this file."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NaivePool = load("naive_pool").NaivePool

picks = st.integers(0, PAGES - 1)
holders = st.sampled_from(["h1#1", "h1#2", "h2#1"])
numbers = st.integers(0, PAGES - 1)
tokens = st.sampled_from([(0, 0), (0, 1)])
flags = st.booleans()
scopes = st.sampled_from(SCOPES)
SEEN: Counter[tuple[str, Decision, Reason]] = Counter()


class Beside(RuleBasedStateMachine):
    @initialize(limit=st.sampled_from([None, None, 2]), first=st.integers(1, 4), second=st.integers(0, 3))
    def begin(self, limit: int | None, first: int, second: int) -> None:
        self.events: list[PageEvent] = []
        self.pool = PagePool(PAGES, LENGTH, limit, recorder=self.events.append)
        self.naive = NaivePool(PAGES, limit)
        self.last_seq = 0
        self.admit("h1#1", SCOPES[0], first)
        self.admit("h2#1", SCOPES[0], second)

    def pick(self, pick: int, wanted: Callable[[dict], object]) -> int | None:
        """Return one of the pages of the naive pool that are wanted."""
        eligible = [number for number, page in enumerate(self.naive.pages) if wanted(page)]
        return eligible[pick % len(eligible)] if eligible else None

    def same(self, name: str, reply: object, answer: tuple[Decision, Reason]) -> None:
        assert (reply.decision, reply.reason) == answer, name
        SEEN[(name, *answer)] += 1
        event = self.events[-1]
        assert (event.name, event.decision, event.reason, event.seq) == (name, *answer, reply.seq)
        changed = not answer[0].changes_nothing
        assert reply.seq == self.last_seq + changed
        self.last_seq = reply.seq

    @rule(holder=holders, scope=scopes, units=st.sampled_from([-1, 0, 1, 2, 3, 4, 5]))
    def admit(self, holder: str, scope: PrefixScope, units: int) -> None:
        self.same("admit", self.pool.admit(holder, scope, units), self.naive.admit(holder, scope, units))

    @rule(holder=holders, units=st.integers(-1, 3))
    def grow(self, holder: str, units: int) -> None:
        self.same("grow", self.pool.grow(holder, units), self.naive.grow(holder, units))

    @rule(holder=holders)
    def close(self, holder: str) -> None:
        self.same("close", self.pool.close(holder), self.naive.close(holder))

    @rule(holder=holders)
    def forget(self, holder: str) -> None:
        self.same("forget", self.pool.forget(holder), self.naive.forget(holder))

    @rule(holder=holders, page=numbers)
    def allocate(self, holder: str, page: int) -> None:
        self.same("allocate", self.pool.allocate(holder, page), self.naive.allocate(holder, page))

    @rule(holder=holders)
    def allocate_any(self, holder: str) -> None:
        """The pool chooses; the naive pool follows its choice, an eviction first where no page was free."""
        free = {n for n, page in enumerate(self.naive.pages) if page["state"] is PageState.FREE}
        leaves = {
            n
            for n, page in enumerate(self.naive.pages)
            if page["state"] is PageState.CACHED and not self.naive.children(page)
        }
        reply = self.pool.allocate(holder)
        if reply.decision is not Decision.GRANTED:
            assert reply.reason is Reason.NO_PROMISE
            return
        if not free:
            assert reply.page in leaves
            assert self.events[-2].name == "evict" and self.events[-2].page == reply.page
            assert self.naive.evict(reply.page) == (Decision.RELEASED, Reason.NONE)
            self.last_seq += 1
        self.same("allocate", reply, self.naive.allocate(holder, reply.page))

    @rule(holder=holders, page=numbers, tokens=tokens, parent=st.none() | numbers)
    def seal(self, holder: str, page: int, tokens: tuple[int, ...], parent: int | None) -> None:
        answer = self.naive.seal(holder, page, tokens, parent)
        self.same("seal", self.pool.seal(holder, page, tokens, parent), answer)

    @rule(pick=picks, tokens=tokens, first=flags)
    def compute_and_seal(self, pick: int, tokens: tuple[int, ...], first: bool) -> None:
        """Biased: a private page is written to its end and published, first or after what its holder published."""
        page = self.compute(pick)
        if page is None:
            return
        (holder,) = self.naive.pages[page]["holders"]
        own = [n for n, p in enumerate(self.naive.pages) if holder in p["holders"] and p["chain"]]
        self.seal(holder, page, tokens, own[-1] if own and not first else None)

    @rule(pick=picks, tokens=tokens)
    def compute_and_seal_after_cached(self, pick: int, tokens: tuple[int, ...]) -> None:
        """Biased: a private page is written to its end and published after a page that nobody holds."""
        page, parent = self.compute(pick), self.pick(pick, lambda page: page["state"] is PageState.CACHED)
        if page is not None and parent is not None:
            self.seal(min(self.naive.pages[page]["holders"]), page, tokens, parent)

    def compute(self, pick: int) -> int | None:
        """Write a private page to its end, where there is one, and return it."""
        page = self.pick(pick, lambda page: page["state"] is PageState.PRIVATE)
        if page is not None:
            self.touch(min(self.naive.pages[page]["holders"]), page, True)
            self.settle(page, True, True, True)
        return page

    @rule(pick=picks, tokens=tokens, parent=st.none() | numbers)
    def seal_again(self, pick: int, tokens: tuple[int, ...], parent: int | None) -> None:
        """Biased: a held page, published or not."""
        page = self.pick(pick, lambda page: page["holders"])
        if page is not None:
            self.seal(min(self.naive.pages[page]["holders"]), page, tokens, parent)

    @rule(pick=picks, write=flags)
    def touch_held(self, pick: int, write: bool) -> None:
        """Biased: a holder of the page."""
        page = self.pick(pick, lambda page: page["holders"])
        if page is not None:
            self.touch(min(self.naive.pages[page]["holders"]), page, write)

    @rule(pick=picks, ok=flags, filled=flags)
    def settle_touched(self, pick: int, ok: bool, filled: bool) -> None:
        """Biased: a ticket that is outstanding."""
        page = self.pick(pick, lambda page: page["readers"] + page["writers"])
        if page is not None:
            self.settle(page, self.naive.pages[page]["writers"] > 0, ok, filled)

    @rule(pick=picks)
    def drop_held(self, pick: int) -> None:
        """Biased: a claim that exists."""
        page = self.pick(pick, lambda page: page["holders"])
        if page is not None:
            self.drop(min(self.naive.pages[page]["holders"]), page)

    @rule(pick=picks)
    def leave_before_what_follows(self, pick: int) -> None:
        """Biased: all holders of a page go while a page after it is in use; then the pool is asked to park it."""
        page = self.pick(pick, lambda page: page["holders"] and self.naive.busy(page))
        if page is not None:
            for holder in sorted(self.naive.pages[page]["holders"]):
                self.drop(holder, page)
            self.park(page)

    @rule(pick=picks)
    def evict_cached(self, pick: int) -> None:
        """Biased: a cached page, leaf or not."""
        page = self.pick(pick, lambda page: page["state"] is PageState.CACHED)
        if page is not None:
            self.evict(page)

    @rule(holder=holders, page=numbers, tokens=tokens, parent=st.none() | numbers)
    def share(self, holder: str, page: int, tokens: tuple[int, ...], parent: int | None) -> None:
        chain = None if parent is None else self.pool.chain(parent) or b"not published"
        answer = self.naive.share(holder, page, tokens, parent)
        self.same("share", self.pool.share(holder, page, tokens, chain), answer)

    @rule(holder=holders, pick=picks)
    def hit(self, holder: str, pick: int) -> None:
        """Biased: a lookup that arrives with the page's own chain."""
        self.arrive(holder, self.pick(pick, lambda page: page["chain"] is not None))

    @rule(holder=holders, pick=picks)
    def hit_after_cached(self, holder: str, pick: int) -> None:
        """Biased: the same, where the page before is cached and so not the holder's."""
        cached = {(p["scope"], p["chain"]) for p in self.naive.pages if p["state"] is PageState.CACHED}
        page = self.pick(pick, lambda p: p["chain"] is not None and (p["scope"], p["chain"][:-1]) in cached)
        self.arrive(holder, page)

    def arrive(self, holder: str, page: int | None) -> None:
        """Let a lookup of the holder arrive at `page`, if there is one."""
        if page is not None:
            chain = self.naive.pages[page]["chain"]
            scope = self.naive.pages[page]["scope"]
            by_chain = {p["chain"]: n for n, p in enumerate(self.naive.pages) if p["scope"] == scope}
            self.share(holder, page, chain[-1], by_chain.get(chain[:-1]))

    @rule(holder=holders, page=numbers)
    def drop(self, holder: str, page: int) -> None:
        self.same("drop", self.pool.drop(holder, page), self.naive.drop(holder, page))

    @rule(page=numbers)
    def evict(self, page: int) -> None:
        self.same("evict", self.pool.evict(page), self.naive.evict(page))

    @rule(holder=holders, page=numbers, write=flags)
    def touch(self, holder: str, page: int, write: bool) -> None:
        self.same("touch", self.pool.touch(holder, page, write), self.naive.touch(holder, page, write))

    @rule(page=numbers, write=flags, ok=flags, filled=flags)
    def settle(self, page: int, write: bool, ok: bool, filled: bool) -> None:
        answer = self.naive.settle(page, write, ok, filled)
        self.same("settle", self.pool.settle(page, write, ok, filled), answer)

    @rule(page=numbers)
    def park(self, page: int) -> None:
        self.same("park", self.pool.park(page), self.naive.park(page))

    @rule(pick=picks)
    def park_draining(self, pick: int) -> None:
        """Biased: a page that drains, though it may still have to wait."""
        page = self.pick(pick, lambda page: page["state"] is PageState.DRAINING)
        if page is not None:
            self.park(page)

    @rule(page=numbers, scope=scopes, rarely=st.integers(0, 5))
    def retire(self, page: int, scope: PrefixScope, rarely: int) -> None:
        if page == 0 and rarely:
            return
        answer = self.naive.retire_page(scope, page)
        self.same("retire_scope", self.pool.retire_page(scope, page), answer)

    @rule(pick=picks, rarely=st.integers(0, 5))
    def retire_published(self, pick: int, rarely: int) -> None:
        """Biased: a published page; now and then its scope is closed first."""
        page = self.pick(pick, lambda page: page["chain"] is not None)
        if page is not None:
            scope = self.naive.pages[page]["scope"]
            self.retire(0, scope, rarely)
            self.retire(page, scope, rarely)

    @invariant()
    def agree(self) -> None:
        if hasattr(self, "pool"):
            self.pool.check()
            assert self.pool.snapshot() == self.naive.snapshot()


def test_the_pool_does_what_the_naive_pool_does() -> None:
    run_state_machine_as_test(
        Beside,
        settings=settings(
            max_examples=80,
            stateful_step_count=40,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


ANSWERS = {
    "admit": "GRANTED RECORDED CLOSED MALFORMED NEVER_FITS POOL_CAPACITY",
    "grow": "EXTENDED CLOSED UNKNOWN_KEY MALFORMED POOL_CAPACITY",
    "close": "RELEASED RECORDED UNKNOWN_KEY HOLDING",
    "forget": "FORGOTTEN UNKNOWN_KEY LIVE",
    "allocate": "GRANTED SINK_PAGE NOT_FREE NO_PROMISE",
    "seal": "PUBLISHED RECORDED SINK_PAGE NOT_PRIVATE NOT_HOLDER RETIRED_SCOPE NOT_COMPUTED PARENT_UNPUBLISHED "
    "PARENT_NOT_HELD DUPLICATE SCOPE_CAPACITY",
    "share": "GRANTED RECORDED MISS NO_PROMISE PARENT_NOT_HELD",
    "drop": "DROPPED SINK_PAGE NOT_HOLDER",
    "evict": "RELEASED SINK_PAGE NOT_CACHED IN_USE HAS_CHILDREN",
    "touch": "LAUNCHED SINK_PAGE NOT_HOLDER READ_ONLY",
    "settle": "SETTLED SINK_PAGE NOT_OUTSTANDING",
    "park": "SETTLED SINK_PAGE NOTHING_DUE IN_FLIGHT IN_USE",
    "retire_scope": "NOTED RECORDED RELEASED LIVE HAS_CHILDREN",
}
"""Every answer that the tables have for each event."""


def stride(machine: Beside, chance: random.Random, name: str) -> None:
    """Take one step; mostly what fills the cache, rarely what empties it."""
    page, pick, pair = chance.randrange(PAGES), chance.randrange(PAGES), chance.choice([(0, 0), (0, 1)])
    parent, flag = chance.choice([None, *range(PAGES)]), chance.random() < 0.5
    actions: list[tuple[int, Callable[[], None]]] = [
        (3, lambda: machine.admit(name, chance.choice(SCOPES + SCOPES[:1] * 3), chance.randint(-1, 5))),
        (2, lambda: machine.grow(name, chance.randint(-1, 3))),
        (2, lambda: machine.close(name)),
        (1, lambda: machine.forget(name)),
        (2, lambda: machine.allocate(name, page)),
        (6, lambda: machine.allocate_any(name)),
        (1, lambda: machine.seal(name, page, pair, parent)),
        (9, lambda: machine.compute_and_seal(pick, pair, first=chance.random() < 0.3)),
        (3, lambda: machine.compute_and_seal_after_cached(pick, pair)),
        (3, lambda: machine.seal_again(pick, pair, parent)),
        (1, lambda: machine.share(name, page, pair, parent)),
        (6, lambda: machine.hit(name, pick)),
        (3, lambda: machine.hit_after_cached(name, pick)),
        (1, lambda: machine.drop(name, page)),
        (6, lambda: machine.drop_held(pick)),
        (1, lambda: machine.leave_before_what_follows(pick)),
        (1, lambda: machine.evict(page)),
        (1, lambda: machine.evict_cached(pick)),
        (1, lambda: machine.touch(name, page, flag)),
        (3, lambda: machine.touch_held(pick, flag)),
        (1, lambda: machine.settle(page, flag, True, flag)),
        (5, lambda: machine.settle_touched(pick, chance.random() < 0.8, flag)),
        (1, lambda: machine.park(page)),
        (2, lambda: machine.park_draining(pick)),
        (1, lambda: machine.retire(page, chance.choice(SCOPES), chance.randint(0, 30))),
        (1, lambda: machine.retire_published(pick, chance.randint(0, 5))),
    ]
    weights, deeds = zip(*actions, strict=True)
    chance.choices(deeds, weights)[0]()
    machine.agree()


def walk(seed: int, steps: int) -> Beside:
    """Drive both pools by weighted chance, with ever new holders."""
    chance = random.Random(seed)
    machine = Beside()
    machine.begin(limit=chance.choice([None, None, 2]), first=chance.randint(1, 4), second=chance.randint(0, 3))
    for step in range(steps):
        stride(machine, chance, chance.choice([f"h3#{step // 10}", f"h3#{step // 10 + 1}", "h1#1", "h2#1"]))
    return machine


def test_long_walks_get_every_answer_and_agree() -> None:
    SEEN.clear()
    states: set[PageState] = set()
    for seed in range(200):
        machine = walk(seed, 150)
        states |= {page.state for page in machine.pool.snapshot().pages}
    seen = {(name, (decision if reason is Reason.NONE else reason).value) for name, decision, reason in SEEN}
    assert seen == {(name, answer) for name, answers in ANSWERS.items() for answer in answers.split()}
    assert states == set(PageState)
