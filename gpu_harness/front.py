"""What the command line and the bare script share: a run by the names that a user gives, as JSON and as text."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from kvescrow.gpu_harness import smollm2
from kvescrow.gpu_harness.conform import (
    DEFAULT_REQUESTS,
    ConformFault,
    ConformResult,
    Progress,
    Settings,
    Verdict,
    conform,
)
from kvescrow.gpu_harness.conform.platform import open_platform
from kvescrow.gpu_harness.conform.settings import EXACT, SEEDED
from kvescrow.gpu_harness.device import lack_of, refuse_unknown
from kvescrow.gpu_harness.files import refuse_used_file
from kvescrow.gpu_harness.model import named_shape
from kvescrow.gpu_harness.sabotage import (
    ALL,
    CAUGHT,
    MISSED,
    SABOTAGES,
    SabotageResult,
    check_name,
    counted,
    matrix,
    sabotaged,
    unsabotaged,
)
from kvescrow.gpu_harness.streams import DeviceError, HardwareAbsent
from kvescrow.reference.traces import PACKAGED, Trace, packaged_trace, read_trace
from kvescrow.spec.vocabulary import UserError

AUTO = "auto"
"""cuda where there is one, else cpu."""
NOT_RUN, FAILED = "not_run", "failed"
DEFAULT_TRACE = "mooncake"


@frozen
class Report:
    """A result with its verdict, as JSON values and as text for people."""

    json: Mapping[str, Any]
    summary: str


@frozen
class Asked:
    """What a user asked for."""

    device: str = AUTO
    sabotage: str | None = None
    """Name of a sabotage, or ALL; None: none."""
    requests: int | None = None
    """None: `DEFAULT_REQUESTS`."""
    seed: int = 1
    seeds: int = 1
    """Sabotages are run under so many seeds, from `seed` on."""
    dtype: str = "float32"
    shape: str = "tiny"
    trace: str | None = None
    """A packaged trace, or the path of a file; None: `DEFAULT_TRACE`."""
    journal: Path | None = None
    weights: str = SEEDED
    """SEEDED weights of the shape, or a real model by name."""
    mode: str = EXACT
    """EXACT or fast."""
    calm: bool = False
    """No growth, no change of weights, no killed worker."""
    minutes: float | None = None
    """Runs follow each other, each with another seed, for so long; None: one run."""
    records: Path | None = None
    """A new file for a record of each request; None: none is written."""
    own_process: bool = False
    """The worker is a process of its own, ended by SIGKILL where it is killed."""
    fixed_order: bool = False
    """Steps are taken in at turns that the seed fixes: the same seed, the same journal."""

    @property
    def settings(self) -> Settings:
        """The settings of the run; the device is the one that AUTO comes to. Raises UserError."""
        device = self.device
        if device == AUTO:
            device = "cpu" if lack_of("cuda") else "cuda"
        refuse_unknown(device, f"{AUTO}, cpu, cuda, cuda:N")
        requests = DEFAULT_REQUESTS if self.requests is None else self.requests
        plain = Settings(
            device=device,
            shape=self.shape,
            weights=self.weights,
            mode=self.mode,
            dtype=self.dtype,
            requests=requests,
            seed=self.seed,
            own_process=self.own_process,
            fixed_order=self.fixed_order,
        )
        if self.calm or self.sabotage is not None:
            return plain
        return evolve(plain, growth=True, epoch_after=requests // 2, kills=(requests // 4, 3 * requests // 4))


def run(asked: Asked, progress: Progress | None = None) -> Report:
    """Do what was asked for. Raises UserError for a user's mistake; every other failure is a verdict."""
    settings = asked.settings
    check(asked)
    try:
        if asked.minutes is not None:
            report = _soak(asked, settings, asked.minutes)
        elif asked.sabotage is None:
            report = _conform(asked, settings, progress)
        else:
            report = _sabotage(asked.sabotage, settings, asked.seeds, progress)
    except HardwareAbsent as absent:
        report = _without_result(NOT_RUN, settings, str(absent))
    except (ConformFault, DeviceError) as fault:
        report = _without_result(FAILED, settings, f"{type(fault).__name__}: {fault}")
    on_cuda = settings.device.startswith("cuda")
    cuda = report.json["verdict"] if on_cuda else NOT_RUN
    summary = report.summary
    if asked.device == AUTO and not on_cuda:
        summary = f"cuda: {NOT_RUN}, since torch finds no CUDA device here\n{summary}"
    return evolve(report, json={**report.json, "cuda": cuda}, summary=summary)


def check(asked: Asked) -> None:
    """Refuse before a run what could not be done: names, files, what does not go together. Raises UserError."""
    _check_together(asked)
    if asked.settings.weights == SEEDED:
        named_shape(asked.shape)
    else:
        smollm2.place()
    if asked.sabotage is None:
        trace, requests = _trace(asked.trace), asked.settings.requests
        if not 1 <= requests <= len(trace.requests):
            raise UserError(f"requests: {requests} asked for, but {trace.name} has 1 to {len(trace.requests)} to offer")
    for path in (asked.journal, asked.records):
        if path is not None:
            refuse_used_file(path)


def _check_together(asked: Asked) -> None:
    if asked.records is not None and (asked.minutes is not None or asked.sabotage is not None):
        raise UserError("records: only one run without sabotage writes them; leave the others out")
    if asked.minutes is not None and not 0 <= asked.minutes < math.inf:
        raise UserError(f"minutes: {asked.minutes} is no time; give 0 or more")
    if asked.minutes is not None and (asked.sabotage is not None or asked.journal is not None):
        raise UserError("minutes: a soak has neither sabotages nor a journal; leave one of the two out")
    if asked.own_process and asked.sabotage is not None:
        raise UserError("own process: sabotage needs memory that it can reach; leave one of the two out")
    if asked.sabotage is None:
        if asked.seeds != 1:
            raise UserError("seeds: only sabotages are run under several; leave it out, or give a sabotage")
        return
    if asked.sabotage != ALL:
        check_name(asked.sabotage)
    if asked.seeds < 1:
        raise UserError(f"seeds: {asked.seeds} is too few; give 1 or more")
    if asked.journal is not None:
        raise UserError("journal: a sabotaged run writes none; leave one of the two out")
    if asked.mode != EXACT:
        raise UserError("mode: sabotages are shown by exact arithmetic; leave one of the two out")
    if asked.requests is not None or asked.trace is not None:
        raise UserError("requests, trace: sabotages have a workload of their own; leave these out")


def _trace(name: str | None) -> Trace:
    name = name or DEFAULT_TRACE
    return packaged_trace(name) if name in PACKAGED else read_trace(name)


def _conform(asked: Asked, settings: Settings, progress: Progress | None) -> Report:
    result = conform(_trace(asked.trace), settings, journal=asked.journal, records=asked.records, progress=progress)
    return Report(result.as_json(), result.summary)


def _soak(asked: Asked, settings: Settings, minutes: float) -> Report:
    """Run after run until the time is over or one does not pass; the last one is shown whole."""
    trace, end = _trace(asked.trace), time.monotonic() + 60 * minutes
    runs, requests, tokens, steps = 0, 0, 0, 0
    while True:
        result = conform(trace, evolve(settings, seed=settings.seed + runs))
        runs, requests, tokens = runs + 1, requests + result.requests, tokens + result.tokens
        steps += result.tally.steps
        if result.verdict is not Verdict.PASSED or time.monotonic() >= end:
            break
    soaked = {"runs": runs, "requests": requests, "steps": steps, "tokens": tokens, "first_seed": settings.seed}
    said = f"soak: {runs} run(s), {requests} requests, {steps} steps, {tokens} tokens; the last run:"
    return Report({**result.as_json(), "soak": soaked}, f"{said}\n{result.summary}")


def _sabotage(name: str, settings: Settings, seeds: int, progress: Progress | None) -> Report:
    names = list(SABOTAGES) if name == ALL else [name]
    runs = []
    for run in _sabotaged_runs(names, settings, seeds):
        runs.append(run)
        if progress is not None:
            progress(len(runs), seeds * (len(names) + 1))
    right = [run for run in runs if isinstance(run, ConformResult)]
    results = [run for run in runs if isinstance(run, SabotageResult)]
    caught = all(result.verdict == CAUGHT for result in results)
    clean = all(run.verdict is Verdict.PASSED for run in right)
    verdict = CAUGHT if caught and clean else MISSED
    summary = "\n".join(
        [
            *_aligned(matrix(results, right)),
            f"conform --sabotage {name}: {verdict} (* must be found, + at least one of these)",
        ]
    )
    json = {
        "verdict": verdict,
        "sabotage": name,
        "device": settings.device,
        "seeds": seeds,
        "matrix": counted(results),
        "unsabotaged": [run.as_json() for run in right],
        "sabotages": [result.as_json() for result in results],
    }
    return Report(json, summary)


def _sabotaged_runs(names: Sequence[str], settings: Settings, seeds: int) -> Iterator[ConformResult | SabotageResult]:
    """For each seed the run without a sabotage, then the sabotaged ones."""
    for seed in range(settings.seed, settings.seed + seeds):
        seeded = evolve(settings, seed=seed)
        with open_platform(seeded) as platform:
            yield unsabotaged(platform, seeded)
            for name in names:
                yield sabotaged(name, platform, seeded)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _without_result(verdict: str, settings: Settings, reason: str) -> Report:
    return Report({"verdict": verdict, "device": settings.device, "reason": reason}, f"conform: {verdict}: {reason}")
