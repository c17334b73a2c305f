"""`kvescrow prove`."""

from pathlib import Path

import click

from kvescrow.checks.cli.output import columns, conclude, json_option
from kvescrow.checks.cli.progress import progress
from kvescrow.spec.tables.registry import ALL_TABLES, TABLE_BY_NAME
from kvescrow.spec.vocabulary import UserError


@click.command(epilog="Example: kvescrow prove reservation page --json proof.json")
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@click.option(
    "--counterexamples",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("counterexamples"),
    show_default=True,
    help="Folder for refutations as scenarios; made only when there is one.",
)
@click.option("--scenario", type=click.Path(path_type=Path), help="Run a refutation again, and prove nothing.")
@json_option
def command(tables: tuple[str, ...], counterexamples: Path, scenario: Path | None, json_file: str | None) -> int:
    """Prove every row of the tables against every invariant, for any number of entities.

    TABLE limits the proof to some tables. A refutation is shown as a table of the state before and after, and is
    written as a scenario that `--scenario` replays in the interpreter.
    """
    # z3 takes a while to load, so it is loaded when there is something to prove.
    from kvescrow.checks.prove import prove, render_counterexample, replay_scenario, write_scenario

    if scenario is not None:
        replay = replay_scenario(scenario, ALL_TABLES)
        verdict = "refuted" if replay.violated else "passed"
        return conclude({"verdict": verdict, "scenario": str(scenario)}, replay.why, json_file)
    unknown = [name for name in tables if name not in TABLE_BY_NAME]
    if unknown:
        raise UserError(f"no table is called {', '.join(unknown)}; the tables are {', '.join(TABLE_BY_NAME)}")
    chosen = [TABLE_BY_NAME[name] for name in tables] or list(ALL_TABLES)
    with progress("proving") as advance:
        report = prove(chosen, on_progress=advance)
    for result in report.failures:
        click.echo(str(result), err=True)
        if result.counterexample is not None:
            counterexamples.mkdir(parents=True, exist_ok=True)
            place = "-".join(filter(None, (result.row.replace("/", "-"), result.state, result.invariant)))
            path = counterexamples / f"{place}.json"
            write_scenario(result.counterexample, path)
            click.echo(
                f"{render_counterexample(result.counterexample)}\nreplay: kvescrow prove --scenario {path}", err=True
            )
    lines = [("table", "rows", "obligations", "proved")]
    for table in chosen:
        of_table = [result for result in report.results if result.table == table.name]
        proved = sum(result.verdict.value == "proved" for result in of_table)
        lines.append((table.name, str(len(table.rows)), str(len(of_table)), str(proved)))
    summary = f"{columns(lines)}\nprove: {report.verdict}, {len(report.results)} obligations in {report.seconds:.1f} s"
    return conclude(report.to_json(), summary, json_file)
