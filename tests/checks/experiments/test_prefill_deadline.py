"""Where a chunk is feasible and where none is, worked out by hand (EXP-1, CHK-1, CHK-3).

The synthetic step costs: 5 ms, and 10 us a prompt token, 50 us a decoding sequence, 10 ns a context token.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvescrow.checks.cli.front import main
from kvescrow.checks.experiments.coefficients import Coefficients, read_coefficients
from kvescrow.checks.experiments.prefill_deadline import Constraints, candidates_of, prefill_deadline
from kvescrow.checks.experiments.result import Origin
from kvescrow.reference.scheduler.cost import CostModel, StepCost
from kvescrow.spec.vocabulary import UserError


def test_the_largest_chunk_inside_the_gap_is_chosen() -> None:
    # Decodes alone: 5 + 32 * 0.05 + 32 * 4000 * 0.00001 = 7.88 ms. 12.12 ms are left: 1,212 tokens, in 64s 1,152.
    found = prefill_deadline()
    assert found.figures["chunk"] == 1152
    assert found.figures["step_microseconds"] == 7_880 + 11_520
    # 32,768 tokens are 29 chunks (28 of 1,152 and one of 512). Their starts add up to 1,152 * (0 + ... + 28).
    steps = 29
    assert found.figures["finish_microseconds"] == -(
        -(steps * 7_880_000 + 32_768 * 10_000 + 1_152 * (28 * 29 // 2) * 10) // 1000
    )
    assert found.figures["reason"] == "NONE"


def test_a_deadline_that_no_chunk_inside_the_gap_meets() -> None:
    # 128 decodes alone: 5 + 6.4 + 5.12 = 16.52 ms. 3.48 ms are left: 320 tokens. 103 steps of 16.52 ms are 1.7 s.
    found = prefill_deadline(Constraints(decodes=128))
    assert (found.figures["chunk"], found.figures["reason"]) == (0, "DEADLINE_UNREACHABLE")
    assert found.figures["feasible"] == []
    assert found.findings[0].startswith("No chunk is feasible")
    # Each side alone is possible: that is the conflict.
    candidates = candidates_of(Constraints(decodes=128), Coefficients())
    assert any(each.gap <= 20_000 for each in candidates)
    assert any(each.finish <= 1_000_000 for each in candidates)


def test_a_gap_that_the_decodes_alone_exceed() -> None:
    # 5 + 12.8 + 10.24 = 28.04 ms.
    found = prefill_deadline(Constraints(decodes=256))
    assert (found.figures["reason"], found.figures["step_microseconds"]) == ("GAP_TOO_SMALL_FOR_DECODE", 28_040)


def test_a_gap_that_leaves_less_than_a_granule() -> None:
    # 7.88 ms alone; 64 tokens more take 8.52 ms.
    assert prefill_deadline(Constraints(gap=8_519)).figures["reason"] == "NO_CHUNK_FITS"
    assert prefill_deadline(Constraints(gap=8_520, deadline=10**8)).figures["chunk"] == 64


def test_without_decodes_there_is_no_gap_to_keep() -> None:
    assert prefill_deadline(Constraints(decodes=0, gap=1)).figures["chunk"] == 8192


def test_inputs_say_where_they_come_from() -> None:
    measured = Coefficients(CostModel(StepCost(fixed=1_000_000)), Origin.MEASURED)
    origins = {each.name: each.origin for each in prefill_deadline(None, measured).inputs}
    assert origins["token gap"] is Origin.CHOSEN
    assert origins["fixed cost of a step"] is Origin.MEASURED
    origins = {each.name: each.origin for each in prefill_deadline().inputs}
    assert origins["fixed cost of a step"] is Origin.SYNTHETIC


def test_the_command_line_gives_json_and_a_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="not_run: matplotlib is not installed")
    cost = tmp_path / "cost.toml"
    cost.write_text("[cost]\nfixed = 1_000_000\n", "utf-8")
    picture = tmp_path / "deadline.png"
    arguments = ["experiment", "prefill-deadline", "--decodes", "128", "--cost", str(cost), "--plot", str(picture)]
    with pytest.raises(SystemExit) as exit_:
        main([*arguments, "--json"])
    assert exit_.value.code == 0
    told = json.loads(capsys.readouterr().out)
    # 1 + 6.4 + 5.12 = 12.52 ms; 7.48 ms are left: 748 tokens, in 64s 704.
    assert told["figures"]["chunk"] == 704
    assert {each["origin"] for each in told["inputs"]} == {"chosen", "measured"}
    assert picture.read_bytes().startswith(b"\x89PNG")


CALIBRATED = {
    "verdict": "passed",
    "coefficients": {
        "fixed": 2_000_000,
        "per_prefill_token": 20_000,
        "per_decode_sequence": 100_000,
        "per_context_token": 0,
        "per_attended_pair": 0,
    },
    "range": {"prefill_tokens": 512, "decode_sequences": 64, "context_tokens": 10**6, "attended_pairs": 10**9},
    "band_permille": 100,
}


def calibration(folder: Path, **changes: object) -> Path:
    path = folder / "calibration.json"
    path.write_text(json.dumps({**CALIBRATED, **changes}), "utf-8")
    return path


def test_a_calibration_brings_its_range_and_its_band(tmp_path: Path) -> None:
    costs = read_coefficients(calibration(tmp_path))
    # 2 + 3.2 ms for the decodes; at the upper edge of the band 20 ms are 18.18 predicted: 12.98 ms or 649 tokens are
    # left, but nothing above 512 was measured.
    assert prefill_deadline(Constraints(), costs).figures["chunk"] == 512
    assert prefill_deadline(Constraints(decodes=65), costs).figures["reason"] == "OUT_OF_MODEL_RANGE"
    # Without a range the band alone decides: 649 tokens, in 64s 640.
    wide = read_coefficients(calibration(tmp_path, range=None))
    assert prefill_deadline(Constraints(deadline=10**7), wide).figures["chunk"] == 640


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"verdict": "failed"}, "did not pass"), ({"coefficients": {"slow": 1}}, "no calibration"), ({"range": 1}, "no")],
)
def test_a_calibration_that_is_not_to_be_trusted_is_refused(
    tmp_path: Path, changes: dict[str, object], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        read_coefficients(calibration(tmp_path, **changes))
