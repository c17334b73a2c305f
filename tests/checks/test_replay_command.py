"""`kvescrow replay`: one file decides, mistakes in it are named, and the JSON has every figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvescrow.checks.cli.front import main

SMALL = """
[pool]
tokens = 4096
page_length = 64
[scheduler]
order = "fair"
[classes.interactive]
share = 0.75
first_token = 2_000_000
token_gap = 250_000
[classes.bulk]
share = 0.25
[tenants.batch]
class = "bulk"
requests_per_minute = 2
[reservation]
policy = "estimate"
max_output = 32
[arrivals]
trace = false
[cancellations]
rate = 0.1
[[streams]]
tenant = "chat"
requests = 20
every = 20_000
input_tokens = 500
output_tokens = 8
[[streams]]
tenant = "batch"
requests = 3
input_tokens = 2_000
output_tokens = 8
"""

FIELDS = {
    *("policy", "classes", "offered", "admitted", "refused", "expired", "cancelled", "completed", "goodput"),
    *("queue_wait", "token_gap", "utilisation", "fairness", "preemptions", "denials", "broken_promises", "hit_rate"),
    *("seconds", "verdict"),
}


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["replay", *arguments])
    code = ended.value.code
    assert isinstance(code, int)
    return code


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL, "utf-8")
    return path


def test_one_file_decides_and_the_figures_add_up(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "result.json"
    assert run("vtc", "--config", str(small), "--json", str(out)) == 0
    result = json.loads(out.read_text("utf-8"))
    assert set(result) >= FIELDS
    assert result["refused"] == {"REQUEST_RATE": 1}
    assert result["offered"] == 23 == 1 + sum(result["expired"].values()) + result["cancelled"] + result["completed"]
    assert result["classes"]["bulk"]["offered"] == 3
    assert result["fairness"]["classes"]["gap"] <= result["fairness"]["classes"]["bound"]
    assert result["fairness"]["broken"] == []
    summary = capsys.readouterr().out
    assert "share of bulk" in summary
    assert "kept" in summary
    assert "interactive  75%" in summary


def test_the_command_line_replaces_order_and_policy(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    arguments = ("--order", "strict-priority", "--policy", "watermark", "--json", str(out))
    assert run("vtc", "--config", str(small), *arguments) == 0
    result = json.loads(out.read_text("utf-8"))
    assert (result["policy"]["order"], result["policy"]["reserved"]) == ("strict-priority", "watermark")
    assert "The order strict-priority is a baseline: it may starve a class." in result["remarks"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--order", "random"), "kvescrow: --order is 'random': set it to one of first-come, fair, strict-priority"),
        (("--policy", "none"), "kvescrow: --policy is 'none': set it to one of full-maximum, estimate"),
        (("--config", "nowhere"), "kvescrow: nowhere: no such file; give the path of a replay configuration"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("vtc", *arguments) == 2
    assert capsys.readouterr().err.startswith(message)


def test_a_mistake_in_the_file_names_file_and_field(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small.write_text(SMALL.replace("share = 0.25", "share = 0.0"), "utf-8")
    assert run("vtc", "--config", str(small)) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"kvescrow: {small}: classes.bulk.share is 0.0: while another class waits")
    assert error.count("\n") == 1


def test_plots_are_drawn_from_the_result(small: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need the extra `plots`")
    folder = tmp_path / "plots"
    assert run("vtc", "--config", str(small), "--plots", str(folder)) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["gaps.png", "service.png", "utilisation.png", "waits.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.iterdir())


def test_a_plot_says_how_near_the_bound_the_service_came() -> None:
    figure = pytest.importorskip("matplotlib.figure", reason="plots need the extra `plots`")
    from kvescrow.checks.cli.plots import _service

    axes = figure.Figure().subplots()
    pair = {"parties": ["a", "b"], "gap": 3.0, "bound": 8.0}
    _service(axes, {"curves": {"service": {"all/a": 5, "all/b": 2}}, "fairness": {"tenants": pair, "classes": None}})
    assert axes.get_xlabel() == "widest gap 3, bound 8 tokens over weight, while both wait"
    assert [bar.get_height() for bar in axes.patches] == [5, 2]


def test_a_run_that_never_asks_the_ledger_names_the_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tmp_path / "hasty.toml"
    settings.write_text("[times]\nqueue_wait = 0\n")
    assert run("mooncake", "--requests", "3", "--order", "fair", "--config", str(settings)) == 2
    told = capsys.readouterr().err
    assert "hasty.toml: no request of mooncake came from the queue to the ledger (" in told
    assert "times.queue_wait" in told
