"""The worked example, computed by hand; and what a wrong specification is told (EXP-2, PAG-10, ADM-6, ADM-11)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from attrs import evolve

import kvescrow.gpu_harness.pages as harness_pages
from kvescrow.checks.cli.front import main
from kvescrow.checks.experiments.result import Origin
from kvescrow.checks.sheet import Sheet, WorkerSpecification, read_worker, sheet_of, sheet_page
from kvescrow.checks.sheet.figures import page_bytes, requests_to_pass
from kvescrow.checks.sheet.page import assumptions_of, binary
from kvescrow.gpu_harness.model import named_shape
from kvescrow.reference.grading.statistics import exact_bounds
from kvescrow.spec.vocabulary import Reason, UserError


@pytest.fixture(scope="session")
def worker(repository: Path) -> WorkerSpecification:
    return read_worker(repository / "docs" / "examples" / "worker.toml")


@pytest.fixture(scope="session")
def sheet(worker: WorkerSpecification) -> Sheet:
    return sheet_of(worker)


def test_memory(sheet: Sheet) -> None:
    memory = sheet.memory
    # Keys and values, 32 layers, 8 heads of 128, 16 tokens, 2 bytes: 2 * 32 * 8 * 128 * 16 * 2 = 2 MiB.
    assert memory.page == 2 * 1024 * 1024
    # 8,030,261,248 parameters of 2 bytes.
    assert memory.weights == 16_060_522_496
    # 81,920 - 2,048 - 3,072 = 76,800 MiB = 80,530,636,800 bytes; less the weights 64,470,114,304.
    # 64,470,114,304 / 2,097,152 = 30,741.7: 30,741 pages, and 64,470,114,304 - 30,741 * 2,097,152 = 1,564,672 over.
    assert (memory.pages, memory.rest) == (30_741, 1_564_672)
    parts = memory.reserved + memory.activations + memory.weights + memory.pages * memory.page + memory.rest
    assert parts == memory.device
    assert sheet.usable == 30_740


@pytest.mark.parametrize("name", ["tiny", "small", "llama-1b"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_page_is_as_large_as_the_decoder_makes_it(worker: WorkerSpecification, name: str, dtype: str) -> None:
    shape = named_shape(name)
    model = evolve(
        worker.model, layers=shape.layers, kv_heads=shape.kv_heads, head_size=shape.head_size, kv_dtype=dtype
    )
    pages = evolve(worker.pages, page_length=harness_pages.PAGE_LENGTH)
    expected = harness_pages.page_bytes(shape, getattr(torch, dtype))
    assert page_bytes(evolve(worker, model=model, pages=pages)) == expected


def test_admission(sheet: Sheet) -> None:
    interactive, bulk = sheet.needs
    # 4,500 tokens in pages of 16 are 281.25, so 282; 30,740 / 282 = 109.0.
    assert (interactive.tokens, interactive.pages, interactive.at_once) == (4_500, 282, 109)
    # 18,000 / 16 = 1,125 exactly; 30,740 / 1,125 = 27.3.
    assert (bulk.tokens, bulk.pages, bulk.at_once) == (18_000, 1_125, 27)


def chunk(sheet: Sheet, name: str, decodes: int) -> tuple[int, int, int | None]:
    line = next(line for line in sheet.chunks[name] if line.decodes == decodes)
    return line.reply.tokens, line.reply.duration, line.finish


def test_chunks(sheet: Sheet) -> None:
    # A decode of 4,500 tokens takes 50 us and 45 us of reading. 64 of them with the fixed 5 ms: 11.08 ms.
    # Of the gap of 20 ms 8.92 ms are left: 892 tokens, in 64s 832. The step: 11.08 + 8.32 = 19.4 ms.
    # 4,000 tokens are 5 chunks (4 * 832 + 672), which start at 832 * (0 + 1 + 2 + 3 + 4) = 8,320 tokens in all:
    # 5 * 11.08 + 40 + 0.0832 = 95.4832 ms.
    assert chunk(sheet, "interactive", 64) == (832, 19_400, 95_484)
    # Nobody waits: the whole prompt in one step, 5 + 40 = 45 ms.
    assert chunk(sheet, "interactive", 0) == (4_000, 45_000, 45_000)
    # 256 decodes take 5 + 24.32 = 29.32 ms alone.
    assert chunk(sheet, "interactive", 256) == (0, 29_320, None)
    # 256 decodes of 18,000 tokens: 5 + 12.8 + 46.08 = 63.88 ms; 36.12 ms are left: 3,612 tokens, in 64s 3,584.
    assert chunk(sheet, "bulk", 256)[0] == 3_584


def test_where_it_becomes_infeasible(sheet: Sheet) -> None:
    # 137 decodes: 5 + 137 * 0.095 = 18.015 ms; 198 tokens, in 64s 192; 21 steps * 18.015 + 40 ms = 418.3 ms: in time.
    # 138 decodes: 18.11 ms; 189 tokens, in 64s 128; 32 steps * 18.11 + 40 ms = 619.5 ms, beyond 500.
    assert sheet.infeasible_from["interactive"] == (138, Reason.DEADLINE_UNREACHABLE)
    assert sheet.infeasible_from["bulk"] is None


def test_release(sheet: Sheet) -> None:
    # 0.99 ** 298 = 0.05004 and 0.99 ** 299 = 0.04954.
    assert sheet.requests_to_pass == 299
    # 0.9 ** 28 = 0.0523 and 0.9 ** 29 = 0.0471.
    assert requests_to_pass(0.9, 0.95) == 29


@pytest.mark.parametrize(("attainment", "confidence"), [(0.99, 0.95), (0.9, 0.95), (0.95, 0.99)])
def test_release_agrees_with_the_grader(attainment: float, confidence: float) -> None:
    """The grader's bound of a share passes with so many requests without a miss, and not with one less."""
    count = requests_to_pass(attainment, confidence)
    assert exact_bounds(count, count, 1 - confidence)[0] >= attainment
    assert exact_bounds(count - 1, count - 1, 1 - confidence)[0] < attainment


def test_the_page_says_all_of_it(worker: WorkerSpecification) -> None:
    page = sheet_page(worker)
    for heading in ("Memory", "Admission", "Chunks", "Cancellation", "Release", "Assumptions"):
        assert f"\n## {heading}\n" in page
    assert "active + n <= 30740" in page
    assert "**Infeasible from 138 decodes on**: DEADLINE_UNREACHABLE. Memory admits 109 such requests at once" in page
    assert "`reservation.cancel.running`" in page
    assert "`reservation.finish.cancelled`" in page
    assert "**synthetic**" in page


def test_each_assumption_can_be_overturned(worker: WorkerSpecification) -> None:
    found = assumptions_of(worker)
    assert len({each.overturned_by for each in found}) == len(found) >= 10
    assert all(len(each.overturned_by.split()) > 5 for each in found)


@pytest.mark.parametrize(
    ("size", "says"), [(1 << 30, "1.00 GiB"), ((1 << 30) - 1, "1,024.00 MiB"), (1536, "1.50 KiB"), (12, "12 B")]
)
def test_sizes_are_binary(size: int, says: str) -> None:
    assert binary(size) == says


@pytest.fixture
def changed(repository: Path, tmp_path: Path) -> Callable[[str, str], Path]:
    """Write the example with one text replaced."""

    def write(old: str, new: str) -> Path:
        text = (repository / "docs" / "examples" / "worker.toml").read_text("utf-8")
        assert old in text
        path = tmp_path / "changed.toml"
        path.write_text(text.replace(old, new), "utf-8")
        return path

    return write


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("layers = 32\n", "", r"changed\.toml: model\.layers: missing"),
        ("layers = 32", "layers = 0", r"model\.layers is 0"),
        ("layers = 32", "layers = true", r"model\.layers is True"),
        ("layers = 32", "rows = 32", r"model\.rows: unknown; there are layers"),
        ('kv_dtype = "bfloat16"', 'kv_dtype = "int3"', r"model\.kv_dtype is 'int3'"),
        ("[pages]", "[page]", r"page: unknown"),
        ("[model]", "[[model]]", r"model: .*, not a table"),
        ("attainment_percent = 99", "attainment_percent = 100", r"objectives\.attainment_percent is 100"),
        ("gap_ms = 20\n", "gap = 20\n", r"classes\.interactive\.gap: unknown"),
        ("[classes.interactive]", "[cost]\nfixed = 0\n[classes.interactive]", r"cost\.fixed is 0"),
        ("[classes.interactive]", "[cost]\nslow = 1\n[classes.interactive]", r"cost\.slow: unknown"),
        ("= 81_920", "=", r"not valid TOML"),
    ],
)
def test_a_wrong_specification_is_told_where(
    changed: Callable[[str, str], Path], old: str, new: str, says: str
) -> None:
    with pytest.raises(UserError, match=says):
        read_worker(changed(old, new))


def test_a_model_that_does_not_fit(changed: Callable[[str, str], Path]) -> None:
    # 16,384 - 2,048 - 3,072 MiB = 11,264 MiB; the weights take 15,316.5 MiB.
    with pytest.raises(UserError, match="by 4,053 MiB"):
        sheet_of(read_worker(changed("81_920", "16_384")))
    # Weights and the rest take 20,436.5 MiB: 20,438 leaves less than one page of 2 MiB.
    with pytest.raises(UserError, match="leave 0 pages"):
        sheet_of(read_worker(changed("81_920", "20_438")))


def test_a_class_that_never_fits(changed: Callable[[str, str], Path]) -> None:
    sheet = sheet_of(read_worker(changed("prompt = 16_000", "prompt = 600_000")))
    assert sheet.needs[1].never_fits


def test_measured_costs_are_called_so(changed: Callable[[str, str], Path]) -> None:
    given = "[cost]\nmeasured = true\nfixed = 1_000_000\n\n[classes.interactive]"
    worker = read_worker(changed("[classes.interactive]", given))
    assert worker.coefficients.origin is Origin.MEASURED
    assert worker.coefficients.cost.fixed == 1_000_000
    assert "**measured**" in sheet_page(worker)


def test_a_calibration_beside_the_specification(changed: Callable[[str, str], Path]) -> None:
    path = changed("[classes.interactive]", '[cost]\ncalibration = "measured.json"\n\n[classes.interactive]')
    with pytest.raises(UserError, match=r"measured\.json: no calibration"):
        read_worker(path)
    cost = {"fixed": 1_000_000, "per_prefill_token": 1_000, "per_decode_sequence": 1, "per_context_token": 1}
    found = {"verdict": "passed", "coefficients": cost, "range": None, "band_permille": 50}
    (path.parent / "measured.json").write_text(json.dumps(found), "utf-8")
    worker = read_worker(path)
    assert (worker.coefficients.origin, worker.coefficients.model.band) == (Origin.MEASURED, 50)
    both = changed("[classes.interactive]", '[cost]\ncalibration = "x"\nfixed = 1\n\n[classes.interactive]')
    with pytest.raises(UserError, match=r"cost\.fixed: the calibration has all"):
        read_worker(both)


def test_the_command_line(repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "sheet.md"
    with pytest.raises(SystemExit) as exit_:
        main(["sheet", str(repository / "docs" / "examples" / "worker.toml"), "--output", str(out), "--json"])
    assert exit_.value.code == 0
    told = json.loads(capsys.readouterr().out)
    assert told["usable_pages"] == 30_740
    assert told["infeasible_from"] == {"interactive": {"decodes": 138, "reason": "DEADLINE_UNREACHABLE"}, "bulk": None}
    assert out.read_text("utf-8").startswith("# Design sheet: eight billion parameters on 80 GiB\n")


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["sheet", "absent.toml"])
    assert exit_.value.code == 2
    assert "absent.toml: no such file" in capsys.readouterr().err
