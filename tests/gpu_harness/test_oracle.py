"""The exact oracle is near fp64, chunked as token by token; a comparison finds one bit (CON-2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from kvescrow.gpu_harness.evidence import EvidenceKind
from kvescrow.gpu_harness.model import SHAPES
from kvescrow.gpu_harness.oracle import DenseOracle, OracleRun, compare_with_oracle, plain_logits, same_bits

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvescrow.gpu_harness.arithmetic import Recipe
    from kvescrow.gpu_harness.model import ModelWeights

POSITIONS = 192


@pytest.fixture
def oracle_of(
    weights_of: Callable[[torch.dtype], ModelWeights], recipe_of: Callable[[torch.dtype], Recipe]
) -> Callable[[torch.dtype, int], DenseOracle]:
    return lambda dtype, scope: DenseOracle(weights_of(dtype), recipe_of(dtype), scope, POSITIONS)


@pytest.mark.parametrize("scope", [0, 2])
def test_fp32_is_near_the_textbook_model_in_fp64(
    oracle_of: Callable[[torch.dtype, int], DenseOracle],
    weights_of: Callable[[torch.dtype], ModelWeights],
    prompts: list[list[int]],
    scope: int,
) -> None:
    weights, prompt = weights_of(torch.float32), prompts[-1]
    run = oracle_of(torch.float32, scope).run(prompt, 8)
    plain = plain_logits(weights, prompt + list(run.tokens[:-1]), scope)[len(prompt) - 1 :]
    assert float((plain - run.logits.double()).abs().max()) < 1e-4
    other = plain_logits(weights, prompt, 1)[-1]
    assert float((plain[0] - other).abs().max()) > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_a_prompt_read_at_once_has_the_bits_of_one_read_token_by_token(
    oracle_of: Callable[[torch.dtype, int], DenseOracle], prompts: list[list[int]], dtype: torch.dtype
) -> None:
    for prompt in prompts:
        one_by_one = oracle_of(dtype, 1).run(prompt, 3)
        at_once = oracle_of(dtype, 1).run(prompt, 3, chunk=len(prompt))
        assert one_by_one.tokens == at_once.tokens
        assert same_bits(one_by_one.logits, at_once.logits)


def test_a_comparison_finds_one_bit_and_one_token() -> None:
    logits = torch.randn(3, SHAPES["tiny"].vocabulary)
    oracle = OracleRun((4, 5, 6), logits.clone(), sums=())
    assert compare_with_oracle(1, (4, 5, 6), logits, oracle).clean
    logits.view(torch.int32)[1, 7] ^= 1
    evidence = compare_with_oracle(1, (4, 5, 7), logits, oracle)
    assert dict(evidence.counts) == {EvidenceKind.LOGITS_DIFFER: 1, EvidenceKind.TOKENS_DIFFER: 1}
    assert {finding.request for finding in evidence.findings} == {1}


def test_same_bits_tells_nan_payloads_and_signs_of_zero_apart() -> None:
    nan = torch.tensor([torch.nan])
    other = (nan.view(torch.int32) ^ 1).view(torch.float32)
    assert same_bits(nan, nan.clone())
    assert not same_bits(nan, other)
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
