"""`kvescrow render`."""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from kvescrow.checks.cli.output import conclude, json_option, write_atomically
from kvescrow.checks.documents import outdated_measurements, stale_documents, write_documents
from kvescrow.spec.vocabulary import UserError

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(
    epilog="Example: kvescrow render --dump new.json --prove && kvescrow render --diff old.json new.json     "
    "where old.json was written by the older checkout"
)
@click.option("--check", is_flag=True, help="Write nothing; fail where a committed page is not current.")
@click.option("--dump", type=_FILE, metavar="FILE", help="Write all tables as JSON to FILE instead of the pages.")
@click.option("--prove", is_flag=True, help="With --dump: prove the tables first, and write each verdict too.")
@click.option(
    "--diff",
    nargs=2,
    type=_FILE,
    metavar="OLD NEW",
    help="Compare two dumps: rows and laws added, removed and changed, and the proofs that this touches.",
)
@click.option(
    "--root",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("."),
    show_default=True,
    help="The checkout whose documents are meant.",
)
@json_option
def command(
    check: bool, dump: Path | None, prove: bool, diff: tuple[Path, Path] | None, root: Path, json_file: str | None
) -> int:
    """Write the pages that are generated from the tables, or check that the committed ones are current.

    With --dump and --diff: show a reviewer what differs between two versions of the tables. The comparison fails only
    where both dumps have verdicts, and something is no longer proved.
    """
    if sum((check, dump is not None, diff is not None)) > 1:
        raise UserError("--check, --dump and --diff are three different things: choose one")
    if prove and dump is None:
        raise UserError("--prove goes with --dump; to prove and write nothing: kvescrow prove")
    if dump is not None:
        return _dump(dump, prove, json_file)
    if diff is not None:
        return _diff(diff, json_file)
    return _check(root, json_file) if check else _write(root, json_file)


def _write(root: Path, json_file: str | None) -> int:
    changed = write_documents(root)
    lines = [f"wrote {path}" for path in changed] or ["every page was current"]
    return conclude({"verdict": "passed", "written": changed}, "\n".join(lines), json_file)


def _check(root: Path, json_file: str | None) -> int:
    stale, outdated = stale_documents(root), outdated_measurements(root)
    verdict = "failed" if stale or outdated else "passed"
    lines = [*stale, f"run `kvescrow render` to write {len(stale)} page(s)"] if stale else []
    lines = [*lines, *outdated] or ["every page is current"]
    return conclude({"verdict": verdict, "stale": stale, "outdated": outdated}, "\n".join(lines), json_file)


def _dump(file: Path, prove: bool, json_file: str | None) -> int:
    from kvescrow.spec.render.difference import VERDICTS
    from kvescrow.spec.render.json_form import table_as_json
    from kvescrow.spec.tables.registry import ALL_TABLES

    tables = [json.loads(table_as_json(table)) for table in ALL_TABLES]
    if prove:
        verdicts = _verdicts()
        tables = [{**table, VERDICTS: verdicts[table["name"]]} for table in tables]
    write_atomically(file, json.dumps(tables, indent=1, ensure_ascii=False) + "\n")
    result = {"verdict": "passed", "written": [str(file)], "tables": [table["name"] for table in tables]}
    return conclude(result, f"wrote {len(tables)} tables to {file}", json_file)


def _verdicts() -> dict[str, dict[str, str]]:
    """Prove all tables; return table -> obligation -> verdict."""
    from kvescrow.checks.cli.progress import progress
    from kvescrow.checks.prove import prove
    from kvescrow.spec.tables.registry import ALL_TABLES

    with progress("proving") as advance:
        report = prove(ALL_TABLES, on_progress=advance)
    found: dict[str, dict[str, str]] = {table.name: {} for table in ALL_TABLES}
    for result in report.results:
        place = f"{result.row} in {result.state}" if result.state else result.row
        found[result.table][f"{place}: {result.invariant}"] = result.verdict.value
    return found


def _diff(files: Sequence[Path], json_file: str | None) -> int:
    from kvescrow.spec.render.difference import difference, read_dump, render_difference

    old, new = (read_dump(_text(file), str(file)) for file in files)
    found = difference(old, new)
    lost = [name for each in found for name in each.proofs.lost]
    verdict = "failed" if lost else "passed"
    lines = [render_difference(found), *(f"not proved any more, or not yet: {name}" for name in lost)]
    result = {"verdict": verdict, "not_proved": lost, "tables": [each.to_json() for each in found]}
    return conclude(result, "\n".join(lines), json_file)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read ({error}); write it with `kvescrow render --dump`") from error
