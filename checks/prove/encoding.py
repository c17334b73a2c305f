"""Expressions as Z3 terms, and Z3 models as views.

Integers and names are Z3 integers, since a name is only ever compared for equality. An enum member is its position
in its enum, with the symbol's range asserted; on these tables that is as fast as Z3's enumeration sorts.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import cast

import z3  # type: ignore[import-untyped]
from attrs import field, frozen

from kvescrow.spec.language.expressions import (
    Before,
    Binary,
    Expression,
    Field,
    IfElse,
    Kind,
    Literal,
    Not,
    Type,
)
from kvescrow.spec.language.interpreter import Record, Value

Path = tuple[str, str]
Symbols = Mapping[Path, z3.ExprRef]
Types = Mapping[Path, Type]

SMALL = 16
"""Counterexamples are first sought with every integer from 0 to here, so that a reader can add them up."""


@frozen(eq=False)
class Encoder:
    """Makes terms in one Z3 context, so that nothing that was proved before can influence a model."""

    context: z3.Context = field(factory=z3.Context)

    def constant(self, value: int | bool | Enum) -> z3.ExprRef:
        """Return the term for a literal."""
        if isinstance(value, Enum):
            return z3.IntVal(list(type(value)).index(value), self.context)
        if isinstance(value, bool):
            return z3.BoolVal(value, self.context)
        return z3.IntVal(value, self.context)

    def symbols(self, types: Types, suffix: str = "") -> dict[Path, z3.ExprRef]:
        """Return one free symbol for each field; `suffix` keeps two runs apart."""
        return {path: self._symbol(f"{path[0]}.{path[1]}{suffix}", kind) for path, kind in types.items()}

    def _symbol(self, name: str, kind: Type) -> z3.ExprRef:
        return z3.Bool(name, self.context) if kind is Kind.BOOLEAN else z3.Int(name, self.context)

    def domains(self, types: Types, symbols: Symbols) -> list[z3.BoolRef]:
        """Return the range of every enum symbol."""
        return [
            z3.And(symbols[path] >= 0, symbols[path] < len(kind))
            for path, kind in types.items()
            if isinstance(kind, type)
        ]

    def small(self, types: Types, symbols: Symbols) -> list[z3.BoolRef]:
        """Return the wish that every integer and name be small."""
        return [
            z3.And(symbols[path] >= 0, symbols[path] <= SMALL)
            for path, kind in types.items()
            if kind in {Kind.INTEGER, Kind.NAME}
        ]

    def term(self, expression: Expression, now: Symbols, old: Symbols | None = None) -> z3.ExprRef:
        """Return the term for `expression` over `now`; `before(...)` reads `old`."""
        match expression:
            case Literal(value):
                return self.constant(value)
            case Field():
                return now[expression.path]
            case Before(inner) if old is not None:
                return old[inner.path]
            case Not(operand):
                return z3.Not(self.term(operand, now, old))
            case IfElse(condition, yes, no):
                return z3.If(*(self.term(part, now, old) for part in (condition, yes, no)))
            case Binary(operator, left, right):
                return _binary(operator, self.term(left, now, old), self.term(right, now, old))
        raise ValueError(f"`{expression}` has no term: it reads an older state")


def _binary(operator: str, left: z3.ExprRef, right: z3.ExprRef) -> z3.ExprRef:
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "<":
            return left < right
        case "<=":
            return left <= right
        case "==":
            return left == right
        case "and":
            return z3.And(left, right)
        case "or":
            return z3.Or(left, right)
    raise ValueError(f"unknown operator {operator}")


def value_of(term: z3.ExprRef, kind: Type, model: z3.ModelRef) -> Value:
    """Return the plain value of `term` in `model`; what the model leaves open gets a default."""
    found = model.eval(term, model_completion=True)
    if kind is Kind.BOOLEAN:
        return bool(z3.is_true(found))
    number = cast(int, found.as_long())
    return list(kind)[number] if isinstance(kind, type) else number


def record_of(entity: str, types: Types, symbols: Symbols, model: z3.ModelRef) -> Record:
    """Return the values of one entity's fields in `model`."""
    return {path[1]: value_of(symbols[path], kind, model) for path, kind in types.items() if path[0] == entity}


def view_of(entities: Iterable[str], types: Types, symbols: Symbols, model: z3.ModelRef) -> dict[str, Record]:
    """Return the view that `model` describes."""
    return {entity: record_of(entity, types, symbols, model) for entity in entities}
