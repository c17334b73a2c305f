"""The pool: poison, generations, grants, and what is seen when somebody breaks them (PAG-4, PAG-10, CON-2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from kvescrow.gpu_harness.evidence import EvidenceKind
from kvescrow.gpu_harness.model import SHAPES
from kvescrow.gpu_harness.pages import (
    NOBODY,
    SHARED_OWNER,
    PagedMemory,
    PageMisuse,
    compare_fingerprints,
    page_bytes,
    poison_bits,
    poisoned_page,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.gpu_harness.conftest import Rig

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


@DTYPES
def test_poison_is_nan_and_names_its_page(dtype: torch.dtype, rig_of: Callable[[torch.dtype], Rig]) -> None:
    memory = rig_of(dtype).memory
    assert bool(memory.kv.isnan().all())
    payload = 1 << (22 if dtype == torch.float32 else 6)
    for page in (1, 63, 64, 159):
        words = memory.bits[:, page].unique().tolist()
        assert [poisoned_page(dtype, word) for word in words] == [page % payload]


@DTYPES
def test_ordinary_numbers_are_not_poison(dtype: torch.dtype) -> None:
    integer = torch.int32 if dtype == torch.float32 else torch.int16
    numbers = torch.tensor([0.0, -0.0, 1.0, -3.5, torch.inf], dtype=dtype).view(integer)
    assert [poisoned_page(dtype, bits) for bits in numbers.tolist()] == [None] * 5
    assert poisoned_page(dtype, poison_bits(dtype, 5)) == 5


def test_a_page_goes_from_free_to_granted_to_shared_to_free(rig: Rig) -> None:
    memory, stream = rig.memory, rig.device.decode
    grant = memory.grant(stream, [3, 5], owner=70, scope=2, first_index=4)
    assert grant.evidence.wait().clean
    assert [(claim.page, claim.generation) for claim in grant.claims] == [(3, 1), (5, 1)]
    assert memory.stamps[[3, 5]].tolist() == [[1, 70, 2, 4], [1, 70, 2, 5]]
    memory.publish(stream, [5]).wait()
    assert memory.stamps[5].tolist() == [1, SHARED_OWNER, 2, 5]
    memory.kv[:, 5] = 1.0
    rig.device.synchronize()
    memory.reclaim(stream, [5]).wait()
    assert memory.stamps[5].tolist() == [2, NOBODY, NOBODY, NOBODY]
    assert memory.audit_free(stream, [5]).wait().clean
    assert memory.grant(stream, [5], owner=71, scope=0, first_index=0).claims[0].generation == 3


def test_a_page_granted_twice_gets_another_generation_and_breaks_the_canary(rig: Rig) -> None:
    memory, stream = rig.memory, rig.device.decode
    first = memory.grant(stream, [9], owner=1, scope=0, first_index=0)
    stream.launch(lambda: memory.kv[:, 9].fill_(2.0))
    second = memory.grant(stream, [9], owner=2, scope=0, first_index=0)
    assert first.claims[0].generation != second.claims[0].generation
    assert first.evidence.wait().clean
    assert dict(second.evidence.wait().counts) == {EvidenceKind.CANARY_BROKEN: 1}


def test_one_changed_word_of_a_free_page_is_found(rig: Rig) -> None:
    rig.memory.bits[1, 8, 1, 15, 1, 31] ^= 1
    rig.device.synchronize()
    evidence = rig.memory.audit_free(rig.device.decode, range(1, rig.memory.pages)).wait()
    assert [(f.kind, f.page, f.found) for f in evidence.findings] == [
        (EvidenceKind.CANARY_BROKEN, 8, "1 other word(s)")
    ]


def test_a_write_to_the_sink_is_found_with_every_audit(rig: Rig) -> None:
    rig.memory.kv[0, 0, 0, 3, 0, 7] = 1.0
    rig.device.synchronize()
    evidence = rig.memory.audit_free(rig.device.decode, [4]).wait()
    assert [(f.kind, f.page) for f in evidence.findings] == [(EvidenceKind.CANARY_BROKEN, 0)]


def test_a_parked_page_that_changes_is_found(rig: Rig) -> None:
    memory, stream = rig.memory, rig.device.decode
    memory.kv[:, 4] = torch.randn_like(memory.kv[:, 4])
    rig.device.synchronize()
    before = memory.fingerprint(stream, [4, 6]).wait()
    assert compare_fingerprints(before, memory.fingerprint(stream, [4, 6]).wait()).clean
    memory.bits[0, 4, 0, 7, 1, 3] ^= 1
    rig.device.synchronize()
    after = memory.fingerprint(stream, [6, 4]).wait()
    evidence = compare_fingerprints(before, after)
    assert [(f.kind, f.page) for f in evidence.findings] == [(EvidenceKind.PARKED_PAGE_CHANGED, 4)]


def test_two_swapped_words_change_the_fingerprint(rig: Rig) -> None:
    memory, stream = rig.memory, rig.device.decode
    memory.kv[:, 4] = torch.randn_like(memory.kv[:, 4])
    rig.device.synchronize()
    before = memory.fingerprint(stream, [4]).wait()
    memory.kv[0, 4, 0, :2] = memory.kv[0, 4, 0, :2].flip(0)
    rig.device.synchronize()
    assert memory.fingerprint(stream, [4]).wait() != before


@pytest.mark.parametrize("page", [0, -1, 160])
def test_the_sink_and_unknown_pages_are_refused(rig: Rig, page: int) -> None:
    with pytest.raises(PageMisuse, match=f"page {page} is not one of 1..159"):
        rig.memory.grant(rig.device.decode, [page], owner=1, scope=0, first_index=0)
    with pytest.raises(PageMisuse):
        rig.memory.reclaim(rig.device.decode, [page])


def test_a_pool_without_a_usable_page_is_refused(rig: Rig) -> None:
    with pytest.raises(PageMisuse, match="beside the sink"):
        PagedMemory(rig.device, rig.weights.shape, 1)


def test_page_bytes_follow_from_the_shape(rig: Rig) -> None:
    assert page_bytes(rig.weights.shape, torch.float32) == rig.memory.kv[:, 0].numel() * 4
    assert page_bytes(SHAPES["small"], torch.bfloat16) == 8 * 2 * 16 * 4 * 64 * 2
