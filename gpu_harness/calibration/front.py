"""A calibration by the names that a user gives, as JSON and as text: for the command line and the bare script."""

from collections.abc import Mapping
from pathlib import Path
from time import perf_counter, perf_counter_ns, process_time_ns

from attrs import evolve, frozen

from kvescrow.gpu_harness.calibration.plot import write_plot
from kvescrow.gpu_harness.calibration.result import FAILED
from kvescrow.gpu_harness.calibration.run import Plan, Told, calibrate
from kvescrow.gpu_harness.calibration.workbench import Clock, DecoderBench
from kvescrow.gpu_harness.device import Device, open_device
from kvescrow.gpu_harness.front import AUTO, NOT_RUN, Report
from kvescrow.gpu_harness.front import Asked as AskedOfConform
from kvescrow.gpu_harness.measure import DTYPES
from kvescrow.gpu_harness.model import named_shape, seeded_weights
from kvescrow.gpu_harness.probe import exact_recipe
from kvescrow.gpu_harness.streams import DeviceError, HardwareAbsent
from kvescrow.spec.vocabulary import UserError

CLOCKS: Mapping[str, Clock] = {"wall": perf_counter_ns, "processor": process_time_ns}
"""`processor` counts what this process computed: what a step takes on a machine that does nothing else."""


@frozen
class Asked:
    """What a user asked for."""

    device: str = AUTO
    shape: str = "tiny"
    dtype: str = "float32"
    seed: int = 1
    gap: int | None = None
    """Token-gap budget in microseconds; None: one that leaves room for a small chunk."""
    clock: str = AUTO
    """`wall`, `processor`, or AUTO: processor time on a CPU, which other programs share, and wall time on a GPU."""
    plot: Path | None = None


def run(asked: Asked, told: Told = lambda done, total, next_: None) -> Report:
    """Do what was asked for. Raises UserError for a user's mistake; every other failure is a verdict."""
    name = AskedOfConform(device=asked.device, dtype=asked.dtype).settings.device
    clock = asked.clock
    if clock == AUTO:
        clock = "wall" if name.startswith("cuda") else "processor"
    if clock not in CLOCKS or (clock == "processor" and name.startswith("cuda")):
        raise UserError(f"clock: {asked.clock!r} does not measure {name}; choose wall or {AUTO}")
    began = perf_counter()
    about = {"device": name, "shape": asked.shape, "dtype": asked.dtype, "seed": asked.seed, "clock": clock}
    try:
        with open_device(name) as device:
            report = _on(device, asked, CLOCKS[clock], told)
    except HardwareAbsent as absent:
        report = Report({"verdict": NOT_RUN, "problems": [str(absent)]}, f"{NOT_RUN}: {absent}")
    except DeviceError as fault:
        report = Report({"verdict": FAILED, "problems": [str(fault)]}, f"{type(fault).__name__}: {fault}")
    seconds = perf_counter() - began
    last = f"calibrate: {report.json['verdict']} on {name} by {clock} time, {seconds:.0f} s"
    return evolve(report, json={**report.json, **about, "seconds": seconds}, summary=f"{report.summary}\n{last}")


def _on(device: Device, asked: Asked, clock: Clock, told: Told) -> Report:
    plan = Plan(gap=asked.gap, seed=asked.seed)
    shape = named_shape(asked.shape)
    weights = seeded_weights(shape, 1, dtype=DTYPES[asked.dtype], device=device.torch_device)
    recipe = exact_recipe(device, weights).recipe
    bench = DecoderBench(
        device, weights, recipe, slots=plan.slots, positions=plan.positions, seed=asked.seed, clock=clock
    )
    found = calibrate(bench, plan, told)
    if asked.plot is not None:
        write_plot(found, asked.plot)
    return Report(found.as_json(), found.summary)
