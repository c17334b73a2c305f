"""A table as JSON, for readers in other languages. Every expression is given as text and as a tree."""

import json
from collections.abc import Iterable, Mapping
from enum import Enum

from kvescrow.spec.language.expressions import (
    Before,
    Binary,
    Effect,
    Entity,
    Expression,
    Field,
    IfElse,
    Literal,
    Not,
    Type,
    type_name,
)
from kvescrow.spec.language.table import NonInterference, Row, Table, effects_of

Json = dict[str, object]


def table_as_json(table: Table) -> str:
    """Return everything that `table` says, as one JSON object; equal tables give equal text."""
    return json.dumps(_table(table), indent=1, ensure_ascii=False)


def _table(table: Table) -> Json:
    return {
        "name": table.name,
        "note": table.note,
        "moves": table.moves.name,
        "states": [state.name for state in table.state_type],
        "entities": [_entity(entity) for entity in table.entities],
        "events": [
            {"name": event.name, "parameters": _types(event.parameters), "note": event.note} for event in table.events
        ],
        "rows": [_row(table, row) for row in table.rows],
        "initial": _expression(table.initial),
        "invariants": [
            {"name": each.name, "holds": _expression(each.holds), "cites": list(each.cites), "note": each.note}
            for each in table.invariants
        ],
        "step_rules": [
            {
                "name": each.name,
                "holds": _expression(each.holds),
                "events": _limited(each.events),
                "cites": list(each.cites),
                "note": each.note,
            }
            for each in table.rules
        ],
        "non_interference": [_promise(each) for each in table.non_interference],
        "assumptions": [
            {
                "name": each.name,
                "holds": _expression(each.holds),
                "events": _limited(each.events),
                "note": each.note,
            }
            for each in table.assumptions
        ],
        "sometimes": [
            {"name": each.name, "reached": _expression(each.reached), "note": each.note} for each in table.sometimes
        ],
        "ghosts": [
            {"target": str(each.target), "update": _expression(each.update), "note": each.note} for each in table.ghosts
        ],
    }


def _entity(entity: Entity) -> Json:
    return {
        "name": entity.name,
        "fields": _types(entity.fields),
        "read_only": entity.settled,
        "note": entity.note,
    }


def _types(fields: Mapping[str, Type]) -> Json:
    return {name: type_name(kind) for name, kind in fields.items()}


def _row(table: Table, row: Row) -> Json:
    return {
        "id": row.id,
        "event": row.event,
        "sources": [state.name for state in row.sources],
        "when": _expression(row.when),
        "to": row.to.name if row.to else None,
        "effects": [_effect(effect) for effect in effects_of(table, row)],
        "decision": row.reply.decision.value,
        "reason": row.reply.reason.value,
        "cites": list(row.cites),
        "note": row.note,
    }


def _effect(effect: Effect) -> Json:
    return {"target": str(effect.target), "value": _expression(effect.value)}


def _promise(promise: NonInterference) -> Json:
    return {
        "name": promise.name,
        "event": promise.event,
        "same": [_expression(each) for each in promise.same],
        "same_when": [
            {"when": _expression(when), "same": [_expression(each) for each in same]}
            for when, same in promise.same_when
        ],
        "cites": list(promise.cites),
        "note": promise.note,
    }


def _limited(events: Iterable[str] | None) -> list[str] | None:
    return None if events is None else sorted(events)


def _expression(expression: Expression) -> Json:
    return {"text": str(expression), "tree": _tree(expression)}


def _tree(expression: Expression) -> object:
    match expression:
        case Literal(Enum() as member):
            return {"enum": type(member).__name__, "member": member.name}
        case Literal(value):
            return value
        case Field(entity, name):
            return {"field": f"{entity}.{name}"}
        case Before(inner):
            return {"before": str(inner)}
        case Not(operand):
            return {"not": _tree(operand)}
        case IfElse(condition, yes, no):
            return {"if": _tree(condition), "then": _tree(yes), "else": _tree(no)}
        case Binary(operator, left, right):
            return {operator: [_tree(left), _tree(right)]}
    raise ValueError(f"unknown node {expression!r}")
