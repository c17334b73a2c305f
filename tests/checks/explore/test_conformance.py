"""Every transition of an instance on the real ledger and page pool; planted bugs are found by a shortest way."""

from __future__ import annotations

from itertools import count

import pytest

from kvescrow.checks.explore import instance_called
from kvescrow.checks.explore.conformance import conform
from kvescrow.checks.explore.conformance.clone import cloned
from kvescrow.checks.explore.conformance.graph import Graph
from kvescrow.checks.targets.ledgers import ReferenceLedger, memory_subject
from kvescrow.checks.targets.pools import ReferencePool, pool_subject
from kvescrow.checks.targets.protocols import Kind, LedgerFacts, LedgerSetup, PageFacts, PoolSetup, Subject
from kvescrow.checks.targets.registry import subject_called
from kvescrow.spec.vocabulary import Decision, Finish, LedgerEvent, LedgerSnapshot, UserError


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_ledger_in_memory_obeys_in_every_state(jobs: int) -> None:
    found = conform("ledger-memory", memory_subject(), "lifecycle-xs", jobs)
    assert found.disagreement is None
    assert (found.states, found.covering) == (263, False)
    assert found.transitions > 10_000


def test_the_page_pool_obeys_in_every_state() -> None:
    found = conform("pages", pool_subject(), "pages-limit", 2)
    assert found.disagreement is None
    assert (found.states, found.transitions, found.unrealised) == (3398, 153824, 0)


def test_the_ledger_in_a_file_obeys_on_a_covering_set() -> None:
    found = conform("ledger-sqlite", subject_called("ledger-sqlite"))
    assert found.disagreement is None
    assert found.covering and found.transitions > 500


class ReleasesTwice(ReferenceLedger):
    """A ledger that takes a repeated stop for a new one: it gives capacity back once more."""

    def submit(self, event: LedgerEvent) -> LedgerFacts:
        facts = super().submit(event)
        if isinstance(event, Finish) and facts.decision is Decision.RECORDED:
            self._ledger._books.pool.active -= 1  # type: ignore[attr-defined]  # the planted bug
        return facts

    def snapshot(self) -> LedgerSnapshot:
        return super().snapshot()


def _releases_twice() -> Subject:
    def opened(setup: LedgerSetup) -> ReferenceLedger:
        ledger = memory_subject().open(setup)
        ledger.__class__ = ReleasesTwice
        return ledger  # type: ignore[no-any-return]

    return Subject(Kind.LEDGER, opened)


def test_a_stop_that_releases_twice_is_found_by_a_shortest_way() -> None:
    found = conform("planted", _releases_twice(), "lifecycle-xs")
    assert found.verdict == "failed"
    assert found.disagreement is not None
    assert [step.row.split(".")[1] for step in found.disagreement.scenario] == ["reserve", "start", "finish", "finish"]
    assert found.disagreement.scenario[-1].row == "reservation.finish.recorded"


class FreesUnderReaders(ReferencePool):
    """A pool whose last holder frees a page that a launched step still reads."""

    def drop(self, holder: str, page: int) -> PageFacts:
        record = self.pool._pages[page]
        record.readers = record.writers = 0
        return super().drop(holder, page)


def _frees_under_readers() -> Subject:
    def opened(setup: PoolSetup) -> ReferencePool:
        pool = pool_subject().open(setup)
        pool.__class__ = FreesUnderReaders
        return pool  # type: ignore[no-any-return]

    return Subject(Kind.PAGES, opened)


def test_a_page_that_is_freed_in_flight_is_found_by_a_shortest_way() -> None:
    found = conform("planted", _frees_under_readers(), "pages-limit")
    assert found.disagreement is not None
    assert [step.row for step in found.disagreement.scenario] == [
        "promise.admit.grant",
        "page.allocate.granted",
        "page.touch.read",
        "page.drop.private_draining",
    ]


def test_target_and_instance_must_fit() -> None:
    with pytest.raises(UserError, match=r"it takes the instances pages-\.\.\., not lifecycle-xs"):
        conform("pages", pool_subject(), "lifecycle-xs")
    with pytest.raises(UserError, match="use `kvescrow fuzz`"):
        conform("cache", Subject(Kind.MANAGER, dict))


def test_processes_number_states_alike() -> None:
    graphs = [Graph(instance_called("pages-scopes")) for _ in range(2)]
    after = [next(g.first + answer.delta for answer in g.answers(g.first) if answer.delta) for g in graphs]
    backwards = [list(g.answers(state))[::-1] for g, state in zip(graphs, after, strict=True)]
    assert {answer.move: answer.delta for answer in backwards[0]} == {a.move: a.delta for a in backwards[1]}
    assert all(digit.numbers is None for graph in graphs for digit in graph.packing.digits)


def test_copies_share_nothing_that_changes() -> None:
    inner: dict[str, list[int]] = {"a": [1]}
    target = ReferencePool.__new__(ReferencePool)
    target.pool = [inner, inner]  # type: ignore[assignment]  # any graph of objects
    copy = cloned(target)
    copy.pool[0]["a"].append(2)
    assert inner == {"a": [1]}
    assert copy.pool[0] is copy.pool[1]


class Slotted:
    __slots__ = ("numbers", "other")

    def __init__(self, numbers: list[int], other: object) -> None:
        self.numbers = numbers
        self.other = other


class Guarded(Slotted):
    """An object with attributes of both kinds, which lets no one set them."""

    def __init__(self, numbers: list[int], other: object) -> None:
        for name, value in (("numbers", numbers), ("other", other), ("ticks", count(3))):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)


@pytest.mark.parametrize("kind", [Slotted, Guarded])
def test_objects_are_copied_with_their_slots_and_what_they_share_among_themselves(kind: type[Slotted]) -> None:
    numbers = [1]
    before = kind(numbers, {"same": numbers, "pair": [(1, numbers)]})
    if isinstance(before, Guarded):
        next(before.ticks)  # type: ignore[attr-defined]  # set by its name
    after = cloned(before)
    assert after.numbers == [1] and after.numbers is not numbers
    assert after.other["same"] is after.numbers
    assert after.other["pair"][0][1] is after.numbers
    if isinstance(before, Guarded):
        assert [next(after.ticks), next(after.ticks), next(before.ticks)] == [4, 5, 4]  # type: ignore[attr-defined]
