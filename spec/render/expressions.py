"""Expressions as a reader writes them: flat chains, `implies`, membership in a set of states, few parentheses.

From loosest to tightest: `a if c else b`, `implies`, `or`, `and`, `not`, comparisons, `+ -`.
"""

from collections.abc import Iterator
from enum import Enum

from kvescrow.spec.language.expressions import Binary, Expression, IfElse, Literal, Not

_CONDITIONAL, _IMPLIES, _OR, _AND, _NOT, _COMPARISON, _SUM, _ATOM = range(8)
_BINDS = {"or": _OR, "and": _AND, "==": _COMPARISON, "<": _COMPARISON, "<=": _COMPARISON, "+": _SUM, "-": _SUM}
_NEGATED = {"==": "!=", "<=": ">"}
_FLIPPED = {"<": ">", "<=": ">=", "==": "=="}


def readable(expression: Expression) -> str:
    """Return `expression` as text, with the same meaning as `str` gives and fewer parentheses."""
    return _text(expression)[0]


def conjuncts(expression: Expression) -> tuple[Expression, ...]:
    """Return the parts of `expression` that must all hold; itself where it is no conjunction."""
    return tuple(_chain(expression, "and"))


def _chain(expression: Expression, operator: str) -> Iterator[Expression]:
    if isinstance(expression, Binary) and expression.operator == operator:
        yield from _chain(expression.left, operator)
        yield from _chain(expression.right, operator)
    else:
        yield expression


def _text(expression: Expression) -> tuple[str, int]:
    """Return the text and how tightly its outermost operator binds."""
    match expression:
        case Binary("or", Not(condition), consequence) if isinstance(condition, Not) or not isinstance(
            consequence, Not
        ):
            return f"{_inside(condition, _OR)} implies {_inside(consequence, _OR)}", _IMPLIES
        case Binary("or" | "and" as operator, _, _):
            return _join(expression, operator)
        case Binary(("<" | "<=" | "==") as operator, Literal() as constant, other):
            return f"{_inside(other, _SUM)} {_FLIPPED[operator]} {constant}", _COMPARISON
        case Binary(operator, left, right):
            binds = _BINDS[operator]
            # Neither `-` nor a comparison may be regrouped, so an equal operator on the right keeps its parentheses.
            return f"{_inside(left, _SUM)} {operator} {_inside(right, binds + 1)}", binds
        case Not(Binary(("==" | "<=") as operator, left, right)):
            return f"{_inside(left, _SUM)} {_NEGATED[operator]} {_inside(right, _SUM)}", _COMPARISON
        case Not(operand):
            return f"not {_inside(operand, _COMPARISON)}", _NOT
        case IfElse(condition, yes, no):
            extreme = _extreme(condition, yes, no)
            if extreme:
                return extreme, _ATOM
            return " ".join((_inside(yes, _OR), "if", _inside(condition, _OR), "else", _inside(no, _OR))), _CONDITIONAL
        case _:
            return str(expression), _ATOM


def _inside(part: Expression, least: int) -> str:
    text, binds = _text(part)
    return text if binds >= least else f"({text})"


def _join(expression: Expression, operator: str) -> tuple[str, int]:
    parts = list(_chain(expression, operator))
    member_of = _membership(parts) if operator == "or" else None
    if member_of is not None:
        return member_of, _COMPARISON
    binds = _BINDS[operator]
    return f" {operator} ".join(_inside(part, binds + 1) for part in parts), binds


def _membership(parts: list[Expression]) -> str | None:
    """Return `field in {A, B}` where every part compares the same thing with a constant."""
    subjects, members = set(), []
    for part in parts:
        match part:
            case Binary("==", subject, Literal(Enum() as member)):
                subjects.add(readable(subject))
                members.append(str(member.value))
            case _:
                return None
    return f"{subjects.pop()} in {{{', '.join(members)}}}" if len(subjects) == 1 else None


def _extreme(condition: Expression, yes: Expression, no: Expression) -> str | None:
    """Return `min(a, b)` or `max(a, b)` where the choice is between the two sides of a comparison."""
    match condition:
        case Binary("<=", left, right):
            sides, choice = (readable(left), readable(right)), (readable(yes), readable(no))
            if choice == sides:
                return f"min({', '.join(sides)})"
            if choice == sides[::-1]:
                return f"max({', '.join(sides)})"
    return None
