"""`kvescrow report`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvescrow.checks.cli.output import conclude, json_option, write_atomically
from kvescrow.spec.tables.registry import ALL_TABLES
from kvescrow.spec.vocabulary import UserError

if TYPE_CHECKING:
    from kvescrow.checks.report import Document, Measurement, Versions
    from kvescrow.checks.trace import TraceReport

_FOLDER = click.Path(file_okay=False, path_type=Path)
_GIVEN = click.Path(file_okay=False, exists=True, path_type=Path)
"""A folder that is named and absent is a slip; one that stands by default may be absent."""
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(epilog="Example: kvescrow prove --json results/prove.json; kvescrow report site --results results")
@click.argument("folder", metavar="DIR", type=_FOLDER)
@click.option("--results", type=_GIVEN, help="JSON files that verbs wrote with --json.  [default: DIR/results]")
@click.option(
    "--counterexamples",
    type=_FOLDER,
    default=Path("counterexamples"),
    show_default=True,
    help="Scenarios that prove and explore wrote.",
)
@click.option(
    "--measurements",
    type=_GIVEN,
    help="JSON files that bench wrote.  [default: docs/measurements of the checkout]",
)
@click.option("--baseline", type=_FILE, metavar="OLD.json", help="Older tables, from `kvescrow render --dump`.")
@click.option("--worker", "workers", type=_FILE, multiple=True, help="A worker whose design sheet becomes a page.")
@click.option("--root", type=_FOLDER, default=Path("."), show_default=True, help="The checkout that is traced.")
@json_option
def command(
    folder: Path,
    results: Path | None,
    counterexamples: Path,
    measurements: Path | None,
    baseline: Path | None,
    workers: tuple[Path, ...],
    root: Path,
    json_file: str | None,
) -> int:
    """Write a static site about the tables into DIR: open DIR/index.html, from anywhere and without a network.

    It shows each row with its citations, proofs, coverage and mutants, as far as result files tell; what none tells is
    not_run. No check is run.
    """
    try:
        from kvescrow.checks.report import Contents, read_counterexamples, read_evidence, site
    except ModuleNotFoundError as error:
        raise UserError(f"report needs {error.name}: pip install 'kvescrow[report]'") from error
    contents = Contents(
        tables=ALL_TABLES,
        evidence=read_evidence([results or folder / "results"]),
        counterexamples=read_counterexamples(counterexamples),
        trace=_traced(root),
        measurements=_measurements(measurements or root / "docs" / "measurements"),
        versions=_versions(baseline),
        documents=tuple(map(_sheet, workers)),
    )
    files = site(contents)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made ({error.strerror}); name another folder") from error
    for name, text in files.items():
        write_atomically(folder / name, text)
        # A site is there to be read by others.
        (folder / name).chmod(0o644)
    result = {
        "verdict": "passed",
        "written": sorted(files),
        "results": {source.file: source.verdict for source in contents.evidence.sources},
        "counterexamples": [one.name for one in contents.counterexamples],
    }
    return conclude(result, f"wrote {len(files)} files; open {folder / 'index.html'}", json_file)


def _traced(root: Path) -> "TraceReport | None":
    """Return the trace of the checkout; None where `root` is none, as with an installed package."""
    from kvescrow.checks.documents import REQUIREMENTS
    from kvescrow.checks.trace import trace

    return trace(root) if (root / REQUIREMENTS).exists() else None


def _measurements(folder: Path) -> "tuple[Measurement, ...]":
    from kvescrow.checks.report import Measurement, read_json

    if not folder.is_dir():
        return ()
    found = [(path, read_json(path)) for path in sorted(folder.glob("*.json"))]
    for path, value in found:
        if not isinstance(value, dict):
            raise UserError(f"{path}: no JSON object; write it with `kvescrow bench ... --json`")
    return tuple(Measurement(path.stem, value) for path, value in found)


def _versions(baseline: Path | None) -> "Versions | None":
    from kvescrow.checks.report import Versions
    from kvescrow.spec.render import table_as_json
    from kvescrow.spec.render.difference import difference, read_dump

    if baseline is None:
        return None
    try:
        text = baseline.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{baseline}: cannot be read ({error}); write it with `kvescrow render --dump`") from error
    new = [json.loads(table_as_json(table)) for table in ALL_TABLES]
    return Versions(baseline.name, difference(read_dump(text, str(baseline)), new))


def _sheet(worker: Path) -> "Document":
    from kvescrow.checks.report import Document
    from kvescrow.checks.sheet import read_worker, sheet_page

    found = read_worker(worker)
    return Document(f"sheet-{worker.stem}", f"Sheet: {worker.stem}", sheet_page(found))
