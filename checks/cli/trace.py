"""`kvescrow trace`."""

from pathlib import Path

import click

from kvescrow.checks.cli.output import columns, conclude, json_option
from kvescrow.checks.trace import Covered, trace
from kvescrow.spec.vocabulary import UserError


@click.command(epilog="Example: kvescrow trace PAG-4    What answers to one requirement, place by place.")
@click.argument("requirements", nargs=-1, metavar="[REQUIREMENT]...")
@click.option(
    "--root",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("."),
    show_default=True,
    help="The checkout that is meant.",
)
@json_option
def command(requirements: tuple[str, ...], root: Path, json_file: str | None) -> int:
    """Lead from each requirement to the rows, laws, tests and modules that answer to it.

    Fails where nothing does, unless the requirement is listed with the reason; and where a listed one is covered.
    """
    report = trace(root)
    by_id = {each.requirement.id: each for each in report.covered}
    unknown = [name for name in requirements if name not in by_id]
    if unknown:
        raise UserError(f"no requirement is called {', '.join(unknown)}; they are {', '.join(by_id)}")
    shown = [_places(by_id[name]) for name in requirements] or [_counts(report.covered)]
    covered = sum(each.is_covered for each in report.covered)
    told = [*shown, *report.problems, f"trace: {report.verdict}, {covered} of {len(report.covered)} covered"]
    return conclude(report.to_json(), "\n".join(told), json_file)


def _counts(covered: tuple[Covered, ...]) -> str:
    lines: list[tuple[str, ...]] = [("requirement", "rows", "laws", "tests", "modules")]
    for each in covered:
        places = (each.rows, each.laws, each.tests, each.modules)
        lines.append((each.requirement.id, *(str(len(part)) if part else "-" for part in places)))
    return columns(lines)


def _places(one: Covered) -> str:
    parts = (("row", one.rows), ("law", one.laws), ("test", one.tests), ("module", one.modules))
    lines = [f"  {kind:6} {place}" for kind, places in parts for place in places]
    return "\n".join((f"{one.requirement.id} {one.requirement.text}", *lines))
