"""Expressions in TLA+, on one line where they fit, else broken at what joins them.

From loosest to tightest: `IF THEN ELSE`, `=>`, `/\\` and `\\/`, `~`, comparisons, `+`, `-`. Conjunctions and
disjunctions bind alike, so that neither stands inside the other without parentheses.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import Enum

from kvescrow.spec.language.expressions import Before, Binary, Expression, Field, IfElse, Literal, Not

Naming = Callable[[Field, bool], str]
"""What a field is called; the flag says whether it is read as it was before the step."""

HELPERS = (
    "Min(a, b) == IF a <= b THEN a ELSE b",
    "Max(a, b) == IF a <= b THEN b ELSE a",
    "Above(a, b) == IF a <= b THEN 0 ELSE a - b",
    "Count(c) == IF c THEN 1 ELSE 0",
)
"""Definitions that a module needs before any expression."""
WIDTH = 110
"""Columns that a line may take before it is broken."""

_CONDITIONAL, _IMPLIES, _JUNCTION, _NOT, _COMPARISON, _SUM, _DIFFERENCE, _ATOM = range(8)
_JUNCTIONS = {"and": "/\\", "or": "\\/"}
_COMPARISONS = {"==": "=", "<": "<", "<=": "<="}
_NEGATED = {"==": "#", "<": ">=", "<=": ">"}
_FLIPPED = {"==": "=", "<": ">", "<=": ">="}
_IN, _NOT_IN = "\\in", "\\notin"


def tla_value(value: object) -> str:
    """Return a boolean, an integer, or an enum member as it is written in TLA+; raise `ValueError` for others."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, Enum):
        return f'"{value.name}"'
    if isinstance(value, int):
        return str(value)
    raise ValueError(f"{value!r} has no counterpart in TLA+")


def tla_set(values: Sequence[object] | type[Enum]) -> str:
    """Return a set of values."""
    return f"{{{', '.join(tla_value(value) for value in values)}}}"


def tla_membership(subject: str, members: Sequence[Enum], *, negated: bool = False) -> str:
    """Return whether `subject` is, or is not, one of `members`."""
    if len(members) == 1:
        return f"{subject} {'#' if negated else '='} {tla_value(members[0])}"
    return f"{subject} {_NOT_IN if negated else _IN} {tla_set(members)}"


def conjoined(parts: Sequence[str], start: str) -> list[str]:
    """Return the conjunction of `parts` after `start`: on one line where it fits, else one a line."""
    whole = start + (" /\\ ".join(parts) or "TRUE")
    if len(parts) < 2 or len(whole) <= WIDTH:
        return [whole]
    return [(start if number == 0 else " " * len(start)) + f"/\\ {part}" for number, part in enumerate(parts)]


class TlaPrinter:
    """Prints expressions whose fields are called as `naming` says."""

    def __init__(self, naming: Naming) -> None:
        self._naming = naming

    def text(self, expression: Expression) -> str:
        """Return `expression` on one line."""
        return self._text(expression)[0]

    def conjuncts(self, expression: Expression) -> list[str]:
        """Return what must hold together, each fit to be joined with others."""
        return [self._inside(part, _NOT) for part in chain(expression, "and")]

    def lines(self, expression: Expression, start: str) -> list[str]:
        """Return `expression` after `start`, broken where it is too long."""
        whole = start + self.text(expression)
        if len(whole) <= WIDTH:
            return [whole]
        indent = " " * len(start)
        match expression:
            case Not(Not(inner)):
                return self.lines(inner, start)
            case Not(operand):
                return self._nested(operand, start + "~", _ATOM)
            case Binary("and" | "or" as operator, _, _):
                sign = _JUNCTIONS[operator]
                parts = list(chain(expression, operator))
                return [
                    line
                    for number, part in enumerate(parts)
                    for line in self._nested(part, f"{indent if number else start}{sign} ", _NOT)
                ]
            case IfElse(condition, yes, no):
                return [
                    *self.lines(condition, start + "IF "),
                    *self.lines(yes, indent + "THEN "),
                    *self.lines(no, indent + "ELSE "),
                ]
            case _:
                return [whole]

    def _nested(self, part: Expression, start: str, least: int) -> list[str]:
        text, binds = self._text(part)
        if binds >= least:
            return self.lines(part, start)
        if len(start) + len(text) + 2 <= WIDTH:
            return [f"{start}({text})"]
        lines = self.lines(part, start + "(")
        return [*lines[:-1], lines[-1] + ")"]

    def _inside(self, part: Expression, least: int) -> str:
        text, binds = self._text(part)
        return text if binds >= least else f"({text})"

    def _text(self, expression: Expression) -> tuple[str, int]:
        """Return the text and how tightly its outermost operator binds."""
        match expression:
            case Literal(value):
                return tla_value(value), _ATOM
            case Field():
                return self._naming(expression, False), _ATOM
            case Before(inner):
                return self._naming(inner, True), _ATOM
            case IfElse():
                return self._conditional(expression)
            case Not(operand):
                return self._negation(operand)
            case Binary("and" | "or", _, _):
                return self._junction(expression)
            case Binary("+", left, right):
                return f"{self._inside(left, _SUM)} + {self._inside(right, _SUM)}", _SUM
            case Binary("-", left, right):
                return f"{self._inside(left, _ATOM)} - {self._inside(right, _ATOM)}", _DIFFERENCE
            case Binary(operator, Literal() as constant, other):
                return f"{self._inside(other, _SUM)} {_FLIPPED[operator]} {self.text(constant)}", _COMPARISON
            case Binary(operator, left, right):
                return f"{self._inside(left, _SUM)} {_COMPARISONS[operator]} {self._inside(right, _SUM)}", _COMPARISON
        raise ValueError(f"unknown node {expression!r}")

    def _conditional(self, expression: IfElse) -> tuple[str, int]:
        condition, yes, no = (self.text(part) for part in (expression.condition, expression.yes, expression.no))
        if (yes, no) == ("1", "0"):
            return f"Count({condition})", _ATOM
        match expression.condition:
            case Binary("<=", left, right):
                sides = f"{self.text(left)}, {self.text(right)}"
                named = {
                    f"{self.text(left)}, {self.text(right)}": "Min",
                    f"{self.text(right)}, {self.text(left)}": "Max",
                    f"0, {self.text(Binary('-', left, right))}": "Above",
                }
                if (name := named.get(f"{yes}, {no}")) is not None:
                    return f"{name}({sides})", _ATOM
        return f"IF {condition} THEN {yes} ELSE {no}", _CONDITIONAL

    def _negation(self, operand: Expression) -> tuple[str, int]:
        match operand:
            case Binary("==" | "<" | "<=" as operator, left, right):
                return f"{self._inside(left, _SUM)} {_NEGATED[operator]} {self._inside(right, _SUM)}", _COMPARISON
            case Binary("or", _, _) if (members := self._one_of(operand)) is not None:
                return tla_membership(*members, negated=True), _COMPARISON
        return f"~{self._inside(operand, _ATOM)}", _NOT

    def _junction(self, expression: Binary) -> tuple[str, int]:
        members = self._one_of(expression) if expression.operator == "or" else None
        if members is not None:
            return tla_membership(*members), _COMPARISON
        if _is_implication(expression):
            assert isinstance(expression.left, Not), "an implication is a disjunction with a negation"
            condition = self._inside(expression.left.operand, _JUNCTION)
            return f"{condition} => {self._inside(expression.right, _JUNCTION)}", _IMPLIES
        parts = (self._inside(part, _NOT) for part in chain(expression, expression.operator))
        return f" {_JUNCTIONS[expression.operator]} ".join(parts), _JUNCTION

    def _one_of(self, expression: Expression) -> tuple[str, list[Enum]] | None:
        """Return (subject, members) where every alternative compares the same thing with a member of an enum."""
        subjects: set[str] = set()
        members: list[Enum] = []
        for part in chain(expression, "or"):
            match part:
                case Binary("==", subject, Literal(Enum() as member)):
                    subjects.add(self._inside(subject, _SUM))
                    members.append(member)
                case _:
                    return None
        return (subjects.pop(), members) if len(subjects) == 1 else None


def _is_implication(expression: Binary) -> bool:
    match expression:
        case Binary("or", Not(condition), consequence):
            return isinstance(condition, Not) or not isinstance(consequence, Not)
    return False


def chain(expression: Expression, operator: str) -> Iterator[Expression]:
    """Yield what `operator` joins in `expression`; itself where it joins nothing."""
    if isinstance(expression, Binary) and expression.operator == operator:
        yield from chain(expression.left, operator)
        yield from chain(expression.right, operator)
    else:
        yield expression
