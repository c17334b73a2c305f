"""`kvescrow check-journal`."""

from pathlib import Path

import click

from kvescrow.checks.cli.output import conclude, json_option


@click.command(epilog="Example: kvescrow replay mooncake --journal run.jsonl && kvescrow check-journal run.jsonl")
@click.argument("journal", type=click.Path(path_type=Path))
@click.option(
    "--mapping",
    metavar="FILE",
    help="JOURNAL is another engine's recording, read by this three-column file, or by a packaged one: vllm, plain.",
)
@json_option
def command(journal: Path, mapping: str | None, json_file: str | None) -> int:
    """Check a recorded journal against the tables: each answer must be that of the row that fires.

    An empty, cut off or foreign journal, or one made under other tables, is refused; it never passes. With --mapping a
    recording of another engine is checked against those laws that it can decide; an event that no row names is refused.
    """
    if mapping is not None:
        return _recording(journal, mapping, json_file)
    from kvescrow.checks.monitor import check_journal

    verdict = check_journal(journal)
    lines = [str(finding) for finding in verdict.findings]
    lines.append(f"check-journal: {verdict.outcome.value}, {verdict.events} events, {len(verdict.rows)} rows fired")
    return conclude(verdict.as_json(), "\n".join(lines), json_file)


def _recording(journal: Path, mapping: str, json_file: str | None) -> int:
    from kvescrow.checks.monitor.recording import LAWS, check_recording

    verdict = check_recording(journal, mapping)
    lines = [str(finding) for finding in verdict.findings]
    lines += [f"{verdict.laws[law.name]}: {law}" for law in LAWS if law.name not in verdict.undecided]
    lines += [
        f"not decided: {law}; needs {verdict.undecided[law.name]}" for law in LAWS if law.name in verdict.undecided
    ]
    record = verdict.as_json()
    decided = len(LAWS) - len(verdict.undecided)
    lines.append(f"check-journal: {record['verdict']}, {verdict.events} events, {decided} of {len(LAWS)} laws decided")
    return conclude(record, "\n".join(lines), json_file)
