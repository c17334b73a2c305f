"""What the command line and the bare script share: a run by the names that a user gives, as JSON and as text."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from attrs import evolve, frozen

from kvescrow.gpu_harness.conform import DEFAULT_REQUESTS, ConformFault, Progress, Settings, conform
from kvescrow.gpu_harness.sabotage import ALL, CAUGHT, MISSED, REQUESTS, SABOTAGES, matrix, sabotaged
from kvescrow.gpu_harness.streams import DeviceError, HardwareAbsent
from kvescrow.reference.traces import PACKAGED, Trace, packaged_trace, read_trace
from kvescrow.spec.vocabulary import UserError

AUTO = "auto"
"""cuda where there is one, else cpu."""
NOT_RUN, FAILED = "not_run", "failed"


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
    """None: `DEFAULT_REQUESTS`, or fewer for a sabotage."""
    seed: int = 1
    dtype: str = "float32"
    shape: str = "tiny"
    trace: str = "mooncake"
    """A packaged trace, or the path of a file."""
    journal: Path | None = None

    @property
    def settings(self) -> Settings:
        """The settings of the run; the device is the one that AUTO comes to. Raises UserError."""
        device = self.device
        if device == AUTO:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        kind, _, number = device.partition(":")
        if kind not in ("cpu", "cuda") or (":" in device and (kind == "cpu" or not number.isdecimal())):
            raise UserError(f"device: {self.device!r} is not known; choose from {AUTO}, cpu, cuda, cuda:N")
        requests = self.requests
        if requests is None:
            requests = DEFAULT_REQUESTS if self.sabotage is None else REQUESTS
        return Settings(device=device, shape=self.shape, dtype=self.dtype, requests=requests, seed=self.seed)


def run(asked: Asked, progress: Progress | None = None) -> Report:
    """Do what was asked for. Raises UserError for a user's mistake; every other failure is a verdict."""
    settings = asked.settings
    if asked.sabotage is not None and asked.journal is not None:
        raise UserError("journal: a sabotaged run writes none; leave one of the two out")
    trace = _trace(asked.trace)
    try:
        _check_number(settings.device)
        report = _conform(asked, trace, settings, progress) if asked.sabotage is None else None
        report = report or _sabotage(asked.sabotage or ALL, trace, settings, progress)
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


def _check_number(device: str) -> None:
    """Raise HardwareAbsent for the number of a CUDA device that is not there."""
    _, _, number = device.partition(":")
    if number and int(number) >= torch.cuda.device_count():
        raise HardwareAbsent(f"torch finds {torch.cuda.device_count()} CUDA device(s) on this machine, so no {device}")


def _trace(name: str) -> Trace:
    return packaged_trace(name) if name in PACKAGED else read_trace(name)


def _conform(asked: Asked, trace: Trace, settings: Settings, progress: Progress | None) -> Report:
    result = conform(trace, settings, journal=asked.journal, progress=progress)
    return Report(result.as_json(), result.summary)


def _sabotage(name: str, trace: Trace, settings: Settings, progress: Progress | None) -> Report:
    names = list(SABOTAGES) if name == ALL else [name]
    results = [sabotaged(each, trace, settings, progress) for each in names]
    verdict = CAUGHT if all(result.verdict == CAUGHT for result in results) else MISSED
    rows = matrix(results)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    summary = "\n".join([*lines, f"conform --sabotage {name}: {verdict} (* must be found, + at least one of these)"])
    if name != ALL:
        return Report(results[0].as_json(), summary)
    json = {
        "verdict": verdict,
        "sabotage": ALL,
        "device": settings.device,
        "sabotages": [result.as_json() for result in results],
    }
    return Report(json, summary)


def _without_result(verdict: str, settings: Settings, reason: str) -> Report:
    return Report({"verdict": verdict, "device": settings.device, "reason": reason}, f"conform: {verdict}: {reason}")
