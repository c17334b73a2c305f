"""What a driver aims at is what the rows see, and boundaries are where comparisons tip over."""

from __future__ import annotations

import pytest

from kvescrow.checks.fuzz.compiled import condition
from kvescrow.checks.fuzz.ledger import KEYS
from kvescrow.spec.language.expressions import Field, Kind
from kvescrow.spec.language.interpreter import Record, View
from kvescrow.spec.tables.reservation.view import pool
from kvescrow.spec.vocabulary import Key, LedgerEvent, Reserve, SetTenantLimit, Start, Tick
from kvescrow.spec.world.ledger import LedgerWorld, TenantTerms

A = KEYS[0]
MOVES: list[LedgerEvent] = [
    Reserve(A, 2, "d", 1000, 0, 5, 5),
    Reserve(KEYS[1], 2, "d", 1000, 0, 5, 5),
    Reserve(KEYS[2], 2, "d", 1000, 0, 5, 5),
    Start(A, 1, "w", 5),
    SetTenantLimit("a", 1),
    Tick(3),
]


ANYTHING: Record = {"authorised": True, "life": 1, "lease": 5, "limit": 1, "budget": 1}
"""Parameters of all these events."""


def _view(world: LedgerWorld, event: str, key: Key | None) -> dict[str, Record]:
    return {entity: dict(record) for entity, record in world.view(event, key).items()}


@pytest.mark.parametrize("done", range(len(MOVES) + 1))
def test_a_view_is_what_the_rows_are_shown(done: int) -> None:
    shown: list[View] = []

    def watch(table: str, view: View, event: str, parameters: Record) -> None:
        shown.append({entity: dict(record) for entity, record in view.items()})

    world = LedgerWorld(4, {name: TenantTerms(3, 100, 2) for name in "ab"}, 5, watch)
    for event in MOVES[:done]:
        world.apply(event)
    asked = [("cancel", key) for key in KEYS] + [("promote", key) for key in KEYS]
    asked += [("set_tenant_limit", Key("a", "")), ("set_budget", Key("nobody", ""))]
    before = world.snapshot()
    seen = [_view(world, event, key) for event, key in asked]
    assert world.snapshot() == before
    for (event, key), view in zip(asked, seen, strict=True):
        untouched = LedgerWorld(4, {name: TenantTerms(3, 100, 2) for name in "ab"}, 5, watch)
        for move in MOVES[:done]:
            untouched.apply(move)
        untouched.apply_named(event, key, ANYTHING)
        assert shown[-1] == view


def test_a_comparison_tips_over_at_its_boundary() -> None:
    amount = Field("event", "amount", Kind.INTEGER)
    fits = condition(pool.active + amount <= pool.limit)
    view, event = {"pool": {"active": 3, "limit": 9}}, {"amount": 100}
    found = {tip.varied: tip.values(view, event) for tip in fits.tippings}
    assert found == {
        ("event", "amount"): (6, 7, 5, 8, 4),
        ("pool", "active"): (-91, -90, -92, -89, -93),
        ("pool", "limit"): (103, 104, 102, 105, 101),
    }
    assert (view["pool"], event) == ({"active": 3, "limit": 9}, {"amount": 100})
    assert [fits.holds(view, {"amount": value}) for value in (6, 7)] == [True, False]


def test_equal_comparisons_share_their_boundaries() -> None:
    one, other = condition(pool.active <= pool.limit), condition(pool.active <= pool.limit)
    assert all(a is b for a, b in zip(one.tippings, other.tippings, strict=True))
