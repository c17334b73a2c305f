"""All parts in one go: what fails or has no time left is told, the others are done; steps beside the memory's speed."""

from __future__ import annotations

import json
import os
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch

from kvescrow.gpu_harness import everything as module
from kvescrow.gpu_harness import run
from kvescrow.gpu_harness.arithmetic import ANY_SIZE, FIXED_SIZE, Recipe
from kvescrow.gpu_harness.everything import everything
from kvescrow.gpu_harness.files import refuse_unwritable
from kvescrow.gpu_harness.floor import Row, Sizes, rows_of, step_bytes
from kvescrow.gpu_harness.front import Asked
from kvescrow.gpu_harness.model import SHAPES
from kvescrow.gpu_harness.probe import ProbeResult
from kvescrow.gpu_harness.streams import HardwareAbsent
from kvescrow.spec.vocabulary import UserError

if TYPE_CHECKING:
    from kvescrow.gpu_harness.device import Device
    from kvescrow.gpu_harness.model import ModelWeights


def read(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text("utf-8"))
    return found


def test_parts_that_no_time_is_left_for_are_not_run_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert everything(Asked(device="cpu"), tmp_path, seconds=0) == 3
    summary = read(tmp_path, "summary")
    assert summary["verdict"] == "not_run"
    assert summary["torch"] == torch.__version__
    assert list(summary["parts"]) == [
        "recipes",
        "conform.tiny.float32",
        "conform.tiny.bfloat16",
        "sabotage-all.tiny.float32",
        "floor.tiny",
        "decode.tiny.float32",
    ]
    assert {part["verdict"] for part in summary["parts"].values()} == {"not_run"}
    assert read(tmp_path, "recipes")["reason"] == "0 of 0 s were spent"
    assert "everything: not_run" in capsys.readouterr().out


def test_a_part_that_fails_is_told_and_the_next_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise RuntimeError("the device fell off the bus")

    def lacking() -> Any:
        raise HardwareAbsent("no such device")

    parts = [
        module._Part("first", broken),
        module._Part("second", lacking),
        module._Part("third", lambda: ({"verdict": "passed", "figure": 7}, "third: fine")),
    ]
    monkeypatch.setattr(module, "_parts", lambda *_: parts)
    monkeypatch.setattr(module, "_apart", lambda part, _: module._tried(part))
    assert everything(Asked(device="cpu"), tmp_path, seconds=60) == 1
    assert read(tmp_path, "first")["reason"] == "RuntimeError: the device fell off the bus"
    assert read(tmp_path, "second")["verdict"] == "not_run"
    assert read(tmp_path, "third")["figure"] == 7
    assert read(tmp_path, "summary")["verdict"] == "failed"


def result(name: str) -> tuple[dict[str, object], str]:
    """What a part may give, from the process that it ran in."""
    return {"verdict": "passed", "process": os.getpid()}, name


def mistaken() -> tuple[dict[str, object], str]:
    raise UserError("seconds: too few; give more")


def test_a_part_has_a_process_of_its_own_that_may_end_as_it_likes() -> None:
    found, said = module._apart(module._Part("fine", partial(result, "fine")), 60)
    assert said == "fine" and found["process"] != os.getpid()
    found, said = module._apart(module._Part("gone", partial(os._exit, 7)), 60)
    assert found["reason"] == "its process ended with status 7 and without a result"
    assert said.startswith("gone: failed: ")


def test_a_part_that_hangs_is_killed_and_a_user_s_mistake_ends_the_run() -> None:
    found, _ = module._apart(module._Part("hung", partial(time.sleep, 1_000)), 0)
    assert (found["verdict"], found["reason"]) == ("failed", "not over after 0 s, and killed")
    with pytest.raises(UserError, match="too few"):
        module._apart(module._Part("mistaken", mistaken), 60)


def test_the_recipes_are_told_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def probed(_: Device, weights: ModelWeights, recipe: Recipe) -> ProbeResult:
        if weights.dtype == torch.float32 and recipe == ANY_SIZE:
            raise RuntimeError("no such instruction")
        return ProbeResult(recipe, recipe == FIXED_SIZE, "" if recipe == FIXED_SIZE else "one bit differs")

    monkeypatch.setattr(module, "probe_exactness", probed)
    found, said = module._recipes("cpu", "tiny")
    assert found["verdict"] == "passed"  # for each type there is one
    assert said.splitlines() == [
        "float32, any size from 4 rows: NOT exact: RuntimeError: no such instruction",
        "float32, fixed buckets of 64 rows: exact",
        "bfloat16, any size from 4 rows: NOT exact: one bit differs",
        "bfloat16, fixed buckets of 64 rows: exact",
    ]
    assert [each["exact"] for each in found["recipes"]] == [False, True, False, True]


@pytest.mark.parametrize(
    ("name", "batch", "context", "expected"),
    [("llama-1b", 1, 0, 2.47e9), ("llama-8b", 1, 0, 15.01e9), ("llama-8b", 32, 1024, 15.01e9 + 32 * 1024 * 128 * 1024)],
)
def test_a_step_reads_its_weights_once_and_every_context(name: str, batch: int, context: int, expected: float) -> None:
    weights = cast(Any, SimpleNamespace(shape=SHAPES[name], dtype=torch.bfloat16))
    assert step_bytes(weights, batch, context) == pytest.approx(expected, rel=1e-3)


def test_steps_are_measured_in_three_ways_and_show_nothing_wrong(device: Device) -> None:
    shown: list[Row] = []
    sizes = Sizes(batches=(2,), context=20, steps=2)
    rows, probe = rows_of(device, "tiny", SHAPES["tiny"], torch.float32, sizes, 1e9, shown.append)
    assert rows == shown
    assert [row.mode for row in rows] == ["fast", "exact", "fast without evidence"]
    assert all(row.findings == 0 and row.milliseconds > 0 for row in rows)
    assert probe.exact and rows[1].recipe == probe.recipe.name
    assert rows[0].to_json()["batch"] == 2


def test_a_folder_that_cannot_be_written_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="name a folder that can be written"):
        refuse_unwritable(tmp_path / "file")
    refuse_unwritable(tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "mistake"),
    [
        (["--everything", "--seconds", "-5"], "seconds: -5 is negative"),
        (["--everything", "--sabotage", "all"], "sabotage, seeds, minutes: everything makes every sabotage"),
        (["--everything", "--minutes", "1"], "sabotage, seeds, minutes: "),
        (["--everything", "--journal", "j"], "journal, records: one run writes them"),
        (["--everything", "--trace", "absent.jsonl"], "absent.jsonl: no such file"),
        (["--everything", "--requests", "100000"], "requests: 100000 asked for, but mooncake has 1 to 1000 to offer"),
        (["--everything", "--shape", "huge"], "no model shape is called 'huge'"),
        (["--everything", "--own-process", "--mode", "quick"], "mode: 'quick' is not known"),
        (["--records", "."], ".: exists already"),
        (["--seconds", "5"], "seconds: only --everything"),
        (["--minutes", "nan"], "minutes: nan is no time"),
        (["--minutes", "-1"], "minutes: -1.0 is no time"),
        (["--seed", str(2**63)], "seed: 9223372036854775808 is too large"),
    ],
)
def test_what_the_script_could_not_heed_is_refused_before_anything_runs(
    arguments: list[str], mistake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main(["--device", "cpu", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(f"run: {mistake}")
    assert shown.out == ""
