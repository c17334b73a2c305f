"""Page pools with one planted error each: the machine finds every one, and its diff names the field that differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve, fields, frozen

from kvescrow.checks.fuzz.profiles import PROFILES
from kvescrow.checks.fuzz.run import fuzz
from kvescrow.checks.targets.pools import pool_subject
from kvescrow.reference.pages import PagePool
from kvescrow.reference.pages.events import CACHED, SHARED, PageEvents
from kvescrow.spec.vocabulary import Decision, PrefixScope

Plant = Callable[[pytest.MonkeyPatch], None]


def publishes_before_it_is_computed(patch: pytest.MonkeyPatch) -> None:
    right = PageEvents._seal

    def seal(self: PageEvents, holder: Any, page: Any, tokens: Any, parent: Any) -> Any:
        writers, page.writers = page.writers, 0
        page.computed = page.computed or writers > 0
        outcome = right(self, holder, page, tokens, parent)
        page.writers = writers
        return outcome

    patch.setattr(PageEvents, "_seal", seal)


def leaves_out(field: str) -> Plant:
    """Two scopes that differ in `field` alone share one account."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = PageEvents._admit
        default = getattr(PrefixScope("a"), field)

        def admit(self: PageEvents, holder: str, scope: PrefixScope, units: int) -> Any:
            for known in self._accounts:
                if evolve(known, **{field: default}) == evolve(scope, **{field: default}):
                    scope = known
            return right(self, holder, scope, units)

        patch.setattr(PageEvents, "_admit", admit)

    return plant


def trusts_the_digest(patch: pytest.MonkeyPatch) -> None:
    right = PageEvents._share
    patch.setattr(PageEvents, "_share", lambda self, holder, page, chain, equal: right(self, holder, page, chain, True))


def evicts_held_pages(patch: pytest.MonkeyPatch) -> None:
    right = PagePool.evict

    def evict(self: PagePool, page: int) -> Any:
        record = self._page(page)
        if record.state is SHARED and not record.children and not record.readers:
            for holder in list(record.holders):
                self._drop(holder, record)
        return right(self, page)

    patch.setattr(PagePool, "evict", evict)


def lets_anyone_drop(patch: pytest.MonkeyPatch) -> None:
    right = PageEvents._drop

    def drop(self: PageEvents, holder: Any, page: Any) -> Any:
        if page.holders and holder not in page.holders:
            holder = next(iter(page.holders))
        return right(self, holder, page)

    patch.setattr(PageEvents, "_drop", drop)


def frees_pages_in_flight(patch: pytest.MonkeyPatch) -> None:
    right = PageEvents._rest

    def rest(self: PageEvents, page: Any) -> None:
        page.readers = page.writers = 0
        right(self, page)

    patch.setattr(PageEvents, "_rest", rest)


def does_not_charge_a_hit(patch: pytest.MonkeyPatch) -> None:
    right = PageEvents._share

    def share(self: PageEvents, holder: Any, page: Any, chain: Any, equal: bool) -> Any:
        revived = page.state is CACHED
        outcome = right(self, holder, page, chain, equal)
        if revived and outcome.decision is Decision.GRANTED:
            holder.promised += 1
            self._promised += 1
        return outcome

    patch.setattr(PageEvents, "_share", share)


def publishes_what_failed(patch: pytest.MonkeyPatch) -> None:
    right = PageEvents._settle
    patch.setattr(PageEvents, "_settle", lambda self, page, write, ok, filled: right(self, page, write, True, filled))


def evicts_before_the_leaves(patch: pytest.MonkeyPatch) -> None:
    right = PagePool.evict

    def evict(self: PagePool, page: int) -> Any:
        record = self._page(page)
        kept, record.children = record.children, 0
        reply = right(self, page)
        record.children = kept
        return reply

    patch.setattr(PagePool, "evict", evict)


def promises_what_is_promised(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PageEvents, "_available", lambda self: self._free + self._cached)


def forgets_the_generation(patch: pytest.MonkeyPatch) -> None:
    right = PageEvents._scrub

    def scrub(self: PageEvents, page: Any) -> None:
        right(self, page)
        page.generation = 0

    patch.setattr(PageEvents, "_scrub", scrub)


def publishes_in_a_retired_scope(patch: pytest.MonkeyPatch) -> None:
    right = PageEvents._seal

    def seal(self: PageEvents, holder: Any, page: Any, tokens: Any, parent: Any) -> Any:
        if page.account is None:
            return right(self, holder, page, tokens, parent)
        live, page.account.live = page.account.live, True
        outcome = right(self, holder, page, tokens, parent)
        page.account.live = live
        return outcome

    patch.setattr(PageEvents, "_seal", seal)


def writes_shared_pages(patch: pytest.MonkeyPatch) -> None:
    right = PageEvents._touch_refusal

    def touch_refusal(self: PageEvents, holder: Any, page: Any, write: bool) -> Any:
        return right(self, holder, page, write and page.state is not SHARED)

    patch.setattr(PageEvents, "_touch_refusal", touch_refusal)


@frozen
class Sabotage:
    """A planted error, and what must be named when it is found."""

    name: str
    plant: Plant
    named: str


SABOTAGES = (
    Sabotage("publish before computed", publishes_before_it_is_computed, "NOT_COMPUTED"),
    Sabotage("digest trusted under collision", trusts_the_digest, "MISS"),
    Sabotage("evict a held page", evicts_held_pages, "IN_USE"),
    Sabotage("drop by a stranger", lets_anyone_drop, "NOT_HOLDER"),
    Sabotage("free while a ticket is outstanding", frees_pages_in_flight, ".state"),
    Sabotage("hit on a cached page not charged", does_not_charge_a_hit, "snapshot.promised"),
    Sabotage("failed step published", publishes_what_failed, "NOT_COMPUTED"),
    Sabotage("evict before the leaves", evicts_before_the_leaves, "HAS_CHILDREN"),
    Sabotage("promise what is promised", promises_what_is_promised, "POOL_CAPACITY"),
    Sabotage("generation forgotten", forgets_the_generation, ".generation"),
    Sabotage("publish in a retired scope", publishes_in_a_retired_scope, "RETIRED_SCOPE"),
    Sabotage("write a shared page", writes_shared_pages, "READ_ONLY"),
    *(
        Sabotage(f"scope without {attribute.name}", leaves_out(attribute.name), "snapshot.")
        for attribute in fields(PrefixScope)
    ),
)


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: str(sabotage.name))
def test_a_planted_error_is_found_and_named(sabotage: Sabotage, monkeypatch: pytest.MonkeyPatch) -> None:
    sabotage.plant(monkeypatch)
    result = fuzz("sabotaged", pool_subject(), PROFILES["pr"])
    assert result.verdict == "failed"
    told, _, steps = result.failure.partition("Least steps:")
    assert sabotage.named in told
    assert "specification" in told and "implementation" in told
    assert len([line for line in steps.splitlines() if "->" in line]) <= 12
    assert f"kvescrow fuzz --target sabotaged --seed {result.seed}" in result.failure
