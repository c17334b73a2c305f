"""Reading a Llama-family checkpoint in the Hugging Face layout: config.json and *.safetensors in one
folder.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from kvescrow.gpu_harness.model import LayerWeights, ModelShape, ModelWeights, scope_adapters
from kvescrow.gpu_harness.rope import scaling_of
from kvescrow.spec.vocabulary import UserError

_LAYER_TENSORS = {
    "input_norm": "input_layernorm",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "output": "self_attn.o_proj",
    "feed_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


def load_checkpoint(
    folder: Path, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu", scopes: int = 1
) -> ModelWeights:
    """The weights in `folder`, converted to `dtype` on `device`. Scope 0 is the checkpoint's own model.

    Raises UserError if a file, a field or a tensor is missing, has another shape, or asks for what this
    decoder lacks.
    """
    shape = shape_from_config(folder / "config.json")
    tensors = _Tensors(folder)

    def layer(index: int) -> LayerWeights:
        sizes = _layer_sizes(shape)
        own = {
            name: tensors.take(f"model.layers.{index}.{theirs}.weight", sizes[name])
            for name, theirs in _LAYER_TENSORS.items()
        }
        return LayerWeights(**own, **scope_adapters(shape, scopes, index))

    table = (shape.vocabulary, shape.hidden)
    embedding = tensors.take("model.embed_tokens.weight", table)
    head = embedding if shape.tied else tensors.take("lm_head.weight", table)
    norm = tensors.take("model.norm.weight", (shape.hidden,))
    layers = tuple(layer(index) for index in range(shape.layers))
    return ModelWeights(shape, embedding, layers, norm, head).converted(device, dtype)


def shape_from_config(path: Path) -> ModelShape:
    """The shape in a Hugging Face config.json. Raises UserError naming the field."""
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as failure:
        raise UserError(f"{path}: cannot be read as JSON ({failure}); give the folder of a checkpoint") from failure
    if not isinstance(config, dict):
        raise UserError(f"{path}: must be a JSON object")
    _refuse_other_models(path, config)
    rope = config.get("rope_parameters") or {}
    scaling = config.get("rope_scaling") or rope
    if not isinstance(rope, dict) or not isinstance(scaling, dict):
        raise UserError(f"{path}: rope_parameters and rope_scaling must be objects")
    heads = _number(path, config, "num_attention_heads")
    hidden = _number(path, config, "hidden_size")
    return ModelShape(
        layers=_number(path, config, "num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=_number(path, config, "num_key_value_heads", heads),
        head_size=_number(path, config, "head_dim", hidden // heads),
        feed_forward=_number(path, config, "intermediate_size"),
        vocabulary=_number(path, config, "vocab_size"),
        rope_theta=_real(path, config if rope.get("rope_theta") is None else rope, "rope_theta", 10_000.0, above=1.0),
        norm_eps=_real(path, config, "rms_norm_eps", 1e-6, above=0.0),
        tied=bool(config.get("tie_word_embeddings", False)),
        rope_scaling=scaling_of(scaling, config.get("max_position_embeddings"), path),
    )


def _refuse_other_models(path: Path, config: dict[str, Any]) -> None:
    wanted = {
        "model_type": (config.get("model_type"), ("llama",)),
        "hidden_act": (config.get("hidden_act", "silu"), ("silu",)),
        "attention_bias": (config.get("attention_bias", False), (False,)),
        "mlp_bias": (config.get("mlp_bias", False), (False,)),
    }
    for name, (found, known) in wanted.items():
        if found not in known:
            raise UserError(f"{path}: {name} is {found!r}; this decoder supports {known[0]!r} only")


def _number(path: Path, config: dict[str, Any], name: str, default: int | None = None) -> int:
    value = config.get(name)
    value = default if value is None else value
    if type(value) is not int or value <= 0:
        raise UserError(f"{path}: field {name} is {value!r}, and must be a positive integer")
    return value


def _real(path: Path, config: dict[str, Any], name: str, default: float, *, above: float) -> float:
    value = config.get(name)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not above < value <= sys.float_info.max:
        raise UserError(f"{path}: field {name} is {value!r}, and must be a number above {above:g}")
    return float(value)


def _layer_sizes(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    return {
        "input_norm": (shape.hidden,),
        "query": (shape.query_width, shape.hidden),
        "key": (shape.kv_width, shape.hidden),
        "value": (shape.kv_width, shape.hidden),
        "output": (shape.hidden, shape.query_width),
        "feed_norm": (shape.hidden,),
        "gate": (shape.feed_forward, shape.hidden),
        "up": (shape.feed_forward, shape.hidden),
        "down": (shape.hidden, shape.feed_forward),
    }


class _Tensors:
    """The tensors of all *.safetensors files of a folder, by name."""

    def __init__(self, folder: Path) -> None:
        try:
            from safetensors.torch import load_file
        except ImportError as failure:
            raise UserError("reading a checkpoint needs the package safetensors; install it") from failure
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise UserError(f"{folder}: has no *.safetensors file")
        self._folder = folder
        self._tensors: dict[str, torch.Tensor] = {}
        for file in files:
            self._tensors.update(load_file(file))

    def take(self, name: str, size: tuple[int, ...]) -> torch.Tensor:
        """The tensor `name`, whose size must be `size`. Raises UserError."""
        if name not in self._tensors:
            raise UserError(f"{self._folder}: no tensor {name} in its *.safetensors files")
        found = tuple(self._tensors[name].shape)
        if found != size:
            raise UserError(f"{self._folder}: tensor {name} is {found}, and config.json says {size}")
        return self._tensors[name]
