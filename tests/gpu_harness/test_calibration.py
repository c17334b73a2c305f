"""Calibration on a bench whose step times are known, so that nothing hangs on a machine's speed; and on the real one.

On the real decoder only what does not depend on time is asked: which steps are run, and that they are steps of it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest
from attrs import evolve

from kvescrow.gpu_harness import calibrate as script
from kvescrow.gpu_harness.arithmetic import ANY_SIZE
from kvescrow.gpu_harness.calibration.front import Asked, run
from kvescrow.gpu_harness.calibration.grid import Grid, measured
from kvescrow.gpu_harness.calibration.plot import write_plot
from kvescrow.gpu_harness.calibration.result import Calibration
from kvescrow.gpu_harness.calibration.run import Plan, calibrate
from kvescrow.gpu_harness.calibration.serve import PATIENCE, Load, fixed, serve
from kvescrow.gpu_harness.calibration.workbench import DecoderBench, Request, work_of
from kvescrow.gpu_harness.device import open_device
from kvescrow.gpu_harness.model import named_shape, seeded_weights
from kvescrow.reference.scheduler import (
    ChunkRule,
    CostModel,
    GapBudget,
    MeasuredStep,
    StepCost,
    StepWork,
    of_chunk,
    of_decodes,
)
from kvescrow.spec.vocabulary import Reason, UserError

TRUE = StepCost(2_500_000, 16_000, 80_000, 600, 85_000_000)
OVERHEAD = 50
"""Microseconds between two steps of the bench below."""


class KnownBench:
    """Requests without a decoder: steps take what `cost` says, give or take some per cent, on a clock of its own."""

    def __init__(
        self, cost: StepCost = TRUE, *, noise: float = 0.03, spikes: float = 0.0, slower_from: int = -1
    ) -> None:
        self._cost, self._noise, self._spikes, self._slower_from = cost, noise, spikes, slower_from
        self._draw = random.Random(7)
        self._slots = count()
        self._now = 0
        self.steps: list[tuple[int, int]] = []
        """Decodes and prompt tokens of each."""
        self.open_requests = 0

    def now(self) -> int:
        return self._now

    def open(self, prompt: int, outputs: int) -> Request:
        self.open_requests += 1
        return Request(next(self._slots), (0,) * prompt)

    def close(self, request: Request) -> None:
        self.open_requests -= 1

    def step(self, decodes: Sequence[Request], chunk: tuple[Request, int] | None) -> MeasuredStep:
        work = work_of(decodes, chunk)
        factor = self._draw.gauss(1, self._noise) * (8 if self._draw.random() < self._spikes else 1)
        if 0 <= self._slower_from <= len(self.steps):
            factor *= 3
        took = max(1, round(self._cost.duration(work) * factor))
        for request in decodes:
            request.position += 1
        if chunk is not None:
            chunk[0].position += chunk[1]
        self.steps.append((len(decodes), chunk[1] if chunk else 0))
        self._now += took + OVERHEAD
        return MeasuredStep(work, took)


@pytest.fixture(scope="module")
def found() -> Calibration:
    return calibrate(KnownBench(spikes=0.002), Plan())


def test_a_calibration_passes_with_every_part_shown(found: Calibration) -> None:
    """CHK-2 CHK-5: the true coefficients within a tenth, in spite of steps that took eight times as long."""
    assert found.problems == ()
    for name in ("fixed", "per_prefill_token", "per_decode_sequence", "per_attended_pair"):
        assert getattr(found.model.cost, name) == pytest.approx(getattr(TRUE, name), rel=0.1)
    assert len(found.fit_to) > 300
    assert found.check.typical < 50


def test_the_rule_keeps_the_gap_that_a_fixed_chunk_breaks(found: Calibration) -> None:
    """CHK-1: both compute all prompts; only one of them leaves the decodes their gap."""
    gap = found.gap
    assert found.budget.gap == gap * 9 // 10
    assert found.with_rule.prompts_done == found.with_fixed.prompts_done == Load().prompts
    assert sorted(found.with_rule.gaps)[-2] <= gap < min(found.with_fixed.gaps)
    assert max(found.with_rule.chunks) < found.budget.largest
    assert found.gaps_inside >= 0.95 * len(found.with_rule.gaps)
    assert len(set(found.with_rule.chunks)) > 3, "later chunks of a prompt are smaller"


def test_held_out_sizes_are_others(found: Calibration) -> None:
    def chunks(steps: Sequence[MeasuredStep]) -> set[int]:
        return {step.work.prefill_tokens for step in steps if step.work.decode_sequences}

    seen = chunks((*found.fit_to, *found.banded_by))
    common = chunks(found.held_out) & seen
    # The end of a prompt may be as long as any chunk.
    assert len(common) < len(chunks(found.held_out)) / 2
    assert found.model.range is not None
    for step in found.held_out:
        assert step.work.prefill_tokens <= found.model.range.prefill_tokens


def test_infeasible_questions_are_answered_by_name(found: Calibration) -> None:
    """CHK-3."""
    assert [each.reason for each in found.infeasible] == [
        Reason.GAP_TOO_SMALL_FOR_DECODE,
        Reason.DEADLINE_UNREACHABLE,
        Reason.OUT_OF_MODEL_RANGE,
        Reason.MODEL_FAILED,
    ]


def test_a_bench_that_becomes_slower_fails_the_model() -> None:
    """CHK-5: three times as slow after the grid was measured. The rule stops choosing, and the run says why."""
    calm = KnownBench()
    calibrate(calm, Plan())
    measured_steps = len(calm.steps)
    served = measured_steps - 250
    found = calibrate(KnownBench(slower_from=served), Plan())
    assert found.verdict == "failed"
    assert any("left its band" in problem or "outside the band" in problem for problem in found.problems)


def test_drift_is_found_while_serving() -> None:
    model = CostModel(TRUE, band=100)
    rule = ChunkRule(model, GapBudget(40_000, largest=512, granule=8))
    served = serve(KnownBench(noise=0.0, slower_from=20), Load(), rule.choose, rule)
    assert served.drifted
    assert served.given_up is Reason.MODEL_FAILED
    assert served.answers[Reason.MODEL_FAILED] == PATIENCE
    assert not rule.trusted


def test_a_budget_that_no_rule_is_needed_for_is_told(found: Calibration) -> None:
    wide = evolve(found, gap=10**9)
    assert wide.problems == (
        "a fixed chunk keeps the gap too: 1000000000 us is no budget that needs a rule; give a smaller one",
    )


def test_each_way_to_fail_has_its_sentence(found: Calibration) -> None:
    slow = evolve(found.with_rule, gaps=(10**8,) * 100, predicted=(10**4,) * 100, drifted=True)
    late = evolve(found, with_rule=slow)
    assert late.gaps_inside == 0
    outside = evolve(
        found, check=evolve(found.check, inside=0), infeasible=(found.infeasible[1], *found.infeasible[1:])
    )
    said = "\n".join((*late.problems, *outside.problems))
    assert "the model left its band while it was used" in said
    assert "with the rule the 99th percentile of the token gap is 100000000 us" in said
    assert "held-out steps lie outside the band" in said
    assert "the rule says DEADLINE_UNREACHABLE, not GAP_TOO_SMALL_FOR_DECODE" in said
    assert {late.verdict, outside.verdict} == {"failed"}


def test_a_gap_that_leaves_no_room_computes_no_prompt() -> None:
    """CHK-3: nothing hangs; prompts are given up after a bounded number of steps."""
    bench = KnownBench(noise=0.0)
    rule = ChunkRule(CostModel(TRUE), GapBudget(3_400, largest=512, granule=64))
    served = serve(bench, Load(), rule.choose, rule)
    assert (served.prompts_done, served.given_up) == (0, Reason.NO_CHUNK_FITS)
    assert set(served.chunks) == {0}
    assert len(served.gaps) == PATIENCE
    assert bench.open_requests == 0


def test_a_gap_is_from_tokens_to_tokens() -> None:
    """Overhead between steps is part of it."""
    rule = ChunkRule(CostModel(TRUE), GapBudget(10**9, largest=512))
    served = serve(KnownBench(noise=0.0), Load(decodes=2, context=4, prompts=1, prompt=8), fixed(8), rule)
    work = of_decodes([4, 4]) + of_chunk(0, 8)
    assert served.gaps == (TRUE.duration(work) + OVERHEAD,)
    assert served.predicted == (TRUE.duration(work),)
    assert served.chunks == (8,)


def test_the_grid_crosses_all_sizes() -> None:
    grid = Grid(decodes=(0, 3), contexts=(4, 9), chunks=(0, 2, 5), prompt=30)
    bench = KnownBench()
    works = [step.work for step in measured(bench, grid, random.Random(1))]
    assert {(work.decode_sequences > 0, work.prefill_tokens) for work in works} >= set(
        [(True, 0), (True, 2), (True, 5), (False, 2), (False, 5), (False, 4), (False, 9)]
    )
    assert StepWork() not in works
    assert bench.open_requests == 0


def test_sizes_between_are_between() -> None:
    for seed in range(50):
        between = Grid().between(random.Random(seed))
        assert not set(between.chunks) & set(Grid().chunks) - {0}
        assert max(between.chunks) < max(Grid().chunks)
        assert max(between.contexts) < max(Grid().contexts)


def test_result_and_picture_can_be_written(found: Calibration, tmp_path: Path) -> None:
    written = json.loads(json.dumps(found.as_json()))
    assert written["verdict"] == "passed"
    assert written["held_out"]["steps"] == len(written["steps"]["held_out"])
    assert written["with_rule"]["gap"]["p99"] <= written["gap_budget"]
    assert "chunk rule" in found.summary
    write_plot(found, tmp_path / "calibration.svg")
    assert "token gap" in (tmp_path / "calibration.svg").read_text("utf-8").lower()
    with pytest.raises(UserError, match=r"name a \.png or \.svg file"):
        write_plot(found, tmp_path / "calibration.nonsense")


def ticks() -> Iterator[int]:
    return (1_000_000 * number for number in count())


def test_the_real_decoder_takes_the_same_steps() -> None:
    """CON-1: prompts and decodes on the device; positions and work as on the bench above. The clock is a counter."""
    grid = Grid(decodes=(0, 2), contexts=(5,), chunks=(0, 3, 20), prompt=40)
    clock = ticks()
    with open_device("cpu") as device:
        weights = seeded_weights(named_shape("tiny"), 1, device=device.torch_device)
        bench = DecoderBench(
            device,
            weights,
            ANY_SIZE,
            slots=grid.slots,
            positions=grid.positions,
            clock=lambda: next(clock),
        )
        real = list(measured(bench, grid, random.Random(3)))
        again = list(measured(bench, grid, random.Random(3)))
    known = [step.work for step in measured(KnownBench(), grid, random.Random(3))]
    assert [step.work for step in real] == [step.work for step in again] == known
    assert {step.microseconds for step in real} == {1_000}


def test_mistakes_are_told() -> None:
    with pytest.raises(UserError, match="clock: 'sundial' does not measure cpu; choose wall or auto"):
        run(Asked(device="cpu", clock="sundial"))
    with pytest.raises(UserError, match="dtype: 'int3' is not known"):
        run(Asked(device="cpu", dtype="int3"))
    with pytest.raises(UserError, match="no model shape is called 'vast'"):
        run(Asked(device="cpu", shape="vast"))
    with pytest.raises(UserError, match="device: 'abacus' is not known"):
        run(Asked(device="abacus"))


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr("kvescrow.gpu_harness.calibrate.run")
    assert script.main(["--out", "absent/calibration.json"]) == 2
    assert capsys.readouterr().err.startswith("calibrate: absent/calibration.json: cannot be written")
