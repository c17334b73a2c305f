"""Every transition of an instance on the real ledger and page pool; planted bugs are found by a shortest way."""

from __future__ import annotations

from collections import deque
from itertools import count

import pytest

from kvescrow.checks.explore import instance_called
from kvescrow.checks.explore.conformance import conform, ledger
from kvescrow.checks.explore.conformance.checkpoint import Checkpoint
from kvescrow.checks.explore.conformance.clone import cloned
from kvescrow.checks.explore.conformance.graph import Graph
from kvescrow.checks.explore.conformance.ledger import NO_ONE_WAITS, SOMEONE_WAITS, LedgerSubject, Mark
from kvescrow.checks.explore.instances.lifecycle import SIZES, closed_form
from kvescrow.checks.targets.ledgers import ReferenceLedger, memory_subject
from kvescrow.checks.targets.pools import ReferencePool, pool_subject
from kvescrow.checks.targets.protocols import LedgerFacts, LedgerSetup, PageFacts, PoolSetup
from kvescrow.checks.targets.registry import subject_called
from kvescrow.checks.targets.subject import Kind, Subject
from kvescrow.spec.vocabulary import Decision, Finish, LedgerEvent, LedgerSnapshot, UserError


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_ledger_in_memory_obeys_in_every_state(jobs: int) -> None:
    found = conform("ledger-memory", memory_subject(), "lifecycle-xs", jobs)
    assert found.disagreement is None
    assert (found.verdict, found.covering) == ("passed", False)
    assert (found.states, found.unreached) == (closed_form(SIZES["lifecycle-xs"]), 0)
    # In other words: each order of the queue, and whether those in it have run before.
    assert found.variants == 308
    assert (found.transitions, found.unrealised) == (14128, 0)
    assert found.impossible == {NO_ONE_WAITS: 120, SOMEONE_WAITS: 8}


class NeverCatchesUp(LedgerSubject):
    """Leaves a state to those who came there first, who may have no owner to sign a receipt."""

    def can(self, move: int) -> bool:
        return False


def test_a_move_that_no_one_could_try_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "LedgerSubject", NeverCatchesUp)
    found = conform("ledger-memory", memory_subject(), "lifecycle-xs")
    assert found.disagreement is None
    assert (found.verdict, found.unreached) == ("incomplete", 0)
    assert found.unrealised > 0


class Unordered(LedgerSubject):
    """Takes all orders of the queue for one."""

    def variant(self) -> int:
        return 0


def test_a_state_that_no_one_came_to_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "LedgerSubject", Unordered)
    found = conform("ledger-memory", memory_subject(), "lifecycle-xs")
    assert (found.verdict, found.states, found.unreached) == ("incomplete", 263, 1)


class Excuses(LedgerSubject):
    """Says of a promotion that it is impossible, now and then."""

    def _why_not_queued(self, number: int, slot: int, mark: Mark) -> str | None:
        why = super()._why_not_queued(number, slot, mark)
        return NO_ONE_WAITS if why is None else why


def test_a_reason_that_does_not_hold_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "LedgerSubject", Excuses)
    with pytest.raises(AssertionError, match="moves were tried that cannot be brought about, since no one else waits"):
        conform("ledger-memory", memory_subject(), "lifecycle-xs")


def test_the_page_pool_obeys_in_every_state() -> None:
    found = conform("pages", pool_subject(), "pages-limit", 2)
    assert found.disagreement is None
    assert (found.verdict, found.states, found.transitions, found.unrealised) == ("passed", 3398, 153824, 0)
    assert (found.variants, found.repeated) == (3398, 0)


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


@pytest.mark.parametrize("kind", [Slotted, Guarded])
def test_what_was_changed_is_brought_back(kind: type[Slotted]) -> None:
    numbers, members = [1], {(1, 2)}
    other = {"same": numbers, "pair": [(1, numbers)], "members": members}
    target = kind(numbers, other)
    checkpoint = Checkpoint(target)
    for _ in range(2):
        numbers.append(2)
        members.clear()
        other["pair"] = []
        object.__setattr__(target, "other", None)
        if isinstance(target, Guarded):
            next(target.ticks)  # type: ignore[attr-defined]  # set by its name
        checkpoint.restore()
        assert target.numbers is numbers and numbers == [1]
        assert target.other == {"same": numbers, "pair": [(1, numbers)], "members": {(1, 2)}}
        if isinstance(target, Guarded):
            assert repr(target.ticks) == "count(3)"  # type: ignore[attr-defined]  # as above


def test_a_target_that_keeps_its_state_elsewhere_is_refused() -> None:
    with pytest.raises(TypeError, match="a deque cannot be copied: it has no attributes"):
        cloned([deque([1])])
    with pytest.raises(TypeError, match="count\\(0\\) is neither an attribute by name nor in a dictionary"):
        Checkpoint([count()])
