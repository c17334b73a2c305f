"""Which mutants a table has: every small change once, none that is no change (FRM-5)."""

from __future__ import annotations

from collections import Counter

import pytest
from attrs import evolve

from kvescrow.checks.mutate.mutant import Mutant, Operator
from kvescrow.checks.mutate.operators import mutants_of
from kvescrow.spec.language.table import Row, Table, TableError, guards_of
from kvescrow.spec.tables.page import PAGE
from kvescrow.spec.tables.promise import PROMISE
from kvescrow.spec.tables.registry import ALL_TABLES, digest
from kvescrow.spec.tables.scope_reuse import SCOPE_REUSE
from tests.checks.mutate.conftest import mutant


def as_text(row: Row) -> str:
    return " | ".join((*(s.name for s in row.sources), str(row.when), str(row.to), *map(str, row.do), str(row.reply)))


@pytest.mark.parametrize("table", ALL_TABLES, ids=lambda table: table.name)
def test_every_row_is_changed_in_every_way_that_it_has(table: Table) -> None:
    by_row = Counter((one.row.id, one.operator) for one in mutants_of(table))
    for row in table.rows:
        assert by_row[row.id, Operator.ROW_DROPPED] == 1
        assert by_row[row.id, Operator.CONJUNCT_DROPPED] == len(guards_of(row))
        assert by_row[row.id, Operator.CONJUNCT_NEGATED] == len(guards_of(row))
        assert by_row[row.id, Operator.EFFECT_DROPPED] == len(row.do)
        assert by_row[row.id, Operator.SOURCE_DROPPED] == (len(row.sources) if len(row.sources) > 1 else 0)
        assert (by_row[row.id, Operator.TARGET_CHANGED] > 0) is not row.changes_nothing or len(table.state_type) == 1


def test_every_operator_is_used() -> None:
    assert {one.operator for table in ALL_TABLES for one in mutants_of(table)} == set(Operator)


def test_each_mutant_is_another_table_and_has_a_name(promise_mutants: tuple[Mutant, ...]) -> None:
    names = [one.name for one in promise_mutants]
    assert len(names) == len(set(names))
    assert names == [one.name for one in mutants_of(PROMISE)]
    texts = {"\n".join(map(as_text, one.rows)) for one in promise_mutants}
    assert "\n".join(map(as_text, PROMISE.rows)) not in texts
    assert len(texts) == len(promise_mutants)


def test_a_built_mutant_has_another_digest(promise_mutants: tuple[Mutant, ...]) -> None:
    built = 0
    for one in promise_mutants:
        try:
            assert digest([one.build()]) != digest([PROMISE])
        except TableError:
            continue
        built += 1
    assert built > len(promise_mutants) // 2


def test_a_boundary_is_shifted_and_weakened() -> None:
    row = "admit.malformed"
    assert mutant(row, Operator.COMPARISON_WEAKENED).change == "`event.units <= 0` instead of `event.units < 0`"
    assert mutant(row, Operator.COMPARISON_SHIFTED).change == "`event.units < -1` instead of `event.units < 0`"


def test_what_is_added_goes_elsewhere_or_twice() -> None:
    assert mutant("admit.grant", Operator.EFFECT_DOUBLED).change == (
        "`pool.promised := pool.promised + event.units + event.units` "
        "instead of `pool.promised := pool.promised + event.units`"
    )
    assert mutant("admit.grant", Operator.EFFECT_REDIRECTED).change.startswith(
        "`holder.promised := holder.promised + event.units`"
    )


def test_an_alternative_is_dropped_inside_a_guard() -> None:
    alternatives = [one for one in mutants_of(PROMISE) if one.operator is Operator.ALTERNATIVE_DROPPED]
    assert [one.change.partition(" instead")[0] for one in alternatives] == [
        "`holder.pages > 0`",
        "`holder.shares > 0`",
    ]


def test_rows_are_swapped_where_they_share_a_state() -> None:
    swaps = [one for one in mutants_of(PAGE) if one.operator is Operator.ROWS_SWAPPED]
    assert swaps
    for one in swaps:
        places = {row: place for place, row in enumerate(one.rows)}
        (after,) = (row for row in PAGE.rows if one.change == f"read after {row.id}")
        assert places[one.row] == places[after] + 1
        assert set(one.row.sources) & set(after.sources)
        assert one.row.id in one.changed and after.id in one.changed


def test_to_stay_in_the_only_state_is_no_change() -> None:
    """The scope table has one state: to lead into it is to stay."""
    assert not [one for one in mutants_of(SCOPE_REUSE) if one.operator is Operator.TARGET_CHANGED]


def test_a_mutant_that_contradicts_itself_is_refused_with_its_row() -> None:
    one = mutant("admit.malformed", Operator.CONJUNCT_DROPPED)
    with pytest.raises(TableError, match=r"promise\.admit\.never_fits: it can never fire"):
        one.build()
    assert evolve(one, rows=PROMISE.rows).build().rows == PROMISE.rows
