"""How near decode steps come to the speed of memory: measured steps beside the bytes that a step has to read.

A decode step reads every weight once, the embedding excepted, and the keys and values of every context. No step is
faster than the memory can deliver these, and that speed is measured in the same run.
"""

import statistics
import time
from collections.abc import Callable, Sequence

import torch
from attrs import asdict, frozen

from kvescrow.gpu_harness.arithmetic import FAST, Recipe
from kvescrow.gpu_harness.device import Device
from kvescrow.gpu_harness.generate import Batch
from kvescrow.gpu_harness.model import ModelShape, ModelWeights, seeded_weights
from kvescrow.gpu_harness.probe import ProbeResult, exact_recipe

READ_BYTES = {"cuda": 4 << 30, "cpu": 1 << 28}
"""Far beyond any cache, and long enough on each that starting the work does not count."""
READS = 5
WARM_STEPS = 3
"""The first step of a size builds kernels, the second is captured."""
FAST_MODE, EXACT_MODE, UNWATCHED = "fast", "exact", "fast without evidence"


@frozen
class Row:
    """One measurement."""

    shape: str
    dtype: str
    mode: str
    recipe: str
    batch: int
    context: int
    milliseconds: float
    """Of a step, the host's part included."""
    device_milliseconds: float
    """Of a step on the device alone, median."""
    floor_milliseconds: float
    """In which the memory delivers what the step reads."""
    findings: int
    """Evidence of all steps: none, unless something is wrong."""

    @property
    def share(self) -> float:
        """Part of the memory's speed that the step reaches."""
        return self.floor_milliseconds / self.milliseconds

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return 1_000 * self.batch / self.milliseconds

    def to_json(self) -> dict[str, object]:
        """Return the measurement with what follows from it."""
        return {**asdict(self), "share_of_floor": round(self.share, 4), "tokens_a_second": round(self.rate, 1)}

    def __str__(self) -> str:
        found = f", {self.findings} findings" if self.findings else ""
        return (
            f"{self.shape} {self.dtype} {self.mode}, batch {self.batch}, context {self.context}: "
            f"{self.milliseconds:.2f} ms a step ({self.device_milliseconds:.2f} on the device), {self.rate:,.0f} "
            f"tokens/s, {100 * self.share:.0f} % of the memory's speed{found}"
        )


@frozen
class Sizes:
    """What is measured of each shape."""

    batches: tuple[int, ...] = (1, 32)
    context: int = 1024
    steps: int = 32


def step_bytes(weights: ModelWeights, batch: int, context: int) -> int:
    """Bytes that a decode step of `batch` requests with `context` tokens each has to read at least."""
    shape: ModelShape = weights.shape
    embedding = 0 if shape.tied else shape.vocabulary * shape.hidden
    read = shape.parameters - embedding
    cached = batch * context * 2 * shape.layers * shape.kv_width
    return (read + cached) * weights.dtype.itemsize


def bandwidth(device: Device) -> float:
    """Bytes a second that the device reads: the best of some sums over memory far beyond its caches."""
    count = READ_BYTES[device.torch_device.type] // 4
    numbers = torch.ones(count, device=device.torch_device)
    device.synchronize()
    runs = [device.decode.submit(lambda: (numbers.sum(), None)[1]) for _ in range(READS)]
    device.synchronize()
    return 4e6 * count / max(1, min(run.elapsed_microseconds() for run in runs))


def rows_of(
    device: Device,
    name: str,
    shape: ModelShape,
    dtype: torch.dtype,
    sizes: Sizes,
    speed: float,
    show: Callable[[Row], None],
) -> tuple[list[Row], ProbeResult]:
    """Measure one shape with random weights, fast and exact; `speed` as `bandwidth` gives it."""
    weights = seeded_weights(shape, 1, dtype=dtype, device=device.torch_device)
    probe = exact_recipe(device, weights)
    modes: list[tuple[str, Recipe, bool]] = [
        (FAST_MODE, FAST, True),
        (EXACT_MODE, probe.recipe, True),
        (UNWATCHED, FAST, False),
    ]
    rows = []
    for batch in sizes.batches:
        floor = 1_000 * step_bytes(weights, batch, sizes.context) / speed
        for mode, recipe, watched in modes:
            taken = _step_milliseconds(device, weights, recipe, batch, sizes, watched)
            about = (name, str(dtype).removeprefix("torch."), mode, taken[3], batch, sizes.context)
            rows.append(Row(*about, taken[0], taken[1], floor, taken[2]))
            show(rows[-1])
    return rows, probe


def _step_milliseconds(
    device: Device, weights: ModelWeights, recipe: Recipe, size: int, sizes: Sizes, watched: bool
) -> tuple[float, float, int, str]:
    """A step's time, its time on the device, findings, and the name of the recipe that ran."""
    prompts = [_prompt(weights, sizes.context, number) for number in range(size)]
    batch = Batch.of(device, weights, recipe, prompts, WARM_STEPS + sizes.steps + 1, watched=watched)
    for request in range(size):
        batch.take(batch.prefill(request))
    for _ in range(WARM_STEPS):
        batch.take(batch.decode())
    device.synchronize()
    began = time.perf_counter_ns()
    launched = [batch.decode() for _ in range(sizes.steps)]
    device.synchronize()
    whole = (time.perf_counter_ns() - began) / sizes.steps / 1e6
    for pending in launched:
        batch.take(pending)
    alone = statistics.median(pending.elapsed_microseconds() for pending in launched) / 1_000
    return whole, alone, sum(batch.evidence.counts.values()), batch.decoder.recipe.name


def _prompt(weights: ModelWeights, length: int, number: int) -> Sequence[int]:
    generator = torch.Generator().manual_seed(number)
    drawn: list[int] = torch.randint(weights.shape.vocabulary, (length,), generator=generator).tolist()
    return drawn
