"""What becomes of a mutant: each fate by a planted change that must have it (FRM-5)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pytest
from attrs import evolve

from kvescrow.checks.mutate import judge as judging
from kvescrow.checks.mutate.mutant import Operator
from kvescrow.checks.mutate.scenarios import Scenario, Scenarios
from kvescrow.checks.mutate.search import LONG, QUICK, Searches
from kvescrow.checks.mutate.verdicts import Fate, Layer
from kvescrow.spec.language.table import Table
from kvescrow.spec.tables.promise import PROMISE
from kvescrow.spec.tables.registry import TABLE_BY_NAME
from kvescrow.spec.tables.reservation import RESERVATION
from kvescrow.spec.vocabulary import Decision, PrefixScope
from kvescrow.spec.world.ledger import Watch
from kvescrow.spec.world.pages import PageWorld
from tests.checks.mutate.conftest import judged, mutant

SCOPE = PrefixScope("tenant")


def two_holders(tables: Mapping[str, Table], watch: Watch | None) -> None:
    """Two holders of a pool of three pages: the second finds one unit too few."""
    world = PageWorld(4, watch=watch, tables=tables)
    assert world.admit("one", SCOPE, 2).decision is Decision.GRANTED
    assert world.admit("two", SCOPE, 2).decision is Decision.REFUSED
    assert world.close("one").decision is Decision.RELEASED


def scenarios() -> dict[Layer, Scenarios]:
    return {Layer.VECTORS: Scenarios([Scenario("two holders", two_holders)])}


def test_a_table_that_contradicts_itself_is_killed_at_import() -> None:
    found = judged(mutant("admit.grant", Operator.ROW_DROPPED))
    assert found.fate is Fate.KILLED
    assert list(found.killers) == [Layer.IMPORT] or Layer.PROVE in found.killers


def test_a_dropped_check_is_refuted_and_shown() -> None:
    found = judged(mutant("admit.pool_capacity", Operator.ROW_DROPPED))
    assert found.fate is Fate.KILLED
    assert found.killers == {Layer.PROVE: "promise.admit.grant: promises_can_be_kept is refuted"}
    assert found.behaviour.startswith("admit(units=")
    assert "REFUSED POOL_CAPACITY becomes GRANTED (" in found.behaviour
    assert found.change == "the row is gone"


def test_every_layer_that_notices_is_named() -> None:
    found = judged(mutant("admit.pool_capacity", Operator.ROW_DROPPED), scenarios())
    assert found.killers[Layer.VECTORS] == "two holders"
    assert set(found.killers) == {Layer.PROVE, Layer.VECTORS}


def test_what_makes_no_difference_is_equivalent() -> None:
    """Nothing negative is more than the pool has, so the two checks cannot meet."""
    found = judged(mutant("grow.malformed", Operator.ROWS_SWAPPED), scenarios())
    assert found.fate is Fate.EQUIVALENT
    assert found.killers == {}
    assert found.behaviour == ""


def test_a_reply_that_no_scenario_asks_for_survives_with_its_behaviour() -> None:
    found = judged(mutant("close.recorded", Operator.REASON_CHANGED), scenarios())
    assert found.fate is Fate.SURVIVOR
    assert found.killers == {}
    assert "RECORDED becomes RECORDED " in found.behaviour
    assert found.to_json()["fate"] == "survivor"


def test_giving_up_is_no_kill() -> None:
    found = judged(mutant("admit.pool_capacity", Operator.ROW_DROPPED), effort=1)
    assert found.fate is Fate.INCONCLUSIVE
    assert found.killers == {}
    assert "comparing it with the original" in found.gave_up
    assert any(what.startswith("proving ") for what in found.gave_up)


def test_running_out_of_time_is_no_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(tables: Mapping[str, Table], watch: Watch | None) -> None:
        two_holders(tables, watch)
        while tables["promise"] is not PROMISE:
            time.sleep(0.01)

    monkeypatch.setattr(judging, "PATIENCE", 1)
    slow = {Layer.VECTORS: Scenarios([Scenario("endless", endless)])}
    found = judged(mutant("close.released", Operator.REASON_CHANGED), slow)
    assert found.fate is Fate.INCONCLUSIVE
    assert found.gave_up == ("it took more than 1 s",)


def test_a_change_in_one_state_is_proved_of_the_rows_after_it() -> None:
    """Without its refusal in the terminal states, a forged stop would be told from another."""
    states = RESERVATION.row_by_id["reservation.finish.forged"].sources
    number = 1 + [state.name for state in states].index("RUNNING")
    found = judged(mutant("finish.forged", Operator.SOURCE_DROPPED, number, RESERVATION))
    assert found.fate is Fate.KILLED
    assert "not in RUNNING" in found.change
    assert Layer.PROVE in found.killers


def test_the_originals_are_left_as_they_were() -> None:
    before = dict(TABLE_BY_NAME)
    judged(mutant("admit.pool_capacity", Operator.ROW_DROPPED), scenarios())
    assert dict(TABLE_BY_NAME) == before
    two_holders(TABLE_BY_NAME, None)


@pytest.mark.parametrize(
    ("row", "operator", "evidence"),
    [
        ("admit.never_fits", Operator.ROW_DROPPED, "promises: row promise.admit.never_fits never fires"),
        ("admit.pool_capacity", Operator.COMPARISON_WEAKENED, "promises: moves are "),
    ],
)
def test_the_search_notices_what_the_proofs_do_not(row: str, operator: Operator, evidence: str) -> None:
    found = judged(mutant(row, operator), searches=Searches())
    assert list(found.killers) == [Layer.EXPLORE]
    assert found.killers[Layer.EXPLORE].startswith(evidence)


def test_a_law_that_breaks_in_the_search_is_named() -> None:
    row = PROMISE.row_by_id["promise.close.released"]
    forgetful = evolve(row, do=tuple(effect for effect in row.do if str(effect.target) != "pool.promised"))
    table = evolve(PROMISE, rows=tuple(forgetful if each is row else each for each in PROMISE.rows))
    assert Searches().noticing(table, QUICK) == "promises: promise.promised_is_the_sum is broken"
    assert Searches().noticing(PROMISE, (*QUICK, *LONG)) == ""


def test_the_search_is_not_asked_where_the_proofs_notice_or_a_reply_changes() -> None:
    asked: list[Table] = []

    class Watched(Searches):
        def noticing(self, mutant: Table, names: Sequence[str]) -> str:
            asked.append(mutant)
            return "planted"

    proved = judged(mutant("admit.pool_capacity", Operator.ROW_DROPPED), searches=Watched())
    told = judged(mutant("close.recorded", Operator.REASON_CHANGED), searches=Watched())
    assert (list(proved.killers), dict(told.killers), asked) == ([Layer.PROVE], {}, [])


def test_long_searches_are_asked_last_and_only_where_nothing_else_notices() -> None:
    asked: list[Sequence[str]] = []

    class Watched(Searches):
        def noticing(self, mutant: Table, names: Sequence[str]) -> str:
            asked.append(names)
            return "planted" if names is LONG else ""

    def fits(tables: Mapping[str, Table], watch: Watch | None) -> None:
        assert PageWorld(4, watch=watch, tables=tables).admit("one", SCOPE, 3).decision is Decision.GRANTED

    one = mutant("admit.pool_capacity", Operator.COMPARISON_WEAKENED)
    unseen = judged(one, searches=Watched())
    assert (unseen.killers, asked) == ({Layer.EXPLORE: "planted"}, [QUICK, LONG])
    asked.clear()
    seen = judged(one, {Layer.VECTORS: Scenarios([Scenario("fits", fits)])}, searches=Watched())
    assert (seen.killers, asked) == ({Layer.VECTORS: "fits"}, [QUICK])
