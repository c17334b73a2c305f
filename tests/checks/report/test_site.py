"""The site shows every row, law and requirement, links only to what is there, and claims nothing that no file says."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kvescrow.checks.cli.front import main
from kvescrow.checks.report import Contents, Measurement, Versions, read_evidence, site
from kvescrow.checks.report.diagram import changes_of, state_diagram
from kvescrow.checks.report.pages import initial_states
from kvescrow.spec.language.table import Table
from kvescrow.spec.render import table_as_json
from kvescrow.spec.render.difference import difference, read_dump
from kvescrow.spec.tables.promise import PROMISE
from kvescrow.spec.tables.registry import ALL_TABLES


class Page(HTMLParser):
    """Collects the anchors, links and loaded files of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "a":
            self.links.append(found["href"])
        elif "href" in found or "src" in found:
            self.loads.append(found.get("href") or found["src"])


def pages_of(files: Mapping[str, str]) -> dict[str, Page]:
    return {path: Page(text) for path, text in files.items() if path.endswith(".html")}


@pytest.mark.parametrize("table", ALL_TABLES, ids=lambda table: table.name)
def test_a_page_shows_every_row_law_and_state(bare: Mapping[str, str], table: Table) -> None:
    ids = set(Page(bare[f"table-{table.name}.html"]).ids)
    assert {row.id for row in table.rows} <= ids
    laws = (*table.invariants, *table.rules, *table.assumptions, *table.non_interference)
    assert {f"law-{law.name}" for law in laws} <= ids
    assert {f"state-{state.name}" for state in table.state_type} <= ids


def test_every_link_leads_somewhere_in_the_site(bare: Mapping[str, str]) -> None:
    pages = pages_of(bare)
    for path, page in pages.items():
        assert len(page.ids) == len(set(page.ids)), path
        for link in page.links:
            file, _, anchor = link.partition("#")
            target = pages[file or path]
            assert not anchor or anchor in target.ids, f"{path} links to {link}"


def test_what_search_finds_is_there(bare: Mapping[str, str]) -> None:
    pages = pages_of(bare)
    entries = json.loads(bare["rows.js"].removeprefix("window.KVESCROW_INDEX = ").rstrip(";\n"))
    rows = {entry["name"] for entry in entries if entry["kind"] == "row"}
    assert rows == {row.id for table in ALL_TABLES for row in table.rows}
    for entry in entries:
        file, _, anchor = entry["href"].partition("#")
        assert anchor in pages[file].ids


def test_nothing_comes_from_elsewhere(bare: Mapping[str, str]) -> None:
    for path, page in pages_of(bare).items():
        assert set(page.loads) == {"site.css", "rows.js", "site.js"}, path
    assert not re.search(r"https?://|@import|url\(", bare["site.css"] + bare["site.js"])


def test_what_no_file_says_is_not_run(bare: Mapping[str, str]) -> None:
    assert "passed" not in re.sub(r"<[^>]*>", " ", bare["index.html"]).split("Tables")[0]
    assert bare["table-promise.html"].count("badge missing") >= 3 * len(PROMISE.rows)
    assert "badge good" not in bare["table-promise.html"]


def test_a_document_becomes_a_page_and_its_text_is_no_markup(bare: Mapping[str, str]) -> None:
    assert "<td><code>&lt;2&gt;</code></td>" in bare["sheet-x.html"]
    assert 'href="sheet-x.html"' in bare["index.html"]


def write(folder: Path, name: str, result: dict[str, object]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(result), "utf-8")


def obligation(row: str, law: str, verdict: str) -> dict[str, object]:
    return {"table": "promise", "row": row, "invariant": law, "state": None, "verdict": verdict}


ROW, OTHER = "promise.admit.grant", "promise.close.released"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Results of several checks about two rows."""
    folder = tmp_path / "results"
    proofs = [
        obligation(ROW, "witness", "proved"),
        obligation(ROW, "promises_fit", "proved"),
        obligation(OTHER, "witness", "proved"),
        obligation(OTHER, "promises_fit", "refuted"),
    ]
    write(folder, "prove.json", {"verdict": "refuted", "obligations": 4, "seconds": 1.5, "results": proofs})
    mutant = {"table": "promise", "operator": "x", "change": "a change", "killed_by": {"prove": "w"}, "seconds": 0}
    mutants = [
        {**mutant, "name": f"{ROW}: effect dropped 0", "fate": "killed"},
        {**mutant, "name": f"{ROW}: effect dropped 1", "fate": "killed"},
        {**mutant, "name": f"{OTHER}: effect dropped 0", "fate": "survivor", "killed_by": {}},
    ]
    write(folder, "mutate.json", {"verdict": "failed", "mutants": 3, "killed": {}, "results": mutants})
    fuzz = {"target": "pages", "rows_hit": 1, "holes": [OTHER], "unreachable": [], "tables": ["promise"]}
    write(folder, "fuzz.json", {"verdict": "uncovered", **fuzz})
    explored = {"instance": "promises", "rows": [OTHER]}
    write(folder, "explore.json", {"verdict": "passed", "instances": [explored], "states": 7, "transitions": 9})
    return folder


def card(page: str, row: str) -> str:
    """The text of one row."""
    article = page.partition(f'id="{row}"')[2].partition("</article>")[0]
    return " ".join(re.sub(r"<[^>]*>", " ", article).split())


def test_a_row_has_its_own_evidence(results: Path) -> None:
    files = site(Contents(tables=ALL_TABLES, evidence=read_evidence([results])))
    page = files["table-promise.html"]
    assert "proofs 2/2 proved fired in fuzz mutants 2/2 noticed" in card(page, ROW)
    assert "proofs 1/2 refuted fired in explore mutants 0/1 noticed" in card(page, OTHER)
    assert "refuted (1): promises_fit" in card(page, OTHER)
    assert "survivor a change" in card(page, OTHER)
    assert "3/4 refuted" in files["index.html"]
    assert "2 killed" in files["index.html"]
    assert "1 survivor" in files["index.html"]


def test_coverage_by_layer_shows_rows_and_branches_of_their_guards(results: Path) -> None:
    goals = {ROW: ["prove", "vectors"], f"{ROW} without `a < b`": ["explore"], f"{OTHER} without `c`": []}
    write(results, "coverage.json", {"verdict": "failed", "goals": goals, "layers": {}})
    page = site(Contents(tables=ALL_TABLES, evidence=read_evidence([results])))["table-promise.html"]
    assert "fired in prove vectors fuzz" in card(page, ROW)
    assert "guard without `a &lt; b` seen in explore" in card(page, ROW)
    assert "guard without `c` seen in not_run" in card(page, OTHER)


def test_a_result_of_another_verb_is_shown_too(results: Path) -> None:
    write(results, "torture.json", {"verdict": "failed", "store": "sqlite", "lost": 3})
    page = site(Contents(tables=ALL_TABLES, evidence=read_evidence([results])))["index.html"]
    text = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    assert "Other result files torture.json failed store sqlite, lost 3 Tables" in text


def test_the_front_page_shows_the_worst_verdict_of_a_verb(results: Path) -> None:
    write(results, "prove-again.json", {"verdict": "passed", "obligations": 1, "seconds": 1.0, "results": []})
    evidence = read_evidence([results])
    assert (evidence.verdict("prove"), evidence.verdict("explore")) == ("refuted", "passed")
    assert evidence.verdict("conform") == "not_run"


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "not a readable JSON file"), ("[]", "`verdict` is missing"), ('{"verdict": 1}', "`verdict` is missing")],
)
def test_a_file_that_is_no_result_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    (tmp_path / "x.json").write_text(text, "utf-8")
    with pytest.raises(SystemExit) as exit_:
        main(["report", str(tmp_path / "site"), "--results", str(tmp_path)])
    assert exit_.value.code == 2
    assert says in capsys.readouterr().err


def test_the_command_writes_the_site_and_says_what_it_read(
    tmp_path: Path, results: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old.json"
    tables = [json.loads(table_as_json(table)) for table in ALL_TABLES]
    tables[0]["rows"] = tables[0]["rows"][1:]
    tables[0]["rows"][5]["note"] = "an older note"
    old.write_text(json.dumps(tables), "utf-8")
    worker = repository / "docs" / "examples" / "worker.toml"
    arguments = ["report", str(tmp_path / "site"), "--results", str(results), "--baseline", str(old)]
    arguments += ["--worker", str(worker), "--root", str(tmp_path), "--json", "-"]
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 0
    told = json.loads(capsys.readouterr().out)
    assert told["results"] == {
        "explore.json": "passed",
        "fuzz.json": "uncovered",
        "mutate.json": "failed",
        "prove.json": "refuted",
    }
    assert sorted(path.name for path in (tmp_path / "site").iterdir()) == told["written"]
    assert "not_run" in (tmp_path / "site" / "requirements.html").read_text("utf-8")
    differences = (tmp_path / "site" / "differences.html").read_text("utf-8")
    assert ALL_TABLES[0].rows[0].id in differences
    assert "note<br><del>an older note</del><br><ins>" in differences
    assert "30,740 usable pages" in (tmp_path / "site" / "sheet-worker.html").read_text("utf-8")


def test_equal_tables_do_not_differ_and_figures_are_drawn() -> None:
    dump = read_dump(table_as_json(PROMISE), "old")
    bench = {
        "machine": {"cores": "2"},
        "rows": [
            {"name": "miss", "ours": 3000.0, "peer": 1500.0, "ratio": 2.0, "unit": "1/s", "peer_name": "p"},
            {"name": "alone", "ours": 5.0, "peer": None, "ratio": None, "unit": "1/s", "peer_name": ""},
        ],
    }
    files = site(
        Contents(
            tables=(PROMISE,),
            evidence=read_evidence([]),
            versions=Versions("old.json", difference(dump, dump)),
            measurements=(Measurement("pages", bench), Measurement("other", {"a": {"b": [1.5]}})),
        )
    )
    assert "The tables are the same." in files["differences.html"]
    assert files["measurements.html"].count("<rect") == 1
    assert "2.00x" in files["measurements.html"]
    assert '<th scope="row">a.b[0]</th><td>1.5</td>' in files["measurements.html"]


def test_an_experiment_is_drawn_with_its_assumptions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["experiment", "prefill-deadline", "--json", str(tmp_path / "deadline.json")])
    found = json.loads((tmp_path / "deadline.json").read_text("utf-8"))
    page = site(
        Contents(tables=(PROMISE,), evidence=read_evidence([]), measurements=(Measurement("deadline", found),))
    )["measurements.html"]
    assert page.count('class="line colour-0"') == 2
    assert page.count('class="limit"') == 2
    assert page.count("<circle") == sum(len(line["points"]) for plot in found["plots"] for line in plot["lines"])
    assert "assumed: The decodes stay as they are" in page
    assert "synthetic: fixed cost of a step 5,000,000 ns" in page
    assert '<th scope="row">256</th><td>none</td>' in page


@pytest.mark.parametrize("table", ALL_TABLES, ids=lambda table: table.name)
def test_a_diagram_draws_each_change_of_state(table: Table) -> None:
    moves = {(row.event, s, row.to) for row in table.rows for s in row.sources if row.to not in (None, s)}
    changes = changes_of(table)
    assert {(change.event, source, change.target) for change in changes for source in change.sources} == moves
    drawn = state_diagram(table, initial_states(table))
    assert drawn.count("<circle") == sum(len(change.sources) for change in changes)
    assert all(row.id in drawn for row in table.rows if row.to is not None and set(row.sources) != {row.to})


def test_the_site_is_the_same_each_time(bare: Mapping[str, str], repository: Path) -> None:
    evidence = read_evidence([])
    again = site(Contents(tables=ALL_TABLES, evidence=evidence))
    assert again == site(Contents(tables=ALL_TABLES, evidence=evidence))
    assert again["site.css"] == bare["site.css"]
