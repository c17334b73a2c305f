"""Fast mode, batches for measurement, transformers as a peer, and the rows of the decode benchmark (CON-2)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kvescrow.checks.bench.decode import report
from kvescrow.checks.cli.front import main
from kvescrow.gpu_harness.arithmetic import ANY_SIZE, FAST, Recipe
from kvescrow.gpu_harness.conform import Settings, Verdict, conform
from kvescrow.gpu_harness.device import Device
from kvescrow.gpu_harness.evidence import EvidenceKind
from kvescrow.gpu_harness.generate import Batch
from kvescrow.gpu_harness.model import ModelWeights
from kvescrow.gpu_harness.oracle import plain_logits
from kvescrow.gpu_harness.peer import compared, transformers_model
from kvescrow.reference.traces import packaged_trace

PROMPTS = [list(range(1, 1 + length)) for length in (1, 17, 70)]
COUNT = 6


@pytest.mark.parametrize("recipe", [FAST, ANY_SIZE], ids=lambda recipe: recipe.name)
def test_transformers_agrees_with_a_batch(
    recipe: Recipe, device: Device, weights_of: Callable[[torch.dtype], ModelWeights]
) -> None:
    weights = weights_of(torch.float32)
    batch = Batch.of(device, weights, recipe, PROMPTS, COUNT)
    tokens, logits = batch.generate(COUNT)
    assert batch.evidence.clean
    result = compared(transformers_model(weights, 128), PROMPTS, tokens, logits)
    assert (result.tokens, result.other_tokens) == (len(PROMPTS) * COUNT, 0)
    assert result.agrees


def test_fast_arithmetic_is_that_of_the_model_and_sees_no_poison(
    device: Device, weights_of: Callable[[torch.dtype], ModelWeights]
) -> None:
    weights = weights_of(torch.float32)
    tokens, logits = Batch.of(device, weights, FAST, PROMPTS, COUNT).generate(COUNT)
    for prompt, continuation, rows in zip(PROMPTS, tokens, logits, strict=True):
        whole = plain_logits(weights, [*prompt, *continuation[:-1]])[len(prompt) - 1 :]
        assert float((whole - rows.double()).abs().max()) < 1e-4


def test_steps_that_are_not_watched_take_no_evidence_and_give_the_same(
    device: Device, weights_of: Callable[[torch.dtype], ModelWeights]
) -> None:
    weights = weights_of(torch.float32)
    watched, blind = (Batch.of(device, weights, ANY_SIZE, PROMPTS, COUNT, watched=on) for on in (True, False))
    for batch in (watched, blind):
        batch.decoder.memory.stamps[1, 0] += 2
    assert watched.generate(COUNT)[0] == blind.generate(COUNT)[0]
    assert watched.evidence.kinds == {EvidenceKind.GENERATION_MISMATCH}
    assert blind.evidence.clean


def test_a_fast_run_is_watched_and_compared_with_nothing() -> None:
    result = conform(packaged_trace("mooncake"), Settings(requests=40, mode="fast"))
    assert result.verdict is Verdict.PASSED, result.summary
    assert not result.exact
    assert "nothing compared, since fast promises no bits" in result.summary


def rates() -> dict[tuple[str, str, int], float]:
    decode = {"fast": 90.0, "exact": 60.0, "transformers": 80.0}
    decode |= {"fast with evidence": 91.0, "fast without evidence": 92.0}
    prefill = {"fast": 500.0, "exact": 400.0, "transformers": 450.0}
    return {("decode", name, 1): rate for name, rate in decode.items()} | {
        ("prefill", name, 1): rate for name, rate in prefill.items()
    }


def test_every_rate_stands_beside_what_it_is_measured_against() -> None:
    made = report(rates(), (1,), context=8, prefill=64, floor=100.0, about="a test")
    assert {(row.name, row.ours, row.peer) for row in made.rows} == {
        ("decode, batch 1, context 8, fast", 90.0, 80.0),
        ("decode, batch 1, context 8, exact", 60.0, 90.0),
        ("decode, batch 1, context 8, evidence on", 91.0, 92.0),
        ("decode, batch 1, fast", 90.0, 100.0),
        ("prefill of 64, fast", 500.0, 450.0),
        ("prefill of 64, exact", 400.0, 500.0),
    }
    assert made.machine["decoder"] == "a test"


def test_the_benchmark_runs_from_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "decode.json"
    sizes = ["--shape", "tiny", "--batch", "2", "--context", "8", "--steps", "1", "--prefill", "16", "--rounds", "3"]
    with pytest.raises(SystemExit) as ended:
        main(["bench", "decode", *sizes, "--json", str(file)])
    assert ended.value.code == 0
    said = json.loads(file.read_text("utf-8"))
    assert said["decode"]["exact"] and said["decode"]["floor"]["tokens_a_second"] > 0
    assert {rate["engine"] for rate in said["decode"]["rates"]} == {
        "fast",
        "exact",
        "fast with evidence",
        "fast without evidence",
        "transformers",
    }


def test_absent_hardware_is_not_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as ended:
        main(["bench", "decode", "--device", "cuda", "--json", str(tmp_path / "decode.json")])
    assert ended.value.code == 3
