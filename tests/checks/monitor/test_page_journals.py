"""Lines of a page pool: the reference's pass, and what an unsound pool would write is found."""

from __future__ import annotations

import re
from typing import Any

import pytest
from attrs import fields

from kvescrow.checks.monitor import Monitor, check_journal, page_line
from kvescrow.checks.monitor.lines import scope_of
from kvescrow.checks.monitor.places import place_after
from kvescrow.checks.monitor.verdict import Outcome
from kvescrow.reference.pages import PageEvent, chain_digest, root_digest
from kvescrow.reference.pages.chain import packed
from kvescrow.spec.vocabulary import Decision, PrefixScope, Reason, UserError
from tests.checks.monitor.runs import LENGTH, PAGES, SCOPE_LIMIT, Line, Write, journal_of, record_page_run

CONFIG = {"pages": PAGES, "page_length": LENGTH, "scope_limit": SCOPE_LIMIT}
SCOPE = {**page_line(PageEvent("admit", None, "h", {"scope": PrefixScope("a")}, Decision.GRANTED, Reason.NONE, 1))}[
    "parameters"
]["scope"]
OTHER_SCOPE = {**SCOPE, "tenant": "b"}


class Journal:
    """Page lines that a test writes by hand, with the commit numbers that their answers call for."""

    def __init__(self) -> None:
        self.entries: list[Line] = []
        self.seq = 0

    def add(
        self, event: str, answer: str, holder: str | None = None, page: int | None = None, **parameters: Any
    ) -> None:
        decision, _, reason = answer.partition(" ")
        self.seq += not Decision(decision).changes_nothing
        promise = event in ("admit", "grow", "close", "forget")
        self.entries.append(
            {
                "table": "promise" if promise else "page",
                "event": event,
                **({} if promise else {"page": page}),
                "holder": holder,
                "parameters": parameters,
                "decision": decision,
                "reason": reason or "NONE",
                "seq": self.seq,
            }
        )

    def published(self, holder: str, page: int, tokens: list[int], parent: int | None) -> None:
        """Draw, fill and publish a page."""
        self.add("allocate", "GRANTED", holder, page)
        self.add("touch", "LAUNCHED", holder, page, write=True)
        self.add("settle", "SETTLED", None, page, write=True, ok=True, filled=True)
        self.add("seal", "PUBLISHED", holder, page, tokens=tokens, parent=parent)

    def findings(self, config: Line = CONFIG) -> list[str]:
        """What the monitor finds, without the places."""
        monitor = Monitor(config, whole_check_every=1)
        for entry in self.entries:
            monitor.feed(entry)
        return [f"{f.row} gives {f.expected}; found {f.found}" for f in monitor.finish().findings]


@pytest.fixture
def journal() -> Journal:
    """Two holders of one scope; page 1 with the tokens 1, 2 is published by the first and page 2 follows it."""
    started = Journal()
    started.add("admit", "GRANTED", "h1", units=4, scope=SCOPE)
    started.add("admit", "GRANTED", "h2", units=2, scope=SCOPE)
    started.add("admit", "GRANTED", "stranger", units=2, scope=OTHER_SCOPE)
    started.published("h1", 1, [1, 2], None)
    started.published("h1", 2, [3, 4], 1)
    return started


@pytest.mark.parametrize("seed", range(6))
def test_the_references_page_events_pass(write: Write, seed: int) -> None:
    verdict = check_journal(write(journal_of(CONFIG, record_page_run(1500, seed))), whole_check_every=50)
    assert (verdict.outcome, verdict.findings) == (Outcome.PASSED, ())
    assert len(verdict.rows) > 45
    assert verdict.rows.keys() >= {"page.park.cached", "promise.forget.gone"}


def test_a_hit_by_tokens_passes(journal: Journal) -> None:
    journal.add("share", "GRANTED", "h2", 1, tokens=[1, 2], parent=None)
    journal.add("share", "GRANTED", "h2", 2, tokens=[3, 4], parent=1)
    journal.add("share", "MISS", "h2", 2, tokens=[3, 5], parent=1)
    journal.add("share", "MISS", "stranger", 1, tokens=[1, 2], parent=None)
    assert journal.findings() == []


def test_a_hit_by_chain_passes(journal: Journal) -> None:
    first = chain_digest(root_digest(PrefixScope("a")), packed([1, 2]))
    second = chain_digest(first, packed([3, 4]))
    journal.add("share", "GRANTED", "h2", 1, chain=first.hex(), tokens_equal=True)
    journal.add("share", "MISS", "h2", 2, chain=first.hex(), tokens_equal=False)
    journal.add("share", "GRANTED", "h2", 2, chain=second.hex(), tokens_equal=True)
    journal.add("share", "MISS", "stranger", 1, chain=first.hex(), tokens_equal=True)
    assert journal.findings() == []


def test_a_page_served_to_another_scope_is_found(journal: Journal) -> None:
    journal.add("share", "GRANTED", "stranger", 1, tokens=[1, 2], parent=None)
    assert journal.findings() == ["page.share.miss_scope gives MISS; found GRANTED"]


def test_a_page_served_for_other_tokens_is_found(journal: Journal) -> None:
    journal.add("share", "GRANTED", "h2", 1, tokens=[1, 3], parent=None)
    assert journal.findings() == ["page.share.miss_chain gives MISS; found GRANTED"]


def test_a_page_that_waits_for_another_is_parked_when_that_one_is_cached(journal: Journal) -> None:
    journal.add("drop", "DROPPED", "h1", 1)
    journal.add("park", "REFUSED IN_USE", None, 1)
    journal.add("drop", "DROPPED", "h1", 2)
    journal.add("park", "SETTLED", None, 1)
    journal.add("park", "NOTHING_DUE", None, 2)
    assert journal.findings() == []


def test_a_page_that_waits_for_another_and_is_promised_is_found(journal: Journal) -> None:
    journal.add("drop", "DROPPED", "h1", 1)
    journal.entries[-1] |= {"state": "CACHED"}
    journal.add("admit", "GRANTED", "h3", units=PAGES - 9, scope=SCOPE)
    journal.add("admit", "GRANTED", "h4", units=1, scope=SCOPE)
    assert journal.findings() == [
        "page.drop.shared_draining gives state DRAINING; found state CACHED",
        "promise.admit.pool_capacity gives REFUSED POOL_CAPACITY; found GRANTED",
    ]


def test_a_name_is_free_when_its_holder_is_forgotten(journal: Journal) -> None:
    journal.add("forget", "REFUSED LIVE", "h2")
    journal.add("close", "RELEASED", "h2")
    journal.add("admit", "REFUSED CLOSED", "h2", units=1, scope=SCOPE)
    journal.add("forget", "FORGOTTEN", "h2")
    journal.add("forget", "REFUSED UNKNOWN_KEY", "h2")
    journal.add("admit", "GRANTED", "h2", units=1, scope=OTHER_SCOPE)
    assert journal.findings() == []


def test_a_page_freed_while_a_step_reads_it_is_found(journal: Journal) -> None:
    journal.add("touch", "LAUNCHED", "h1", 2, write=False)
    journal.add("drop", "DROPPED", "h1", 2)
    journal.entries[-1] |= {"state": "FREE"}
    assert journal.findings() == ["page.drop.shared_draining gives state DRAINING; found state FREE"]


def test_a_page_handed_out_twice_is_found(journal: Journal) -> None:
    journal.add("allocate", "GRANTED", "h2", 2)
    assert journal.findings() == ["page.allocate.not_free gives REFUSED NOT_FREE; found GRANTED"]


def test_a_wrong_page_generation_is_found(journal: Journal) -> None:
    journal.add("allocate", "GRANTED", "h2", 3)
    journal.entries[-1] |= {"generation": 2}
    assert journal.findings() == ["page.allocate.granted gives generation 1; found generation 2"]


def test_a_promise_above_what_is_there_is_found(journal: Journal) -> None:
    journal.add("admit", "GRANTED", "h3", units=9, scope=SCOPE)
    assert journal.findings() == ["promise.admit.pool_capacity gives REFUSED POOL_CAPACITY; found GRANTED"]


def test_a_parent_of_another_scope_counts_as_unpublished(journal: Journal) -> None:
    journal.add("allocate", "GRANTED", "stranger", 5)
    journal.add("touch", "LAUNCHED", "stranger", 5, write=True)
    journal.add("settle", "SETTLED", None, 5, write=True, ok=True, filled=True)
    journal.add("seal", "REFUSED PARENT_UNPUBLISHED", "stranger", 5, tokens=[5, 6], parent=1)
    assert journal.findings() == []


def test_a_draw_that_names_no_page_is_judged_by_its_promise(journal: Journal) -> None:
    journal.add("allocate", "REFUSED NO_PROMISE", "nobody", None)
    assert journal.findings() == []
    journal.add("allocate", "REFUSED NO_PROMISE", "h2", None)
    assert journal.findings() == ["page.allocate.granted gives GRANTED; found REFUSED NO_PROMISE"]


def test_a_page_in_use_is_retired_by_its_own_scope(journal: Journal) -> None:
    journal.add("retire_scope", "NOTED", None, 0, scope=OTHER_SCOPE)
    journal.add("retire_scope", "REFUSED LIVE", None, 1, scope=OTHER_SCOPE)
    journal.add("retire_scope", "RECORDED", None, 3, scope=OTHER_SCOPE)
    assert journal.findings() == []


@pytest.mark.parametrize(
    ("event", "fields", "message"),
    [
        ("drop", {"holder": None}, "holder of `drop` must be a text"),
        ("drop", {"page": PAGES}, f"page is {PAGES}; the pool has pages 0 to {PAGES - 1}"),
        ("drop", {"page": None}, "page is None, not an integer"),
        ("drop", {"parameters": {"write": True}}, "parameters are write; `drop` has none"),
        ("evict", {"holder": "h1"}, "holder of `evict` must be null"),
        ("park", {"holder": "h1"}, "holder of `park` must be null"),
        ("touch", {"parameters": {"write": 1}}, "write is 1, neither true nor false"),
        ("seal", {"parameters": {"tokens": [1], "parent": None}}, "tokens are [1]; a published page has 2"),
        ("seal", {"parameters": {"tokens": [1, 2**31], "parent": None}}, "token 2147483648 is no integer of 32 bits"),
        ("seal", {"parameters": {"tokens": [1, 2], "parent": PAGES}}, f"parent is {PAGES}; the pool has"),
        ("share", {"parameters": {"tokens": [1, 2]}}, "parameters are tokens; `share` has parent, tokens or chain"),
        ("share", {"parameters": {"chain": "xy", "tokens_equal": True}}, "chain is 'xy', not a digest in hexadecimal"),
        ("admit", {"parameters": {"units": 1, "scope": {}}}, "scope has nothing; a scope record has tenant, group"),
        ("admit", {"parameters": {"units": 1, "scope": {**SCOPE, "group": 0}}}, "scope.group is 0, not bool"),
        ("admit", {"parameters": {"units": 1, "scope": {**SCOPE, "media": [1]}}}, "scope.media is 1, not a text"),
        ("admit", {"page": 1}, "unknown key 'page' in a line of promise"),
    ],
)
def test_a_malformed_page_line_is_refused(event: str, fields: Line, message: str) -> None:
    journal = Journal()
    journal.add(event, "REFUSED", None if event in ("evict", "park") else "h1", 1)
    with pytest.raises(UserError, match=re.escape(message)):
        Monitor(CONFIG).feed({**journal.entries[0], **fields})


def test_a_collision_that_is_claimed_where_there_is_none_is_refused(journal: Journal) -> None:
    chain = chain_digest(root_digest(PrefixScope("a")), packed([1, 2]))
    journal.add("share", "MISS", "h2", 1, chain=chain.hex(), tokens_equal=False)
    with pytest.raises(UserError, match="tokens_equal is false, but page 1 has this chain"):
        journal.findings()


def test_page_lines_without_a_pool_are_refused(journal: Journal) -> None:
    with pytest.raises(UserError, match="an event of a page pool, but config names none: give pages and page_length"):
        journal.findings({})


def test_page_lines_have_an_order_of_their_own(journal: Journal) -> None:
    del journal.entries[2]
    with pytest.raises(UserError, match="seq 4 comes after 2: the changes between are missing"):
        journal.findings()


@pytest.mark.parametrize(
    ("change", "law"),
    [
        (lambda world: world.pool.update(free=world.pool["free"] + 1), "free_pages_are_counted of page 3, holder h2"),
        (lambda world: world.holders["h2"].update(shares=1), "shared_pages_are_the_holders of page 3, holder h2"),
        (lambda world: world.pages[3].update(holders=2), "holders_are_a_set of page 3, holder h2"),
        (lambda world: world.pool.update(promised=0), "promised_is_the_sum of page 3, holder h2"),
    ],
)
def test_counts_that_drift_are_found_after_the_next_change(journal: Journal, change: Any, law: str) -> None:
    monitor = Monitor(CONFIG)
    journal.add("allocate", "GRANTED", "h2", 3)
    journal.add("drop", "DROPPED", "h2", 3)
    for entry in journal.entries[:-1]:
        assert monitor.feed(entry) == []
    change(monitor._pages._world)  # type: ignore[union-attr]  # there is a pool
    assert law in [finding.expected for finding in monitor.feed(journal.entries[-1])]


@pytest.mark.parametrize(
    ("count", "law"),
    [("children", "the_parent_counts_its_children"), ("busy", "the_parent_counts_its_busy_children")],
)
@pytest.mark.parametrize("event", ["drop", "retire_scope"])
def test_a_page_that_miscounts_what_follows_it_is_found_after_the_next_change(
    journal: Journal, event: str, count: str, law: str
) -> None:
    monitor = Monitor(CONFIG)
    journal.add("retire_scope", "NOTED", None, 0, scope=SCOPE)
    if event == "drop":
        journal.add("drop", "DROPPED", "h1", 2)
    else:
        journal.add("retire_scope", "NOTED", None, 2, scope=SCOPE)
    for entry in journal.entries[:-1]:
        assert monitor.feed(entry) == []
    monitor._pages._world.pages[1][count] += 1  # type: ignore[union-attr,operator]  # there is a pool; it is a count
    laws = [finding.expected for finding in monitor.feed(journal.entries[-1])]
    assert laws == [f"{law} of page 2, holder {'h1' if event == 'drop' else ''}"]


def test_a_ticket_that_does_not_fit_the_page_is_found_at_once(journal: Journal) -> None:
    monitor = Monitor(CONFIG)
    journal.add("touch", "LAUNCHED", "h1", 2, write=False)
    for entry in journal.entries[:-1]:
        monitor.feed(entry)
    monitor._pages._world.pages[2]["writers"] = 1  # type: ignore[union-attr]  # there is a pool
    laws = [finding.expected for finding in monitor.feed(journal.entries[-1])]
    assert laws == ["tickets_fit_the_state of page 2", "matchable_pages_are_computed of page 2"]


def test_two_pages_in_one_place_are_found(journal: Journal) -> None:
    monitor = Monitor(CONFIG)
    for entry in journal.entries:
        monitor.feed(entry)
    world = monitor._pages._world  # type: ignore[union-attr]  # there is a pool
    world.pages[2]["chain"] = world.pages[1]["chain"]
    assert any("one_page_for_each_place of page 2" in finding.expected for finding in monitor.finish().findings)


def test_places_are_those_of_the_reference() -> None:
    scope = PrefixScope("a", True, "m", 3, None, 0, "t", "p", "d", 2, "\ud800", ("x", ""))
    first = place_after("root", scope, (1, -1))
    assert first == chain_digest(root_digest(scope), packed([1, -1]))
    assert place_after(first, scope, (7, 8)) == chain_digest(first, packed([7, 8]))


def test_every_field_of_the_scope_record_is_read() -> None:
    assert list(SCOPE) == [each.name for each in fields(PrefixScope)]
    assert scope_of({"scope": SCOPE}) == PrefixScope("a")
