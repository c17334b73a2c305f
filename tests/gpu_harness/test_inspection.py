"""Each wrong stamp or word is counted as exactly its kind, with page, request, expected and found (CON-2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from kvescrow.gpu_harness.evidence import EvidenceKind
from kvescrow.gpu_harness.inspection import Inspector, canary_word, evidence_of
from kvescrow.gpu_harness.pages import GENERATION, INDEX, OWNER, SCOPE, PageClaim
from kvescrow.gpu_harness.plan import Segment, StepBatch, plan_step

if TYPE_CHECKING:
    from tests.gpu_harness.conftest import Request, Rig

KIND = EvidenceKind


@pytest.fixture
def running(rig: Rig) -> Request:
    """A request with 37 tokens in three pages."""
    request = rig.admit(6, list(range(37)), 4, scope=1)
    segment = request.next_segment(1000)
    rig.take([request], [segment], rig.step(segment))
    assert rig.evidence.clean
    return request


@pytest.mark.parametrize("place", [0, 2], ids=["read", "written"])
@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (GENERATION, KIND.GENERATION_MISMATCH),
        (OWNER, KIND.OWNER_MISMATCH),
        (SCOPE, KIND.SCOPE_MISMATCH),
        (INDEX, KIND.INDEX_MISMATCH),
    ],
)
def test_a_wrong_stamp_is_its_kind_once(
    rig: Rig, running: Request, place: int, column: int, kind: EvidenceKind
) -> None:
    page = running.claims[place].page
    expected = int(rig.memory.stamps[page, column])
    rig.memory.stamps[page, column] = 99
    evidence = rig.step(running.next_segment(1)).evidence
    assert dict(evidence.counts) == {kind: 1}
    (finding,) = evidence.findings
    assert (finding.page, finding.request, finding.ticket) == (page, 6, rig.ticket)
    assert (finding.expected, finding.found) == (str(expected), "99")


def test_a_shared_page_may_be_read_and_not_written(rig: Rig, running: Request) -> None:
    read, written = running.claims[0].page, running.claims[2].page
    rig.memory.publish(rig.device.decode, [read]).wait()
    assert rig.step(running.next_segment(1)).evidence.clean
    rig.memory.publish(rig.device.decode, [written]).wait()
    running.done += 1
    evidence = rig.step(running.next_segment(1)).evidence
    assert dict(evidence.counts) == {KIND.SHARED_PAGE_WRITTEN: 1}


def test_two_pages_swapped_in_the_table_are_seen(rig: Rig, running: Request) -> None:
    one, two, last = running.claims
    swapped = Segment(6, 1, 6, running.done, (1,), (two, one, last))
    assert dict(rig.step(swapped).evidence.counts) == {KIND.INDEX_MISMATCH: 2}


def test_a_page_of_an_old_generation_is_seen(rig: Rig, running: Request) -> None:
    first, *others = running.claims
    stale = Segment(6, 1, 6, running.done, (1,), (PageClaim(first.page, first.generation - 2), *others))
    assert dict(rig.step(stale).evidence.counts) == {KIND.GENERATION_MISMATCH: 1}


def test_a_foreign_write_in_the_unwritten_tail_breaks_the_canary(rig: Rig, running: Request) -> None:
    rig.memory.kv[:, running.claims[2].page, :, 9] = 0.5
    evidence = rig.step(running.next_segment(1)).evidence
    assert dict(evidence.counts) == {KIND.CANARY_BROKEN: 1}


def test_poison_in_the_context_is_seen_as_poison_and_as_nan(rig: Rig, running: Request) -> None:
    page = running.claims[1].page
    rig.memory.bits[:, page] = rig.memory.poison[page]
    evidence = rig.step(running.next_segment(1)).evidence
    assert dict(evidence.counts) == {KIND.POISON_READ: 1, KIND.NAN_LOGITS: 1}
    assert {finding.request for finding in evidence.findings} == {6}


def test_the_canary_looks_at_every_word_in_turn(rig: Rig) -> None:
    shape = rig.weights.shape
    words = shape.layers * 2 * shape.kv_width
    assert len({canary_word(rig.memory, ticket) for ticket in range(words)}) == words


def test_reuse_in_the_middle_of_a_step_is_seen_at_its_end_and_counted_once(rig: Rig, running: Request) -> None:
    batch = StepBatch(1, [running.next_segment(1)], rig.memory.scratch)
    plan = plan_step(batch, rig.recipe, rig.device.upload)
    inspector, logits = Inspector(rig.memory), torch.zeros(1, 4, device=rig.device.torch_device)
    before = inspector.before(plan, 1)
    assert evidence_of(batch, inspector.after(plan, before, logits)).clean
    rig.memory.stamps[running.claims[0].page, GENERATION] += 1
    changed = evidence_of(batch, inspector.after(plan, before, logits).downloaded(rig.device))
    assert dict(changed.counts) == {KIND.GENERATION_MISMATCH: 1}
    assert (changed.findings[0].expected, changed.findings[0].found) == ("1", "2")
    both = inspector.after(plan, inspector.before(plan, 1), logits)
    assert dict(evidence_of(batch, both).counts) == {KIND.GENERATION_MISMATCH: 1}
