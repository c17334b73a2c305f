"""A correct cache manager passes, faulty ones are caught by the law that names the fault, and listed deviations are
strict."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from attrs import define, evolve, field, frozen

from kvescrow.checks.cli.output import EXIT_NOT_RUN
from kvescrow.checks.fuzz.laws import BY_NAME, applying, laws_for
from kvescrow.checks.fuzz.manager import ManagerJudge
from kvescrow.checks.fuzz.profiles import PROFILES, Profile
from kvescrow.checks.fuzz.result import FuzzResult
from kvescrow.checks.fuzz.run import fuzz
from kvescrow.checks.targets.protocols import Denied, Granted, ManagerPool, ManagerSetup
from kvescrow.checks.targets.subject import Capabilities, Kind, ListedDeviation, Publish, Release, Subject
from kvescrow.spec.vocabulary import PrefixScope

QUICK = evolve(PROFILES["pr"], least_rounds=1)
BRIEF = evolve(PROFILES["pr"], examples=5, least_rounds=1, most_rounds=1)
"""Where the listed scenarios decide."""
STRICT = Capabilities()
OURS = laws_for(Kind.MANAGER)
Key = tuple[PrefixScope, tuple[int, ...]]


@define
class Entry:
    """One request of the toy."""

    sequence: list[int]
    scope: PrefixScope
    cached: int
    pages: list[int] = field(factory=list)
    computed: int = 0
    flying: int = 0
    over: bool = False


class Toy:
    """A cache manager that does everything right, with small methods for the faults to replace."""

    def __init__(self, setup: ManagerSetup) -> None:
        self.width = setup.page_length
        self.total = setup.pages
        self.free = list(range(setup.pages))
        self.requests: dict[str, Entry] = {}
        self.counts: dict[int, int] = {}
        self.index: dict[Key, int] = {}
        self.cached: dict[int, Key] = {}

    def submit(self, request: str, prompt: Sequence[int], scope: PrefixScope) -> Granted:
        if request in self.requests:
            return Granted(self.requests[request].cached)
        entry = Entry(list(prompt), scope, 0)
        for end in range(self.width, len(prompt), self.width):
            page = self.index.get(self.key(scope, tuple(prompt[:end])))
            if page is None:
                break
            self.claim(page)
            entry.pages.append(page)
        entry.cached = entry.computed = len(entry.pages) * self.width
        self.requests[request] = entry
        return Granted(entry.cached)

    def reserve(self, request: str, tokens: int) -> Granted | Denied:
        entry = self.requests[request]
        lacking = -(-(entry.computed + tokens) // self.width) - len(entry.pages)
        if lacking > len(self.free):
            return Denied()
        for _ in range(lacking):
            page = self.free.pop()
            self.claim(page)
            entry.pages.append(page)
        return Granted()

    def launch(self, request: str, tokens: int) -> None:
        self.requests[request].flying = tokens

    def complete(self, request: str, sampled: Sequence[int]) -> None:
        entry = self.requests[request]
        entry.computed += entry.flying
        entry.flying = 0
        if entry.over:
            self.drop(request)
            return
        self.publish(entry, entry.computed)
        entry.sequence += sampled

    def release(self, request: str) -> None:
        entry = self.requests.get(request)
        if entry is None or entry.over:
            return
        entry.over = True
        if not entry.flying:
            self.drop(request)

    def pages_of(self, request: str) -> tuple[int, ...]:
        return tuple(self.requests[request].pages) if request in self.requests else ()

    def evict(self) -> None:
        for page, key in self.cached.items():
            del self.index[key]
            self.free.append(page)
        self.cached.clear()

    def pool(self) -> ManagerPool:
        return ManagerPool(self.total, frozenset(self.free), frozenset(self.cached), dict(self.counts))

    def close(self) -> None:
        pass

    def key(self, scope: PrefixScope, prefix: tuple[int, ...]) -> Key:
        return scope, prefix

    def claim(self, page: int) -> None:
        self.cached.pop(page, None)
        self.counts[page] = self.counts.get(page, 0) + 1

    def publish(self, entry: Entry, computed: int) -> None:
        for place in range(computed // self.width):
            key = self.key(entry.scope, tuple(entry.sequence[: (place + 1) * self.width]))
            self.index.setdefault(key, entry.pages[place])

    def drop(self, request: str) -> None:
        published = {page: key for key, page in self.index.items()}
        for page in self.requests.pop(request).pages:
            self.counts[page] -= 1
            if self.counts[page]:
                continue
            del self.counts[page]
            if page in published:
                self.cached[page] = published[page]
            else:
                self.free.append(page)


class LeaksOnDuplicate(Toy):
    def submit(self, request: str, prompt: Sequence[int], scope: PrefixScope) -> Granted:
        self.requests.pop(request, None)
        return super().submit(request, prompt, scope)


class FreesTwice(Toy):
    """The pages of a request that is over are freed once more, although they may be another's by now."""

    def __init__(self, setup: ManagerSetup) -> None:
        super().__init__(setup)
        self.were: dict[str, list[int]] = {}

    def release(self, request: str) -> None:
        if request in self.requests:
            self.were[request] = list(self.requests[request].pages)
            super().release(request)
        else:
            self.free += [page for page in self.were[request] if page not in self.free]


class PublishesAtSchedule(Toy):
    def launch(self, request: str, tokens: int) -> None:
        super().launch(request, tokens)
        entry = self.requests[request]
        self.publish(entry, entry.computed + tokens)


class PublishesAtReserve(Toy):
    """What is planned matches at once, and still matches when the plan is given up."""

    def reserve(self, request: str, tokens: int) -> Granted | Denied:
        reply = super().reserve(request, tokens)
        entry = self.requests[request]
        if isinstance(reply, Granted):
            self.publish(entry, entry.computed + tokens)
        return reply


class WithdrawsWhatItPlanned(PublishesAtReserve):
    """The same, but right: a plan that is given up takes its pages out of the index."""

    def release(self, request: str) -> None:
        entry = self.requests.get(request)
        if entry is not None and not entry.flying:
            planned = set(entry.pages[entry.computed // self.width :])
            self.index = {key: page for key, page in self.index.items() if page not in planned}
        super().release(request)


class ForgetsTheTenant(Toy):
    def key(self, scope: PrefixScope, prefix: tuple[int, ...]) -> Key:
        return evolve(scope, tenant=""), prefix


class ForgetsTheSalt(Toy):
    def key(self, scope: PrefixScope, prefix: tuple[int, ...]) -> Key:
        return evolve(scope, salt=""), prefix


class JoinsTheTexts(Toy):
    def key(self, scope: PrefixScope, prefix: tuple[int, ...]) -> Key:
        return evolve(scope, tenant=scope.tenant + (scope.adapter or ""), adapter=None), prefix


class TrustsAWeakDigest(Toy):
    def key(self, scope: PrefixScope, prefix: tuple[int, ...]) -> Key:
        return scope, tuple(token % 4 for token in prefix)


class ReservesInPart(Toy):
    def reserve(self, request: str, tokens: int) -> Granted | Denied:
        reply = super().reserve(request, tokens)
        if isinstance(reply, Denied) and self.free:
            page = self.free.pop()
            self.claim(page)
            self.requests[request].pages.append(page)
        return reply


class DeniesTheLastPage(Toy):
    def reserve(self, request: str, tokens: int) -> Granted | Denied:
        last = self.free.pop() if len(self.free) == 1 else None
        reply = super().reserve(request, tokens)
        self.free += [] if last is None else [last]
        return reply


class FreesInFlight(Toy):
    """A cancel gives the pages back at once, although the step still runs."""

    def release(self, request: str) -> None:
        if request in self.requests:
            self.drop(request)

    def complete(self, request: str, sampled: Sequence[int]) -> None:
        if request in self.requests:
            super().complete(request, sampled)


class ForgetsSharers(Toy):
    def claim(self, page: int) -> None:
        super().claim(page)
        self.counts[page] = 1

    def drop(self, request: str) -> None:
        for page in self.requests[request].pages:
            others = sum(page in entry.pages for entry in self.requests.values())
            self.counts[page] = others
        super().drop(request)


class FailsAfterACancel(Toy):
    def complete(self, request: str, sampled: Sequence[int]) -> None:
        if self.requests[request].over:
            raise KeyError(request)
        super().complete(request, sampled)


class EvictsAHeldPage(Toy):
    def evict(self) -> None:
        super().evict()
        for entry in self.requests.values():
            if not entry.flying and len(entry.pages) > 1:
                page = entry.pages.pop()
                self.counts[page] -= 1
                if not self.counts[page]:
                    del self.counts[page]
                    self.index = {key: other for key, other in self.index.items() if other != page}
                    self.free.append(page)
                return


class KeepsThePages(Toy):
    """A cancelled request's pages are never given back."""

    def complete(self, request: str, sampled: Sequence[int]) -> None:
        if self.requests[request].over:
            self.requests[request].pages.clear()
        super().complete(request, sampled)


class AdoptsEqualPages(Toy):
    """A page that another request has published meanwhile takes the place of the request's own."""

    def publish(self, entry: Entry, computed: int) -> None:
        super().publish(entry, computed)
        for place in range(computed // self.width):
            page = self.index[self.key(entry.scope, tuple(entry.sequence[: (place + 1) * self.width]))]
            own, entry.pages[place] = entry.pages[place], page
            if own != page:
                self.claim(page)
                del self.counts[own]
                self.free.append(own)


@frozen
class Planted:
    """A faulty manager, and the law that names its fault."""

    name: str
    manager: Callable[[ManagerSetup], Toy]
    law: str
    declared: Capabilities = STRICT


PLANTED = (
    Planted("pages leak on a duplicate id", LeaksOnDuplicate, "duplicate"),
    Planted("pages are freed twice", FreesTwice, "once"),
    Planted("publish at schedule", PublishesAtSchedule, "computed"),
    Planted(
        "a plan that is given up stays published",
        PublishesAtReserve,
        "withdrawn",
        Capabilities(publish=Publish.AT_SCHEDULE),
    ),
    Planted("hit across tenants", ForgetsTheTenant, "scope.tenant"),
    Planted("hit across salts", ForgetsTheSalt, "scope.salt"),
    Planted(
        "scopes are keyed by their texts joined",
        JoinsTheTexts,
        "scope.joined",
        Capabilities(scope_fields=frozenset({"tenant", "adapter"})),
    ),
    Planted("digest trusted under collision", TrustsAWeakDigest, "content"),
    Planted("a denied reserve keeps pages", ReservesInPart, "denied"),
    Planted("the last free page is never granted", DeniesTheLastPage, "fits"),
    Planted("pages of a step in flight are handed out", FreesInFlight, "in_flight"),
    Planted("sharers are not counted", ForgetsSharers, "holders"),
    Planted("the step of a cancelled request cannot end", FailsAfterACancel, "cancel"),
    Planted("an eviction takes a held page", EvictsAHeldPage, "evicts"),
    Planted("a cancelled request's pages are lost", KeepsThePages, "holders"),
    Planted("a table changes under its request", AdoptsEqualPages, "stable"),
)


def subject_of(
    manager: Callable[[ManagerSetup], object],
    declared: Capabilities = STRICT,
    deviations: tuple[ListedDeviation, ...] = (),
) -> Subject:
    return Subject(Kind.MANAGER, manager, declared, deviations)


def run(subject: Subject, profile: Profile = QUICK) -> FuzzResult:
    return fuzz("toy", subject, profile)


def test_a_correct_manager_passes_and_every_law_was_put_to_the_test() -> None:
    result = run(subject_of(Toy))
    assert result.failure == ""
    assert result.verdict == "passed"
    assert result.rows_hit == result.rows == len(OURS)
    assert result.not_applicable == ()


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: str(planted.name))
def test_a_planted_fault_is_caught_by_the_law_that_names_it(planted: Planted) -> None:
    result = run(subject_of(planted.manager, planted.declared))
    assert result.verdict == "failed"
    told, _, steps = result.failure.partition("Least steps:")
    assert told.startswith(f"Law broken: {BY_NAME[planted.law]}")
    assert len([line for line in steps.splitlines() if "(" in line]) <= 12
    assert f"kvescrow fuzz --target toy --seed {result.seed}" in result.failure


def test_a_failure_repeats_itself() -> None:
    assert run(subject_of(ReservesInPart)).failure == run(subject_of(ReservesInPart)).failure


@pytest.mark.parametrize(
    ("manager", "declared", "law"),
    [
        (PublishesAtSchedule, Capabilities(publish=Publish.AT_SCHEDULE), "computed"),
        (WithdrawsWhatItPlanned, Capabilities(publish=Publish.AT_SCHEDULE), "computed"),
        (FreesInFlight, Capabilities(release=Release.ORDERED), "in_flight"),
        (ForgetsTheTenant, Capabilities(scope_fields=frozenset({"adapter", "salt"})), "scope.tenant"),
        (LeaksOnDuplicate, Capabilities(duplicate_ids=False), "duplicate"),
        (FailsAfterACancel, Capabilities(cancels_in_flight=False), "cancel"),
        (AdoptsEqualPages, Capabilities(stable_tables=False), "stable"),
    ],
)
def test_a_law_that_a_capability_excludes_is_listed_and_not_counted(
    manager: Callable[[ManagerSetup], Toy], declared: Capabilities, law: str
) -> None:
    assert law not in applying(declared)
    result = run(subject_of(manager, declared))
    excluded = {one.law: one.capability for one in result.not_applicable}
    assert excluded[str(BY_NAME[law])] == BY_NAME[law].excluded_by(declared)
    assert result.rows == len(OURS) - len(excluded)
    assert (result.verdict, result.failure) == ("passed", "")


HOME = PrefixScope("a")
DENIED_IN_PART = ListedDeviation(
    "keeps what it got",
    "denied",
    "a denied reserve keeps the pages that there were",
    (
        ("submit", "r0", tuple(range(29)), HOME),
        ("reserve", "r0", 28),
        ("submit", "r1", (7, 7, 7, 7, 7), HOME),
        ("reserve", "r1", 5),
    ),
)


def test_a_listed_deviation_is_shown_and_the_other_laws_still_hold() -> None:
    result = run(subject_of(ReservesInPart, deviations=(DENIED_IN_PART,)))
    assert (result.verdict, result.failure) == ("passed", "")
    (deviation,) = result.deviations
    assert deviation.exercised
    assert deviation.scenario[1] == "reserve('r0', 28)"
    assert result.rows == len(OURS) - 1


def test_a_deviation_that_is_no_longer_shown_fails_the_run() -> None:
    result = run(subject_of(Toy, deviations=(DENIED_IN_PART,)), BRIEF)
    assert result.verdict == "failed"
    assert "no longer shown: keeps what it got: no law is broken" in result.failure
    assert not result.deviations[0].exercised


class ReservesInPartWhenLarge(ReservesInPart):
    """So long a request comes in the scenario alone, which therefore decides the verdict."""

    def reserve(self, request: str, tokens: int) -> Granted | Denied:
        large = any(len(entry.sequence) > 20 for entry in self.requests.values())
        return super().reserve(request, tokens) if large else Toy.reserve(self, request, tokens)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"law": "fits"}, "step 4 breaks the law denied"),
        ({"steps": (*DENIED_IN_PART.steps[:3], ("launch", "r1", 5))}, "step 4 is not a call that a client may make"),
        ({"steps": (*DENIED_IN_PART.steps[:1], *DENIED_IN_PART.steps[2:])}, "no law is broken"),
        ({"steps": (*DENIED_IN_PART.steps, ("evict",))}, "step 4 breaks the law denied"),
    ],
)
def test_a_scenario_that_shows_something_else_fails_the_run(change: dict[str, Any], told: str) -> None:
    manager = ReservesInPartWhenLarge
    subject = subject_of(manager, deviations=(evolve(DENIED_IN_PART, **change),))
    result = run(subject, BRIEF)
    assert result.verdict == "failed"
    assert told in result.failure
    assert not result.deviations[0].exercised


def test_a_broken_law_that_is_not_listed_fails_beside_a_listed_one() -> None:
    class BreaksTwo(ReservesInPart, ForgetsTheSalt):
        pass

    result = run(subject_of(BreaksTwo, deviations=(DENIED_IN_PART,)))
    assert result.failure.startswith(f"Law broken: {BY_NAME['scope.salt']}")
    assert result.deviations[0].exercised


def test_calls_that_no_client_makes_are_left_out() -> None:
    judge = ManagerJudge(subject_of(Toy))
    judge.open_with(ManagerSetup(4, 4))
    assert judge.call("submit", "r0", (1, 2, 3), HOME)
    assert not judge.call("launch", "r0", 3)
    assert not judge.call("reserve", "r0", 4)
    assert judge.call("reserve", "r0", 3)
    assert not judge.call("complete", "r0", ())
    assert not judge.call("release", "r1")
    assert [method for method, _ in judge.done] == ["submit", "reserve"]


def test_transformers_breaks_what_is_listed_and_nothing_else() -> None:
    pytest.importorskip("transformers")
    from kvescrow.checks.targets.transformers_manager import transformers_subject

    result = fuzz("transformers", transformers_subject(), PROFILES["pr"])
    assert (result.verdict, result.failure) == ("passed", "")
    assert {deviation.law for deviation in result.deviations} == {"duplicate", "cancel", "scope.tenant"}
    assert all(deviation.exercised for deviation in result.deviations)
    assert result.rows_hit == result.rows


def test_without_its_library_a_target_is_not_run() -> None:
    front = "import sys; sys.modules['transformers'] = None; from kvescrow.checks.cli.front import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", front, "fuzz", "--target", "transformers"], capture_output=True, text=True, check=False
    )
    assert done.returncode == EXIT_NOT_RUN
    assert "pip install 'kvescrow[targets]'" in done.stdout
    assert "fuzz transformers: not_run, 0 steps" in done.stdout
