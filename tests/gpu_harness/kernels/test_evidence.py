"""Each kernel finds what is wrong with the pages that it reads or writes itself (CON-2, PAG-4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
import torch

from kvescrow.gpu_harness.arithmetic import KERNELS, Recipe
from kvescrow.gpu_harness.evidence import Evidence, EvidenceKind
from kvescrow.gpu_harness.inspection import Inspector, evidence_of
from kvescrow.gpu_harness.pages import GENERATION, INDEX, OWNER, PAGE_LENGTH, SCOPE, SHARED_OWNER, PagedMemory
from kvescrow.gpu_harness.plan import Segment, StepBatch, StepPlan, plan_step

pytest.importorskip("triton", reason="not_run: triton is not installed (make kernels)")

if TYPE_CHECKING:
    from tests.gpu_harness.conftest import Rig

KIND = EvidenceKind
LENGTH = 20
"""Two pages: the step reads both, and writes the second."""
CORRUPTIONS = [
    (GENERATION, 3, KIND.GENERATION_MISMATCH),
    (OWNER, 99, KIND.OWNER_MISMATCH),
    (SCOPE, 2, KIND.SCOPE_MISMATCH),
    (INDEX, 7, KIND.INDEX_MISMATCH),
]


class Step:
    """One decode row behind LENGTH - 1 tokens, by kernels, with a moment for mistakes between its parts."""

    def __init__(self, rig: Rig) -> None:
        from kvescrow.gpu_harness.kernels.steps import KernelSteps

        self.memory: PagedMemory = rig.memory
        claims = rig.memory.grant(rig.device.decode, [9, 4], owner=5, scope=1, first_index=0).claims
        rig.device.synchronize()
        for index, claim in enumerate(claims):
            filled = min(LENGTH - 1 - index * PAGE_LENGTH, PAGE_LENGTH)
            rig.memory.kv[:, claim.page, :, :filled] = 0.5
        self.batch = StepBatch(7, [Segment(5, 1, 0, LENGTH - 1, (1,), claims)], rig.memory.scratch)
        self.kernels = KernelSteps(rig.memory, LENGTH, watched=True)
        self.plan: StepPlan = plan_step(self.batch, KERNELS, rig.device.upload)

    def run(
        self,
        *,
        early: Callable[[PagedMemory], None] = lambda _: None,
        within: Callable[[PagedMemory], None] = lambda _: None,
        late: Callable[[PagedMemory], None] = lambda _: None,
    ) -> Evidence:
        """The evidence of the step with what happens before it, in its middle, and behind its reads."""
        shape = self.memory.shape
        early(self.memory)
        before = self.kernels.before(self.plan, 7)
        within(self.memory)
        heads = (shape.heads, shape.kv_heads, shape.kv_heads)
        rows = tuple(torch.ones(self.plan.rows, count, shape.head_size) for count in heads)
        found = self.kernels.attended((rows[0], rows[1], rows[2]), self.memory.kv[0], self.plan, before)
        late(self.memory)
        inspection = self.kernels.after(self.plan, before, found[:1])
        return evidence_of(self.batch, inspection)


@pytest.fixture
def step(rig: Rig) -> Step:
    return Step(rig)


def stamp(page: int, column: int, value: int) -> Callable[[PagedMemory], None]:
    def change(memory: PagedMemory) -> None:
        memory.stamps[page, column] = value

    return change


def test_a_right_step_shows_nothing_and_writes_its_row(step: Step) -> None:
    assert step.run() == Evidence()
    assert torch.equal(step.memory.kv[0, 4, :, 3], torch.ones(2, 2, step.memory.shape.head_size))
    assert bool(step.memory.kv[0, 4, :, 4:].isnan().all())


@pytest.mark.parametrize(("column", "value", "kind"), CORRUPTIONS)
@pytest.mark.parametrize("page", [9, 4])
def test_a_wrong_stamp_is_found_by_the_reading_kernel_alone(
    step: Step, page: int, column: int, value: int, kind: EvidenceKind
) -> None:
    right = int(step.memory.stamps[page, column])
    evidence = step.run(within=stamp(page, column, value), late=stamp(page, column, right))
    assert dict(evidence.counts) == {kind: 1}
    (finding,) = evidence.findings
    assert (finding.page, finding.request, finding.ticket) == (page, 5, 7)
    assert (finding.expected, finding.found) == (str(right), str(value))


@pytest.mark.parametrize(("column", "value", "kind"), CORRUPTIONS)
def test_a_wrong_stamp_is_found_by_the_writing_kernel_alone(
    step: Step, column: int, value: int, kind: EvidenceKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvescrow.gpu_harness.kernels import steps

    right = int(step.memory.stamps[4, column])
    monkeypatch.setattr(steps, "attend", lambda query, *_: torch.zeros_like(query))
    evidence = step.run(within=stamp(4, column, value), late=stamp(4, column, right))
    assert dict(evidence.counts) == {kind: 1}
    assert bool((step.memory.kv[0, 4, :, 3] == 1).all())  # it was written all the same


@pytest.mark.parametrize("moment", ["early", "late"])
def test_a_wrong_stamp_is_found_by_the_looks_before_and_after(step: Step, moment: str) -> None:
    changes = {moment: stamp(9, GENERATION, 3)}
    assert dict(step.run(**changes).counts) == {KIND.GENERATION_MISMATCH: 1}


def test_a_shared_page_may_be_read_and_not_written(step: Step) -> None:
    assert step.run(early=stamp(9, OWNER, SHARED_OWNER)) == Evidence()
    evidence = step.run(within=stamp(4, OWNER, SHARED_OWNER))
    assert KIND.SHARED_PAGE_WRITTEN in evidence.kinds
    assert KIND.OWNER_MISMATCH not in evidence.kinds


def test_canaries_are_those_of_the_inspection_in_torch(step: Step) -> None:
    torch_inspector = Inspector(step.memory)
    numbers = step.memory.bits.new_zeros(())
    for page, slot, bits in [(4, 9, numbers), (9, 2, step.memory.poison[9])]:
        kept = step.memory.kv.clone()
        step.memory.bits[:, page, :, slot] = bits
        logits = torch.zeros(1, 4)
        theirs = torch_inspector.after(step.plan, torch_inspector.before(step.plan, 7), logits)
        ours = step.kernels.after(step.plan, step.kernels.before(step.plan, 7), logits)
        assert torch.equal(ours.violations, theirs.violations)
        assert int(ours.violations.sum()) == 1
        step.memory.kv.copy_(kept)


def test_the_word_looked_at_is_the_same_as_in_torch(step: Step) -> None:
    from kvescrow.gpu_harness.inspection import canary_word

    for ticket in (1, 7, 12_345):
        layer, kind, head, element = canary_word(step.memory, ticket)
        step.memory.kv[layer, 4, kind, 9, head, element] = 1.0
        plan = plan_step(StepBatch(ticket, step.batch.segments, step.batch.scratch), KERNELS, lambda host: host)
        counts, _ = step.kernels.before(plan, ticket)
        assert counts.sum(0).tolist() == [0, 0, 0, 0, 0, 1, 0]
        step.memory.bits[layer, 4, kind, 9, head, element] = step.memory.poison[4]


def test_a_scrubbed_page_gives_nan(step: Step) -> None:
    def scrub(memory: PagedMemory) -> None:
        memory.bits[:, 9] = memory.poison[9]

    assert step.run(within=scrub).kinds == {KIND.NAN_LOGITS}


def test_an_unwatched_step_looks_at_nothing(rig: Rig, step: Step) -> None:
    from kvescrow.gpu_harness.kernels.steps import KernelSteps

    step.kernels = KernelSteps(rig.memory, LENGTH, watched=False)
    assert step.run(early=stamp(9, GENERATION, 3)) == Evidence()


def test_heads_that_no_kernel_has_are_a_user_s_mistake() -> None:
    from attrs import evolve

    from kvescrow.gpu_harness.kernels import absent
    from kvescrow.gpu_harness.model import SHAPES

    assert absent(SHAPES["tiny"]) == ""
    assert "the model has heads of 48" in absent(evolve(SHAPES["tiny"], head_size=48))


def test_fast_steps_on_cuda_do_without_kernels_that_cannot_be_launched_and_say_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kvescrow.gpu_harness import launching
    from kvescrow.gpu_harness.kernels import rows

    tried = launching.cannot_launch.__wrapped__
    assert tried(torch.device("cpu")) == ""

    def broken(*_: object) -> torch.Tensor:
        raise RuntimeError("no C compiler")

    monkeypatch.setattr(rows, "normalised", broken)
    assert tried(torch.device("cpu")) == "kernels cannot be launched: RuntimeError: no C compiler"
    monkeypatch.setattr(rows, "normalised", lambda x, *_: 2 * x)
    assert "not one" in tried(torch.device("cpu"))
    monkeypatch.setattr(launching, "find_spec", lambda name: None)
    assert tried(torch.device("cpu")) == "triton is not installed"


def test_the_recipes_of_kernels_are_replayed() -> None:
    recipe: Recipe = KERNELS
    assert recipe.kernels and recipe.replayed
