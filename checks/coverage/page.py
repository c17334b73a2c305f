"""The page of what each layer sees. It needs no run: a run passes where it sees what this page says, and only there."""

from collections.abc import Iterator, Sequence

from kvescrow.checks.coverage.layers import Layer
from kvescrow.checks.coverage.report import CoverageReport
from kvescrow.checks.fuzz.goals import Goal
from kvescrow.spec.language.table import Row, Table
from kvescrow.spec.render.documents import HEADER
from kvescrow.spec.render.markdown import NONE, code, document, table

_INTRODUCTION = """\
Each row must fire, and each branch of its guard must be seen: a conjunct that is false on an event that no earlier row
took, or one alternative that is true alone. What a layer does not see is a hole. `kvescrow coverage` runs the layers,
and fails where a hole is not listed with its reason and where a listed one is seen after all. So where it passes, this
page is what it sees; the tests run it. [All tables](tables/index.md)."""

_LEGEND = """\
`x`: the row fires in this layer. A fraction counts the branches of its guard that the layer sees."""


def coverage_page(report: CoverageReport) -> str:
    """Return the Markdown of `report`: totals, each row in each layer, and what is listed, by its reason."""
    goals = report.goals
    return document(
        f"*{HEADER}*",
        "# What each layer sees",
        _INTRODUCTION,
        "## By layer",
        table(("layer", "sees a row or a branch where", "rows", "branches", "listed"), list(_layers(report, goals))),
        "## By row",
        _LEGEND,
        *(part for each in report.tables for part in _of_table(report, each, goals)),
        "## What is listed",
        *(_listed(report, layer) for layer in report.layers),
    )


_MEANS = {
    Layer.PROVE: "Z3 finds a view that the invariants allow, and the interpreter agrees",
    Layer.EXPLORE: "a reachable state of a small instance shows it",
    Layer.FUZZ: "a run of the fuzzer beside the reference shows it",
    Layer.VECTORS: "a hand-written scenario shows it",
    Layer.REPLAY: "a workload trace on virtual time shows it",
    Layer.HARNESS: "a run of the real decoder, in a fixed order, shows it",
}


def _layers(report: CoverageReport, goals: Sequence[Goal]) -> Iterator[tuple[str, ...]]:
    for layer, of_layer in report.layers.items():
        rows_seen, rows, branches_seen, branches = report.counts(layer, goals)
        counted = (f"{rows_seen} of {rows}", f"{branches_seen} of {branches}", str(len(of_layer.holes)))
        why = of_layer.seen.why_not_run
        yield (layer.value, _MEANS[layer], *(counted if not why else (f"not run: {why}", NONE, NONE)))


def _of_table(report: CoverageReport, each: Table, goals: Sequence[Goal]) -> Iterator[str]:
    yield f"### {each.name}"
    yield table(("row", *(layer.value for layer in report.layers)), [_of_row(report, row, goals) for row in each.rows])


def _of_row(report: CoverageReport, row: Row, goals: Sequence[Goal]) -> tuple[str, ...]:
    of_row = [goal for goal in goals if goal.row is row]
    return (code(row.id), *(_mark(report, layer, of_row) for layer in report.layers))


def _mark(report: CoverageReport, layer: Layer, goals: list[Goal]) -> str:
    rows_seen, _, seen, branches = report.counts(layer, goals)
    parts = (["x"] if rows_seen else []) + ([f"{seen}/{branches}"] if branches else [])
    return " ".join(parts) or NONE


def _listed(report: CoverageReport, layer: Layer) -> str:
    by_reason: dict[str, list[str]] = {}
    for name, reason in report.layers[layer].holes.items():
        by_reason.setdefault(reason, []).append(name)
    if not by_reason:
        return document(f"### {layer.value}", "Nothing.").rstrip()
    rows = [(reason, str(len(names))) for reason, names in by_reason.items()]
    return document(f"### {layer.value}", table(("reason", "holes"), rows)).rstrip()
