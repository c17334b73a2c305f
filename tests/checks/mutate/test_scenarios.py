"""Scenarios and recorded runs: what they notice, and that they rest on the tables as they are."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pytest

from kvescrow.checks.mutate.mutant import Operator
from kvescrow.checks.mutate.run import load_vectors
from kvescrow.checks.mutate.runs import DRIVERS, Difference, Run, Seen, fuzzed_runs
from kvescrow.checks.mutate.scenarios import Scenario, Scenarios
from kvescrow.spec.language.table import Table
from kvescrow.spec.tables.registry import ALL_TABLES, TABLE_BY_NAME
from kvescrow.spec.vocabulary import HolderState, PrefixScope, UserError
from kvescrow.spec.world.ledger import Watch
from kvescrow.spec.world.pages import PageWorld
from tests.checks.mutate.conftest import mutant
from tests.conftest import REPOSITORY

FEW = 8


@pytest.fixture(scope="module")
def runs() -> tuple[Run, ...]:
    return tuple(fuzzed_runs(FEW, seed=5))


def test_a_run_repeats_itself_in_any_process(runs: tuple[Run, ...]) -> None:
    """The tables as they are stand for the reference, which agreed with them in every run (FRM-4)."""
    assert len(runs) == FEW * len(DRIVERS)
    for run in runs:
        pickle.loads(pickle.dumps(run)).repeat(TABLE_BY_NAME, None)


def test_the_same_seed_gives_the_same_runs(runs: tuple[Run, ...]) -> None:
    assert tuple(fuzzed_runs(FEW, seed=5)) == runs
    assert tuple(fuzzed_runs(FEW, seed=6)) != runs


def test_a_run_differs_where_a_mutant_does(runs: tuple[Run, ...]) -> None:
    table = mutant("admit.pool_capacity", Operator.ROW_DROPPED).build()
    with pytest.raises(Difference):
        for run in runs:
            run.repeat({**TABLE_BY_NAME, "promise": table}, None)
    found = Scenarios(run.scenario() for run in runs).noticing(table, "admit", [HolderState.ABSENT])
    assert found is not None and found.name.startswith("pages run ")


def test_runs_set_out_for_what_was_not_seen() -> None:
    tables = [TABLE_BY_NAME[name] for name in ("reservation", "account")]
    seen = Seen(tables)
    before = len(seen.errands())
    for run in fuzzed_runs(FEW, seed=5):
        if run.name.startswith("ledger"):
            run.repeat(TABLE_BY_NAME, seen.watch)
    assert 0 < len(seen.errands()) < before
    assert all(entering.row.to in wanted.row.sources for entering, wanted in seen.errands())


def test_a_scenario_that_fails_without_a_mutant_is_refused() -> None:
    def wrong(tables: Mapping[str, Table], watch: Watch | None) -> None:
        raise AssertionError("it says so")

    with pytest.raises(UserError, match=r"scenario wrong fails on the tables as they are .*it says so"):
        Scenarios([Scenario("wrong", wrong)])


def test_only_scenarios_that_show_the_difference_are_run_again() -> None:
    ran: list[str] = []

    def idle(tables: Mapping[str, Table], watch: Watch | None) -> None:
        ran.append("idle")
        PageWorld(3, watch=watch, tables=tables).grow("nobody", 1)

    table = mutant("admit.pool_capacity", Operator.ROW_DROPPED).build()
    assert Scenarios([Scenario("idle", idle)]).noticing(table, "admit", list(HolderState)) is None
    assert ran == ["idle"]


def test_whatever_a_mutants_world_raises_is_noticed() -> None:
    def fragile(tables: Mapping[str, Table], watch: Watch | None) -> None:
        world = PageWorld(3, watch=watch, tables=tables)
        world.admit("one", PrefixScope("tenant"), 1)
        world.admit("two", PrefixScope("tenant"), 9)
        assert world.holders.get("two") is None, "more than the pool has"

    table = mutant("admit.never_fits", Operator.DECISION_CHANGED, 2).build()
    assert table.row_by_id["promise.admit.never_fits"].reply != TABLE_BY_NAME["promise"].rows[1].reply
    scenarios = Scenarios([Scenario("fragile", fragile)])
    assert scenarios.noticing(table, "admit", [HolderState.ABSENT]) is None, "it asks for no reply"
    dropped = mutant("admit.grant", Operator.TARGET_CHANGED, 1).build()
    assert scenarios.noticing(dropped, "admit", [HolderState.CLOSED]) is None, "that state was not shown"


def test_the_checkouts_vectors_touch_every_table() -> None:
    touched: set[str] = set()

    def watch(table: str, view: object, event: str, parameters: object) -> None:
        touched.add(table)

    vectors = list(load_vectors("tests.vectors:vectors", REPOSITORY))
    assert len({vector.name for vector in vectors}) == len(vectors)
    for vector in vectors:
        vector.run(TABLE_BY_NAME, watch)
    assert touched == {table.name for table in ALL_TABLES}


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("tests.vectors", "give package.module:factory"),
        ("tests.no_such_module:vectors", "cannot be loaded"),
        ("tests.vectors:no_such_function", "cannot be loaded"),
    ],
)
def test_vectors_that_cannot_be_had_are_named(place: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        load_vectors(place, REPOSITORY)
