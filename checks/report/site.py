"""The static site for reviewers: every page as text, from the tables and from what checks wrote.

The pages need neither a server nor a network. Scripts only add comfort: without them every row, step and figure is
still there.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

from attrs import frozen
from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt

from kvescrow.checks.report.charts import Axis, Bar, line_chart, ratio_chart
from kvescrow.checks.report.counterexamples import Counterexample
from kvescrow.checks.report.evidence import NOT_RUN, PASSED, PROVED, Evidence, Source, figure
from kvescrow.checks.report.pages import TablePage, badge, table_page
from kvescrow.checks.trace import TraceReport
from kvescrow.spec.language.table import Table
from kvescrow.spec.render import member_notes
from kvescrow.spec.render.difference import TableDifference
from kvescrow.spec.tables.registry import digest
from kvescrow.spec.vocabulary import UserError

GOOD = (PASSED, PROVED, "caught", "PASS", "SHIP")
STATIC = ("site.css", "site.js")
KINDS: Sequence[tuple[str, str]] = (
    ("prove", "every row against every law, for any number of entities"),
    ("explore", "every reachable state of small instances"),
    ("fuzz", "implementations beside the tables, step by step"),
    ("mutate", "every small change of a row, and what notices it"),
    ("coverage", "which rows and false guards each layer of checks has seen"),
    ("replay", "a recorded workload on virtual time"),
    ("check-journal", "a recorded journal, row by row"),
    ("conform", "a real paged-KV decoder, watched in memory"),
    ("verify", "all of it on small sizes"),
    ("grade", "a candidate beside a baseline"),
    ("diagnose", "where a candidate lost its time"),
)
"""Verbs whose results the front page shows, and what each looks at."""


@frozen
class Measurement:
    """One JSON file with figures."""

    name: str
    found: Mapping[str, Any]


@frozen
class Document:
    """A page that is written in Markdown, such as a design sheet."""

    slug: str
    title: str
    markdown: str


@frozen
class Versions:
    """What differs between an older dump of the tables and these."""

    old: str
    found: tuple[TableDifference, ...]


@frozen
class Contents:
    """Everything that the site shows."""

    tables: tuple[Table, ...]
    evidence: Evidence
    counterexamples: tuple[Counterexample, ...] = ()
    trace: TraceReport | None = None
    """None where there was no checkout to trace."""
    measurements: tuple[Measurement, ...] = ()
    versions: Versions | None = None
    """None where no older dump was given."""
    documents: tuple[Document, ...] = ()


def site(contents: Contents) -> Mapping[str, str]:
    """Return the text of every file of the site by its path."""
    tables = [table_page(each, contents.evidence, _state_notes(each)) for each in contents.tables]
    environment = _environment(contents)
    pages: dict[str, tuple[str, dict[str, object]]] = {
        "index.html": (
            "index.html",
            {"tables": tables, "kinds": KINDS, "others": _others(contents.evidence), "digest": digest(contents.tables)},
        ),
        "laws.html": ("laws.html", {"tables": tables}),
        "requirements.html": ("requirements.html", {"trace": contents.trace, "places": _places(tables)}),
        "counterexamples.html": ("counterexamples.html", {"found": contents.counterexamples}),
        "measurements.html": ("measurements.html", {"found": [_measured(each) for each in contents.measurements]}),
        "differences.html": ("differences.html", {"versions": contents.versions, "places": _places(tables)}),
    }
    pages |= {f"table-{table.name}.html": ("table.html", {"table": table}) for table in tables}
    pages |= {f"{each.slug}.html": ("document.html", _document(each)) for each in contents.documents}
    files = {
        path: environment.get_template(template).render(page=path, **values)
        for path, (template, values) in pages.items()
    }
    folder = resources.files("kvescrow.checks.report") / "static"
    files |= {name: (folder / name).read_text("utf-8") for name in STATIC}
    files["rows.js"] = f"window.KVESCROW_INDEX = {_script_safe(list(_index(tables, contents)))};\n"
    return files


def _others(evidence: Evidence) -> Sequence[Source]:
    """Return the results of verbs that have no card."""
    cards = {kind for kind, _ in KINDS}
    return [source for source in evidence.sources if source.kind not in cards]


def _environment(contents: Contents) -> Environment:
    environment = Environment(
        loader=PackageLoader("kvescrow.checks.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["state_of"] = lambda verdict: (
        "missing" if verdict == NOT_RUN else "good" if verdict in GOOD else "bad"
    )
    environment.filters["badge"] = badge
    environment.filters["old_and_new"] = _old_and_new
    environment.globals["evidence"] = contents.evidence
    environment.globals["NOT_RUN"] = NOT_RUN
    environment.globals["menu"] = _menu(contents)
    return environment


def _old_and_new(part: str) -> tuple[str, str, str]:
    """Return what of a row or law changed, from what, and to what; a part without the two has only its words."""
    name, _, change = part.partition(": ")
    old, arrow, new = change.partition(" -> ")
    return (name, old, new) if arrow else (part, "", "")


def _menu(contents: Contents) -> Sequence[tuple[str, str]]:
    return (
        ("index.html", "Overview"),
        *((f"table-{table.name}.html", table.name.replace("_", " ")) for table in contents.tables),
        ("laws.html", "Laws"),
        ("requirements.html", "Requirements"),
        ("counterexamples.html", "Counterexamples"),
        ("measurements.html", "Measurements"),
        ("differences.html", "Differences"),
        *((f"{each.slug}.html", each.title) for each in contents.documents),
    )


def _state_notes(table: Table) -> Mapping[str, str]:
    return {f"{table.state_type.__name__}.{name}": note for name, note in member_notes(table.state_type).items()}


def _places(tables: Iterable[TablePage]) -> Mapping[str, str]:
    """Return where each row and law is shown, by the name that others cite it by."""
    places: dict[str, str] = {}
    for table in tables:
        page = f"table-{table.name}.html"
        places |= {row.id: f"{page}#{row.id}" for row in table.rows}
        places |= {f"{table.name}.{law.name}": f"{page}#law-{law.name}" for law in (*table.laws, *table.assumptions)}
    return places


def _index(tables: Iterable[TablePage], contents: Contents) -> Iterable[Mapping[str, str]]:
    """Yield what the search box finds."""
    for table in tables:
        page = f"table-{table.name}.html"
        for row in table.rows:
            text = f"{row.note} {row.reply} {' '.join(row.cites)}"
            yield {"kind": "row", "name": row.id, "text": text, "href": f"{page}#{row.id}"}
        for law in (*table.laws, *table.assumptions):
            name = f"{table.name}.{law.name}"
            yield {"kind": law.kind, "name": name, "text": law.note, "href": f"{page}#law-{law.name}"}
        for state in table.states:
            name = f"{table.name} {state.name}"
            yield {"kind": "state", "name": name, "text": state.note, "href": f"{page}#state-{state.name}"}
    for each in contents.trace.covered if contents.trace else ():
        one = each.requirement
        yield {"kind": "requirement", "name": one.id, "text": one.text, "href": f"requirements.html#{one.id}"}


def _script_safe(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def _document(document: Document) -> dict[str, object]:
    html = MarkdownIt("commonmark", {"html": False}).enable("table").render(document.markdown)
    # Wide tables scroll by themselves, so that the page does not.
    html = html.replace("<table>", '<div class="scroll" tabindex="0"><table>').replace("</table>", "</table></div>")
    return {"document": document, "body": html}


@frozen
class _Measured:
    """A measurement as the page shows it."""

    name: str
    machine: str
    charts: tuple[str, ...]
    says: tuple[str, ...]
    notes: tuple[str, ...]
    """Inputs and assumptions."""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def _measured(measurement: Measurement) -> _Measured:
    try:
        return _shown(measurement)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"measurement {measurement.name}.json: no result of `kvescrow bench` or `experiment` ({error}: missing or "
            "misplaced); write it again, or take it away"
        ) from error


def _shown(measurement: Measurement) -> _Measured:
    found = measurement.found
    machine = ", ".join(f"{name} {value}" for name, value in found.get("machine", {}).items())
    rows = found.get("rows")
    if isinstance(rows, list) and all(isinstance(row, dict) and {"name", "ours", "unit"} <= set(row) for row in rows):
        return _compared(measurement.name, machine, rows)
    if "experiment" in found and "plots" in found:
        return _experiment(measurement.name, found)
    figures = tuple(_figures("", found))
    return _Measured(measurement.name, machine, (), (), (), ("figure", "value"), figures)


def _experiment(name: str, found: Mapping[str, Any]) -> _Measured:
    """Return an experiment, as `kvescrow experiment` writes it."""
    charts = [
        line_chart(
            plot["title"],
            Axis(plot["x"], plot["logarithmic"]),
            plot["y"],
            [(line["label"], line["points"]) for line in plot["lines"]],
            plot["limits"],
        )
        for plot in found["plots"]
    ]
    says = (found["question"], *found["findings"])
    notes = [f"{each['origin']}: {each['name']} {figure(each['value'])} {each['unit']}" for each in found["inputs"]]
    notes += [f"assumed: {each}" for each in found["assumptions"]]
    columns = tuple(found["rows"][0])
    rows = tuple(tuple(row.values()) for row in found["rows"])
    return _Measured(name, "", tuple(charts), says, tuple(notes), columns, rows)


def _compared(name: str, machine: str, rows: Sequence[Mapping[str, Any]]) -> _Measured:
    """Return measurements beside a peer, as `kvescrow bench` writes them."""
    bars = [
        Bar(
            row["name"],
            row["ratio"],
            f"{figure(row['ours'])} beside {figure(row['peer'])} {row['unit']}",
        )
        for row in rows
        if row.get("ratio")
    ]
    lines = tuple(
        (
            row["name"],
            figure(row["ours"]),
            figure(row.get("peer")),
            f"{row['ratio']:.2f}" if row.get("ratio") else "-",
            row["unit"],
            row.get("peer_name", ""),
        )
        for row in rows
    )
    charts = (ratio_chart(f"{name}: ours against a peer", bars),) if bars else ()
    return _Measured(name, machine, charts, (), (), ("", "ours", "peer", "ratio", "unit", "peer is"), lines)


def _figures(place: str, found: object) -> Iterable[tuple[str, str]]:
    """Yield each scalar below `found` with its place."""
    match found:
        case dict():
            for name, value in found.items():
                if name != "machine" or place:
                    yield from _figures(f"{place}.{name}" if place else str(name), value)
        case list():
            for number, value in enumerate(found):
                label = value.get("name", number) if isinstance(value, dict) else number
                yield from _figures(f"{place}[{label}]", value)
        case _:
            yield place, figure(found)
