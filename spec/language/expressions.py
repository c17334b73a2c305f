"""Typed expressions over one local view of the state.

An expression is a small frozen tree: literals, field reads, `+ -`, comparisons, `& | ~`, if-then-else, and
`before(field)` for rules that compare a state with its successor. Operators are overloaded, so that a guard reads
`tenant.active + event.amount <= tenant.limit`. `==` builds a comparison too; an expression therefore has no truth
value, and Python's `and`, `or`, `not` on it are errors.

There are three kinds of value besides enum members: integers, booleans, and names. A name is an opaque identity
(an owner, a digest): it can be compared for equality and nothing else.
"""

from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from typing import Never

from attrs import field, frozen


class Kind(Enum):
    """The built-in types of a field; an enum class is a type as well."""

    INTEGER = "integer"
    """An unbounded integer."""
    BOOLEAN = "boolean"
    """True or false."""
    NAME = "name"
    """An opaque identity: equality only."""


Type = Kind | type[Enum]


class ExpressionError(Exception):
    """An expression that has no type: an unknown field, or an operator on the wrong kind of value."""


@frozen(eq=False)
class Expression:
    """A node of the tree. Subclasses are the only nodes there are."""

    def __add__(self, other: "Expression | int") -> "Expression":
        return Binary("+", self, lift(other))

    def __sub__(self, other: "Expression | int") -> "Expression":
        return Binary("-", self, lift(other))

    def __le__(self, other: "Expression | int") -> "Expression":
        return Binary("<=", self, lift(other))

    def __lt__(self, other: "Expression | int") -> "Expression":
        return Binary("<", self, lift(other))

    def __ge__(self, other: "Expression | int") -> "Expression":
        return Binary("<=", lift(other), self)

    def __gt__(self, other: "Expression | int") -> "Expression":
        return Binary("<", lift(other), self)

    def __eq__(self, other: object) -> "Expression":  # type: ignore[override]  # builds a comparison
        return Binary("==", self, lift(other))

    def __ne__(self, other: object) -> "Expression":  # type: ignore[override]  # builds a comparison
        return Not(Binary("==", self, lift(other)))

    __hash__ = object.__hash__

    def __and__(self, other: "Expression | bool") -> "Expression":
        return Binary("and", self, lift(other))

    def __or__(self, other: "Expression | bool") -> "Expression":
        return Binary("or", self, lift(other))

    def __invert__(self) -> "Expression":
        return Not(self)

    def __bool__(self) -> Never:
        raise ExpressionError(f"`{self}` has no truth value: use & | ~ and implies(), not and/or/not")

    def becomes(self, value: "Expression | int | bool | Enum") -> "Effect":
        """Return the effect that gives this field the value that `value` has before the row."""
        if not isinstance(self, Field):
            raise ExpressionError(f"`{self}` is not a field, so it cannot become anything")
        return Effect(self, lift(value))

    def adds(self, amount: "Expression | int") -> "Effect":
        """Return the effect that adds `amount` to this field."""
        return self.becomes(self + amount)

    def loses(self, amount: "Expression | int") -> "Effect":
        """Return the effect that takes `amount` from this field."""
        return self.becomes(self - amount)

    def is_in(self, members: Collection[Enum]) -> "Expression":
        """Return whether this field equals one of `members`, in the order in which their enum defines them."""
        ordered = [member for kind in {type(member) for member in members} for member in kind if member in members]
        return any_of(*(self == member for member in ordered))


@frozen(eq=False)
class Literal(Expression):
    """A constant."""

    value: int | bool | Enum

    def __str__(self) -> str:
        if isinstance(self.value, Enum):
            return str(self.value.value)
        return str(self.value).lower() if isinstance(self.value, bool) else str(self.value)


@frozen(eq=False)
class Field(Expression):
    """The value of one field of one entity of the view. `type` is None where the entity has no such field."""

    entity: str
    name: str
    type: Type | None

    @property
    def path(self) -> tuple[str, str]:
        """Return (entity, field), the field's address in a view."""
        return (self.entity, self.name)

    def __str__(self) -> str:
        return f"{self.entity}.{self.name}"


@frozen(eq=False)
class Before(Expression):
    """The value of a field before the step; legal in step rules and ghost updates only."""

    field: Field

    def __str__(self) -> str:
        return f"before({self.field})"


@frozen(eq=False)
class Binary(Expression):
    """An operator on two expressions."""

    operator: str
    left: Expression
    right: Expression

    def __str__(self) -> str:
        return f"{_wrapped(self.left)} {self.operator} {_wrapped(self.right)}"


@frozen(eq=False)
class Not(Expression):
    """Negation."""

    operand: Expression

    def __str__(self) -> str:
        inner = self.operand
        if isinstance(inner, Binary) and inner.operator == "==":
            return f"{_wrapped(inner.left)} != {_wrapped(inner.right)}"
        if isinstance(inner, Binary) and inner.operator == "<=":
            return f"{_wrapped(inner.left)} > {_wrapped(inner.right)}"
        return f"not {_wrapped(inner)}"


@frozen(eq=False)
class IfElse(Expression):
    """`yes` where `condition` holds, else `no`."""

    condition: Expression
    yes: Expression
    no: Expression

    def __str__(self) -> str:
        return f"({self.yes} if {self.condition} else {self.no})"


@frozen(eq=False)
class Effect:
    """`target` gets the value that `value` has before the row; all effects of a row happen at once."""

    target: Field
    value: Expression

    def __str__(self) -> str:
        return f"{self.target} := {self.value}"


def _wrapped(expression: Expression) -> str:
    compound = isinstance(expression, Binary) or (
        isinstance(expression, Not) and not str(expression).startswith("not ")
    )
    return f"({expression})" if compound else str(expression)


def lift(value: object) -> Expression:
    """Return `value` as an expression: itself, or a literal."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, bool | int | Enum):
        return Literal(value)
    raise ExpressionError(f"{value!r} is neither an expression nor an integer, boolean or enum member")


TRUE = Literal(True)
FALSE = Literal(False)
NOBODY = Literal(0)
"""The name that no one has; the value of an unset name field."""


def all_of(*parts: Expression) -> Expression:
    """Return the conjunction of `parts`; true where there are none."""
    result: Expression | None = None
    for part in parts:
        result = part if result is None else Binary("and", result, part)
    return TRUE if result is None else result


def any_of(*parts: Expression) -> Expression:
    """Return the disjunction of `parts`; false where there are none."""
    result: Expression | None = None
    for part in parts:
        result = part if result is None else Binary("or", result, part)
    return FALSE if result is None else result


def implies(condition: Expression, consequence: Expression) -> Expression:
    """Return `consequence` wherever `condition` holds."""
    return Binary("or", Not(condition), consequence)


def if_else(
    condition: Expression, yes: "Expression | int | bool | Enum", no: "Expression | int | bool | Enum"
) -> Expression:
    """Return `yes` where `condition` holds, else `no`."""
    return IfElse(condition, lift(yes), lift(no))


def minimum(left: Expression, right: Expression) -> Expression:
    """Return the smaller of two integers."""
    return IfElse(Binary("<=", left, right), left, right)


def maximum(left: Expression, right: Expression) -> Expression:
    """Return the larger of two integers."""
    return IfElse(Binary("<=", left, right), right, left)


def above(value: Expression, limit: Expression) -> Expression:
    """Return by how much `value` exceeds `limit`; 0 where it does not."""
    return IfElse(Binary("<=", value, limit), Literal(0), value - limit)


def as_count(condition: Expression) -> Expression:
    """Return 1 where `condition` holds, else 0."""
    return IfElse(condition, Literal(1), Literal(0))


def before(operand: Expression) -> Expression:
    """Return `operand` as it was before the step: every field in it is read from the old state.

    Parameters of the event are the step's own, and stay what they are.
    """
    match operand:
        case Field("event", _):
            return operand
        case Field():
            return Before(operand)
        case Binary(operator, left, right):
            return Binary(operator, before(left), before(right))
        case Not(inner):
            return Not(before(inner))
        case IfElse(condition, yes, no):
            return IfElse(before(condition), before(yes), before(no))
        case _:
            return operand


@frozen
class Entity:
    """A named record of the view. Reading an attribute gives the field's expression.

    `settled` entities are read by guards and invariants, and never written by a row: the opaque rest of the world.
    """

    name: str
    fields: Mapping[str, Type] = field(repr=False)
    settled: bool = False
    """Whether rows must not write it."""
    note: str = ""
    """What it stands for, for the documents."""

    def __attrs_post_init__(self) -> None:
        """Refuse a field that would hide behind an attribute of this class."""
        hidden = sorted(set(self.fields) & {"name", "fields", "settled", "note"})
        if hidden:
            raise ExpressionError(f"entity {self.name}: a field cannot be called {', '.join(hidden)}")

    def __getattr__(self, attribute: str) -> Field:
        # An unknown field is reported by the table, which knows the row's id.
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return Field(self.name, attribute, self.fields.get(attribute))


def children(expression: Expression) -> tuple[Expression, ...]:
    """Return the direct parts of `expression`."""
    match expression:
        case Binary(_, left, right):
            return (left, right)
        case Not(inner):
            return (inner,)
        case IfElse(condition, yes, no):
            return (condition, yes, no)
        case Before(inner_field):
            return (inner_field,)
        case _:
            return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield `expression` and everything below it."""
    yield expression
    for part in children(expression):
        yield from walk(part)


def reads(expression: Expression) -> frozenset[tuple[str, str]]:
    """Return the addresses of all fields that `expression` reads."""
    return frozenset(node.path for node in walk(expression) if isinstance(node, Field))


def type_of(expression: Expression) -> Type:
    """Return the type of `expression`, or raise `ExpressionError` naming the part that has none."""
    match expression:
        case Literal(value):
            if isinstance(value, Enum):
                return type(value)
            return Kind.BOOLEAN if isinstance(value, bool) else Kind.INTEGER
        case Field():
            if expression.type is None:
                raise ExpressionError(f"unknown field `{expression}`")
            return expression.type
        case Before(inner_field):
            return type_of(inner_field)
        case Not(inner):
            _expect(inner, Kind.BOOLEAN, expression)
            return Kind.BOOLEAN
        case IfElse(condition, yes, no):
            _expect(condition, Kind.BOOLEAN, expression)
            _expect(no, type_of(yes), expression)
            return type_of(yes)
        case Binary():
            return _type_of_binary(expression)
    raise ExpressionError(f"unknown node {expression!r}")


def _type_of_binary(expression: Binary) -> Type:
    match expression.operator:
        case "+" | "-":
            operand, result = Kind.INTEGER, Kind.INTEGER
        case "<" | "<=":
            operand, result = Kind.INTEGER, Kind.BOOLEAN
        case "and" | "or":
            operand, result = Kind.BOOLEAN, Kind.BOOLEAN
        case _:
            left = type_of(expression.left)
            if not (left is Kind.NAME and expression.right is NOBODY):
                _expect(expression.right, left, expression)
            return Kind.BOOLEAN
    _expect(expression.left, operand, expression)
    _expect(expression.right, operand, expression)
    return result


def _expect(part: Expression, wanted: Type, whole: Expression) -> None:
    found = type_of(part)
    if found is not wanted:
        raise ExpressionError(f"`{part}` is {type_name(found)} where `{whole}` needs {type_name(wanted)}")


def type_name(kind: Type) -> str:
    """Return how a type is called in documents and messages."""
    return kind.value if isinstance(kind, Kind) else kind.__name__
