"""Filling in what is known of an expression, and computing what that settles.

The search has a richer one of its own. This one is kept apart, so that what other checkers are given does not rest on
the code that they are to check.
"""

from collections.abc import Callable, Hashable, Iterator

from kvescrow.spec.language.expressions import FALSE, TRUE, Before, Binary, Expression, Field, IfElse, Literal, Not

Meaning = Callable[[Field, bool], Expression]
"""What a field stands for; the flag says whether it is read as it was before the step."""


def constant(value: Hashable) -> Literal:
    """Return a boolean, an integer or an enum member as a literal."""
    if isinstance(value, bool):
        return TRUE if value else FALSE
    return Literal(value)  # type: ignore[arg-type]  # names are integers here


def substituted(expression: Expression, meaning: Meaning, *, old: bool = False) -> Expression:
    """Return `expression` with every field replaced, and constants computed; `old` reads all fields before the step."""
    match expression:
        case Field():
            return meaning(expression, old)
        case Before(inner):
            return meaning(inner, True)
        case Not(operand):
            return negated(substituted(operand, meaning, old=old))
        case IfElse(condition, yes, no):
            test = substituted(condition, meaning, old=old)
            if isinstance(test, Literal):
                return substituted(yes if test.value else no, meaning, old=old)
            return IfElse(test, substituted(yes, meaning, old=old), substituted(no, meaning, old=old))
        case Binary(operator, left, right):
            return _combined(operator, substituted(left, meaning, old=old), substituted(right, meaning, old=old))
    return expression


def both(*parts: Expression) -> Expression:
    """Return the conjunction of `parts`, each once."""
    whole: Expression = TRUE
    seen: set[str] = set()
    for part in (conjunct for each in parts for conjunct in joined(each, "and")):
        if str(part) not in seen:
            whole = _combined("and", whole, part)
            seen.add(str(part))
    return whole


def joined(expression: Expression, operator: str) -> Iterator[Expression]:
    """Yield what `operator` joins in `expression`; itself where it joins nothing."""
    if isinstance(expression, Binary) and expression.operator == operator:
        yield from joined(expression.left, operator)
        yield from joined(expression.right, operator)
    else:
        yield expression


def negated(operand: Expression) -> Expression:
    """Return the negation of `operand`."""
    if isinstance(operand, Literal):
        return constant(not operand.value)
    return operand.operand if isinstance(operand, Not) else Not(operand)


def _combined(operator: str, left: Expression, right: Expression) -> Expression:
    if operator in ("and", "or"):
        for one, other in ((left, right), (right, left)):
            if isinstance(one, Literal):
                return one if bool(one.value) is (operator == "or") else other
        return Binary(operator, left, right)
    if operator == "==" and isinstance(left, Literal) and isinstance(right, IfElse):
        return _chosen(right, left)
    if operator == "==" and isinstance(left, IfElse) and isinstance(right, Literal):
        return _chosen(left, right)
    if isinstance(left, Literal) and isinstance(right, Literal):
        return constant(_computed(operator, left.value, right.value))
    if isinstance(right, Literal) and right.value == 0 and operator in ("+", "-"):
        return left
    return Binary(operator, left, right)


def _chosen(choice: IfElse, value: Literal) -> Expression:
    """Return whether `choice` is `value`: its condition, or the opposite, where both its values are known."""
    if isinstance(choice.yes, Literal) and isinstance(choice.no, Literal):
        if choice.yes.value == choice.no.value:
            return constant(choice.yes.value == value.value)
        if choice.yes.value == value.value:
            return choice.condition
        return negated(choice.condition) if choice.no.value == value.value else FALSE
    return Binary("==", choice, value)


def _computed(operator: str, left: Hashable, right: Hashable) -> Hashable:
    if operator == "==":
        return left == right
    assert isinstance(left, int) and isinstance(right, int), "only integers are added and ordered"
    return {"+": left + right, "-": left - right, "<": left < right, "<=": left <= right}[operator]
