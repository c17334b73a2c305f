"""Steps of fixed sizes change no bit, write only their pages and the scratch page, and are captured once (PAG-4)."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from attrs import evolve

from kvescrow.gpu_harness import replays
from kvescrow.gpu_harness.arithmetic import Recipe
from kvescrow.gpu_harness.conform.platform import open_platform
from kvescrow.gpu_harness.conform.settings import Settings
from kvescrow.gpu_harness.descriptor import pack
from kvescrow.gpu_harness.evidence import NOTHING, EvidenceKind
from kvescrow.gpu_harness.model import tuned
from kvescrow.gpu_harness.oracle import DenseOracle, compare_with_oracle, same_bits
from kvescrow.gpu_harness.pages import GENERATION, PageClaim
from kvescrow.gpu_harness.plan import Segment, StepBatch, StepPlan, plan_step
from kvescrow.gpu_harness.replays import Bucket, Outputs, Replays, bucket_of, padded
from kvescrow.gpu_harness.sabotage import CAUGHT, sabotaged, unsabotaged
from tests.gpu_harness.conftest import POSITIONS, Rig

if TYPE_CHECKING:
    from kvescrow.gpu_harness.device import Device
    from kvescrow.gpu_harness.model import ModelWeights

COUNT = 4


@pytest.fixture
def replayed(
    device: Device,
    weights_of: Callable[[torch.dtype], ModelWeights],
    recipe_of: Callable[[torch.dtype], Recipe],
) -> Callable[[torch.dtype], Rig]:
    """A rig whose decode steps have fixed sizes, by dtype."""
    return lambda dtype: Rig(device, weights_of(dtype), evolve(recipe_of(dtype), replayed=True))


def decode(request: int, position: int, pages: int = 1) -> Segment:
    return Segment(request, 0, request, position, None, tuple(PageClaim(1 + request + i, 1) for i in range(pages)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_logits_are_the_oracle_s_bit_for_bit(
    replayed: Callable[[torch.dtype], Rig], prompts: list[list[int]], dtype: torch.dtype
) -> None:
    rig, draw = replayed(dtype), random.Random(3)
    draw.shuffle(rig.free)
    requests = [rig.admit(n, prompt, COUNT, scope=n % 3) for n, prompt in enumerate(prompts[:7])]
    rig.play(requests, COUNT, 40, draw)
    for request in requests:
        oracle = DenseOracle(rig.weights, rig.recipe, request.scope, POSITIONS)
        run = oracle.run(request.prompt, COUNT)
        rig.evidence += compare_with_oracle(request.number, request.tokens, torch.stack(request.logits), run)
    assert rig.evidence == NOTHING


def test_padding_rows_write_only_to_the_scratch_page(replayed: Callable[[torch.dtype], Rig]) -> None:
    rig = replayed(torch.float32)
    requests = [rig.admit(n, [5, 6], COUNT) for n in range(5)]
    everything_else = [PageClaim(page, 0) for page in (0, *rig.free)]
    before = rig.bits_of(everything_else)
    for _ in range(3):
        segments = [request.next_segment(1) for request in requests]
        result = rig.step(*segments)
        rig.take(requests, segments, result)
        assert len(result.tokens) == len(result.logits) == 5
    assert torch.equal(before, rig.bits_of(everything_else))
    assert rig.evidence == NOTHING
    rig.step(*[request.next_segment(1) for request in requests[:3]], scratch=rig.free[0])
    audit = rig.memory.audit_free(rig.device.decode, [rig.free[0]]).wait()
    assert audit.kinds == {EvidenceKind.CANARY_BROKEN}


def test_evidence_is_of_the_real_pages_alone(replayed: Callable[[torch.dtype], Rig]) -> None:
    rig = replayed(torch.float32)
    requests = [rig.admit(n, [5] * 20, COUNT) for n in range(3)]
    rig.play(requests, 1, 1000, random.Random(1))
    last = requests[-1].claims[-1].page
    rig.memory.stamps[last, GENERATION] += 2
    evidence = rig.step(*[request.next_segment(1) for request in requests]).evidence
    assert dict(evidence.counts) == {EvidenceKind.GENERATION_MISMATCH: 1}
    (finding,) = evidence.findings
    assert (finding.page, finding.request) == (last, 2)


def test_other_weights_are_used_at_once(replayed: Callable[[torch.dtype], Rig]) -> None:
    rig, fresh = replayed(torch.float32), replayed(torch.float32)
    later = tuned(rig.weights, 1)
    results = []
    for each in (rig, fresh):
        request = each.admit(0, [5, 6, 7], COUNT)
        each.take([request], [request.next_segment(1000)], each.step(request.next_segment(1000)))
        if each is rig:
            each.step(request.next_segment(1))
            each.step(request.next_segment(1))
        each.decoder.weights = later
        results.append(each.step(request.next_segment(1)).logits)
    assert same_bits(*results)


def test_the_size_is_the_next_power_of_two_and_chunks_have_none() -> None:
    sizes = [bucket_of(StepBatch(1, [decode(n, 0) for n in range(count)])) for count in (1, 2, 3, 4, 5, 9)]
    assert [bucket and bucket.segments for bucket in sizes] == [1, 2, 4, 4, 8, 16]
    given = Segment(0, 0, 0, 0, (7,), (PageClaim(1, 1),))
    assert bucket_of(StepBatch(1, [given])) == Bucket(1, is_fed=False)
    assert bucket_of(StepBatch(1, [given, decode(1, 0)])) == Bucket(2, is_fed=True)
    assert bucket_of(StepBatch(1, [evolve(given, tokens=(7, 8))])) is None


def test_plans_of_a_size_have_one_layout() -> None:
    recipe = Recipe("of this test", least_rows=4)
    batches = [
        StepBatch(1, [decode(0, 3), decode(5, 40, 3), decode(9, 0)], 99),
        StepBatch(2, [decode(n, 16 * n, n + 1) for n in range(4)], 99),
    ]
    plans = [padded(plan_step(b, recipe, lambda host: host), Bucket(4, True), recipe, POSITIONS, 99) for b in batches]
    packed = [pack(plan) for plan in plans]
    assert packed[0].sizes == packed[1].sizes
    assert plans[0].write_pages.tolist()[3:] == [99]
    assert plans[0].last_rows.tolist() == [0, 1, 2, 2]


class _Graph:
    """Stands for a captured graph: what was captured runs again when it is replayed, into the same memory."""

    def __init__(self, work: Callable[[], Outputs], outputs: Outputs) -> None:
        self._work, self._outputs = work, outputs
        self.replayed = 0

    def replay(self) -> None:
        self.replayed += 1
        for kept, new in zip(self._outputs, self._work(), strict=True):
            kept.copy_(new)


def test_a_size_runs_once_is_captured_once_and_then_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = []

    def captured(work: Callable[[], Outputs]) -> tuple[Any, Outputs]:
        outputs = tuple(torch.zeros_like(each) for each in work())
        graphs.append(_Graph(work, outputs))
        return graphs[-1], outputs

    monkeypatch.setattr(replays, "_captured", captured)
    recipe, own = Recipe("of this test", least_rows=4), cast(Any, SimpleNamespace(is_cuda=True))
    kept = Replays(own)
    weights, others = cast("ModelWeights", object()), cast("ModelWeights", object())

    def run(position: int, stream: str, of: ModelWeights) -> int:
        batch = StepBatch(position, [decode(0, position)], 9)
        packed = pack(padded(plan_step(batch, recipe, lambda host: host), Bucket(1, True), recipe, 16, 9))

        def step(plan: StepPlan) -> Outputs:
            return (plan.positions * 10 + plan.ticket,)

        (found,) = kept.run(stream, Bucket(1, True), of, packed, packed.words.clone(), step)
        return int(found[0])

    assert [run(position, "decode", weights) for position in (1, 2, 3, 4)] == [11, 22, 33, 44]
    assert [graph.replayed for graph in graphs] == [3]
    assert [run(position, "prefill", weights) for position in (5, 6)] == [55, 66]
    assert [graph.replayed for graph in graphs] == [3, 1]
    assert [run(position, "decode", others) for position in (7, 8)] == [77, 88]
    assert [graph.replayed for graph in graphs] == [3, 1, 1]


@pytest.mark.parametrize("sabotage", [None, "padding-rows-on-page-0"])
def test_a_worker_whose_steps_have_fixed_sizes_conforms_and_its_mistakes_are_found(sabotage: str | None) -> None:
    settings = Settings()
    with open_platform(settings) as platform:
        platform.probe = evolve(platform.probe, recipe=evolve(platform.probe.recipe, replayed=True))
        if sabotage is None:
            run = unsabotaged(platform, settings)
            assert (run.evidence, run.violations) == (NOTHING, ())
            assert run.exact and run.tally.steps > 50
        else:
            assert sabotaged(sabotage, platform, settings).verdict == CAUGHT
