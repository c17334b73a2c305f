"""How fast the decoder is: fast and exact, beside transformers and the memory's own speed, in one run.

Engines take turns round by round, so that a busy machine slows all of them alike; what evidence costs is less than what
a round varies by, so steps with and without it take turns one by one. Rates are per second of processor time of the
whole process on cpu, and of the device on cuda.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from attrs import define, field, frozen

from kvescrow.gpu_harness.arithmetic import FAST, Recipe
from kvescrow.gpu_harness.conform.platform import Platform, open_platform
from kvescrow.gpu_harness.conform.settings import SEEDED, Settings
from kvescrow.gpu_harness.device import Device, refuse_unknown
from kvescrow.gpu_harness.generate import Batch
from kvescrow.gpu_harness.model import ModelWeights
from kvescrow.gpu_harness.peer import TransformersDecode, TransformersPrefill, peer_installed, transformers_model
from kvescrow.spec.vocabulary import UserError

BANDWIDTH_BYTES = 1 << 28
"""256 MiB: far beyond any cache."""
DECODE, PREFILL = "decode", "prefill"


@frozen
class Asked:
    """What is measured."""

    device: str
    weights: str
    shape: str
    dtype: str
    batches: tuple[int, ...]
    context: int
    steps: int
    """Decode steps a round."""
    prefill: int
    rounds: int

    @property
    def settings(self) -> Settings:
        """The model and the device. Raises UserError."""
        refuse_unknown(self.device)
        if any(size < 1 for size in self.batches):
            raise UserError("batch: give sizes of 1 or more")
        return Settings(device=self.device, weights=self.weights, shape=self.shape, dtype=self.dtype)


@frozen
class Measured:
    """Median rates in tokens a second, by (what, engine, batch); engines are the names below."""

    about: str
    """Model, type and device."""
    rates: Mapping[tuple[str, str, int], float]
    spread: Mapping[tuple[str, str, int], tuple[float, float]]
    """Lowest and highest rate of the rounds."""
    exact: bool
    """Whether the probe found the exact recipe exact."""
    bandwidth: float
    """Bytes a second that one thread reads."""
    read_bytes: int
    """Bytes of weights that a decode step reads."""

    @property
    def floor(self) -> float:
        """Tokens a second of one request if a step only read the weights."""
        return self.bandwidth / self.read_bytes

    def to_json(self) -> dict[str, object]:
        """Return the rates with their spread, and the floor with what it comes from."""
        rates = [
            {"what": what, "engine": engine, "batch": size, "rate": rate, "spread": self.spread[what, engine, size]}
            for (what, engine, size), rate in self.rates.items()
        ]
        floor = {"bytes_a_second": self.bandwidth, "bytes_a_step": self.read_bytes, "tokens_a_second": self.floor}
        return {"about": self.about, "exact": self.exact, "floor": floor, "rates": rates}


OURS_FAST, OURS_EXACT, THEIRS = "fast", "exact", "transformers"
OURS_WATCHED, OURS_UNWATCHED = "fast with evidence", "fast without evidence"
"""The same engine, whose steps take evidence or do not: of the two modes the one whose steps are shorter."""


def measured(asked: Asked, show: Callable[[str], None]) -> Measured:
    """Measure decode of each batch size after a context, and prefill of a prompt. Raises UserError, HardwareAbsent."""
    with open_platform(asked.settings) as platform:
        device = platform.device()
        try:
            return _measured(platform, device, asked, show)
        finally:
            device.close()


def _measured(platform: Platform, device: Device, asked: Asked, show: Callable[[str], None]) -> Measured:
    # The peer has no adapters, so neither has what is measured beside it.
    weights, clock = platform.base.without_adapters(), _Clock(device)
    positions = asked.context + asked.rounds * asked.steps + asked.prefill + 1
    model = transformers_model(weights, positions) if peer_installed() else None
    rates: dict[tuple[str, str, int], list[float]] = {}
    recipes = {OURS_FAST: FAST, OURS_EXACT: platform.probe.recipe}
    for size in asked.batches:
        show(f"decode, batch {size}")
        prompts = [_prompt(weights, asked.context, number) for number in range(size)]
        room = asked.rounds * asked.steps
        engines: dict[str, Callable[[int], None]] = {
            name: _Ours(device, weights, recipe, prompts, room) for name, recipe in recipes.items()
        }
        if model is not None:
            engines[THEIRS] = TransformersDecode(model, prompts)
        for name, seconds in _turns(engines, asked.steps, asked.rounds, clock):
            rates.setdefault((DECODE, name, size), []).append(size * asked.steps / seconds)
        show(f"decode, batch {size}, with and without evidence")
        pair: dict[str, Callable[[int], None]] = {
            name: _Ours(device, weights, FAST, prompts, room, watched)
            for name, watched in ((OURS_WATCHED, True), (OURS_UNWATCHED, False))
        }
        for name, seconds in _turns(pair, 1, room, clock):
            rates.setdefault((DECODE, name, size), []).append(size / seconds)
    show(f"prefill of {asked.prefill}")
    prompt = _prompt(weights, asked.prefill, 0)
    once: dict[str, Callable[[int], None]] = {
        name: _OurPrefill(device, weights, recipe, prompt, asked.rounds) for name, recipe in recipes.items()
    }
    if model is not None:
        once[THEIRS] = TransformersPrefill(model, prompt)
    for name, seconds in _turns(once, 1, asked.rounds, clock):
        rates.setdefault((PREFILL, name, 1), []).append(asked.prefill / seconds)
    return Measured(
        about=f"{asked.shape if asked.weights == SEEDED else asked.weights}, {asked.dtype}, {asked.device}, "
        f"torch {torch.__version__}",
        rates={key: statistics.median(values) for key, values in rates.items()},
        spread={key: (min(values), max(values)) for key, values in rates.items()},
        exact=platform.probe.exact,
        bandwidth=_bandwidth(device, clock, asked.rounds),
        read_bytes=_read_bytes(weights),
    )


def _turns(
    engines: Mapping[str, Callable[[int], None]], steps: int, rounds: int, clock: "_Clock"
) -> list[tuple[str, float]]:
    """Engine and seconds of each turn, in rounds whose order alternates."""
    taken = []
    for number in range(rounds):
        order = list(engines) if number % 2 == 0 else list(engines)[::-1]
        for name in order:
            taken.append((name, clock.seconds(lambda name=name: engines[name](steps))))  # type: ignore[misc]
    return taken


class _Clock:
    def __init__(self, device: Device) -> None:
        self._device = device

    def seconds(self, work: Callable[[], object]) -> float:
        """Processor time of `work` on cpu; on cuda, time until the device is idle again."""
        self._device.synchronize()
        read = time.perf_counter if self._device.is_cuda else time.process_time
        begin = read()
        work()
        self._device.synchronize()
        return read() - begin


@define(eq=False)
class _Ours:
    """A batch of ours that goes on where the last round ended."""

    device: Device
    weights: ModelWeights
    recipe: Recipe
    prompts: list[list[int]]
    room: int
    watched: bool = True
    _batch: Batch = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._batch = Batch.of(
            self.device, self.weights, self.recipe, self.prompts, self.room + 1, watched=self.watched
        )
        for request in range(len(self.prompts)):
            self._batch.take(self._batch.prefill(request))

    def __call__(self, steps: int) -> None:
        for pending in [self._batch.decode() for _ in range(steps)]:
            self._batch.take(pending)


@define(eq=False)
class _OurPrefill:
    device: Device
    weights: ModelWeights
    recipe: Recipe
    prompt: list[int]
    rounds: int
    _batches: list[Batch] = field(init=False)

    def __attrs_post_init__(self) -> None:
        # A pool and its tables are made once for a server, not once for a prompt.
        self._batches = [Batch.of(self.device, self.weights, self.recipe, [self.prompt], 1) for _ in range(self.rounds)]

    def __call__(self, steps: int) -> None:
        batch = self._batches.pop()
        batch.take(batch.prefill(0))


def _prompt(weights: ModelWeights, length: int, number: int) -> list[int]:
    generator = torch.Generator().manual_seed(number)
    drawn: list[int] = torch.randint(weights.shape.vocabulary, (length,), generator=generator).tolist()
    return drawn


def _bandwidth(device: Device, clock: _Clock, rounds: int) -> float:
    """Bytes a second that a product of two long vectors reads."""
    one = torch.ones(BANDWIDTH_BYTES // 8, device=device.torch_device)
    other = torch.ones_like(one)
    torch.dot(one, other)
    return BANDWIDTH_BYTES / statistics.median(clock.seconds(lambda: torch.dot(one, other)) for _ in range(rounds))


def _read_bytes(weights: ModelWeights) -> int:
    """Weights that every decode step reads: all but the embedding, of which it reads a few rows."""
    layers = sum(tensor.nbytes for layer in weights.layers for tensor in _projections(layer))
    return layers + weights.head.nbytes


def _projections(layer: Any) -> list[torch.Tensor]:
    return [layer.query, layer.key, layer.value, layer.output, layer.gate, layer.up, layer.down]
