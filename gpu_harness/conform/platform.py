"""What several runs on one device share: weights, the probe's verdict, and the decodes that they are compared with."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from attrs import define, field

from kvescrow.gpu_harness.arithmetic import FAST
from kvescrow.gpu_harness.conform.settings import EXACT, POSITIONS, SEEDED, Settings
from kvescrow.gpu_harness.conform.workload import SCOPES, DrawTokens, any_token
from kvescrow.gpu_harness.device import Device, open_device
from kvescrow.gpu_harness.model import ModelWeights, named_shape, seeded_weights, tuned
from kvescrow.gpu_harness.oracle import DenseOracle, OracleRun
from kvescrow.gpu_harness.probe import ProbeResult, exact_recipe
from kvescrow.gpu_harness.smollm2 import Text, open_file, text_of

TORCH_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
FAST_PROMISES = "fast promises no bits"
ORACLE_CHUNK = 64
"""Prompt tokens that the oracle reads at once; another number than the worker's, so that no chunking is shared."""


@define(eq=False)
class Platform:
    """One device with its weights. Runs on it open a device each, so that none inherits another's streams."""

    name: str
    base: ModelWeights
    probe: ProbeResult
    text: Text | None = None
    """The tokenizer of a real model; None: tokens are numbers without meaning."""
    _epochs: dict[int, ModelWeights] = field(factory=dict, init=False)
    _decoded: dict[tuple[int, int, tuple[int, ...]], OracleRun] = field(factory=dict, init=False)

    def device(self) -> Device:
        """A device of its own for a run; close it."""
        return Device(self.name)

    @property
    def tokens(self) -> DrawTokens:
        """Draws content for prompts."""
        return any_token(self.base.shape.vocabulary) if self.text is None else self.text.draw

    def weights(self, epoch: int) -> ModelWeights:
        """The weights of an epoch."""
        if epoch not in self._epochs:
            self._epochs[epoch] = tuned(self.base, epoch)
            self.probe.recipe.products(self._epochs[epoch])
            if self.base.embedding.is_cuda:
                # Made on the stream of the host, which no other one waits for; that stream alone is waited for here.
                torch.cuda.current_stream(self.base.embedding.device).synchronize()
        return self._epochs[epoch]

    def decoded(self, scope: int, epoch: int, prompt: Sequence[int], count: int) -> OracleRun:
        """The independent decode of `count` tokens after `prompt`, or of more; kept, since sabotaged runs repeat it."""
        key = (scope, epoch, tuple(prompt))
        if key not in self._decoded or len(self._decoded[key].tokens) < count:
            oracle = DenseOracle(self.weights(epoch), self.probe.recipe, scope, POSITIONS)
            self._decoded[key] = oracle.run(prompt, count, chunk=ORACLE_CHUNK)
        return self._decoded[key]


@contextmanager
def open_platform(settings: Settings, probe: ProbeResult | None = None) -> Iterator[Platform]:
    """Weights and the probe's verdict under the settings that exact arithmetic needs; `probe` where it is known.

    Raises HardwareAbsent where the device is not in this machine (CON-3), UserError for a user's mistake.
    """
    with open_device(settings.device) as device:
        dtype = TORCH_DTYPES[settings.dtype]
        if settings.weights == SEEDED:
            shape, text = named_shape(settings.shape), None
            weights = seeded_weights(shape, settings.seed, scopes=SCOPES, dtype=dtype, device=device.torch_device)
        else:
            file = open_file()
            weights, text = file.weights(scopes=SCOPES, dtype=dtype, device=device.torch_device), text_of(file)
        if probe is None:
            fast = ProbeResult(FAST, False, FAST_PROMISES)
            probe = exact_recipe(device, weights) if settings.mode == EXACT else fast
        yield Platform(settings.device, weights, probe, text)
