"""Shapes and weights of a Llama-family decoder: RMSNorm, rotary positions, grouped-query attention, SwiGLU.

Weights are seeded, or read from a checkpoint in the Hugging Face layout (`gpu_harness.checkpoint`). Each
prefix scope has a small adapter on the key and value projections: with equal weights a hit across scopes
would not change one bit, and nothing physical could show it (SCO-1). Scope 0 is the base model, whose
adapter is zero.
"""

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

import torch
from attrs import Attribute, evolve, field, frozen

from kvescrow.gpu_harness.products import ModelProducts, model_products
from kvescrow.gpu_harness.rope import RopeScaling, frequencies_of
from kvescrow.spec.vocabulary import UserError

ADAPTER_SCALE = 1e-2
"""Size of a scope's part of K and V relative to the base model's: far above rounding, far below the signal.
"""

DRAWN_ON_DEVICE = 500_000_000
"""Drawing so many numbers on a CPU takes seconds, and a minute for the largest shape."""

WIDTH_MULTIPLE = 64
"""Widths are multiples of this: the scalar tail of a vectorised activation has other bits than its body."""


def _positive(_: object, attribute: "Attribute[Any]", value: float) -> None:
    if value <= 0:
        raise UserError(f"model shape: {attribute.name} is {value}, and must be positive")


@frozen
class ModelShape:
    """Sizes of a decoder. `feed_forward` is the inner width of SwiGLU; `tied` shares embedding and output
    head.
    """

    layers: int = field(validator=_positive)
    hidden: int = field(validator=_positive)
    heads: int = field(validator=_positive)
    kv_heads: int = field(validator=_positive)
    head_size: int = field(validator=_positive)
    feed_forward: int = field(validator=_positive)
    vocabulary: int = field(validator=_positive)
    rope_theta: float = field(default=10_000.0, validator=_positive)
    norm_eps: float = field(default=1e-5, validator=_positive)
    tied: bool = False
    rope_scaling: RopeScaling | None = None

    def __attrs_post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise UserError(f"model shape: heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        if self.head_size % 2:
            raise UserError(f"model shape: head_size ({self.head_size}) must be even for rotary positions")

    @property
    def rope_frequencies(self) -> list[float]:
        """Radians a position of each rotary pair of a head."""
        return frequencies_of(self.rope_theta, self.head_size, self.rope_scaling)

    @property
    def rope_amplitude(self) -> float:
        """Factor of the cosine and the sine of rotary positions."""
        return 1.0 if self.rope_scaling is None else self.rope_scaling.amplitude

    @property
    def group(self) -> int:
        """Query heads per KV head."""
        return self.heads // self.kv_heads

    @property
    def query_width(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_size

    @property
    def kv_width(self) -> int:
        """Width of all KV heads together."""
        return self.kv_heads * self.head_size

    @property
    def parameters(self) -> int:
        """Weights of the model, adapters and norms not counted."""
        attention = 2 * self.hidden * (self.query_width + self.kv_width)
        each = attention + 3 * self.hidden * self.feed_forward
        return self.layers * each + (1 if self.tied else 2) * self.vocabulary * self.hidden

    def odd_widths(self) -> dict[str, int]:
        """Widths that are not multiples of WIDTH_MULTIPLE, by name; exact arithmetic is refused for these."""
        widths = {
            "hidden": self.hidden,
            "heads x head_size": self.query_width,
            "kv_heads x head_size": self.kv_width,
            "feed_forward": self.feed_forward,
        }
        return {name: width for name, width in widths.items() if width % WIDTH_MULTIPLE}


SHAPES: Mapping[str, ModelShape] = MappingProxyType(
    {
        "tiny": ModelShape(2, hidden=128, heads=4, kv_heads=2, head_size=32, feed_forward=256, vocabulary=512),
        "multi-query": ModelShape(
            4, hidden=256, heads=8, kv_heads=1, head_size=64, feed_forward=768, vocabulary=2048, tied=True
        ),
        "small": ModelShape(8, hidden=512, heads=8, kv_heads=4, head_size=64, feed_forward=1408, vocabulary=32_000),
        "smollm2-135m": ModelShape(
            30,
            hidden=576,
            heads=9,
            kv_heads=3,
            head_size=64,
            feed_forward=1536,
            vocabulary=49_152,
            rope_theta=100_000.0,
            tied=True,
        ),
        "llama-1b": ModelShape(
            16,
            hidden=2048,
            heads=32,
            kv_heads=8,
            head_size=64,
            feed_forward=8192,
            vocabulary=128_256,
            rope_theta=500_000.0,
            tied=True,
        ),
        "llama-8b": ModelShape(
            32,
            hidden=4096,
            heads=32,
            kv_heads=8,
            head_size=128,
            feed_forward=14_336,
            vocabulary=128_256,
            rope_theta=500_000.0,
        ),
    }
)
"""Shapes by name: "tiny" for tests and traces on a CPU, "multi-query" there with one KV head and a tied head, "small"
and "smollm2-135m" for measurement there, "llama-1b" and "llama-8b" for a GPU.
"""


def named_shape(name: str) -> ModelShape:
    """The shape called `name`. Raises UserError with the known names."""
    if name not in SHAPES:
        raise UserError(f"no model shape is called {name!r}; choose one of {', '.join(SHAPES)}")
    return SHAPES[name]


@frozen
class LayerWeights:
    """One layer. Projections are [out, in]; norms are [hidden]."""

    input_norm: torch.Tensor
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    output: torch.Tensor
    feed_norm: torch.Tensor
    gate: torch.Tensor
    up: torch.Tensor
    down: torch.Tensor
    key_adapter_in: torch.Tensor
    """[scopes, hidden]; the adapter adds (x . in[scope]) * out[scope] to the projection of x."""
    key_adapter_out: torch.Tensor
    value_adapter_in: torch.Tensor
    value_adapter_out: torch.Tensor


@frozen
class ModelWeights:
    """All weights of a model, one dtype, one device. `embedding` and `head` are [vocabulary, hidden]."""

    shape: ModelShape
    embedding: torch.Tensor
    layers: tuple[LayerWeights, ...]
    norm: torch.Tensor
    head: torch.Tensor

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of every weight."""
        return self.embedding.dtype

    @property
    def scopes(self) -> int:
        """Scope ids run from 0 to scopes - 1."""
        return int(self.layers[0].key_adapter_in.shape[0])

    @cached_property
    def plain(self) -> ModelProducts:
        """The products with these weights by the library's own `linear`."""
        return model_products(self, laid_out=False)

    @cached_property
    def laid_out(self) -> ModelProducts:
        """The products with these weights, which are laid out for them where that is faster; made at first use."""
        return model_products(self, laid_out=True)

    def without_adapters(self) -> "ModelWeights":
        """The base model alone: scope 0, whose adapter adds nothing."""
        names = ("key_adapter_in", "key_adapter_out", "value_adapter_in", "value_adapter_out")
        layers = (evolve(layer, **{name: getattr(layer, name)[:1] for name in names}) for layer in self.layers)
        return evolve(self, layers=tuple(layers))

    def converted(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "ModelWeights":
        """The same weights on `device`, in `dtype` if given."""

        def move(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(device=device, dtype=dtype or tensor.dtype)

        embedding = move(self.embedding)
        return evolve(
            self,
            embedding=embedding,
            layers=tuple(_each_tensor(layer, move) for layer in self.layers),
            norm=move(self.norm),
            head=embedding if self.shape.tied else move(self.head),
        )


def _each_tensor(layer: LayerWeights, change: Callable[[torch.Tensor], torch.Tensor]) -> LayerWeights:
    return LayerWeights(**{name: change(getattr(layer, name)) for name in LayerWeights.__annotations__})


def scope_adapters(shape: ModelShape, scopes: int, layer: int) -> dict[str, torch.Tensor]:
    """The four adapter tensors of `layer` for scopes 0 .. scopes - 1, fp32 on the host.

    A scope's adapter depends on its id and the layer alone, not on how many scopes there are; scope 0 has
    zeros.
    """
    rows = [_adapter_of(shape, scope, layer) for scope in range(scopes)]
    names = ("key_adapter_in", "key_adapter_out", "value_adapter_in", "value_adapter_out")
    return {name: torch.stack([row[i] for row in rows]) for i, name in enumerate(names)}


def _adapter_of(shape: ModelShape, scope: int, layer: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1_000_003 * (layer + 1) + scope)
    widths = (shape.hidden, shape.kv_width, shape.hidden, shape.kv_width)
    scales = (shape.hidden**-0.5, ADAPTER_SCALE, shape.hidden**-0.5, ADAPTER_SCALE)
    drawn = [torch.randn(width, generator=generator) * scale for width, scale in zip(widths, scales, strict=True)]
    return [torch.zeros_like(tensor) for tensor in drawn] if scope == 0 else drawn


def tuned(weights: ModelWeights, epoch: int) -> ModelWeights:
    """The weights of a later epoch: key and value projections each get a seeded update of rank one, as training gives.

    Epoch 0 is `weights` itself.
    """
    if epoch == 0:
        return weights
    shape, device, dtype = weights.shape, weights.embedding.device, weights.dtype

    def layer(index: int) -> LayerWeights:
        generator = torch.Generator().manual_seed(7_000_003 * (index + 1) + epoch)
        own = weights.layers[index]
        rows, columns = (torch.randn(width, generator=generator) for width in (shape.kv_width, shape.hidden))
        update = torch.outer(rows * ADAPTER_SCALE, columns / math.sqrt(shape.hidden)).to(device, dtype)
        return evolve(own, key=own.key + update, value=own.value - update)

    return evolve(weights, layers=tuple(layer(index) for index in range(shape.layers)))


def seeded_weights(
    shape: ModelShape,
    seed: int,
    *,
    scopes: int = 1,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> ModelWeights:
    """Random weights, the same for the same shape and seed whatever dtype and device. `scopes` >= 1.

    Weights of shapes with DRAWN_ON_DEVICE parameters or more are drawn by the device itself, whose sequence is its own.
    """
    if scopes < 1:
        raise UserError(f"seeded weights: scopes is {scopes}, and must be at least 1")
    where = torch.device(device if shape.parameters >= DRAWN_ON_DEVICE else "cpu")
    generator = torch.Generator(where).manual_seed(seed)

    def draw(rows: int, columns: int, is_scaled: bool = True) -> torch.Tensor:
        drawn = torch.randn(rows, columns, generator=generator, device=where)
        # In its type at once: all of a large model in fp32 would need twice the memory for a moment.
        return (drawn / math.sqrt(columns) if is_scaled else drawn).to(dtype)

    def norm() -> torch.Tensor:
        return torch.randn(shape.hidden, generator=generator, device=where) * 0.1 + 1.0

    def layer(index: int) -> LayerWeights:
        return LayerWeights(
            input_norm=norm(),
            query=draw(shape.query_width, shape.hidden),
            key=draw(shape.kv_width, shape.hidden),
            value=draw(shape.kv_width, shape.hidden),
            output=draw(shape.hidden, shape.query_width),
            feed_norm=norm(),
            gate=draw(shape.feed_forward, shape.hidden),
            up=draw(shape.feed_forward, shape.hidden),
            down=draw(shape.hidden, shape.feed_forward),
            **scope_adapters(shape, scopes, index),
        )

    embedding = draw(shape.vocabulary, shape.hidden, is_scaled=False)
    layers = tuple(layer(index) for index in range(shape.layers))
    final = norm()
    head = embedding if shape.tied else draw(shape.vocabulary, shape.hidden)
    return ModelWeights(shape, embedding, layers, final, head).converted(device, dtype)
