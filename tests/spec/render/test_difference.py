"""The difference of two versions of a table: what it names, and which proofs it says are touched."""

from __future__ import annotations

import json

import pytest
from attrs import evolve

from kvescrow.spec.language.expressions import TRUE
from kvescrow.spec.language.table import Row, Table
from kvescrow.spec.render import table_as_json
from kvescrow.spec.render.difference import TableDifference, difference, read_dump, render_difference
from kvescrow.spec.tables.promise import PROMISE
from kvescrow.spec.tables.registry import ALL_TABLES
from kvescrow.spec.vocabulary import Decision, UserError


def between(old: Table, new: Table) -> TableDifference:
    (found,) = difference(read_dump(table_as_json(old), "old"), read_dump(table_as_json(new), "new"))
    return found


def with_row(name: str, **changes: object) -> Table:
    def changed(row: Row) -> Row:
        return evolve(row, **changes) if row.id == f"promise.{name}" else row

    return evolve(PROMISE, rows=tuple(map(changed, PROMISE.rows)))


def test_a_version_does_not_differ_from_itself() -> None:
    tables = [json.loads(table_as_json(table)) for table in ALL_TABLES]
    assert difference(tables, tables) == ()
    assert render_difference(()) == "the tables are the same"


def test_a_row_that_is_gone_touches_the_rows_after_it() -> None:
    without = evolve(PROMISE, rows=tuple(row for row in PROMISE.rows if row.id != "promise.admit.never_fits"))
    found = between(PROMISE, without)
    assert found.rows_removed == ("promise.admit.never_fits",)
    assert found.rows_added == found.rows_changed == ()
    assert {name.partition(":")[0] for name in found.proofs.gone} == {"promise.admit.never_fits"}
    assert {name.partition(":")[0] for name in found.proofs.again} == {
        "promise.admit.pool_capacity",
        "promise.admit.grant",
    }
    assert between(without, PROMISE).rows_added == found.rows_removed
    assert between(without, PROMISE).proofs.new == found.proofs.gone


def test_a_changed_row_names_each_part_with_both_versions() -> None:
    row = PROMISE.row_by_id["promise.close.released"]
    found = between(PROMISE, with_row("close.released", do=row.do[:1]))
    (change,) = found.rows_changed
    assert change.name == "promise.close.released"
    (part,) = change.parts
    assert part.startswith("effects: holder.state := CLOSED; pool.promised := ")
    assert part.count("holder.promised := 0") == 1
    assert {name.partition(":")[0] for name in found.proofs.again} == {"promise.close.released"}
    assert "  ~ promise.close.released" in render_difference([found]).splitlines()


def test_words_alone_touch_no_proof() -> None:
    found = between(PROMISE, with_row("close.released", note="in other words"))
    assert [change.parts for change in found.rows_changed] == [("note: undrawn units go back once -> in other words",)]
    assert found.proofs.again == found.proofs.new == found.proofs.gone == ()


def test_rows_in_another_order_are_named() -> None:
    rows = list(PROMISE.rows)
    rows[0], rows[1] = rows[1], rows[0]
    found = between(PROMISE, evolve(PROMISE, rows=tuple(rows)))
    assert [(change.name, change.parts) for change in found.rows_changed] == [
        ("promise.admit.malformed", ("read after promise.admit.never_fits",))
    ]
    assert "promise.admit.grant: witness" in found.proofs.again


def test_a_changed_invariant_is_the_ground_of_every_proof() -> None:
    weaker = tuple(
        evolve(each, holds=TRUE) if each.name == "promises_can_be_kept" else each for each in PROMISE.invariants
    )
    found = between(PROMISE, evolve(PROMISE, invariants=weaker))
    assert [change.name for change in found.laws_changed] == ["promises_can_be_kept"]
    assert found.proofs.ground == ("promises_can_be_kept",)
    assert len(found.proofs.again) == len(PROMISE.rows)
    without = between(PROMISE, evolve(PROMISE, invariants=PROMISE.invariants[:1]))
    assert without.laws_removed == ("promises_can_be_kept", "only_the_admitted_hold")
    assert set(without.proofs.ground) == set(without.laws_removed)


def test_a_rule_is_proved_of_the_rows_of_its_events() -> None:
    rule = PROMISE.rules[0]
    found = between(evolve(PROMISE, rules=()), evolve(PROMISE, rules=(evolve(rule, events=frozenset({"close"})),)))
    assert found.laws_added == (rule.name,)
    assert found.proofs.new == tuple(f"{row.id}: {rule.name}" for row in PROMISE.rows if row.event == "close")


def test_a_table_of_one_version_is_all_added_or_all_removed() -> None:
    tables = read_dump(table_as_json(PROMISE), "new")
    (added,) = difference((), tables)
    assert len(added.rows_added) == len(PROMISE.rows)
    (removed,) = difference(tables, ())
    assert removed.rows_removed == added.rows_added
    assert json.loads(json.dumps(removed.to_json()))["table"] == "promise"


def test_a_changed_reply_is_a_changed_row() -> None:
    row = PROMISE.row_by_id["promise.grow.grant"]
    found = between(PROMISE, with_row("grow.grant", reply=evolve(row.reply, decision=Decision.GRANTED)))
    assert found.rows_changed[0].parts == ("decision: EXTENDED -> GRANTED",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "old.json: not JSON"),
        ("3", "old.json: no dump of a table"),
        ('{"name": "page", "rows": []}', "it lacks assumptions, entities"),
        ('[{"name": "page"}]', "old.json: no dump of a table, since it lacks"),
    ],
)
def test_what_is_no_dump_is_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_dump(text, "old.json")
