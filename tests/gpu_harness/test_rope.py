"""Rotary positions with the usual scalings are those of transformers; what cannot be one model is refused (CON-2)."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from kvescrow.gpu_harness.arithmetic import ANY_SIZE, FAST, rope_table
from kvescrow.gpu_harness.checkpoint import load_checkpoint, shape_from_config
from kvescrow.gpu_harness.device import Device
from kvescrow.gpu_harness.generate import Batch
from kvescrow.gpu_harness.oracle import DenseOracle, plain_logits, same_bits
from kvescrow.gpu_harness.peer import transformers_model
from kvescrow.gpu_harness.probe import exact_recipe
from kvescrow.spec.vocabulary import UserError

LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {"rope_type": "llama3", "factor": 8.0, **LLAMA3},
    "llama3, other bounds": {
        "rope_type": "llama3",
        "factor": 3.0,
        "low_freq_factor": 2.0,
        "high_freq_factor": 5.5,
        "original_max_position_embeddings": 100,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    "yarn, all its fields": {
        "rope_type": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": 48,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
        "mscale": 0.7,
        "mscale_all_dim": 0.4,
        "truncate": False,
    },
    "yarn, attention factor": {
        "rope_type": "yarn",
        "factor": 2.0,
        "original_max_position_embeddings": 128,
        "attention_factor": 1.3,
    },
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
}


def checkpoint(folder: Path, seed: int, scaling: dict[str, Any]) -> LlamaForCausalLM:
    """A small random model with a head size of its own, written by transformers."""
    torch.manual_seed(seed)
    draw = random.Random(seed)
    head_size = draw.choice([32, 64])
    kv_heads, group = draw.choice([2, 4]), draw.choice([1, 3])
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=384,
        intermediate_size=192,
        num_hidden_layers=2,
        num_attention_heads=kv_heads * group,
        num_key_value_heads=kv_heads,
        head_dim=head_size,
        rms_norm_eps=1e-5,
        max_position_embeddings=256,
        rope_parameters={"rope_theta": draw.choice([1e4, 5e5]), **scaling},
        tie_word_embeddings=False,
        initializer_range=0.1,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", SCALINGS)
def test_every_decoder_gives_transformers_logits(tmp_path: Path, device: Device, name: str, seed: int) -> None:
    model = checkpoint(tmp_path, seed, SCALINGS[name])
    tokens = [random.Random(seed).randrange(256) for _ in range(150)]
    with torch.inference_mode():
        theirs = model(torch.tensor([tokens])).logits[0]
    weights = load_checkpoint(tmp_path, device=device.torch_device)
    assert float((plain_logits(weights, tokens) - theirs).abs().max()) < 1e-4
    ours = DenseOracle(weights, ANY_SIZE, 0, 150).run(tokens, 1, chunk=64).logits[0]
    assert float((ours - theirs[-1]).abs().max()) < 1e-4
    fast = Batch.of(device, weights, FAST, [tokens], 1).generate(1)[1][0][0]
    assert float((fast - theirs[-1]).abs().max()) < 1e-4


@pytest.mark.parametrize("name", ["llama3", "yarn, all its fields"])
def test_a_scaling_changes_the_model_and_leaves_it_exact(tmp_path: Path, device: Device, name: str) -> None:
    checkpoint(tmp_path, 3, SCALINGS[name])
    weights = load_checkpoint(tmp_path, device=device.torch_device)
    probe = exact_recipe(device, weights)
    assert probe.exact, probe.reason
    tokens = list(range(100))
    paged = Batch.of(device, weights, probe.recipe, [tokens], 3).generate(3)[1][0]
    assert same_bits(paged, DenseOracle(weights, probe.recipe, 0, 103).run(tokens, 3).logits)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text("utf-8"))
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": config["rope_parameters"]["rope_theta"]}
    file.write_text(json.dumps(config), "utf-8")
    plain = plain_logits(load_checkpoint(tmp_path), tokens)[-1]
    assert float((plain - paged[0].double()).abs().max()) > 1e-2


def test_the_older_layout_of_a_config_is_read(tmp_path: Path) -> None:
    checkpoint(tmp_path, 4, SCALINGS["llama3"])
    file = tmp_path / "config.json"
    new = shape_from_config(file)
    config = json.loads(file.read_text("utf-8"))
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = {**rope, "type": rope.pop("rope_type")}
    file.write_text(json.dumps(config), "utf-8")
    assert shape_from_config(file) == new


def test_dynamic_scaling_ends_where_pages_would_depend_on_their_reader(tmp_path: Path) -> None:
    checkpoint(tmp_path, 5, SCALINGS["dynamic"])
    shape = shape_from_config(tmp_path / "config.json")
    rope_table(shape, 256, torch.device("cpu"))
    with pytest.raises(UserError, match="257 positions are more than the 256 that the model was trained for"):
        rope_table(shape, 257, torch.device("cpu"))


@pytest.mark.parametrize(
    ("rope", "message"),
    [
        ({"rope_type": "longrope", "factor": 2.0}, "rope type is 'longrope'; this decoder supports default, linear"),
        ({"rope_type": ["yarn"], "factor": 2.0}, r"rope type is \['yarn'\]"),
        ({"rope_type": "linear"}, "rope field factor is None, and must be a positive number"),
        ({"rope_type": "yarn", "factor": -1}, "rope field factor is -1"),
        ({"rope_type": "yarn", "factor": 2, "mscale": "x", "mscale_all_dim": 1}, "rope field mscale is 'x'"),
        ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0}, "rope field high_freq_factor is None"),
        ({"rope_type": "llama3", "factor": 8.0, **LLAMA3, "low_freq_factor": 4.0}, "must be below high_freq_factor"),
        ({"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}, "partial_rotary_factor is not 1"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is not 1"),
        ({"full_attention": SCALINGS["yarn"]}, "rope field full_attention is an object"),
        ({"rope_type": "linear", "factor": 10**400}, "rope field factor is 1000"),
        ({**SCALINGS["yarn"], "original_max_position_embeddings": 0.5}, "original_max_position_embeddings is 0.5"),
        ({**SCALINGS["yarn"], "rope_theta": 1}, "field rope_theta is 1, and must be a number above 1"),
        ({"rope_theta": "fast"}, "field rope_theta is 'fast'"),
        ([1], "must be objects"),
    ],
)
def test_a_scaling_that_is_none_of_these_is_refused(tmp_path: Path, rope: Any, message: str) -> None:
    checkpoint(tmp_path, 6, SCALINGS["linear"])
    file = tmp_path / "config.json"
    config = json.loads(file.read_text("utf-8"))
    config["rope_parameters"] = rope
    file.write_text(json.dumps(config), "utf-8")
    with pytest.raises(UserError, match=message):
        shape_from_config(file)


def test_a_peer_without_the_scaling_is_not_compared_with(tmp_path: Path) -> None:
    checkpoint(tmp_path, 7, SCALINGS["yarn"])
    with pytest.raises(UserError, match="without a scaling of their positions"):
        transformers_model(load_checkpoint(tmp_path), 64)
