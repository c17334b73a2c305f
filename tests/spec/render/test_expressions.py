"""The readable text of an expression means what the expression means."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from enum import Enum
from types import SimpleNamespace

import pytest

from kvescrow.spec.language.expressions import (
    Entity,
    Expression,
    Field,
    Kind,
    Literal,
    above,
    any_of,
    before,
    if_else,
    implies,
    maximum,
    minimum,
    walk,
)
from kvescrow.spec.language.interpreter import View, evaluate
from kvescrow.spec.language.table import Table, effects_of
from kvescrow.spec.render import readable
from kvescrow.spec.tables.registry import ALL_TABLES
from kvescrow.spec.vocabulary import PageState

a = Entity("a", {"n": Kind.INTEGER, "m": Kind.INTEGER, "yes": Kind.BOOLEAN, "no": Kind.BOOLEAN, "state": PageState})


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (a.yes & a.no & (a.n == 1), "a.yes and a.no and a.n == 1"),
        ((a.yes | a.no) & a.yes, "(a.yes or a.no) and a.yes"),
        (a.n - (a.m - 1), "a.n - (a.m - 1)"),
        (a.n - a.m + 1, "a.n - a.m + 1"),
        (a.n > 0, "a.n > 0"),
        (a.n >= a.m, "a.m <= a.n"),
        (~(a.n <= a.m), "a.n > a.m"),
        (a.n != a.m, "a.n != a.m"),
        (~a.yes, "not a.yes"),
        (~(a.yes & a.no), "not (a.yes and a.no)"),
        (~a.yes | ~a.no, "not a.yes or not a.no"),
        (implies(a.yes, a.no | (a.n == 1)), "a.yes implies a.no or a.n == 1"),
        (implies(a.yes, implies(a.no, a.yes)), "a.yes implies (a.no implies a.yes)"),
        (implies(~a.yes, ~a.no), "not a.yes implies not a.no"),
        (a.yes == (a.n == 1), "a.yes == (a.n == 1)"),
        (a.state.is_in({PageState.FREE, PageState.SINK}), "a.state in {SINK, FREE}"),
        (~a.state.is_in({PageState.FREE, PageState.SINK}), "not a.state in {SINK, FREE}"),
        (any_of(a.state == PageState.FREE, a.yes), "a.state == FREE or a.yes"),
        (minimum(a.n, a.m) + 1, "min(a.n, a.m) + 1"),
        (maximum(a.n, a.m), "max(a.n, a.m)"),
        (above(a.n, a.m) == 0, "(0 if a.n <= a.m else a.n - a.m) == 0"),
        (if_else(a.yes, a.no, if_else(a.no, a.yes, True)), "a.no if a.yes else (a.yes if a.no else true)"),
        (before(a.n + 1) <= a.n, "before(a.n) + 1 <= a.n"),
    ],
    ids=str,
)
def test_the_text_is_short_and_exact(expression: Expression, text: str) -> None:
    assert readable(expression) == text


def expressions_of(table: Table) -> Iterator[Expression]:
    yield table.initial
    for row in table.rows:
        yield row.when
        yield from (effect.value for effect in effects_of(table, row))
    yield from (law.holds for law in (*table.invariants, *table.rules, *table.assumptions))
    yield from (each.reached for each in table.sometimes)
    yield from (ghost.update for ghost in table.ghosts)


def as_python(text: str) -> str:
    """The text as Python source: `implies` is loosened to `or`, group by group from the inside."""
    groups: list[str] = []

    def loosened(part: str) -> str:
        condition, implied, consequence = part.partition(" implies ")
        return f"(not ({condition}) or ({consequence}))" if implied else part

    while match := re.search(r"\(([^()]*)\)", text):
        groups.append(f"({loosened(match[1])})")
        text = f"{text[: match.start()]}@{len(groups) - 1}@{text[match.end() :]}"
    text = loosened(text)
    while match := re.search(r"@(\d+)@", text):
        text = text.replace(match[0], groups[int(match[1])], 1)
    return text.replace("true", "True").replace("false", "False")


def value_for(field: Field, numbers: random.Random) -> object:
    if isinstance(field.type, type) and issubclass(field.type, Enum):
        return numbers.choice(list(field.type))
    return numbers.random() < 0.5 if field.type is Kind.BOOLEAN else numbers.randrange(3)


def random_view(expression: Expression, numbers: random.Random) -> View:
    view: dict[str, dict[str, object]] = {}
    for node in walk(expression):
        if isinstance(node, Field):
            view.setdefault(node.entity, {}).setdefault(node.name, value_for(node, numbers))
    return view  # type: ignore[return-value]  # every value is hashable


def by_name(view: View) -> dict[str, SimpleNamespace]:
    return {
        entity: SimpleNamespace(**{name: v.value if isinstance(v, Enum) else v for name, v in record.items()})
        for entity, record in view.items()
    }


def value_of_text(expression: Expression, view: View, old: View) -> object:
    source = re.sub(r"before\((\w+)\.(\w+)\)", r"old_\1.\2", readable(expression))
    names = {
        str(n.value.value): n.value.value
        for n in walk(expression)
        if isinstance(n, Literal) and isinstance(n.value, Enum)
    }
    olds = {f"old_{entity}": record for entity, record in by_name(old).items()}
    return eval(as_python(source), {**names, **by_name(view), **olds})


@pytest.mark.parametrize("table", ALL_TABLES, ids=lambda table: table.name)
def test_every_text_of_a_table_has_the_value_of_its_expression(table: Table) -> None:
    numbers = random.Random(7)
    for expression in expressions_of(table):
        for _ in range(8):
            view, old = random_view(expression, numbers), random_view(expression, numbers)
            value = evaluate(expression, view, old)
            assert value_of_text(expression, view, old) == (value.value if isinstance(value, Enum) else value), (
                readable(expression)
            )


def test_a_text_that_lost_its_parentheses_would_be_noticed() -> None:
    view: View = {"a": {"n": 3, "m": 2}}
    assert eval(as_python("a.n - (a.m - 1)"), by_name(view)) == evaluate(a.n - (a.m - 1), view)  # type: ignore[arg-type]
    assert eval(as_python("a.n - a.m - 1"), by_name(view)) != evaluate(a.n - (a.m - 1), view)  # type: ignore[arg-type]
