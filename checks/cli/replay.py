"""`kvescrow replay`."""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import evolve

from kvescrow.checks.cli.output import columns, conclude, json_option
from kvescrow.checks.cli.progress import progress

if TYPE_CHECKING:
    from kvescrow.checks.monitor import Verdict
    from kvescrow.reference.replay import ReplayConfig
    from kvescrow.reference.traces import Trace


@click.command(epilog="Example: kvescrow replay mooncake --cancel-rate 0.05 --journal run.jsonl")
@click.argument("trace", default="mooncake")
@click.option("--format", "format_name", default="auto", show_default=True, help="Format of the trace file.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="Settings as TOML.")
@click.option("--cancel-rate", type=click.FloatRange(0, 1), help="Share of requests that are cancelled (injected).")
@click.option("--seed", type=click.IntRange(0), help="Seed of the injected cancels.")
@click.option("--requests", type=click.IntRange(1), help="Only the first so many requests.")
@click.option("--journal", type=click.Path(path_type=Path), help="Also write the journal to a new file.")
@json_option
def command(
    trace: str,
    format_name: str,
    config_file: Path | None,
    cancel_rate: float | None,
    seed: int | None,
    requests: int | None,
    journal: Path | None,
    json_file: str | None,
) -> int:
    """Run a whole trace on virtual time through admission, prefix sharing and scheduling.

    TRACE is a file, or the name of a packaged trace: mooncake, vtc. The journal is checked against the tables as
    it goes, row by row; the run passes only if every answer was the row's.
    """
    from kvescrow.reference.replay import ReplayConfig, read_config

    settings = read_config(config_file) if config_file else ReplayConfig()
    cancellations = settings.cancellations
    if cancel_rate is not None:
        cancellations = evolve(cancellations, rate=cancel_rate)
    if seed is not None:
        cancellations = evolve(cancellations, seed=seed)
    settings = evolve(settings, cancellations=cancellations)
    chosen = _trace(trace, format_name)
    if requests is not None:
        chosen = evolve(chosen, requests=chosen.requests[:requests])
    from kvescrow.reference.pages import BrokenInvariant
    from kvescrow.reference.replay import ReplayFault

    try:
        figures, verdict = _run(chosen, settings, journal)
    except (ReplayFault, BrokenInvariant) as fault:
        # The implementation contradicts itself: that is a verdict about it, not a mistake of the user.
        return conclude({"verdict": "refuted", "fault": str(fault)}, f"replay {trace}: refuted: {fault}", json_file)
    result = {
        **figures,
        "verdict": verdict.outcome.value,
        "events": verdict.events,
        "rows": dict(verdict.rows),
        "findings": [finding.as_json() for finding in verdict.findings],
    }
    lines = [*(str(finding) for finding in verdict.findings), *figures["remarks"], _table(result)]
    return conclude(result, "\n".join(lines), json_file)


def _trace(name: str, format_name: str) -> "Trace":
    from kvescrow.reference.traces import PACKAGED, packaged_trace, read_trace

    if name in PACKAGED and not Path(name).exists():
        return packaged_trace(name)
    return read_trace(name, format_name)


def _run(trace: "Trace", settings: "ReplayConfig", journal: Path | None) -> tuple[Mapping[str, Any], "Verdict"]:
    """Replay `trace` with a monitor watching, and return the figures and the monitor's verdict."""
    from kvescrow.checks.monitor import Monitor, page_line
    from kvescrow.reference.journal import JournalFile, line_of
    from kvescrow.reference.replay import capacity_of, replay
    from kvescrow.spec.tables.registry import digest

    header = capacity_of(trace, settings).as_header()
    monitor = Monitor(header)
    with ExitStack() as stack:
        advance = stack.enter_context(progress(f"replaying {trace.name}"))
        writer = stack.enter_context(JournalFile(journal, header, digest())) if journal else None

        def see(line: dict[str, object]) -> None:
            if writer is not None:
                writer.write(line)
            monitor.feed(line)

        figures = replay(
            trace,
            settings,
            ledger_recorder=lambda entry: see(line_of(entry)),
            page_recorder=lambda event: see(page_line(event)),
            progress=lambda ended, offered: advance(ended, offered, "requests"),
        )
        verdict = monitor.finish()
    return json.loads(figures.to_json()), verdict


def _table(result: Mapping[str, Any]) -> str:
    def seconds(microseconds: float) -> str:
        return f"{microseconds / 1e6:.2f} s"

    def quantiles(found: Mapping[str, Any]) -> str:
        shown = {name: value for name, value in found.items() if name != "count" and value is not None}
        return ", ".join(f"{name} {seconds(value)}" for name, value in shown.items()) or "none"

    def reasons(found: Mapping[str, int]) -> str:
        return ", ".join(f"{name} {count}" for name, count in found.items()) or "0"

    hit_rate = result["hit_rate"]
    facts = [
        ("offered", str(result["offered"])),
        ("admitted", str(result["admitted"])),
        ("refused", reasons(result["refused"])),
        ("expired", reasons(result["expired"])),
        ("cancelled (injected)", str(result["cancelled"])),
        ("completed", str(result["completed"])),
        ("utilisation", f"{result['utilisation']:.1%} mean, {result['peak_utilisation']:.1%} peak"),
        ("queue wait", quantiles(result["queue_wait"])),
        ("first token", quantiles(result["first_token"])),
        ("prefix hit rate", "no prompt looked up" if hit_rate is None else f"{hit_rate:.1%} of prompt tokens"),
        ("virtual span", seconds(result["virtual_span"])),
        ("journal", f"{result['events']} events, {len(result['rows'])} rows fired"),
    ]
    return f"{columns(facts)}\nreplay {result['trace']}: {result['verdict']} in {result['seconds']:.1f} s"
