"""Guards as functions, and where the comparisons in them tip over: what directed generation asks of a table.

The verdict never rests on this module. It only proposes events; what an event does is the world's to say.
"""

from collections.abc import Callable, Iterable
from typing import cast

from attrs import frozen

from kvescrow.spec.language.compiler import function_of
from kvescrow.spec.language.expressions import Binary, Expression, Kind, reads, type_of, walk
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
    is_integer: bool

    def values(self, view: View, event: Record) -> tuple[Value, ...]:
        """Return the values at and around the boundary; for names, the name that is compared with."""
        if not self.is_integer:
            sides = (self.left(view, event), self.right(view, event))
            return tuple(side for side in sides if side != 0)
        at_zero = self._difference(view, event, 0)
        slope = self._difference(view, event, 1) - at_zero
        if slope not in (1, -1):
            return ()
        boundary = -at_zero * slope
        return (boundary, boundary + 1, boundary - 1, boundary + 2, boundary - 2)

    def _difference(self, view: View, event: Record, value: int) -> int:
        changed, parameters = with_value(view, event, self.varied, value)
        return cast(int, self.left(changed, parameters)) - cast(int, self.right(changed, parameters))


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
    """Return each comparison in `expressions` with each field in it."""
    return [
        Tipping(address, function_of(node.left), function_of(node.right), type_of(node.left) is Kind.INTEGER)
        for expression in expressions
        for node in walk(expression)
        if isinstance(node, Binary) and node.operator in ("<", "<=", "==")
        for address in sorted(reads(node))
    ]
