"""Expressions with everything that is known filled in: constants folded, sums cancelled, and the rest as Python.

`pool.active - bound <= pool.active` becomes `0 <= bound`: what a law does not depend on disappears, so that it need
not be told apart.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import cast

from kvescrow.spec.language.expressions import (
    TRUE,
    Before,
    Binary,
    Expression,
    Field,
    IfElse,
    Literal,
    Not,
)
from kvescrow.spec.language.interpreter import Value

Read = Callable[[int], Value]
"""Returns the value of one of the numbered fields of an expression."""
Folded = Callable[[Read], Value]

Meaning = Callable[[Field, bool], Expression]
"""What a field stands for; the flag says whether it is read as it was before the step."""


def literal(value: Value) -> Literal:
    """Return any value as a literal, names included."""
    return Literal(cast(int, value))


def fold(expression: Expression, meaning: Meaning, *, old: bool = False) -> Expression:
    """Return `expression` with `meaning` filled in and everything computed that can be."""
    match expression:
        case Literal():
            return expression
        case Field():
            return meaning(expression, old)
        case Before(field):
            return meaning(field, True)
        case Not(operand):
            return _not(fold(operand, meaning, old=old))
        case IfElse(condition, yes, no):
            test = fold(condition, meaning, old=old)
            if isinstance(test, Literal):
                return fold(yes if test.value else no, meaning, old=old)
            return _if_else(test, fold(yes, meaning, old=old), fold(no, meaning, old=old))
        case Binary("and" | "or" as operator, left, right):
            first = fold(left, meaning, old=old)
            if isinstance(first, Literal):
                settles = bool(first.value) is (operator == "or")
                return first if settles else fold(right, meaning, old=old)
            return _joined(operator, first, fold(right, meaning, old=old))
        case Binary(operator, left, right):
            return _computed(operator, fold(left, meaning, old=old), fold(right, meaning, old=old))
    raise ValueError(f"unknown node {expression!r}")


def _not(operand: Expression) -> Expression:
    if isinstance(operand, Literal):
        return literal(not operand.value)
    return operand.operand if isinstance(operand, Not) else Not(operand)


def _if_else(test: Expression, yes: Expression, no: Expression) -> Expression:
    return yes if same(yes, no) else IfElse(test, yes, no)


def _joined(operator: str, left: Expression, right: Expression) -> Expression:
    if isinstance(right, Literal):
        settles = bool(right.value) is (operator == "or")
        return right if settles else left
    return left if same(left, right) else Binary(operator, left, right)


def _computed(operator: str, left: Expression, right: Expression) -> Expression:
    if operator in ("+", "-"):
        return _rebuilt(_linear(Binary(operator, left, right)))
    if operator == "==":
        if same(left, right):
            return TRUE
        if isinstance(left, Literal) and isinstance(right, Literal):
            return literal(left.value == right.value)
        if not (_is_sum(left) or _is_sum(right)):
            return Binary(operator, left, right)
    difference = _linear(Binary("-", left, right))
    if not difference.terms:
        number = difference.constant
        return literal({"<": number < 0, "<=": number <= 0, "==": number == 0}[operator])
    return Binary(operator, *_sides(difference))


class _Linear:
    """A sum of terms with coefficients, and a constant."""

    def __init__(self) -> None:
        self.constant = 0
        self.terms: list[tuple[Expression, int]] = []

    def add(self, term: Expression, times: int) -> None:
        for place, (known, coefficient) in enumerate(self.terms):
            if same(known, term):
                if coefficient + times:
                    self.terms[place] = (known, coefficient + times)
                else:
                    del self.terms[place]
                return
        self.terms.append((term, times))


def _is_sum(expression: Expression) -> bool:
    return isinstance(expression, Binary) and expression.operator in ("+", "-")


def _linear(expression: Expression) -> _Linear:
    total = _Linear()
    waiting = [(expression, 1)]
    while waiting:
        part, times = waiting.pop()
        match part:
            case Literal(value):
                total.constant += times * cast(int, value)
            case Binary("+", left, right):
                waiting += [(right, times), (left, times)]
            case Binary("-", left, right):
                waiting += [(right, -times), (left, times)]
            case _:
                total.add(part, times)
    return total


def _rebuilt(total: _Linear) -> Expression:
    positive, negative = _sides(total)
    if isinstance(negative, Literal) and negative.value == 0:
        return positive
    return Binary("-", positive, negative)


def _sides(total: _Linear) -> tuple[Expression, Expression]:
    """Return (what is added, what is taken away), each without a minus."""
    sides: tuple[list[Expression], list[Expression]] = ([], [])
    for term, times in total.terms:
        sides[times < 0].extend([term] * abs(times))
    if total.constant:
        sides[total.constant < 0].append(literal(abs(total.constant)))
    return _summed(sides[0]), _summed(sides[1])


def _summed(parts: list[Expression]) -> Expression:
    result: Expression | None = None
    for part in parts:
        result = part if result is None else Binary("+", result, part)
    return literal(0) if result is None else result


def difference(left: Expression, right: Expression) -> Expression:
    """Return `left - right`, with what is in both cancelled."""
    return _rebuilt(_linear(Binary("-", left, right)))


def same(left: Expression, right: Expression) -> bool:
    """Return whether two expressions are written alike, and so have the same value."""
    if left is right:
        return True
    match left, right:
        case Literal(a), Literal(b):
            return a == b and isinstance(a, bool) == isinstance(b, bool)
        case Field(entity, name), Field(other_entity, other_name):
            return entity == other_entity and name == other_name
        case Not(a), Not(b):
            return same(a, b)
        case Binary(one, a, b), Binary(other, c, d):
            return one == other and same(a, c) and same(b, d)
        case IfElse(a, b, c), IfElse(d, e, f):
            return same(a, d) and same(b, e) and same(c, f)
    return False


def as_python(expressions: Sequence[Expression], number_of: Callable[[Field], int]) -> list[Folded]:
    """Return folded expressions as functions that read numbered fields."""
    constants: dict[str, object] = {}
    sources = ", ".join(f"lambda r: {_source(expression, number_of, constants)}" for expression in expressions)
    return list(eval(f"[{sources}]", constants))


def _source(expression: Expression, number_of: Callable[[Field], int], constants: dict[str, object]) -> str:
    match expression:
        case Literal(value) if isinstance(value, int) and not isinstance(value, Enum):
            return repr(value)
        case Literal(value):
            name = f"c{len(constants)}"
            constants[name] = value
            return name
        case Field():
            return f"r({number_of(expression)})"
        case Not(operand):
            return f"(not {_source(operand, number_of, constants)})"
        case IfElse(condition, yes, no):
            parts = (_source(part, number_of, constants) for part in (yes, condition, no))
            return "({} if {} else {})".format(*parts)
        case Binary(operator, left, right):
            parts = (_source(part, number_of, constants) for part in (left, right))
            return f"({next(parts)} {operator} {next(parts)})"
    raise ValueError(f"`{expression}` was not folded")
