"""All that a device is to be asked, in the order of what matters most, within a given time and with JSON for each part.

A device may be lent for minutes and be gone. So each part writes its result when it is done, a part that fails is told
and the next one is begun, and a part that no time is left for is not_run, by name. Each part has a process of its own:
after an access that the device refuses nothing more runs in that process, and one that hangs can only be killed.
"""

import platform as system
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from attrs import evolve, frozen

from kvescrow.gpu_harness.arithmetic import ANY_SIZE, FIXED_SIZE, KERNELS, OWN_PRODUCTS
from kvescrow.gpu_harness.conform.platform import TORCH_DTYPES
from kvescrow.gpu_harness.conform.settings import SEEDED
from kvescrow.gpu_harness.device import lack_of, open_device
from kvescrow.gpu_harness.files import write
from kvescrow.gpu_harness.floor import Sizes, bandwidth, rows_of
from kvescrow.gpu_harness.front import FAILED, NOT_RUN, Asked, check, run
from kvescrow.gpu_harness.kernels import absent
from kvescrow.gpu_harness.model import named_shape, seeded_weights
from kvescrow.gpu_harness.probe import probe_exactness
from kvescrow.gpu_harness.results import status_of
from kvescrow.gpu_harness.sabotage import ALL
from kvescrow.gpu_harness.streams import HardwareAbsent
from kvescrow.gpu_harness.throughput import Asked as Rates
from kvescrow.gpu_harness.throughput import measured
from kvescrow.spec.vocabulary import UserError

SECONDS = 480
"""No part begins later: what has begun then is over within ten minutes."""
TAIL = 120
"""Seconds after that in which what has begun may end. A part has half of what is left of both, else it is killed."""
PASSED = "passed"
LARGE = ("llama-1b", "llama-8b")
"""Shapes that are measured beside the speed of memory, on cuda."""
ON_CPU = Sizes(batches=(1, 8), context=128, steps=8)
BATCHES, CONTEXT, STEPS, PREFILL, ROUNDS = (1, 8, 32), 128, 8, 512, 3
"""Sizes of the rates beside transformers."""

Found = Mapping[str, Any]


@frozen
class _Part:
    """Something to find out: a name for its file, and what gives its result with a verdict and a summary."""

    name: str
    work: Callable[[], tuple[Found, str]]


def everything(asked: Asked, folder: Path | None, seconds: int) -> int:
    """Do all parts that there is time for, print and write each. Returns the exit status. Raises UserError."""
    device = asked.settings.device
    if seconds < 0:
        raise UserError(f"seconds: {seconds} is negative; give 0 or more")
    if asked.sabotage is not None or asked.seeds != 1 or asked.minutes is not None:
        raise UserError("sabotage, seeds, minutes: everything makes every sabotage and each run once; leave these out")
    if asked.journal is not None or asked.records is not None:
        raise UserError("journal, records: one run writes them, and everything makes several; leave these out")
    for dtype in TORCH_DTYPES:
        check(evolve(asked, dtype=dtype))
    began, about = time.monotonic(), _versions(device)
    told: dict[str, dict[str, Any]] = {}
    for part in _parts(asked, device):
        if (spent := time.monotonic() - began) >= seconds:
            reason = f"{spent:.0f} of {seconds} s were spent"
            found, said = _without(NOT_RUN, part, reason)
        else:
            found, said = _apart(part, (seconds + TAIL - spent) / 2)
        took = round(time.monotonic() - began - spent, 1)
        told[part.name] = {"verdict": found["verdict"], "seconds": took}
        write(folder, f"{part.name}.json", {**found, "seconds_of_part": took})
        print(f"== {part.name} ({took} s)\n{said}", flush=True)
    statuses = [status_of(each["verdict"]) for each in told.values()]
    verdict = PASSED if not any(statuses) else NOT_RUN if set(statuses) <= {0, 3} else FAILED
    summary = {"verdict": verdict, "device": device, **about, "parts": told}
    write(folder, "summary.json", summary)
    print(f"== everything: {verdict} in {time.monotonic() - began:.0f} s")
    return status_of(verdict)


def _apart(part: _Part, seconds: float) -> tuple[Found, str]:
    """The part's result, from a process of its own that has so many seconds. Raises UserError."""
    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, part))
    process.start()
    theirs.close()
    try:
        if not ours.poll(seconds):
            return _without(FAILED, part, f"not over after {seconds:.0f} s, and killed")
        answer = ours.recv()
    except EOFError:
        process.join()
        return _without(FAILED, part, f"its process ended with status {process.exitcode} and without a result")
    finally:
        process.kill()
        process.join()
    if isinstance(answer, UserError):
        raise answer
    found, said = answer
    return found, said


def _answer(connection: Connection, part: _Part) -> None:
    """In that process: send the part's result, or the user's mistake."""
    try:
        answer: object = _tried(part)
    except UserError as mistake:
        answer = mistake
    connection.send(answer)


def _tried(part: _Part) -> tuple[Found, str]:
    """The part's result. A user's mistake ends the run; anything else that goes wrong is the part's own failure."""
    try:
        return part.work()
    except UserError:
        raise
    except HardwareAbsent as lack:
        return _without(NOT_RUN, part, str(lack))
    except Exception as failure:  # whatever it is: the device is lent, and other parts are to be tried
        return _without(FAILED, part, f"{type(failure).__name__}: {failure}")


def _without(verdict: str, part: _Part, reason: str) -> tuple[Found, str]:
    return {"verdict": verdict, "reason": reason}, f"{part.name}: {verdict}: {reason}"


def _parts(asked: Asked, device: str) -> list[_Part]:
    plain = evolve(asked, sabotage=None)
    sabotage = Asked(device=asked.device, sabotage=ALL, seed=asked.seed)
    large = LARGE if device.startswith("cuda") else ()
    return [
        _Part("recipes", partial(_recipes, device, asked.shape)),
        *(_Part(f"conform.{asked.shape}.{dtype}", partial(_run, evolve(plain, dtype=dtype))) for dtype in TORCH_DTYPES),
        _Part("sabotage-all.tiny.float32", partial(_run, sabotage)),
        *(_Part(f"floor.{name}", partial(_floor, device, name)) for name in large or (asked.shape,)),
        _Part(f"decode.{asked.shape}.{asked.dtype}", partial(_rates, asked, device)),
    ]


def _run(asked: Asked) -> tuple[Found, str]:
    report = run(asked)
    return report.json, report.summary


def _recipes(device_name: str, name: str) -> tuple[Found, str]:
    """Which recipes are exact here, one by one: what a run falls back to, and why."""
    results, lines = [], []
    shape = named_shape(name)
    with open_device(device_name) as device:
        recipes = (KERNELS, OWN_PRODUCTS, FIXED_SIZE) if device.is_cuda else (ANY_SIZE, FIXED_SIZE)
        for dtype_name, dtype in TORCH_DTYPES.items():
            weights = seeded_weights(shape, 1, dtype=dtype, device=device.torch_device)
            for recipe in recipes:
                lack = absent(shape, device) if recipe.kernels else ""
                try:
                    probe = None if lack else probe_exactness(device, weights, recipe)
                    exact, reason = (False, lack) if probe is None else (probe.exact, probe.reason)
                except Exception as failure:  # one that cannot run says why, and the next one is tried
                    exact, reason = False, f"{type(failure).__name__}: {failure}"
                results.append({"recipe": recipe.name, "dtype": dtype_name, "exact": exact, "reason": reason})
                lines.append(f"{dtype_name}, {recipe.name}: {'exact' if exact else f'NOT exact: {reason}'}")
    all_types = all(any(r["exact"] for r in results if r["dtype"] == dtype) for dtype in TORCH_DTYPES)
    return {"verdict": PASSED if all_types else FAILED, "recipes": results}, "\n".join(lines)


def _floor(device_name: str, name: str) -> tuple[Found, str]:
    """Steps of one shape beside the speed of memory; evidence in any of them is a failure."""
    with open_device(device_name) as device:
        speed = bandwidth(device)
        lack = absent(named_shape(name), device) if device.is_cuda else ""
        sizes, dtype = (Sizes(), torch.bfloat16) if device.is_cuda else (ON_CPU, torch.float32)
        rows, probe = rows_of(device, name, named_shape(name), dtype, sizes, speed, lambda row: print(row, flush=True))
    clean = all(not row.findings for row in rows)
    found = {
        "verdict": PASSED if clean else FAILED,
        "bytes_a_second": round(speed),
        "exact": probe.exact,
        "reason": probe.reason,
        "passed_over": list(probe.passed_over),
        "fast_without_kernels": lack,
        "rows": [row.to_json() for row in rows],
    }
    without = f"; fast steps without kernels: {lack}" if lack else ""
    return found, f"memory: {speed / 1e9:,.0f} GB/s; exact steps by {probe.recipe.name}{without}"


def _rates(asked: Asked, device: str) -> tuple[Found, str]:
    sizes = Rates(device, SEEDED, asked.shape, asked.dtype, BATCHES, CONTEXT, STEPS, PREFILL, ROUNDS)
    found = measured(sizes, lambda what: None)
    lines = [
        f"{what}, batch {size}, {engine}: {rate:,.0f} tokens/s" for (what, engine, size), rate in found.rates.items()
    ]
    return {"verdict": PASSED, **found.to_json()}, "\n".join(lines)


def _versions(device: str) -> dict[str, object]:
    """What will run, and on what."""
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = ""
    is_cuda = device.startswith("cuda") and not lack_of(device)
    return {
        "hardware": torch.cuda.get_device_name(device) if is_cuda else system.processor() or system.machine(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "",
        "triton": triton,
        "python": system.python_version(),
    }
