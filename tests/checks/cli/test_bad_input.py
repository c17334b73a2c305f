"""Bad input at every verb: one message that names file or field, exit status 2, nothing written, never a traceback."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvescrow.checks.cli.front import main
from kvescrow.checks.cli.output import write_atomically
from kvescrow.checks.experiments.coefficients import read_coefficients
from kvescrow.checks.monitor.mapping import read_mapping, read_recording
from kvescrow.checks.report.evidence import read_json
from kvescrow.checks.sheet import read_worker
from kvescrow.reference.grading.foreign import read_any_run
from kvescrow.reference.grading.objectives import read_objectives
from kvescrow.reference.replay import read_config
from kvescrow.spec.render.difference import read_dump
from kvescrow.spec.vocabulary import UserError

WORKER = Path(__file__).parents[3] / "docs" / "examples" / "worker.toml"
DEEP = b'{"a":' * 100_000


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Return what is told of a mistake."""
    with pytest.raises(SystemExit) as left:
        main([str(each) for each in arguments])
    assert left.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("read", [read_objectives, read_config, read_worker])
@pytest.mark.parametrize(
    "content",
    [b"a=" + b"[" * 5000, b"a=" + b"9" * 5000, b'name = "caf\xe9"', b"\0", b"a = ", None],
    ids=["deep", "long integer", "latin-1", "binary", "cut", "directory"],
)
def test_what_is_no_toml_is_named_with_the_remedy(
    read: Callable[[Path], object], content: bytes | None, tmp_path: Path
) -> None:
    file = tmp_path / "settings.toml"
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    with pytest.raises(UserError, match=r"settings.toml: .*; give "):
        read(file)


def test_a_byte_order_mark_before_toml_is_dropped(tmp_path: Path) -> None:
    file = tmp_path / "worker.toml"
    file.write_bytes(b"\xef\xbb\xbf" + WORKER.read_bytes())
    assert read_worker(file).model == read_worker(WORKER).model


def _recording(file: Path) -> object:
    return list(read_recording(file, read_mapping("plain")))


@pytest.mark.parametrize(
    "read",
    [read_any_run, read_coefficients, read_json, _recording, lambda file: read_dump(file.read_text(), str(file))],
    ids=["records", "calibration", "result", "recording", "dump"],
)
def test_json_that_is_nested_without_end_is_refused(read: Callable[[Path], object], tmp_path: Path) -> None:
    file = tmp_path / "deep.json"
    file.write_bytes(DEEP)
    with pytest.raises(UserError, match=r"deep\.json"):
        read(file)


@pytest.mark.parametrize(("key", "value"), [("kv_dtype", "[]"), ("weight_dtype", "{}"), ("sequences", "1000000000")])
def test_a_worker_names_the_field(key: str, value: str, tmp_path: Path) -> None:
    lines = WORKER.read_text("utf-8").splitlines()
    file = tmp_path / "worker.toml"
    file.write_text("\n".join(f"{key} = {value}" if line.startswith(f"{key} =") else line for line in lines))
    with pytest.raises(UserError, match=rf"worker.toml: \w+\.{key} is"):
        read_worker(file)


VLLM = {
    "duration": 3.0,
    "ttfts": [0.1],
    "itls": [[0.01]],
    "start_times": [1.0],
    "output_lens": [2],
    "errors": [""],
}


@pytest.mark.parametrize(
    "change", [{"errors": ["\n"]}, {"generated_texts": ["\ud800"]}], ids=["blank error", "lone surrogate"]
)
def test_an_odd_text_of_vllm_is_read(change: dict[str, object], tmp_path: Path) -> None:
    file = tmp_path / "v.json"
    file.write_text(json.dumps({**VLLM, **change}))
    assert len(read_any_run(file).records) == 1


def test_a_result_over_several_lines_may_have_a_mark_and_must_be_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "v.json"
    body = b"{\n" + json.dumps(VLLM).encode()[1:]
    file.write_bytes(b"\xef\xbb\xbf" + body)
    assert len(read_any_run(file).records) == 1
    file.write_bytes(body.replace(b"{\n", b'{\n"x": "\xe9",'))
    with pytest.raises(UserError, match=r"v\.json:1: not UTF-8"):
        read_any_run(file)


AIPERF = """{"metadata": {"session_num": 0, "request_start_ns": 5, "request_end_ns": 9000}, "error": null,
"metrics": {"time_to_first_token": %s, "output_sequence_length": %s}}"""


@pytest.mark.parametrize(
    ("first", "tokens", "field"),
    [
        ('{"value": 1e999999999, "unit": "ms"}', '{"value": 2}', "time_to_first_token"),
        ('{"value": 1, "unit": "ms"}', '{"value": 1e999999999}', "output_sequence_length"),
    ],
)
def test_a_metric_beyond_all_numbers_is_named(first: str, tokens: str, field: str, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text((AIPERF % (first, tokens)).replace("\n", " "))
    with pytest.raises(UserError, match=f"a.jsonl:1: metrics.{field}: "):
        read_any_run(file)


@pytest.mark.parametrize("first", ["null", '{"value": [], "unit": "ms"}'])
def test_a_metric_without_a_value_is_a_missing_one(first: str, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text((AIPERF % (first, '{"value": 2}')).replace("\n", " "))
    assert read_any_run(file).records[0].frames == ((9, 2),)


@pytest.mark.parametrize("name", [[], {}, 3, None])
def test_a_dump_names_its_tables(name: object) -> None:
    parts = ("invariants", "step_rules", "non_interference", "assumptions", "sometimes", "rows", "states", "entities")
    table = {**{part: [] for part in parts}, "moves": [], "events": [], "initial": "", "ghosts": [], "note": ""}
    with pytest.raises(UserError, match=r"old\.json: a table's name is"):
        read_dump(json.dumps([{**table, "name": name}]), "old.json")


@pytest.mark.parametrize("file", ["missing/r.json", ".", "file/r.json"])
@pytest.mark.parametrize("verb", [("replay", "mooncake", "--journal"), ("calibrate", "--plot"), ("sheet", "--output")])
def test_a_result_that_cannot_be_written_is_refused_before_the_run(
    verb: tuple[str, ...],
    file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    rest = (str(WORKER),) if verb[0] == "sheet" else ()
    assert f"kvescrow: {file}: " in told(capsys, *verb, "made.svg", *rest, "--json", file)
    assert not Path("made.svg").exists()


def test_a_result_may_lie_in_the_folder_that_the_verb_makes(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as left:
        main(["report", str(tmp_path / "site"), "--root", str(tmp_path), "--json", str(tmp_path / "site" / "r.json")])
    assert left.value.code == 0
    assert json.loads((tmp_path / "site" / "r.json").read_text())["verdict"] == "passed"


def test_a_result_is_not_written_over_what_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    worker = tmp_path / "worker.toml"
    worker.write_bytes(WORKER.read_bytes())
    for option in ("--json", "--output"):
        assert "worker.toml: " in told(capsys, "sheet", worker, option, worker)
    assert worker.read_bytes() == WORKER.read_bytes()


@pytest.mark.parametrize(
    "result",
    [
        {"obligations": 1, "results": [{"row": []}]},
        {"obligations": 1, "results": 3},
        {"mutants": 1, "killed": 1, "results": [{"name": None}]},
        {"goals": [], "layers": {}},
        {"goals": {"a": 1}, "layers": {}},
        {"instances": [{"instance": "i", "rows": 3}], "states": 1, "transitions": 1},
        {"target": "pages", "rows_hit": 1, "holes": [], "unreachable": 3},
        {"trace": "t", "rows": [], "findings": []},
    ],
    ids=lambda result: next(iter(result)),
)
def test_a_report_names_the_result_that_is_none(
    result: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "r.json").write_text(json.dumps({"verdict": "passed", **result}))
    said = told(capsys, "report", tmp_path / "site", "--results", tmp_path, "--root", tmp_path)
    assert "r.json: no result of" in said
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("found", [{"machine": 3}, {"experiment": "e", "plots": 3}])
def test_a_report_names_the_measurement_that_is_none(
    found: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.json").write_text(json.dumps(found))
    said = told(capsys, "report", tmp_path / "site", "--measurements", tmp_path, "--root", tmp_path)
    assert "m.json: no result of" in said
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize("option", ["--results", "--measurements"])
def test_a_report_refuses_a_folder_that_is_named_and_absent(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert option in told(capsys, "report", tmp_path / "site", option, tmp_path / "gone")


@pytest.mark.parametrize("target", ["json:loads", ":", "..:x"])
def test_a_target_that_is_none_is_told(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert repr(target) in told(capsys, "fuzz", "--target", target)


@pytest.mark.parametrize("option", ["--findings", "--database"])
@pytest.mark.parametrize("folder", ["file", "file/below", "x" * 300])
def test_a_folder_that_cannot_be_made_is_refused_before_the_fuzzing(
    option: str, folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert f"{folder}: cannot be made" in told(capsys, "fuzz", "--target", "pages", option, tmp_path / folder)


def test_records_must_be_a_new_file_before_the_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, journal = tmp_path / "old.jsonl", tmp_path / "run.jsonl"
    old.write_text("mine")
    assert "old.jsonl: exists already" in told(capsys, "replay", "--records", old, "--journal", journal)
    assert old.read_text() == "mine"
    assert not journal.exists()


@pytest.mark.parametrize("name", ["plot", "plot.xyz", "missing/plot.png"])
@pytest.mark.parametrize("verb", [("experiment", "prefix-ownership"), ("calibrate",)])
def test_a_picture_has_a_known_kind_and_a_folder(
    verb: tuple[str, ...], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"{name}: " in told(capsys, *verb, "--plot", tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ("prefill-deadline", "--decodes", 10**15),
        ("goodput", "--chat-every", 10**12),
        ("goodput", "--document-every", 10**12),
    ],
)
def test_an_experiment_beyond_time_or_memory_is_refused(
    arguments: tuple[object, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"'{arguments[1]}'" in told(capsys, "experiment", *arguments)


def test_a_stream_beyond_memory_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "r.toml"
    file.write_text('[[streams]]\ntenant = "a"\nrequests = 1_000_000_000\ninput_tokens = 1\noutput_tokens = 1\n')
    with pytest.raises(UserError, match=r"r.toml: streams\[0\]\.requests is"):
        read_config(file)


def test_a_recording_may_have_a_mark_and_must_be_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "r.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"event": "cleared"}\n')
    assert len(list(read_recording(file, read_mapping("plain")))) == 1
    file.write_bytes(b'{"event": "\xe9"}\n')
    with pytest.raises(UserError, match=r"r\.jsonl: not UTF-8"):
        list(read_recording(file, read_mapping("plain")))


@pytest.mark.parametrize("arguments", [("new-target",), ("replay", "mooncake", "--config")])
def test_a_name_that_is_too_long_is_told(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert "too long" in told(capsys, *arguments, "x" * 300)


def test_a_new_target_writes_through_no_link_that_leads_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "toy_engine.py").symlink_to(tmp_path / "gone")
    assert "toy_engine.py: is there already" in told(capsys, "new-target", tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["toy_engine.py"]


def test_a_text_that_is_no_unicode_is_written_escaped(tmp_path: Path) -> None:
    write_atomically(tmp_path / "page.md", "name \ud800\n")
    assert (tmp_path / "page.md").read_text("utf-8") == "name \\ud800\n"


@pytest.mark.parametrize(
    ("code", "mistake"),
    [
        ("def subject(:", "cannot be imported (SyntaxError"),
        ("import sys; sys.exit(0)", "cannot be imported (SystemExit: 0"),
        ("def subject(): return 1 / 0", "subject made no subject (ZeroDivisionError: division by zero"),
        ("import asyncio\nraise asyncio.CancelledError", "cannot be imported (CancelledError"),
        ("def subject(): raise SystemExit(0)", "subject made no subject (SystemExit: 0"),
        ("def subject(): return Subject('capacity', print)", "Subject.kind: 'capacity' of type str, where Kind is due"),
        (
            "def subject(): return Subject(Kind.CAPACITY, print, Capabilities(expiry='never'))",
            "Subject.capabilities.expiry: 'never' of type str, where Expiry is due",
        ),
        (
            "def subject(): return Subject(Kind.CAPACITY, print, Capabilities(joint=1))",
            "Subject.capabilities.joint: 1 of type int, where bool is due",
        ),
    ],
)
def test_an_adapter_that_gives_no_subject_is_named(
    code: str, mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    imports = "from kvescrow.checks.targets.subject import Capabilities, Kind, Subject\n"
    (tmp_path / "adapter_without_subject.py").write_text(imports + code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "adapter_without_subject", raising=False)
    assert mistake in told(capsys, "fuzz", "--target", "adapter_without_subject:subject")


def test_a_verb_that_is_left_before_its_end_is_no_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kvescrow.checks.cli.fuzz.make_folder", lambda path: sys.exit(0))
    with pytest.raises(SystemExit) as left:
        main(["fuzz", "--target", "pages", "--findings", "found"])
    assert left.value.code == 1
    assert "left Python (SystemExit(0))" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("conform", "--minutes"),
        ("torture", "--minutes"),
        ("bench", "check", "--bound"),
        ("agree", "--bound"),
        ("replay", "mooncake", "--cancel-rate"),
    ],
)
def test_a_number_that_ends_nothing_is_refused(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert "is not a finite number" in told(capsys, *arguments, "nan")


@pytest.mark.parametrize(
    ("kind", "verb"),
    [(kind, "fuzz") for kind in ("LEDGER", "PAGES", "RELEASE", "COMPOSED")]
    + [("LEDGER", "explore"), ("PAGES", "explore")],
)
@pytest.mark.parametrize(
    ("opening", "mistake"),
    [("1 / 0", "cannot be opened (ZeroDivisionError: division by zero"), ("None", "its opening returned None")],
)
def test_a_target_that_cannot_be_opened_is_told(
    kind: str,
    verb: str,
    opening: str,
    mistake: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "adapter_not_opened.py").write_text(
        "from kvescrow.checks.targets.subject import Kind, Subject\n"
        f"def subject(): return Subject(Kind.{kind}, lambda setup: {opening})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "adapter_not_opened", raising=False)
    assert mistake in told(capsys, verb, "--target", "adapter_not_opened:subject")


def test_the_next_command_of_a_new_target_can_be_pasted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["new-target", "--ledger", str(tmp_path / "my ledger")])
    assert f"next: cd '{tmp_path / 'my ledger'}' && " in capsys.readouterr().out


def test_a_format_for_a_packaged_trace_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    message = told(capsys, "replay", "ragpulse", "--requests", "3", "--format", "mooncake")
    assert "--format has no effect on the packaged trace ragpulse" in message
