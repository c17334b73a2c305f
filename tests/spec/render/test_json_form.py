"""A table as JSON loses nothing: every row can be built again from it."""

from __future__ import annotations

import json
from enum import Enum
from typing import Any

import pytest

from kvescrow.spec.language.expressions import Before, Binary, Expression, Field, IfElse, Literal, Not
from kvescrow.spec.language.table import Table, effects_of
from kvescrow.spec.render import table_as_json, vocabulary_enums
from kvescrow.spec.tables.registry import ALL_TABLES

ENUMS: dict[str, type[Enum]] = {enum.__name__: enum for enum in vocabulary_enums(ALL_TABLES)}


def rebuilt(tree: Any) -> Expression:
    match tree:
        case bool() | int():
            return Literal(tree)
        case {"enum": enum, "member": member}:
            return Literal(ENUMS[enum][member])
        case {"field": path}:
            return Field(*path.split("."), None)
        case {"before": path}:
            return Before(Field(*path.split("."), None))
        case {"not": operand}:
            return Not(rebuilt(operand))
        case {"if": condition, "then": yes, "else": no}:
            return IfElse(rebuilt(condition), rebuilt(yes), rebuilt(no))
        case dict() if len(tree) == 1:
            (operator, (left, right)), *_ = tree.items()
            return Binary(operator, rebuilt(left), rebuilt(right))
    raise AssertionError(tree)


def expressions(value: Any) -> list[Any]:
    """Every {"text", "tree"} pair below `value`."""
    match value:
        case {"text": _, "tree": _}:
            return [value]
        case dict():
            return [each for part in value.values() for each in expressions(part)]
        case list():
            return [each for part in value for each in expressions(part)]
        case _:
            return []


@pytest.mark.parametrize("table", ALL_TABLES, ids=lambda table: table.name)
def test_trees_and_texts_agree(table: Table) -> None:
    pairs = expressions(json.loads(table_as_json(table)))
    assert len(pairs) > len(table.rows)
    assert all(str(rebuilt(pair["tree"])) == pair["text"] for pair in pairs)


@pytest.mark.parametrize("table", ALL_TABLES, ids=lambda table: table.name)
def test_every_part_of_the_table_is_there(table: Table) -> None:
    form = json.loads(table_as_json(table))
    assert form["states"] == [state.name for state in table.state_type]
    assert [
        (row["id"], row["sources"], row["when"]["text"], row["to"], row["decision"], row["reason"], tuple(row["cites"]))
        for row in form["rows"]
    ] == [
        (
            row.id,
            [state.name for state in row.sources],
            str(row.when),
            row.to and row.to.name,
            row.reply.decision.value,
            row.reply.reason.value,
            row.cites,
        )
        for row in table.rows
    ]
    assert [[f"{e['target']} := {e['value']['text']}" for e in row["effects"]] for row in form["rows"]] == [
        [str(effect) for effect in effects_of(table, row)] for row in table.rows
    ]
    counts = {
        "invariants": table.invariants,
        "step_rules": table.rules,
        "non_interference": table.non_interference,
        "assumptions": table.assumptions,
        "sometimes": table.sometimes,
        "ghosts": table.ghosts,
        "entities": table.entities,
        "events": table.events,
    }
    assert {name: len(form[name]) for name in counts} == {name: len(part) for name, part in counts.items()}
