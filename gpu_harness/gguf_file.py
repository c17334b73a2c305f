"""Reading a Llama-family model from a GGUF file: weights are dequantised at load, the tokenizer is rebuilt.

A quantised file is exact about what it says: its blocks name fp32 numbers, and those are the model that is run here
and given to whatever it is compared with.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kvescrow.gpu_harness.model import LayerWeights, ModelShape, ModelWeights, scope_adapters
from kvescrow.spec.vocabulary import UserError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_LAYER_TENSORS = {
    "input_norm": "attn_norm",
    "query": "attn_q",
    "key": "attn_k",
    "value": "attn_v",
    "output": "attn_output",
    "feed_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
_SPECIAL = 3
"""Token type of a control token."""
_PRE_TOKENIZER = "smollm"
"""Digits one by one, then bytes: the one kind of pre-tokenizer that is rebuilt here."""


class GgufFile:
    """An open file. Raises UserError where it, or the package that reads it, is missing, or it is another model."""

    def __init__(self, path: Path) -> None:
        try:
            from gguf import GGUFReader
        except ImportError as failure:
            raise UserError("reading a GGUF file needs the package gguf; `make real-weights` installs it") from failure
        try:
            self._reader: Any = GGUFReader(path)
        except (OSError, ValueError) as failure:
            raise UserError(f"{path}: cannot be read as GGUF ({failure}); name another file") from failure
        self._path = path
        self._tensors: dict[str, Any] = {tensor.name: tensor for tensor in self._reader.tensors}
        found = self._field("general.architecture")
        if found != "llama":
            raise UserError(f"{path}: the architecture is {found!r}; this decoder supports 'llama' only")

    def _field(self, name: str, default: object = None) -> Any:
        field = self._reader.fields.get(name)
        if field is None and default is None:
            raise UserError(f"{self._path}: has no field {name}; name a whole model")
        return default if field is None else field.contents()

    @property
    def shape(self) -> ModelShape:
        """The shape that the file's fields say. Raises UserError."""
        scaling = self._field("llama.rope.scaling.type", "none")
        if scaling != "none":
            raise UserError(f"{self._path}: rope scaling is {scaling!r}; of a GGUF file only 'none' is supported")
        hidden, heads = (int(self._field(f"llama.{name}")) for name in ("embedding_length", "attention.head_count"))
        return ModelShape(
            layers=int(self._field("llama.block_count")),
            hidden=hidden,
            heads=heads,
            kv_heads=int(self._field("llama.attention.head_count_kv", heads)),
            head_size=int(self._field("llama.rope.dimension_count", hidden // heads)),
            feed_forward=int(self._field("llama.feed_forward_length")),
            vocabulary=len(self._field("tokenizer.ggml.tokens")),
            rope_theta=float(self._field("llama.rope.freq_base", 10_000.0)),
            norm_eps=float(self._field("llama.attention.layer_norm_rms_epsilon")),
            tied="output.weight" not in self._tensors,
        )

    def weights(
        self, *, scopes: int = 1, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> ModelWeights:
        """All weights, dequantised. Scope 0 is the file's own model. Raises UserError."""
        shape = self.shape

        def layer(index: int) -> LayerWeights:
            own = {name: self._tensor(f"blk.{index}.{theirs}.weight") for name, theirs in _LAYER_TENSORS.items()}
            own["query"] = _rows_in_halves(own["query"], shape.heads)
            own["key"] = _rows_in_halves(own["key"], shape.kv_heads)
            return LayerWeights(**own, **scope_adapters(shape, scopes, index))

        embedding = self._tensor("token_embd.weight")
        layers = tuple(layer(index) for index in range(shape.layers))
        head = embedding if shape.tied else self._tensor("output.weight")
        return ModelWeights(shape, embedding, layers, self._tensor("output_norm.weight"), head).converted(device, dtype)

    def _tensor(self, name: str) -> torch.Tensor:
        from gguf.quants import dequantize

        if name not in self._tensors:
            raise UserError(f"{self._path}: has no tensor {name}; name a whole model")
        tensor = self._tensors[name]
        numbers = dequantize(tensor.data, tensor.tensor_type)
        sizes = [int(size) for size in reversed(tensor.shape)]
        return torch.from_numpy(numbers.copy()).float().reshape(sizes)

    def tokenizer(self) -> "Tokenizer":
        """The byte-pair tokenizer in the file. Raises UserError where it is of another kind."""
        try:
            from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
        except ImportError as failure:
            raise UserError("text needs the package tokenizers; `make real-weights` installs it") from failure
        kind = (self._field("tokenizer.ggml.model"), self._field("tokenizer.ggml.pre"))
        if kind != ("gpt2", _PRE_TOKENIZER):
            raise UserError(f"{self._path}: the tokenizer is {kind}; only ('gpt2', {_PRE_TOKENIZER!r}) can be rebuilt")
        tokens = self._field("tokenizer.ggml.tokens")
        merges = [tuple(merge.split(" ")) for merge in self._field("tokenizer.ggml.merges")]
        tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
        digits, byte_level = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level(add_prefix_space=False)])
        tokenizer.decoder = decoders.ByteLevel()
        types = self._field("tokenizer.ggml.token_type")
        special = [token for token, kind in zip(tokens, types, strict=True) if kind == _SPECIAL]
        tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
        return tokenizer


def _rows_in_halves(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rotary pairs as (i, i + head_size / 2): the file has them side by side."""
    rows, columns = weight.shape
    return weight.view(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)
