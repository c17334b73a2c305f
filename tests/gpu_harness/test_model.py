"""Shapes, seeded weights, and checkpoints in the Hugging Face layout."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from attrs import evolve
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from kvescrow.gpu_harness.arithmetic import ANY_SIZE
from kvescrow.gpu_harness.checkpoint import load_checkpoint, shape_from_config
from kvescrow.gpu_harness.model import SHAPES, ModelShape, named_shape, seeded_weights
from kvescrow.gpu_harness.oracle import DenseOracle, plain_logits
from kvescrow.spec.vocabulary import UserError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.gpu_harness.conftest import Rig

TINY = SHAPES["tiny"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint of a small random model, written by transformers itself."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        rms_norm_eps=1e-5,
        rope_theta=10_000.0,
        tie_word_embeddings=False,
        initializer_range=0.1,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    return tmp_path


def edit(folder: Path, **fields: Any) -> Path:
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8")) | fields
    path.write_text(json.dumps({name: value for name, value in config.items() if value != "absent"}), "utf-8")
    return path


def test_transformers_gives_the_same_logits(folder: Path) -> None:
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    draw = random.Random(1)
    tokens = [draw.randrange(512) for _ in range(100)]
    with torch.inference_mode():
        theirs = model(torch.tensor([tokens])).logits[0]
    weights = load_checkpoint(folder, scopes=2)
    assert weights.shape == TINY
    assert float((plain_logits(weights, tokens) - theirs).abs().max()) < 1e-4
    ours = DenseOracle(weights, ANY_SIZE, 0, 100).run(tokens, 1).logits[0]
    assert float((ours - theirs[-1]).abs().max()) < 1e-4
    assert float(theirs[-1].abs().max()) > 1.0


def test_the_paged_decoder_gives_transformers_logits(folder: Path, rig_of: Callable[..., Rig]) -> None:
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokens = list(range(7, 90))
    with torch.inference_mode():
        theirs = model(torch.tensor([tokens])).logits[0, -1]
    rig = rig_of(torch.float32)
    rig = type(rig)(rig.device, load_checkpoint(folder, device=rig.device.torch_device), rig.recipe)
    request = rig.admit(0, tokens, 1)
    rig.play([request], 1, 20, random.Random(1))
    assert float((request.logits[0] - theirs).abs().max()) < 1e-4


def test_a_checkpoint_written_here_is_read_back_bit_for_bit(tmp_path: Path) -> None:
    weights = seeded_weights(evolve(TINY, tied=True), 5)
    names = {
        "input_layernorm": "input_norm",
        "self_attn.q_proj": "query",
        "self_attn.k_proj": "key",
        "self_attn.v_proj": "value",
        "self_attn.o_proj": "output",
        "post_attention_layernorm": "feed_norm",
        "mlp.gate_proj": "gate",
        "mlp.up_proj": "up",
        "mlp.down_proj": "down",
    }
    shards = [
        {f"model.layers.{n}.{theirs}.weight": getattr(layer, ours) for theirs, ours in names.items()}
        for n, layer in enumerate(weights.layers)
    ]
    shards.append({"model.embed_tokens.weight": weights.embedding, "model.norm.weight": weights.norm})
    for number, shard in enumerate(shards):
        save_file(shard, tmp_path / f"model-{number}.safetensors")
    config = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 256,
        "vocab_size": 512,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
    }
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    read = load_checkpoint(tmp_path)
    assert read.shape == weights.shape
    assert torch.equal(read.embedding, weights.embedding)
    assert read.head is read.embedding
    for one, other in zip(read.layers, weights.layers, strict=True):
        assert all(torch.equal(getattr(one, name), getattr(other, name)) for name in names.values())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_hidden_layers": "absent"}, "field num_hidden_layers is None"),
        ({"hidden_size": -1}, "field hidden_size is -1"),
        ({"model_type": "gemma3"}, "model_type is 'gemma3'; this decoder supports 'llama' only"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"num_key_value_heads": 3}, "must be a multiple of kv_heads"),
    ],
)
def test_a_config_that_this_decoder_cannot_run_is_refused(folder: Path, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        shape_from_config(edit(folder, **fields))


def test_rope_theta_is_read_in_both_layouts(folder: Path) -> None:
    old = edit(folder, rope_theta=500_000.0, rope_parameters="absent")
    assert shape_from_config(old).rope_theta == 500_000.0
    new = edit(folder, rope_theta="absent", rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    assert shape_from_config(new).rope_theta == 1e6


def test_a_folder_without_its_files_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read as JSON"):
        load_checkpoint(tmp_path / "nowhere")
    (weights,) = folder.glob("*.safetensors")
    tensors = load_file(weights)
    norm = tensors.pop("model.norm.weight")
    save_file(tensors, weights)
    with pytest.raises(UserError, match=r"no tensor model\.norm\.weight"):
        load_checkpoint(folder)
    save_file({**tensors, "model.norm.weight": norm[:64].clone()}, weights)
    with pytest.raises(UserError, match=r"is \(64,\), and config\.json says \(128,\)"):
        load_checkpoint(folder)
    weights.unlink()
    with pytest.raises(UserError, match=r"has no \*\.safetensors file"):
        load_checkpoint(folder)


def test_seeded_weights_repeat_and_scopes_do_not_depend_on_their_number() -> None:
    one, two = seeded_weights(TINY, 5, scopes=2), seeded_weights(TINY, 5, scopes=4)
    for first, second in zip(one.layers, two.layers, strict=True):
        assert torch.equal(first.query, second.query)
        assert torch.equal(first.key_adapter_in, second.key_adapter_in[:2])
        assert not first.key_adapter_out[0].any()
        assert first.key_adapter_out[1].any()
    assert not torch.equal(two.layers[0].key_adapter_out[1], two.layers[1].key_adapter_out[1])
    assert not torch.equal(one.embedding, seeded_weights(TINY, 6).embedding)
    assert (one.scopes, two.scopes) == (2, 4)


def test_every_named_shape_has_exact_widths() -> None:
    assert {name: shape.odd_widths() for name, shape in SHAPES.items()} == {name: {} for name in SHAPES}


@pytest.mark.parametrize(
    ("name", "whole"), [("smollm2-135m", 134_515_008), ("llama-1b", 1_235_814_400), ("llama-8b", 8_030_261_248)]
)
def test_shapes_of_real_models_have_their_parameters(name: str, whole: int) -> None:
    shape = named_shape(name)
    norms = (2 * shape.layers + 1) * shape.hidden
    assert shape.parameters + norms == whole


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: named_shape("huge"), "choose one of tiny, multi-query, small, smollm2-135m, llama-1b, llama-8b"),
        (lambda: seeded_weights(TINY, 1, scopes=0), "scopes is 0"),
        (lambda: ModelShape(0, 128, 4, 2, 32, 256, 512), "layers is 0"),
        (lambda: ModelShape(1, 128, 4, 2, 31, 256, 512), "must be even"),
    ],
)
def test_a_wrong_shape_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()
