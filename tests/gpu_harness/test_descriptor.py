"""Step descriptors: packed whole, never written over while they are to be read, told apart by ticket (PAG-4)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import torch
from attrs import frozen

from kvescrow.gpu_harness.descriptor import DescriptorRing, Packed, pack, unpack
from kvescrow.gpu_harness.device import Device
from kvescrow.gpu_harness.evidence import EvidenceKind
from kvescrow.gpu_harness.oracle import DenseOracle
from kvescrow.gpu_harness.pages import page_sums
from kvescrow.gpu_harness.plan import StepBatch

if TYPE_CHECKING:
    from tests.gpu_harness.conftest import Rig


@frozen
class Leaf:
    number: int
    flags: torch.Tensor


@frozen
class Tree:
    rows: torch.Tensor
    leaves: tuple[Leaf, ...]


TREE = Tree(torch.tensor([[1, 2], [3, 4]]), (Leaf(7, torch.tensor([True, False])), Leaf(8, torch.tensor([False]))))


def packed(value: int) -> Packed:
    return pack(Leaf(0, torch.tensor([value])))


def test_a_tree_comes_back_as_it_was() -> None:
    row = pack(TREE)
    assert row.words.tolist() == [1, 2, 3, 4, 1, 0, 0]
    back = unpack(row, row.words)
    assert back.rows.tolist() == [[1, 2], [3, 4]]
    assert [leaf.number for leaf in back.leaves] == [7, 8]
    assert back.leaves[0].flags.dtype is torch.bool
    assert back.leaves[0].flags.tolist() == [True, False]


def test_a_slot_is_not_written_before_its_step_is_done(device: Device) -> None:
    ring, gate = DescriptorRing(device, slots=1), device.gate()
    slot = ring.put(packed(1))
    gate.hold(device.decode)
    pending = device.decode.submit(lambda: device.download(ring.read(slot, 1)))
    ring.launched(slot, pending.event)
    threading.Timer(0.05, gate.open).start()  # nothing else opens it: `put` has to wait for this
    ring.put(packed(2))
    assert pending.done()
    assert pending.result().tolist() == [1]
    assert ring.read(slot, 1).tolist() == [2]


class Hasty(DescriptorRing):
    def put(self, packed: Packed) -> int:
        self._busy[0] = None
        return super().put(packed)


def test_a_step_that_reads_the_descriptor_of_another_is_seen(rig: Rig) -> None:
    rig.decoder._ring = Hasty(rig.device, slots=1)
    requests = [rig.admit(number, [number, 2, 3, 4, 5], 2) for number in (1, 2)]
    gate = rig.device.gate()
    gate.hold(rig.device.decode)
    first, second = (
        rig.decoder.launch(rig.device.decode, StepBatch(ticket, [request.next_segment(100)]))
        for ticket, request in zip((50, 51), requests, strict=True)
    )
    gate.open()
    assert EvidenceKind.DESCRIPTOR_MISMATCH in first.wait().evidence.kinds
    assert EvidenceKind.DESCRIPTOR_MISMATCH not in second.wait().evidence.kinds


def test_whole_pages_have_the_sums_of_the_oracle_s_cache_and_one_bit_changes_them(rig: Rig) -> None:
    prompt = list(range(40))
    request = rig.admit(1, prompt, 2)
    segment = request.next_segment(1000)
    rig.take([request], [segment], rig.step(segment))
    oracle = DenseOracle(rig.weights, rig.recipe, 0, 64)
    run = oracle.run(prompt, 1)
    pages = [claim.page for claim in request.claims]
    found = rig.memory.fingerprint(rig.device.decode, pages).wait()
    assert [found[page] for page in pages[:2]] == list(run.sums)
    changed = oracle.pages().clone()
    changed[1, -1, 1, 3, 0, 5] ^= 1
    assert page_sums(changed).tolist()[0] == run.sums[0]
    assert page_sums(changed).tolist()[1] != run.sums[1]
