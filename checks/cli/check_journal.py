"""`kvescrow check-journal`."""

from pathlib import Path

import click

from kvescrow.checks.cli.output import conclude, json_option


@click.command(epilog="Example: kvescrow replay mooncake --journal run.jsonl && kvescrow check-journal run.jsonl")
@click.argument("journal", type=click.Path(path_type=Path))
@json_option
def command(journal: Path, json_file: str | None) -> int:
    """Check a recorded journal against the tables: each answer must be that of the row that fires.

    An empty, cut off or foreign journal, or one made under other tables, is refused; it never passes.
    """
    from kvescrow.checks.monitor import check_journal

    verdict = check_journal(journal)
    lines = [str(finding) for finding in verdict.findings]
    lines.append(f"check-journal: {verdict.outcome.value}, {verdict.events} events, {len(verdict.rows)} rows fired")
    return conclude(verdict.as_json(), "\n".join(lines), json_file)
