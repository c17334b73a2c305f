"""The code for cuda on a simulated device: its order of things, its graphs, its windows, and runs that must pass there.

What a device would only do on a bad day, the simulation does at once (`simulated_cuda`). That it would is shown first.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
from attrs import evolve

from kvescrow.gpu_harness.arithmetic import FAST, FIXED_SIZE, KERNELS, Recipe
from kvescrow.gpu_harness.conform import rehearsal
from kvescrow.gpu_harness.conform.harness import conform_on, of_hazards
from kvescrow.gpu_harness.conform.platform import Platform
from kvescrow.gpu_harness.conform.result import ConformResult, Verdict
from kvescrow.gpu_harness.conform.settings import Settings
from kvescrow.gpu_harness.conform.workload import SCOPES
from kvescrow.gpu_harness.decoder import PagedDecoder
from kvescrow.gpu_harness.device import Device, open_device
from kvescrow.gpu_harness.evidence import NOTHING
from kvescrow.gpu_harness.launching import cannot_launch
from kvescrow.gpu_harness.model import SHAPES, ModelWeights, seeded_weights
from kvescrow.gpu_harness.oracle import DenseOracle, compare_with_oracle, plain_logits
from kvescrow.gpu_harness.plan import StepBatch
from kvescrow.gpu_harness.probe import ProbeResult
from kvescrow.gpu_harness.sabotage import CAUGHT, sabotaged
from kvescrow.gpu_harness.streams import StreamFailed
from kvescrow.reference.scheduler import BatchLimits

pytest.importorskip("triton", reason="not_run: triton is not installed (make kernels)")

from tests.gpu_harness.conftest import PAGES, Rig
from tests.gpu_harness.simulated_cuda import UNREAD, SimulatedCuda, simulated_cuda

COUNT = 5
SHAPE = evolve(SHAPES["tiny"], layers=1, vocabulary=128)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedCuda]:
    cannot_launch.cache_clear()
    with simulated_cuda(monkeypatch, seed=1) as simulated:
        yield simulated
    cannot_launch.cache_clear()


@pytest.fixture
def there(cuda: SimulatedCuda) -> Iterator[Device]:
    with open_device("cuda") as opened:
        yield opened


def weights_on(device: Device, dtype: torch.dtype = torch.float32) -> ModelWeights:
    return seeded_weights(SHAPE, 7, scopes=SCOPES, dtype=dtype, device=device.torch_device)


# --- what the simulation shows ----------------------------------------------------------------------------------------


def test_what_a_stream_does_not_wait_for_is_not_there(there: Device) -> None:
    unread = int(torch.full((8,), UNREAD, dtype=torch.uint8).view(torch.int64)[0])
    seen = set()
    for is_ordered in [False] * 20 + [True] * 20:
        made = there.prefill.submit(lambda: torch.ones(1, dtype=torch.int64, device=there.torch_device) + 1)
        if is_ordered:
            there.decode.wait(made.event)
        value = there.decode.submit(lambda made=made: there.download(made._read() * 10)).wait()  # type: ignore[misc]
        seen.add((is_ordered, value.tolist()[0]))
    assert seen == {(True, 20), (False, 20), (False, (unread * 10 + 2**63) % 2**64 - 2**63)}


def test_a_copy_to_the_host_is_read_when_it_is_done_and_one_from_it_reads_when_it_runs(there: Device) -> None:
    gate, slot = there.gate(), torch.zeros(1, dtype=torch.int64, pin_memory=True)
    gate.hold(there.decode)
    copied = there.decode.submit(lambda: there.download(slot.to(there.torch_device, non_blocking=True)))
    assert copied._read().tolist() != [0]
    slot.fill_(7)
    assert gate.holding() and not copied.done()
    gate.open()
    assert copied.wait().tolist() == [7]


def test_what_is_done_for_the_first_time_in_a_window_is_noticed(cuda: SimulatedCuda, there: Device) -> None:
    gate, numbers = there.gate(), torch.ones(3, device=there.torch_device)
    for _ in range(2):
        gate.hold(there.decode)
        there.prefill.submit(numbers.cosh).wait()
        gate.open()
        there.decode.synchronize()
        gate = there.gate()
    assert cuda.late == ["aten.cosh.default of [torch.float32]"]


def test_a_host_that_waits_behind_a_gate_loses_the_window_and_does_not_hang(cuda: SimulatedCuda, there: Device) -> None:
    gate = there.gate()
    gate.hold(there.decode)
    there.decode.synchronize()
    assert not gate.holding() and cuda.windows_lost == 1


def test_what_waits_for_the_device_cannot_be_captured(there: Device) -> None:
    numbers = torch.arange(4, device=there.torch_device)

    def captured() -> None:
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            int(numbers.sum())
        finally:
            graph.capture_end()

    with pytest.raises(StreamFailed, match="not permitted when stream is capturing"):
        there.decode.launch(captured)


# --- the code for cuda ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", [KERNELS, FAST], ids=["exact", "fast"])
def test_steps_of_kernels_are_captured_and_replayed_with_the_right_bits(
    cuda: SimulatedCuda, there: Device, recipe: Recipe
) -> None:
    rig, draw = Rig(there, weights_on(there), recipe), random.Random(2)
    requests = [rig.admit(n, [5 + n, 6, 7] * 6, COUNT, scope=n) for n in range(2)]
    rig.play(requests, COUNT, 18, draw)
    assert cuda.replays > 1
    assert rig.evidence == NOTHING
    for request in requests:
        if recipe is KERNELS:
            run = DenseOracle(rig.weights, recipe, request.scope, 32).run(request.prompt, COUNT, chunk=18)
            assert compare_with_oracle(request.number, request.tokens, torch.stack(request.logits), run) == NOTHING
        else:
            sequence = [*request.prompt, *request.tokens[:-1]]
            plain = plain_logits(rig.weights.converted("cpu"), sequence, request.scope)[len(request.prompt) - 1 :]
            torch.testing.assert_close(torch.stack(request.logits).double(), plain, atol=1e-4, rtol=0)


def test_products_of_one_input_are_one_product_unless_they_have_fixed_tiles(there: Device) -> None:
    weights = weights_on(there)
    x = torch.randn(5, SHAPE.hidden).to(there.torch_device)
    for own_products, count in ((False, 1), (True, 3)):
        product = evolve(KERNELS, own_products=own_products).products(weights).layers[0].query_key_value
        assert len(product.weights) == count
        each = [torch.nn.functional.linear(x, part) for part in weights.plain.layers[0].query_key_value.weights]
        torch.testing.assert_close(product(x).cpu(), torch.cat(each, dim=-1).cpu())


def test_weights_of_a_later_epoch_are_there_before_a_step_reads_them(there: Device) -> None:
    platform = Platform("cuda", weights_on(there), ProbeResult(FIXED_SIZE, True, ""))
    later = platform.weights(1).layers[0].key
    read = there.decode.submit(lambda: there.download(later)).wait()
    assert torch.equal(read, later.cpu())


def test_a_capture_that_fails_says_why(there: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(there, weights_on(there), KERNELS)
    request = rig.admit(0, [5, 6, 7], COUNT)
    rig.play([request], 2, 3, random.Random(1))
    step = PagedDecoder._step
    monkeypatch.setattr(PagedDecoder, "_step", lambda *arguments: (step(*arguments), int(rig.memory.stamps.sum()))[0])
    with pytest.raises(StreamFailed, match="a wait"):
        rig.play([request], COUNT, 3, random.Random(1))


def run_of_hazards(cuda: SimulatedCuda, device: Device) -> ConformResult:
    """Everything that a run has: cancels in flight, growth, hits, a change of weights, a worker that is killed."""
    platform = Platform("cuda", weights_on(device), ProbeResult(FIXED_SIZE, True, ""))
    offered, small = of_hazards(Settings(device="cuda"), platform)
    return conform_on(platform, offered, evolve(small, growth=True, kills=(4,)))


def test_a_run_passes_with_every_window_real_and_nothing_done_for_the_first_time_in_one(
    cuda: SimulatedCuda, there: Device
) -> None:
    result = run_of_hazards(cuda, there)
    assert result.verdict is Verdict.PASSED, result.summary
    assert (result.tally.workers_killed, result.tally.epochs) == (1, 1)
    assert result.tally.cancelled_in_flight == result.tally.cancelled_running > 0
    assert cuda.windows_lost == 0
    assert cuda.late == []


def test_after_a_rehearsal_no_step_is_captured_in_a_window_and_no_page_shows_that_it_was_used(
    cuda: SimulatedCuda, there: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "LIMITS", BatchLimits(sequences=2, prefill_chunk=18))
    rig = Rig(there, weights_on(there), KERNELS)
    there.synchronize()
    before = rig.memory.bits.cpu()
    rehearsal.rehearse(rig.decoder, there.prefill, there.decode, there.stream("rehearsal"))
    assert torch.equal(rig.memory.bits[:, :PAGES].cpu(), before[:, :PAGES])
    requests = [rig.admit(n, [5 + n, 6, 7], COUNT, scope=n) for n in range(2)]
    rig.take(requests, segments := [each.next_segment(9) for each in requests], rig.step(*segments))
    gate = there.gate()
    gate.hold(there.prefill)
    for count in (1, 2):
        segments = [each.next_segment(1, feed=True) for each in requests[:count]]
        there.decode.synchronize()
        rig.evidence += rig.decoder.launch(there.decode, StepBatch(100 + count, segments)).wait().evidence
        requests[0].done += 1
    assert gate.holding()
    gate.open()
    assert cuda.late == []
    assert rig.evidence == NOTHING


def test_a_mistake_is_caught_there_as_it_is_on_the_cpu(cuda: SimulatedCuda, there: Device) -> None:
    platform = Platform("cuda", weights_on(there), ProbeResult(FIXED_SIZE, True, ""))
    result = sabotaged("release-at-cancel", platform, Settings(device="cuda"))
    assert result.verdict == CAUGHT, result.missing
