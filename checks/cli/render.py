"""`kvescrow render`."""

from pathlib import Path

import click

from kvescrow.checks.cli.output import conclude, json_option
from kvescrow.checks.documents import stale_documents, write_documents


@click.command(epilog="Example: kvescrow render --check")
@click.option("--check", is_flag=True, help="Write nothing; fail where a committed page is not current.")
@click.option(
    "--root",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("."),
    show_default=True,
    help="The checkout whose documents are meant.",
)
@json_option
def command(check: bool, root: Path, json_file: str | None) -> int:
    """Write the pages that are generated from the tables, or check that the committed ones are current."""
    if not check:
        changed = write_documents(root)
        lines = [f"wrote {path}" for path in changed] or ["every page was current"]
        return conclude({"verdict": "passed", "written": changed}, "\n".join(lines), json_file)
    stale = stale_documents(root)
    verdict = "failed" if stale else "passed"
    lines = [*stale, f"run `kvescrow render` to write {len(stale)} page(s)"] if stale else ["every page is current"]
    return conclude({"verdict": verdict, "stale": stale}, "\n".join(lines), json_file)
