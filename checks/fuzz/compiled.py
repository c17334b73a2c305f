"""Guards as functions, and where the comparisons in them tip over: what directed generation asks of a table.

The verdict never rests on this module. It only proposes events; what an event does is the world's to say.
"""

from collections.abc import Callable, Iterable
from typing import cast

from attrs import frozen

from kvescrow.spec.language.compiler import function_of, function_of_field
from kvescrow.spec.language.expressions import Binary, Expression, Field, Kind, reads, type_of, walk
from kvescrow.spec.language.interpreter import Record, Value, View

Asked = Callable[[View, Record], Value]


Address = tuple[str, str]
"""(entity, field) of a view; the entity `event` holds the event's parameters."""


@frozen(eq=False)
class Tipping:
    """One comparison, and one field in it: where, as the field varies, the comparison changes its truth."""

    varied: Address
    left: Asked
    right: Asked
    difference: Callable[[View, Record, int], int] | None
    """Left minus right, where the field reads another value than it does; None where they are no integers."""

    def values(self, view: View, event: Record) -> tuple[Value, ...]:
        """Return the values at and around the boundary; for names, the name that is compared with."""
        if self.difference is None:
            sides = (self.left(view, event), self.right(view, event))
            return tuple(side for side in sides if side != 0)
        at_zero = self.difference(view, event, 0)
        slope = self.difference(view, event, 1) - at_zero
        if slope not in (1, -1):
            return ()
        boundary = -at_zero * slope
        return (boundary, boundary + 1, boundary - 1, boundary + 2, boundary - 2)


def with_value(view: View, event: Record, address: Address, value: Value) -> tuple[View, Record]:
    """Return view and parameters with one field changed."""
    entity, name = address
    if entity == "event":
        return view, {**event, name: value}
    return {**view, entity: {**view[entity], name: value}}, event


@frozen(eq=False)
class Condition:
    """An expression with the event parameters that it reads, and everything in it that tips over."""

    holds: Asked
    parameters: tuple[str, ...]
    tippings: tuple[Tipping, ...]
    reads: frozenset[Address]


def condition(expression: Expression) -> Condition:
    """Return `expression` ready for asking when it holds."""
    parameters = tuple(sorted(name for entity, name in reads(expression) if entity == "event"))
    return Condition(function_of(expression), parameters, tuple(tippings([expression])), reads(expression))


def tippings(expressions: Iterable[Expression]) -> list[Tipping]:
    """Return each comparison in `expressions` with each field in it. Equal comparisons share one object."""
    return [
        _tipping(node, Field(*address, Kind.INTEGER))
        for expression in expressions
        for node in walk(expression)
        if isinstance(node, Binary) and node.operator in ("<", "<=", "==")
        for address in sorted(reads(node))
    ]


_TIPPINGS: dict[tuple[str, Address], Tipping] = {}


def _tipping(node: Binary, field: Field) -> Tipping:
    known = (f"{node.left} ~ {node.right}", field.path)
    if known not in _TIPPINGS:
        difference: Callable[[View, Record, int], int] | None = None
        if type_of(node.left) is Kind.INTEGER:
            # Only numbers that are compared are varied, so that the function can be asked at any.
            difference = cast(
                Callable[[View, Record, int], int], function_of_field(Binary("-", node.left, node.right), field)
            )
        _TIPPINGS[known] = Tipping(field.path, function_of(node.left), function_of(node.right), difference)
    return _TIPPINGS[known]
