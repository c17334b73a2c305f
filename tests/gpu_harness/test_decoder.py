"""The paged decoder has the bits of the dense oracle, whatever the batch, the chunks and the pages (CON-1, CON-2)."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import combinations
from typing import TYPE_CHECKING

import pytest
import torch

from kvescrow.gpu_harness.evidence import NOTHING, EvidenceKind
from kvescrow.gpu_harness.oracle import DenseOracle, compare_with_oracle, same_bits
from kvescrow.gpu_harness.pages import PAGE_LENGTH, PageClaim
from kvescrow.gpu_harness.plan import BadBatch, Segment, StepBatch

if TYPE_CHECKING:
    from tests.gpu_harness.conftest import Request, Rig

COUNT = 5
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


def against_oracle(rig: Rig, request: Request) -> None:
    """Add what differs from the oracle's run of this request alone to the rig's evidence."""
    oracle = DenseOracle(rig.weights, rig.recipe, request.scope, len(request.prompt) + COUNT)
    run = oracle.run(request.prompt, COUNT)
    rig.evidence += compare_with_oracle(request.number, request.tokens, torch.stack(request.logits), run)


@DTYPES
@pytest.mark.parametrize("chunk", [1, 7, 16, 48, 1000])
def test_logits_are_the_oracle_s_bit_for_bit(
    rig_of: Callable[[torch.dtype], Rig], prompts: list[list[int]], dtype: torch.dtype, chunk: int
) -> None:
    rig, draw = rig_of(dtype), random.Random(chunk)
    draw.shuffle(rig.free)
    requests = [rig.admit(n, prompt, COUNT, scope=n % 3) for n, prompt in enumerate(prompts)]
    rig.play(requests, COUNT, chunk, draw)
    for request in requests:
        against_oracle(rig, request)
    assert rig.evidence == NOTHING


@DTYPES
def test_pages_written_in_a_noisy_batch_are_those_written_alone(
    rig_of: Callable[[torch.dtype], Rig], prompts: list[list[int]], dtype: torch.dtype
) -> None:
    alone, noisy = rig_of(dtype), rig_of(dtype)
    target = prompts[-1]
    one = alone.admit(0, target, COUNT, scope=1)
    alone.play([one], COUNT, len(target), random.Random(1))
    requests = [noisy.admit(n, prompt, COUNT, scope=1) for n, prompt in enumerate(prompts)]
    noisy.play(requests, COUNT, 7, random.Random(2))
    full = len(target) // PAGE_LENGTH
    assert torch.equal(alone.bits_of(one.claims[:full]), noisy.bits_of(requests[-1].claims[:full]))
    assert not torch.equal(alone.bits_of(one.claims[:full]), noisy.bits_of(requests[-1].claims[1 : full + 1]))


def test_a_shared_prefix_changes_no_bit(rig: Rig, prompts: list[list[int]]) -> None:
    first = rig.admit(0, prompts[-1], COUNT, scope=2)
    rig.play([first], COUNT, 48, random.Random(1))
    shared = first.claims[:4]
    rig.memory.publish(rig.device.decode, [claim.page for claim in shared]).wait()
    second = rig.admit(1, prompts[-1][:64] + prompts[3], COUNT, scope=2, shared=shared)
    rig.play([first, second], COUNT, 7, random.Random(3))
    assert len(second.tokens) == COUNT
    against_oracle(rig, second)
    assert rig.evidence == NOTHING


def test_steps_launched_ahead_on_two_streams_have_the_oracle_s_bits(rig: Rig, prompts: list[list[int]]) -> None:
    decode, prefill = rig.device.decode, rig.device.prefill
    early = [rig.admit(n, prompt, COUNT, scope=n % 3) for n, prompt in enumerate(prompts[:4])]
    late = rig.admit(9, prompts[-1], COUNT, scope=1)
    gate = rig.device.gate()
    gate.hold(decode)
    launched = []
    for step in range(COUNT):
        segments = [r.next_segment(1000, feed=True) for r in early]
        for request, segment in zip(early, segments, strict=True):
            request.done = segment.end
        launched.append(rig.decoder.launch(decode, StepBatch(step, segments)))
    chunks = []
    for start in range(0, len(late.prompt), 40):
        tokens = tuple(late.prompt[start : start + 40])
        segment = Segment(9, 1, 9, start, tokens, late.claims)
        chunks.append(rig.decoder.launch(prefill, StepBatch(50 + start, [segment])))
    assert gate.holding()
    gate.open()
    for pending in launched:
        result = pending.wait()
        rig.evidence += result.evidence
        rig.take(early, result.batch.segments, result)
    last = chunks[-1].wait()
    rig.evidence += last.evidence
    rig.take([late], last.batch.segments, last)
    rig.play([late], COUNT, 1, random.Random(1))
    for request in (*early, late):
        against_oracle(rig, request)
    assert rig.evidence == NOTHING


def test_scopes_have_different_logits(rig: Rig, prompts: list[list[int]]) -> None:
    requests = [rig.admit(scope, prompts[4], COUNT, scope=scope) for scope in range(3)]
    rig.play(requests, 1, 1000, random.Random(1))
    for one, other in combinations(requests, 2):
        assert not same_bits(one.logits[0], other.logits[0])


def test_a_prefix_of_another_scope_is_seen_by_stamps_and_by_logits(rig: Rig, prompts: list[list[int]]) -> None:
    first = rig.admit(0, prompts[-1], COUNT, scope=1)
    rig.play([first], COUNT, 1000, random.Random(1))
    rig.memory.publish(rig.device.decode, [claim.page for claim in first.claims[:4]]).wait()
    second = rig.admit(1, prompts[-1], COUNT, scope=2, shared=first.claims[:4])
    rig.play([second], COUNT, 1000, random.Random(1))
    against_oracle(rig, second)
    assert {EvidenceKind.SCOPE_MISMATCH, EvidenceKind.LOGITS_DIFFER} <= rig.evidence.kinds
    assert rig.evidence.kinds <= {
        EvidenceKind.SCOPE_MISMATCH,
        EvidenceKind.LOGITS_DIFFER,
        EvidenceKind.TOKENS_DIFFER,
    }


def test_one_wrong_bit_in_the_context_is_seen(rig: Rig, prompts: list[list[int]]) -> None:
    request = rig.admit(0, prompts[-1], COUNT)
    rig.play([request], 1, 1000, random.Random(1))
    rig.memory.bits[1, request.claims[0].page, 1, 3, 0, 5] ^= 1 << 20
    rig.play([request], COUNT, 1000, random.Random(1))
    against_oracle(rig, request)
    assert EvidenceKind.LOGITS_DIFFER in rig.evidence.kinds


def test_padding_rows_write_only_to_the_scratch_page(rig: Rig) -> None:
    request = rig.admit(0, [5, 6, 7], COUNT)
    everything_else = [PageClaim(page, 0) for page in rig.free]
    before = rig.bits_of(everything_else)
    rig.step(request.next_segment(1))
    assert torch.equal(before, rig.bits_of(everything_else))
    assert rig.memory.audit_free(rig.device.decode, rig.free).wait().clean
    victim = rig.free[0]
    rig.step(Segment(0, 0, 0, 1, (6,), request.claims), scratch=victim)
    assert rig.memory.audit_free(rig.device.decode, [victim]).wait().kinds == {EvidenceKind.CANARY_BROKEN}


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ((), "at least one segment"),
        ((Segment(0, 0, 0, 0, (), (PageClaim(1, 1),)),), "no tokens"),
        ((Segment(0, 0, 99, 0, (1,), (PageClaim(1, 1),)),), "no such slot"),
        ((Segment(0, 0, 0, 16, (1,), (PageClaim(1, 1),)),), "end before 17"),
        ((Segment(0, 9, 0, 0, (1,), (PageClaim(1, 1),)),), "scope 9"),
        ((Segment(0, 0, 0, 0, (512,), (PageClaim(1, 1),)),), "vocabulary"),
        ((Segment(0, 0, 0, 192, (1,), (PageClaim(1, 1),) * 13),), "beyond the 192"),
        ((Segment(0, 0, 0, 0, (1,), (PageClaim(1, 1),)),) * 2, "two segments"),
        ((Segment(0, 0, 0, 0, (1,), (PageClaim(160, 1),)),), "not one of the pool's 160"),
    ],
)
def test_a_contradictory_descriptor_is_refused_before_the_launch(
    rig: Rig, segments: tuple[Segment, ...], message: str
) -> None:
    with pytest.raises(BadBatch, match=message):
        rig.decoder.launch(rig.device.decode, StepBatch(1, segments))
    rig.device.synchronize()


def test_a_ticket_lists_each_page_once_up_to_the_last_position() -> None:
    claims = tuple(PageClaim(page, 1) for page in (4, 9, 2))
    one = Segment(0, 0, 0, 0, tuple(range(17)), claims)
    other = Segment(1, 0, 1, 16, (1,), (claims[0], PageClaim(7, 1)))
    assert StepBatch(1, (one, other)).pages == (4, 9, 7)
