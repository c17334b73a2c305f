"""`kvescrow coverage`."""

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kvescrow.checks.cli.mutate import VECTORS
from kvescrow.checks.cli.output import columns, conclude, json_option
from kvescrow.checks.cli.progress import progress
from kvescrow.checks.coverage import Layer
from kvescrow.spec.vocabulary import UserError

if TYPE_CHECKING:
    from kvescrow.checks.coverage import CoverageReport, Seen

REQUESTS, CANCELLED = 200, 0.2
"""Of the replayed trace: its first so many requests, and the share of them that is cancelled."""

Show = Callable[[str], None]
Goals = frozenset[str]


@click.command(epilog="Example: kvescrow coverage --layer prove --layer explore --json coverage.json")
@click.option(
    "--layer",
    "layers",
    multiple=True,
    type=click.Choice([layer.value for layer in Layer]),
    help="Only this layer; may be repeated. All of them by default, one to two minutes in all.",
)
@click.option(
    "--root",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("."),
    show_default=True,
    help="The checkout that the scenarios lie in.",
)
@json_option
def command(layers: tuple[str, ...], root: Path, json_file: str | None) -> int:
    """Ask each layer of checks which rows and which false guards of the tables it sees.

    The layers are proofs, search, fuzzing, hand-written scenarios, a replayed trace, and the decoder on the CPU. Fails
    where a layer misses something that is not listed with its reason, and where something listed is seen after all.
    Each sees the same on every machine. docs/coverage.md is rendered from the list, in checks/coverage/holes.py.
    """
    from kvescrow.checks.coverage import judged
    from kvescrow.checks.coverage.holes import HOLES
    from kvescrow.spec.tables.registry import ALL_TABLES

    chosen = [layer for layer in Layer if layer.value in layers] or list(Layer)
    with progress("covering") as advance:
        seen = []
        for number, layer in enumerate(chosen):

            def show(what: str, number: int = number, layer: Layer = layer) -> None:
                advance(number, len(chosen), f"{layer.value} {what}".rstrip())

            show("")
            seen.append(_seen(layer, root, show))
    report = judged(seen, ALL_TABLES, HOLES)
    return conclude(report.to_json(), _summary(report), json_file)


def _seen(layer: Layer, root: Path, show: Show) -> "Seen":
    from kvescrow.checks.coverage import Seen

    started = time.monotonic()
    found = _LAYERS[layer](root, show)
    why = found if isinstance(found, str) else ""
    return Seen(layer, frozenset() if isinstance(found, str) else found, time.monotonic() - started, why)


def _summary(report: "CoverageReport") -> str:
    lines: list[tuple[str, ...]] = [("layer", "verdict", "rows", "branches of guards", "listed", "seconds")]
    for layer, of_layer in report.layers.items():
        rows_seen, rows, seen, branches = report.counts(layer, report.goals)
        counts = (f"{rows_seen} of {rows}", f"{seen} of {branches}", str(len(of_layer.holes)))
        lines.append((layer.value, of_layer.verdict, *counts, f"{of_layer.seen.seconds:.1f}"))
    notes = [
        f"{layer.value} was not run: {each.seen.why_not_run}"
        for layer, each in report.layers.items()
        if each.seen.why_not_run
    ]
    names = ", ".join(layer.value for layer in report.layers)
    which = "" if len(report.layers) == len(Layer) else f" of {names} alone"
    return "\n".join([*report.problems, *notes, columns(lines), f"coverage{which}: {report.verdict}"])


# --- layers -----------------------------------------------------------------------------------------------------------


def _proved(root: Path, show: Show) -> Goals:
    from kvescrow.checks.coverage.proved import proved
    from kvescrow.spec.tables.registry import ALL_TABLES

    return proved(ALL_TABLES)


def _searched(root: Path, show: Show) -> Goals:
    from kvescrow.checks.coverage import seen_by
    from kvescrow.checks.coverage.searched import searched
    from kvescrow.checks.explore import GATE, instance_called
    from kvescrow.spec.tables.registry import ALL_TABLES

    def instance(name: str):  # type: ignore[no-untyped-def]  # an Instance, whose module is loaded late
        show(name)
        return instance_called(name)

    return seen_by([searched(map(instance, GATE), ALL_TABLES)])


def _fuzzed(root: Path, show: Show) -> Goals:
    from kvescrow.checks.coverage.driven import fuzzed

    return fuzzed(show)


def _vectors(root: Path, show: Show) -> Goals:
    from kvescrow.checks.coverage.driven import shown_by_vectors
    from kvescrow.spec.tables.registry import ALL_TABLES

    return shown_by_vectors(VECTORS, root, ALL_TABLES)


def _replayed(root: Path, show: Show) -> Goals:
    from attrs import evolve

    from kvescrow.checks.coverage import seen_by
    from kvescrow.checks.fuzz.coverage import Coverage
    from kvescrow.checks.monitor import Monitor, page_line
    from kvescrow.reference.journal import line_of
    from kvescrow.reference.replay import ReplayConfig, capacity_of, replay
    from kvescrow.reference.traces import packaged_trace
    from kvescrow.spec.tables.registry import ALL_TABLES

    coverage = Coverage(ALL_TABLES)
    whole, plain = packaged_trace("mooncake"), ReplayConfig()
    trace = evolve(whole, requests=whole.requests[:REQUESTS])
    settings = evolve(plain, cancellations=evolve(plain.cancellations, rate=CANCELLED))
    monitor = Monitor(capacity_of(trace, settings).as_header(), watch=coverage.watch)

    def see(line: dict[str, object]) -> None:
        monitor.feed(line)

    replay(
        trace,
        settings,
        ledger_recorder=lambda entry: see(line_of(entry)),
        page_recorder=lambda event: see(page_line(event)),
        progress=lambda ended, offered: show(f"{ended} of {offered} requests"),
    )
    for finding in monitor.finish().findings:
        raise UserError(f"the replay differs from the tables ({finding}); mend that first: kvescrow replay mooncake")
    return seen_by([coverage])


def _conformed(root: Path, show: Show) -> Goals | str:
    from kvescrow.checks.coverage import seen_by
    from kvescrow.checks.fuzz.coverage import Coverage
    from kvescrow.checks.monitor import check_journal
    from kvescrow.gpu_harness.conform import ConformFault, Verdict
    from kvescrow.gpu_harness.conform.courses import courses
    from kvescrow.gpu_harness.streams import DeviceError
    from kvescrow.spec.tables.registry import ALL_TABLES

    coverage = Coverage(ALL_TABLES)
    with tempfile.TemporaryDirectory() as folder:
        try:
            for course in courses(Path(folder), lambda done, total: show(f"{done} of {total} requests")):
                if course.result.verdict is not Verdict.PASSED:
                    return f"the run {course.name} did not pass:\n{course.result.summary}"
                for journal in course.journals:
                    check_journal(journal, watch=coverage.watch)
        except (ConformFault, DeviceError) as fault:
            return f"a run broke off ({type(fault).__name__}: {fault})"
    return seen_by([coverage])


_LAYERS: Mapping[Layer, Callable[[Path, Show], Goals | str]] = {
    Layer.PROVE: _proved,
    Layer.EXPLORE: _searched,
    Layer.FUZZ: _fuzzed,
    Layer.VECTORS: _vectors,
    Layer.REPLAY: _replayed,
    Layer.HARNESS: _conformed,
}
