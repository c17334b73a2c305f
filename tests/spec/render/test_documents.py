"""The generated documents say everything, link to what exists, and come out equal each time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from kvescrow.spec.language.table import Table
from kvescrow.spec.render import (
    HEADER,
    lifecycle_diagram,
    parse_requirements,
    render_documents,
    state_diagram,
    table_page,
    unknown_citations,
)
from kvescrow.spec.tables.registry import ALL_TABLES, TABLE_BY_NAME, digest
from kvescrow.spec.vocabulary import UserError

LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")


@pytest.fixture(scope="module")
def requirements(repository: Path) -> str:
    return (repository / "docs" / "requirements.md").read_text("utf-8")


@pytest.fixture(scope="module")
def documents(requirements: str) -> Mapping[str, str]:
    return render_documents(requirements)


def test_there_is_a_page_and_a_module_for_each_table_and_three_more(documents: Mapping[str, str]) -> None:
    assert set(documents) == {
        *(f"tables/{name}.md" for name in TABLE_BY_NAME),
        *(f"tla/{name}.tla" for name in TABLE_BY_NAME),
        "tables/index.md",
        "vocabulary.md",
        "requirements-trace.md",
    }
    assert all(HEADER in text.splitlines()[0] for text in documents.values())


def test_every_link_leads_somewhere(documents: Mapping[str, str]) -> None:
    checked = 0
    for path, text in documents.items():
        for target, fragment in LINK.findall(text):
            place = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
            assert place in documents, f"{path} links to {target}"
            assert not fragment or f'<a id="{fragment}"></a>' in documents[place], f"{path} links to {place}#{fragment}"
            checked += 1
    assert checked > 1000


@pytest.mark.parametrize("table", ALL_TABLES, ids=lambda table: table.name)
def test_a_page_says_all_that_the_table_says(table: Table) -> None:
    page = table_page(table)
    for row in table.rows:
        assert page.count(f'<a id="{row.id}"></a>') == 1
        assert row.note in page
        assert all(f"`{effect.target} := " in page for effect in row.do)
    for law in (*table.invariants, *table.rules, *table.non_interference, *table.assumptions, *table.sometimes):
        assert page.count(f'<a id="{table.name}.{law.name}"></a>') == 1
        assert law.note in page
    assert all(f"`{ghost.target}`" in page and ghost.note in page for ghost in table.ghosts)
    assert all(f"### {event.name}\n" in page for event in table.events)
    assert all(f"`{name}: " in page for entity in table.entities for name in entity.fields)


@pytest.mark.parametrize("table", ALL_TABLES, ids=lambda table: table.name)
def test_every_cell_lists_its_rows(table: Table) -> None:
    section = table_page(table).split("## Every cell")[1].split("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")][2:]
    shown = {
        (state, event.name): re.findall(r"\(#([^)]+)\)", cell)
        for states, *cells in lines
        for state in states.split("<br>")
        for event, cell in zip(table.events, cells, strict=True)
    }
    assert shown == {(state.name, event): [row.id for row in rows] for (state, event), rows in table.cells.items()}


@pytest.mark.parametrize("table", ALL_TABLES, ids=lambda table: table.name)
def test_every_line_of_a_markdown_table_has_equal_cells_and_none_is_empty(table: Table) -> None:
    for block in re.findall(r"(?:^\|.*\n)+", table_page(table), re.MULTILINE):
        lines = [re.split(r"(?<!\\)\|", line.strip())[1:-1] for line in block.splitlines()]
        assert {len(line) for line in lines} == {len(lines[0])}
        assert all(cell.strip() for line in lines for cell in line)


def test_the_index_counts_and_names_the_digest(documents: Mapping[str, str]) -> None:
    index = documents["tables/index.md"]
    assert digest() in index
    assert f"| {sum(len(table.rows) for table in ALL_TABLES)} |" in index


def test_a_diagram_has_each_change_of_state_once() -> None:
    table = TABLE_BY_NAME["reservation"]
    arrows = re.findall(r"^    (\w+) --> (\w+) : (.+)$", state_diagram(table), re.MULTILINE)
    wanted = {(s.name, row.to.name) for row in table.rows for s in row.sources if row.to not in (None, s) and row.to}
    assert sorted((source, target) for source, target, _ in arrows) == sorted(wanted)
    assert ("RUNNING", "CANCELLING", "cancel.running") in arrows
    assert ("QUEUED", "EXPIRED", "promote (2 rows), sweep (2 rows)") in arrows
    assert not any(character in label for _, _, label in arrows for character in ":;")


def test_the_lifecycle_begins_absent() -> None:
    assert lifecycle_diagram().startswith("stateDiagram-v2\n")
    assert "    [*] --> ABSENT\n" in lifecycle_diagram()
    assert lifecycle_diagram().count("[*]") == 1


def test_the_trace_leads_from_each_requirement_to_what_cites_it(
    documents: Mapping[str, str], requirements: str
) -> None:
    lines = {
        line.split("</a>")[1].split(" | ")[0]: line
        for line in documents["requirements-trace.md"].splitlines()
        if line.startswith("| <a")
    }
    assert list(lines) == [each.id for each in parse_requirements(requirements)]
    for table in ALL_TABLES:
        for row in table.rows:
            assert all(f"[{row.id}]" in lines[cite] for cite in row.cites)
        for law in (*table.invariants, *table.rules, *table.non_interference):
            assert all(f"[{table.name}.{law.name}]" in lines[cite] for cite in law.cites)


def test_every_requirement_that_a_table_cites_is_stated(requirements: str) -> None:
    assert unknown_citations(ALL_TABLES, parse_requirements(requirements)) == []


def test_a_citation_of_nothing_is_named(requirements: str) -> None:
    without = requirements.replace("- LEA-6 ", "- LEA-99 ")
    with pytest.raises(UserError, match=r"account\.tick\.forward cites LEA-6"):
        render_documents(without)


def test_requirements_go_on_over_lines() -> None:
    text = "## ADM: admission\n\n- ADM-1 One\n  and two.\n\n- ADM-2 Three.\nnot this\n  nor this\n"
    assert [(each.id, each.area, each.text) for each in parse_requirements(text)] == [
        ("ADM-1", "ADM: admission", "One and two."),
        ("ADM-2", "ADM: admission", "Three."),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("## ADM: a\n- ADM-1 x\n- ADM-1 y\n", "line 3: ADM-1 comes twice"),
        ("## ADM: a\n- IDN-1 x\n", "line 2: IDN-1 comes twice or outside"),
        ("nothing", "no line like"),
    ],
)
def test_wrong_requirements_are_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_requirements(text)


def test_two_hash_seeds_give_equal_bytes(repository: Path) -> None:
    program = (
        "import hashlib, sys\n"
        "from kvescrow.spec.render import render_documents, table_as_json, lifecycle_diagram\n"
        "from kvescrow.spec.tables.registry import ALL_TABLES\n"
        "pages = render_documents(open(sys.argv[1], encoding='utf-8').read())\n"
        "text = repr(list(pages.items())) + lifecycle_diagram() + ''.join(map(table_as_json, ALL_TABLES))\n"
        "print(hash('a'), hashlib.sha256(text.encode()).hexdigest())"
    )
    seen = [
        subprocess.run(
            [sys.executable, "-c", program, str(repository / "docs" / "requirements.md")],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for seed in ("1", "2")
    ]
    assert seen[0][0] != seen[1][0], "both runs had the same hash seed: nothing was compared"
    assert seen[0][1] == seen[1][1]
