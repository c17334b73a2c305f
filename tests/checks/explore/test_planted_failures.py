"""Errors planted in tables and instances: each is caught by the guard that is meant for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from kvescrow.checks.explore import EngineName, coverage, explore, instance_called
from kvescrow.checks.explore.instance import Instance, Place, integers
from kvescrow.checks.explore.instances.pages import Pool, page_pool
from kvescrow.checks.explore.packing import PackedOverflow
from kvescrow.checks.explore.scenario import replay_scenario, write_scenario
from kvescrow.spec.language.expressions import Expression
from kvescrow.spec.language.table import Table
from kvescrow.spec.tables.execution import EXECUTION, TICKET
from kvescrow.spec.tables.page import PAGE
from kvescrow.spec.tables.promise import PROMISE, holder
from kvescrow.spec.tables.promise import event as promise_event
from kvescrow.spec.tables.reservation import RESERVATION
from kvescrow.spec.vocabulary import UserError


def changed(table: Table, row_id: str, **changes: object) -> Table:
    assert row_id in table.row_by_id
    return evolve(table, rows=tuple(evolve(row, **changes) if row.id == row_id else row for row in table.rows))


def without_effect(table: Table, row_id: str, field: str) -> Table:
    row = table.row_by_id[row_id]
    kept = tuple(effect for effect in row.do if str(effect.target) != field)
    assert len(kept) == len(row.do) - 1
    return changed(table, row_id, do=kept)


def with_place(instance: Instance, name: str, **changes: object) -> Instance:
    def swapped(place: Place) -> Place:
        return evolve(place, **changes) if place.name == name else place

    return evolve(instance, places=tuple(swapped(place) for place in instance.places))


# --- coverage: what never happens -------------------------------------------------------------------------------------


def test_a_dead_row_is_found() -> None:
    close = PROMISE.row_by_id["promise.close.released"]
    dead = evolve(close, id="promise.close.dead", when=holder.promised < 0)
    at = PROMISE.rows.index(close)
    table = evolve(PROMISE, rows=(*PROMISE.rows[:at], dead, *PROMISE.rows[at:]))
    found = explore(instance_called("promises").with_table(table))
    assert found.unfired == ("promise.close.dead",)
    assert any("promise.close.dead never fired" in problem for problem in coverage([found], [table]).problems)


def test_a_guard_that_is_always_true_is_found_by_the_rows_that_it_starves() -> None:
    always: Expression = (promise_event.units < 0) | (promise_event.units >= 0)
    table = changed(PROMISE, "promise.admit.never_fits", when=always)
    problems = coverage([explore(instance_called("promises").with_table(table))], [table]).problems
    assert any("promise.admit.grant never fired" in problem for problem in problems)
    assert any("promise.a_holder_is_admitted was never reached" in problem for problem in problems)


def test_a_row_on_the_list_that_fires_after_all_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvescrow.checks.explore.catalogue.UNFIRED", {"promise.admit.grant": "planted"})
    found = explore(instance_called("promises"))
    assert coverage([found], [PROMISE]).outlived == ("promise.admit.grant",)


# --- instances that are none ------------------------------------------------------------------------------------------


def test_an_empty_instance_is_refused() -> None:
    instance = instance_called("account")
    with pytest.raises(ValueError, match="instance account: nothing can happen in it"):
        evolve(instance, moves=())
    with pytest.raises(ValueError, match="instance account: nothing is observed in it"):
        evolve(instance, observed=())


def test_a_place_that_does_not_exist_is_refused() -> None:
    instance = instance_called("account")
    bad = evolve(instance.moves[0], binds={**instance.moves[0].binds, "pool": "pond"})
    with pytest.raises(ValueError, match="no place is called pond"):
        evolve(instance, moves=(bad,))


# --- fields that overflow ---------------------------------------------------------------------------------------------


def test_a_field_that_leaves_its_domain_is_named_with_a_shortest_way() -> None:
    narrow = {"active": integers(0, 1)}
    instance = with_place(instance_called("lifecycle-xs"), "pool", kept=narrow)
    packed, oracle = (explore(instance, engine) for engine in (EngineName.PACKED, EngineName.INTERPRETER))
    assert packed.breach is not None and oracle.breach is not None
    assert (packed.breach.what, packed.breach.law) == ("domain", "pool.active = 2")
    assert len(packed.breach.scenario) == len(oracle.breach.scenario) == 2


def test_a_place_with_more_records_than_bits_is_named() -> None:
    crowded = page_pool("crowded", Pool(pages=4, holders=(1, 1, 2), scope_limit=1, chained=False), "planted")
    unseen = evolve(crowded, observed=crowded.observed[-3:])
    with pytest.raises(PackedOverflow, match=r"has more than 32 records"):
        explore(unseen)


def test_too_many_places_for_a_state_are_refused() -> None:
    with pytest.raises(UserError, match="do not fit the 63 bits"):
        explore(page_pool("huge", Pool(pages=6, holders=(1, 1, 2, 2), scope_limit=1), "planted"))


# --- laws that break --------------------------------------------------------------------------------------------------

FORGETFUL = without_effect(RESERVATION, "reservation.finish.completed", "tenant.active")


def test_a_counter_that_a_row_forgets_is_found_at_least_depth_and_replayed(tmp_path: Path) -> None:
    instance = instance_called("lifecycle-xs").with_table(FORGETFUL)
    packed, oracle = (explore(instance, engine) for engine in (EngineName.PACKED, EngineName.INTERPRETER))
    assert packed.breach is not None and oracle.breach is not None
    assert packed.breach.law == oracle.breach.law == "reservation.tenant_active_is_the_sum"
    assert [step.row.split(".")[1] for step in packed.breach.scenario] == ["reserve", "start", "finish"]
    assert packed.breach.scenario[-1].row == "reservation.finish.completed"
    path = tmp_path / "breach.json"
    write_scenario(instance, packed.breach, path)
    assert replay_scenario(path, instance).violated
    assert not replay_scenario(path, instance_called("lifecycle-xs")).violated


@pytest.mark.parametrize("engine", [EngineName.DENSE, EngineName.BDD])
def test_counters_that_do_not_follow_from_the_slots_are_refused_with_the_row(engine: EngineName) -> None:
    from kvescrow.checks.explore.bdd import installed

    if engine is EngineName.BDD and not installed():
        engine = EngineName.DENSE
    instance = instance_called("lifecycle-xs").with_table(FORGETFUL)
    with pytest.raises(UserError, match=r"row reservation\.finish\.completed adds 0 to tenant 0\.active"):
        explore(instance, engine)


def test_a_missing_limit_is_found_as_a_broken_rule() -> None:
    never: Expression = RESERVATION.row_by_id["reservation.reserve.malformed"].when
    table = RESERVATION
    for name in ("pool_capacity", "pool_capacity_queue_full", "pool_capacity_queued"):
        table = changed(table, f"reservation.reserve.{name}", when=never)
    small = with_place(instance_called("lifecycle-s"), "pool", kept={"active": integers(0, 4)})
    found = explore(small.with_table(table))
    assert found.breach is not None
    assert (found.breach.what, found.breach.law) == ("rule", "reservation.grants_respect_the_pool_limit")
    # Three of the four units of the planted pool are taken by a limit that holds, the last by one that does not.
    assert len(found.breach.scenario) == 5


def test_content_of_a_freed_page_is_found_as_a_broken_invariant() -> None:
    table = without_effect(PAGE, "page.drop.private_free", "page.computed")
    found = explore(instance_called("pages-limit").with_table(table))
    assert found.breach is not None
    assert found.breach.law == "page.free_pages_are_blank"


# --- what holds between the tables ------------------------------------------------------------------------------------


def test_a_receipt_issued_in_flight_is_found_on_the_pages() -> None:
    row = EXECUTION.row_by_id["execution.certify.in_flight"]
    table = changed(EXECUTION, row.id, when=row.when & ~row.when)
    laws = tuple(invariant for invariant in table.invariants if invariant.name != "stopped_means_stopped")
    blind = evolve(table, rules=(), invariants=laws)
    tickets = evolve(TICKET, invariants=())
    found = explore(instance_called("composition").with_table(blind).with_table(tickets))
    assert found.breach is not None
    assert found.breach.law == "composition.certified_work_touches_no_page"
    assert found.breach.scenario[-1].row == "execution.certify.issued"


def test_a_receipt_believed_unseen_is_found_on_the_pages() -> None:
    instance = instance_called("composition")
    moves = tuple(
        evolve(move, parameters={**move.parameters, "authentic": True}) if move.event == "finish" else move
        for move in instance.moves
    )
    found = explore(evolve(instance, moves=moves))
    assert found.breach is not None
    assert found.breach.law == "composition.released_work_touches_no_page"
    assert found.breach.scenario[-1].row.startswith("reservation.finish.")
