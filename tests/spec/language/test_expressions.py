"""Expressions: how they read, what they evaluate to, and which have no type."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import pytest

from kvescrow.spec.language.expressions import (
    FALSE,
    NOBODY,
    TRUE,
    Entity,
    Expression,
    ExpressionError,
    Kind,
    above,
    all_of,
    any_of,
    as_count,
    before,
    if_else,
    implies,
    lift,
    maximum,
    minimum,
    reads,
    type_of,
)
from kvescrow.spec.language.interpreter import evaluate


class Colour(Enum):
    """Colours."""

    RED = "RED"
    """Red."""
    GREEN = "GREEN"
    """Green."""


class Shape(Enum):
    """Shapes."""

    ROUND = "ROUND"
    """Round."""


thing = Entity(
    "thing",
    {
        "size": Kind.INTEGER,
        "weight": Kind.INTEGER,
        "heavy": Kind.BOOLEAN,
        "owner": Kind.NAME,
        "colour": Colour,
        "shape": Shape,
    },
)
SMALL = {"size": 2, "weight": 5, "heavy": False, "owner": "anna", "colour": Colour.RED, "shape": Shape.ROUND}
LARGE = {**SMALL, "size": 9, "heavy": True, "owner": 0, "colour": Colour.GREEN}


@pytest.mark.parametrize(
    ("expression", "text", "of_small", "of_large"),
    [
        (thing.size + 1, "thing.size + 1", 3, 10),
        (thing.size - thing.weight, "thing.size - thing.weight", -3, 4),
        (thing.size <= 2, "thing.size <= 2", True, False),
        (thing.size < 2, "thing.size < 2", False, False),
        (thing.size >= 9, "9 <= thing.size", False, True),
        (thing.size > 2, "2 < thing.size", False, True),
        (thing.size == 2, "thing.size == 2", True, False),
        (thing.size != 2, "thing.size != 2", False, True),
        (~(thing.size <= 2), "thing.size > 2", False, True),
        (~thing.heavy, "not thing.heavy", True, False),
        (thing.heavy & (thing.size > 2), "thing.heavy and (2 < thing.size)", False, True),
        (thing.heavy | (thing.size < 3), "thing.heavy or (thing.size < 3)", True, True),
        (thing.owner == NOBODY, "thing.owner == 0", False, True),
        (thing.colour == Colour.RED, "thing.colour == RED", True, False),
        (thing.colour.is_in({Colour.GREEN}), "thing.colour == GREEN", False, True),
        (
            thing.colour.is_in({Colour.GREEN, Colour.RED}),
            "(thing.colour == RED) or (thing.colour == GREEN)",
            True,
            True,
        ),
        (if_else(thing.heavy, 1, thing.size), "(1 if thing.heavy else thing.size)", 2, 1),
        (implies(thing.heavy, thing.size > 5), "not thing.heavy or (5 < thing.size)", True, True),
        (
            minimum(thing.size, thing.weight),
            "(thing.size if thing.size <= thing.weight else thing.weight)",
            2,
            5,
        ),
        (
            maximum(thing.size, thing.weight),
            "(thing.weight if thing.size <= thing.weight else thing.size)",
            5,
            9,
        ),
        (
            above(thing.size, thing.weight),
            "(0 if thing.size <= thing.weight else thing.size - thing.weight)",
            0,
            4,
        ),
        (as_count(thing.heavy), "(1 if thing.heavy else 0)", 0, 1),
        (all_of(), "true", True, True),
        (any_of(), "false", False, False),
        (all_of(thing.heavy, TRUE), "thing.heavy and true", False, True),
        (any_of(thing.heavy, FALSE), "thing.heavy or false", False, True),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_an_expression_reads_as_it_is_written_and_has_its_value(
    expression: Expression, text: str, of_small: object, of_large: object
) -> None:
    assert str(expression) == text
    assert evaluate(expression, {"thing": SMALL}) == of_small
    assert evaluate(expression, {"thing": LARGE}) == of_large


def test_before_reads_the_older_state_everywhere() -> None:
    expression = before(if_else(~thing.heavy & (thing.size == 2), thing.size + 1, 0))
    assert str(expression) == (
        "(before(thing.size) + 1 if not before(thing.heavy) and (before(thing.size) == 2) else 0)"
    )
    assert evaluate(expression, {"thing": LARGE}, {"thing": SMALL}) == 3
    with pytest.raises(ValueError, match="needs an older state"):
        evaluate(expression, {"thing": LARGE})


def test_a_parameter_has_no_older_state() -> None:
    """It belongs to the step, so `before` of a guard is that guard in the old state, for the same event."""
    event = Entity("event", {"size": Kind.INTEGER}, settled=True)
    expression = before(thing.size < event.size)
    assert str(expression) == "before(thing.size) < event.size"
    assert evaluate(expression, {"thing": LARGE, "event": {"size": 3}}, {"thing": SMALL}) is True


def test_an_expression_has_no_truth_value() -> None:
    with pytest.raises(ExpressionError, match=r"^`thing\.size <= 2` has no truth value: use & \| ~ and implies"):
        assert thing.size <= 2
    with pytest.raises(ExpressionError, match=r"^`thing\.heavy` has no truth value"):
        thing.heavy and thing.heavy  # noqa: B018


def test_only_expressions_and_constants_can_stand_in_an_expression() -> None:
    with pytest.raises(ExpressionError, match="'2' is neither an expression nor an integer"):
        thing.size + "2"  # type: ignore[operator]
    with pytest.raises(ExpressionError, match=r"1\.5 is neither"):
        lift(1.5)


def test_effects_say_what_becomes_of_a_field() -> None:
    assert str(thing.size.becomes(3)) == "thing.size := 3"
    assert str(thing.size.adds(thing.weight)) == "thing.size := thing.size + thing.weight"
    assert str(thing.size.loses(1)) == "thing.size := thing.size - 1"
    with pytest.raises(ExpressionError, match=r"`thing.size \+ 1` is not a field"):
        (thing.size + 1).becomes(2)


def test_reads_names_every_field_below() -> None:
    expression = if_else(before(thing.heavy), thing.size + 1, minimum(thing.weight, lift(0)))
    assert reads(expression) == {("thing", "heavy"), ("thing", "size"), ("thing", "weight")}


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        (thing.size + 1, Kind.INTEGER),
        (thing.size < 1, Kind.BOOLEAN),
        (thing.owner == thing.owner, Kind.BOOLEAN),
        (thing.owner == NOBODY, Kind.BOOLEAN),
        (if_else(thing.heavy, Colour.RED, thing.colour), Colour),
        (before(thing.owner), Kind.NAME),
        (lift(True), Kind.BOOLEAN),
        (lift(Shape.ROUND), Shape),
    ],
    ids=str,
)
def test_a_well_formed_expression_has_a_type(expression: Expression, kind: object) -> None:
    assert type_of(expression) is kind


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: thing.weigth + 1, "unknown field `thing.weigth`"),
        (lambda: thing.heavy + 1, "`thing.heavy` is boolean where `thing.heavy + 1` needs integer"),
        (lambda: thing.size - thing.owner, "`thing.owner` is name where"),
        (lambda: thing.owner < thing.owner, "`thing.owner` is name where"),
        (lambda: thing.colour <= 1, "`thing.colour` is Colour where"),
        (lambda: thing.size & thing.heavy, "`thing.size` is integer where"),
        (lambda: ~thing.size, "`thing.size` is integer where `not thing.size` needs boolean"),
        (lambda: thing.colour == Shape.ROUND, "`ROUND` is Shape where `thing.colour == ROUND` needs Colour"),
        (lambda: thing.owner == 1, "`1` is integer where `thing.owner == 1` needs name"),
        (lambda: thing.heavy == 1, "`1` is integer where"),
        (lambda: thing.size == True, "`true` is boolean where"),  # noqa: E712
        (lambda: if_else(thing.size, 1, 2), "`thing.size` is integer where"),
        (lambda: if_else(thing.heavy, 1, Colour.RED), "`RED` is Colour where"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_an_ill_typed_expression_is_refused_by_its_part(make: Callable[[], Expression], message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        type_of(make())
    assert str(caught.value).startswith(message)
