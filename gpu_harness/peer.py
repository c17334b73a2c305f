"""The same weights in transformers, to compare with: another implementation of the same model, by other people."""

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from attrs import frozen

from kvescrow.gpu_harness.model import LayerWeights, ModelWeights
from kvescrow.spec.vocabulary import UserError

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

LOGITS_WITHIN = 1e-4
"""How far logits may lie apart in float32: two orders of summation over a few thousand products of one model."""

_NAMES = {
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


def peer_installed() -> bool:
    """Whether transformers is here."""
    return importlib.util.find_spec("transformers") is not None


def transformers_model(weights: ModelWeights, positions: int) -> "LlamaForCausalLM":
    """A transformers model whose parameters are the tensors of `weights` (scope 0). Raises UserError without it."""
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as failure:
        raise UserError("the comparison needs the package transformers; install kvescrow[targets]") from failure
    shape = weights.shape
    if shape.rope_scaling is not None:
        raise UserError("the comparison with transformers is for models without a scaling of their positions")
    config: Any = LlamaConfig(  # type: ignore[call-arg]  # keywords of every configuration
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_size,
        rms_norm_eps=shape.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        max_position_embeddings=positions,
        tie_word_embeddings=shape.tied,
        attn_implementation="sdpa",
        dtype=weights.dtype,
    )
    with torch.device("meta"):
        model: Any = LlamaForCausalLM(config)
    model.load_state_dict(_state(weights), assign=True, strict=False)
    # Buffers of the rotary positions are no parameters: they are made anew where the weights are.
    model.model.rotary_emb = type(model.model.rotary_emb)(config).to(weights.embedding.device)
    if shape.tied:
        model.tie_weights()
    model.eval()
    whole: LlamaForCausalLM = model
    return whole


def _state(weights: ModelWeights) -> dict[str, torch.Tensor]:
    state = {"model.embed_tokens.weight": weights.embedding, "model.norm.weight": weights.norm}
    state["lm_head.weight"] = weights.head
    for index, layer in enumerate(weights.layers):
        state |= {f"model.layers.{index}.{theirs}.weight": _of(layer, ours) for ours, theirs in _NAMES.items()}
    return state


def _of(layer: LayerWeights, name: str) -> torch.Tensor:
    tensor: torch.Tensor = getattr(layer, name)
    return tensor


@frozen
class Compared:
    """How far two implementations of one model are apart."""

    tokens: int
    """Compared."""
    other_tokens: int
    """Where the other's greedy choice after the same tokens is another one."""
    worst: float
    """Largest difference of two logits."""

    @property
    def agrees(self) -> bool:
        """Whether greedy decoding gives the same text, from logits that are the same but for rounding."""
        return self.tokens > 0 and self.other_tokens == 0 and self.worst <= LOGITS_WITHIN


@torch.inference_mode()
def compared(
    model: "LlamaForCausalLM",
    prompts: Sequence[Sequence[int]],
    tokens: Sequence[Sequence[int]],
    logits: Sequence[torch.Tensor],
) -> Compared:
    """Give transformers each prompt with our continuation, and compare its choice and its logits at every place.

    Where all its choices are ours, its own greedy decoding gives our tokens, one after the other.
    """
    count, others, worst = 0, 0, 0.0
    for prompt, continuation, ours in zip(prompts, tokens, logits, strict=True):
        sequence = torch.tensor([[*prompt, *continuation[:-1]]], device=ours.device)
        theirs = model(sequence).logits[0, len(prompt) - 1 :]
        others += int((theirs.argmax(-1) != torch.tensor(continuation)).sum())
        worst = max(worst, float((theirs - ours).abs().max()))
        count += len(continuation)
    return Compared(count, others, worst)


class TransformersDecode:
    """`generate` on a batch of prompts with its own cache; each call goes on where the last one ended."""

    def __init__(self, model: Any, prompts: Sequence[Sequence[int]]) -> None:
        from transformers import DynamicCache

        self._model, self._cache = model, DynamicCache(config=model.config)
        self._tokens = torch.tensor(prompts, device=model.device)
        with torch.inference_mode():
            model(self._tokens[:, :-1], cache=self._cache, logits_to_keep=1)

    def __call__(self, steps: int) -> None:
        """Generate `steps` tokens of each prompt."""
        with torch.inference_mode():
            self._tokens = self._model.generate(
                self._tokens,
                attention_mask=torch.ones_like(self._tokens),
                cache=self._cache,
                max_new_tokens=steps,
                min_new_tokens=steps,
                do_sample=False,
                pad_token_id=0,
            )


class TransformersPrefill:
    """One prompt read at once, for the logits after its last token."""

    def __init__(self, model: Any, prompt: Sequence[int]) -> None:
        self._model, self._tokens = model, torch.tensor([prompt], device=model.device)

    def __call__(self, _: int) -> None:
        """Read it."""
        with torch.inference_mode():
            self._model(self._tokens, logits_to_keep=1)
