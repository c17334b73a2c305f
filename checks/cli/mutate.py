"""`kvescrow mutate`."""

from pathlib import Path

import click

from kvescrow.checks.cli.output import columns, conclude, json_option, write_atomically
from kvescrow.checks.cli.progress import progress
from kvescrow.spec.tables.registry import TABLE_BY_NAME
from kvescrow.spec.vocabulary import UserError

VECTORS = "tests.vectors:vectors"
"""Where a checkout has its hand-written scenarios."""


@click.command(
    epilog="Example: kvescrow mutate --table promise --json mutants.json     The whole: kvescrow mutate --write"
)
@click.option("--table", "tables", multiple=True, metavar="TABLE", help="Only mutants of this table; may be repeated.")
@click.option("--sample", type=click.IntRange(min=1), help="Judge only so many mutants, drawn by the seed.")
@click.option("--seed", type=int, help="Draws the sample and the runs beside the reference.")
@click.option("--runs", type=click.IntRange(min=1), help="Runs of the fuzzer beside the reference, of each kind.")
@click.option(
    "--processes", type=click.IntRange(min=1), default=2, show_default=True, help="Processes that judge at a time."
)
@click.option(
    "--vectors",
    default=VECTORS,
    show_default=True,
    metavar="PLACE",
    help="Hand-written scenarios, as package.module:factory; `none` to go without.",
)
@click.option(
    "--root",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("."),
    show_default=True,
    help="The checkout that the scenarios lie in.",
)
@click.option("--page", type=click.Path(dir_okay=False, path_type=Path), help="Write the result as a page too.")
@click.option("--write", is_flag=True, help="Write it as docs/mutation.md of the checkout; for all tables.")
@json_option
def command(
    tables: tuple[str, ...],
    sample: int | None,
    seed: int | None,
    runs: int | None,
    processes: int,
    vectors: str,
    root: Path,
    page: Path | None,
    write: bool,
    json_file: str | None,
) -> int:
    """Change every row of the tables in every small way, and see which check notices.

    A change that nothing notices is a survivor, unless it is proved to make no difference. One survivor fails the run.
    """
    # Loading z3 and Hypothesis takes a while, so it waits until it is sure that there is work.
    from kvescrow.checks.mutate.page import PAGE, mutation_page
    from kvescrow.checks.mutate.run import RUNS, SEED, Options, mutate
    from kvescrow.checks.mutate.verdicts import Fate

    if write:
        if tables or sample is not None or page is not None:
            raise UserError("--write is of all mutants of all tables: leave out --table, --sample and --page")
        page = root / PAGE
    options = Options(
        tables=tables or tuple(TABLE_BY_NAME),
        sample=sample,
        seed=SEED if seed is None else seed,
        runs=RUNS if runs is None else runs,
        vectors=None if vectors == "none" else vectors,
        root=root,
        processes=processes,
    )
    with progress("mutating") as advance:
        report = mutate(options, advance)
    for fate in (Fate.SURVIVOR, Fate.INCONCLUSIVE):
        for one in report.of(fate):
            click.echo(
                f"{fate.value}  {one.name}: {one.change}\n    {one.behaviour or '; '.join(one.gave_up)}", err=True
            )
    if page is not None:
        write_atomically(page, mutation_page(report))
    result = report.to_json()
    killed = ", ".join(f"{count} by {layer.value}" for layer, count in report.killed().items())
    lines = [(name, str(result[name])) for name in ("mutants", "equivalent", "survivors", "inconclusive")]
    summary = f"{columns(lines)}\nkilled: {killed}\nmutate: {report.verdict} in {report.seconds:.0f} s"
    return conclude(result, summary, json_file)
