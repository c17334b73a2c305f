"""`kvescrow replay`."""

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import evolve

from kvescrow.checks.cli.output import FiniteRange, conclude, json_option, new_file
from kvescrow.checks.cli.progress import progress
from kvescrow.checks.cli.replay_summary import summary
from kvescrow.spec.vocabulary import UserError

if TYPE_CHECKING:
    from kvescrow.checks.monitor import Verdict
    from kvescrow.reference.replay import ReplayConfig
    from kvescrow.reference.replay.offers import Offer
    from kvescrow.reference.replay.result import ReplayResult
    from kvescrow.reference.traces import Trace

STRICT_PRIORITY = "strict-priority"
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(epilog="Example: kvescrow replay mooncake --cancel-rate 0.05 --journal run.jsonl")
@click.argument("trace", default="mooncake")
@click.option("--format", "format_name", default="auto", show_default=True, help="Format of the trace file.")
@click.option("--config", "config_file", help="Settings as TOML: a file, or the name of one that comes with kvescrow.")
@click.option("--order", help="Order of the queue: first-come, fair, or strict-priority to compare with.")
@click.option("--policy", help="What is reserved: full-maximum, estimate, no-evict, watermark, peak-formula.")
@click.option("--cancel-rate", type=FiniteRange(0, 1), help="Share of requests that are cancelled (injected).")
@click.option("--seed", type=click.IntRange(0), help="Seed of the injected cancels.")
@click.option("--requests", type=click.IntRange(1), help="Only the first so many requests.")
@click.option("--journal", type=click.Path(path_type=Path), help="Also write the journal to a new file.")
@click.option(
    "--records",
    type=_FILE,
    callback=new_file,
    help="Also write a record of each request, for `kvescrow grade` and `diagnose`.",
)
@click.option("--plots", type=click.Path(path_type=Path), help="Also draw plots into this folder (extra `plots`).")
@json_option
def command(
    trace: str,
    format_name: str,
    config_file: str | None,
    order: str | None,
    policy: str | None,
    cancel_rate: float | None,
    seed: int | None,
    requests: int | None,
    journal: Path | None,
    records: Path | None,
    plots: Path | None,
    json_file: str | None,
) -> int:
    """Run a whole trace on virtual time through admission, prefix sharing and scheduling.

    TRACE is a file, or the name of a packaged trace: mooncake, vtc, azure-code, ragpulse. The journal is checked
    against the tables as it goes, row by row; the run passes only if every answer was the row's.
    """
    settings = _settings(config_file, order, policy, cancel_rate, seed)
    chosen = _trace(trace, format_name)
    if requests is not None:
        chosen = evolve(chosen, requests=chosen.requests[:requests])
    from kvescrow.reference.pages import BrokenInvariant
    from kvescrow.reference.replay import ReplayFault

    try:
        figures, verdict = _run(chosen, settings, journal, records)
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
    if plots is not None:
        from kvescrow.checks.cli.plots import draw

        draw(result, plots)
    lines = [*(str(finding) for finding in verdict.findings), *figures["remarks"], summary(result)]
    return conclude(result, "\n".join(lines), json_file)


def _settings(
    config_file: str | None, order: str | None, policy: str | None, cancel_rate: float | None, seed: int | None
) -> "ReplayConfig":
    """Read the configuration, and replace in it what the command line says.

    A value outside its domain is the user's mistake, and named as the option that it came from.
    """
    from kvescrow.reference.replay import ReplayConfig, read_config

    settings = read_config(_config_path(config_file)) if config_file else ReplayConfig()
    cancellations, scheduler, reservation = settings.cancellations, settings.scheduler, settings.reservation
    if cancel_rate is not None:
        cancellations = evolve(cancellations, rate=cancel_rate)
    if seed is not None:
        cancellations = evolve(cancellations, seed=seed)
    try:
        if order is not None:
            # Asked for by name here, an order that may starve is there to compare with.
            scheduler = evolve(scheduler, order=order, baseline=scheduler.baseline or order == STRICT_PRIORITY)
        if policy is not None:
            reservation = evolve(reservation, policy=policy)
    except UserError as error:
        raise UserError(f"--{error}") from None
    return evolve(settings, cancellations=cancellations, scheduler=scheduler, reservation=reservation)


def _config_path(name: str) -> Path:
    """Return the file of a configuration: of that path, or of that name in the package."""
    from importlib.resources import files

    packaged = Path(str(files("kvescrow.reference.replay").joinpath("configs", f"{name}.toml")))
    return packaged if "/" not in name and not os.path.exists(name) and os.path.isfile(packaged) else Path(name)


def _trace(name: str, format_name: str) -> "Trace":
    from kvescrow.reference.traces import PACKAGED, packaged_trace, read_trace

    if name in PACKAGED and not Path(name).exists():
        if format_name != "auto":
            raise UserError(f"--format has no effect on the packaged trace {name}; leave it out")
        return packaged_trace(name)
    return read_trace(name, format_name)


def _run(
    trace: "Trace", settings: "ReplayConfig", journal: Path | None, records: Path | None
) -> tuple[Mapping[str, Any], "Verdict"]:
    """Replay `trace` with a monitor watching, and return the figures and the monitor's verdict."""
    from kvescrow.checks.monitor import Monitor, page_line
    from kvescrow.reference.journal import JournalFile, line_of
    from kvescrow.reference.replay import capacity_of, replay
    from kvescrow.spec.tables.registry import digest

    header = capacity_of(trace, settings).as_header()
    monitor = Monitor(header)
    offers: list[Offer] = []
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
            on_offer=offers.append,
        )
        if not monitor.events:
            became = {**figures.refused, **figures.expired, "cancelled": figures.cancelled}
            reasons = ", ".join(f"{reason} {count}" for reason, count in became.items() if count)
            raise UserError(
                f"{settings.source}: no request of {trace.name} came from the queue to the ledger "
                f"({reasons}), so nothing was checked: let requests wait longer (times.queue_wait, or queue_wait of "
                "their class)"
            )
        verdict = monitor.finish()
    if records is not None:
        _write_records(records, trace, settings, figures, offers, verdict)
    return json.loads(figures.to_json()), verdict


def _write_records(
    path: Path,
    trace: "Trace",
    settings: "ReplayConfig",
    result: "ReplayResult",
    offers: "list[Offer]",
    verdict: "Verdict",
) -> None:
    from kvescrow.reference.grading.files import write_run
    from kvescrow.reference.grading.records import Evidence
    from kvescrow.reference.grading.replayed import PROBE, Replayed, run_of

    found = Evidence(verdict.events, tuple(str(finding) for finding in verdict.findings), "the journal's check")
    pool = result.policy["pool_tokens"]
    assert isinstance(pool, int), "the policy tells the pool's tokens"
    probe = settings.cost.model.duration(PROBE)
    write_run(path, run_of(Replayed(trace.name, pool, result.virtual_span, probe, found), offers))
