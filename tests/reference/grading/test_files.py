"""Records are read as they were written; whatever is wrong with a file is named with line and field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import evolve

from kvescrow.reference.grading.files import lines_of, read_run, write_run
from kvescrow.reference.grading.foreign import read_any_run
from kvescrow.reference.grading.incidents.recipes import RECIPES, incident
from kvescrow.reference.grading.objectives import read_objectives
from kvescrow.reference.grading.outcomes import Fate, judge_run
from kvescrow.reference.grading.records import Ending, Run
from kvescrow.spec.vocabulary import UserError
from tests.reference.grading.runs import SAFE, ended_as, record, run

FULL = evolve(
    run(
        record("1", input_tokens=7, cached_tokens=2, scope="s", output="d1"),
        ended_as(Ending.REFUSED, "BUDGET", "2"),
        record("3", ending=Ending.UNFINISHED, ended=None),
        record("4", sent=None, correct=None, started=None, amount=None),
    ),
    workload="w",
    synthetic=True,
    probe=5,
    pool=6,
    clock_readings=((1, 2), (3, 4)),
    remarks=("a remark",),
)


@pytest.mark.parametrize("one", [FULL, run(), run(record(), safety=None), incident(RECIPES[0], 1)[0]])
def test_what_is_written_is_read(one: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write_run(path, one)
    assert read_run(path) == read_any_run(path) == one
    with pytest.raises(UserError, match=r"run\.jsonl: exists already"):
        write_run(path, one)
    with pytest.raises(UserError, match="cannot be written"):
        write_run(tmp_path / "nowhere" / "run.jsonl", one)


def changed(line: int, **fields: object) -> str:
    """The file of `FULL` with some fields of one line replaced, or taken out where None."""
    lines = [dict(each) for each in lines_of(FULL)]
    target = lines[line]["end"] if "end" in lines[line] else lines[line]
    target.update(fields)
    for name, value in fields.items():
        if value is None:
            del target[name]
    return "\n".join(map(json.dumps, lines))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no records"),
        ("{}", ":1: neither records of kvescrow"),
        ("[1]", ":1: expected a JSON object"),
        (changed(0, kvescrow_records=2), ":1: kvescrow_records: 2 is not known"),
        (changed(0, kvescrow_records=1.0), r":1: kvescrow_records: 1\.0 is not known"),
        (changed(0, name=None), ":1: name: missing"),
        (changed(0, synthetic=1), ":1: synthetic: expected true or false"),
        (changed(0, colour="red"), ":1: 'colour': unknown field"),
        (changed(1, arrival=None), ":2: arrival: missing"),
        (changed(1, arrival=-1), ":2: arrival: -1 is outside"),
        (changed(1, arrival=1.5), ":2: arrival: expected an integer"),
        (changed(1, tenant=""), ":2: tenant: expected text"),
        (changed(1, ending="done"), ":2: ending: 'done' is not known; it is one of completed"),
        (changed(1, ended=None), ":2: ended: a request that is completed has an end"),
        (changed(3, ended=7), ":4: ended: a request that is unfinished has no end"),
        (changed(1, correct="yes"), ":2: correct: expected true or false"),
        (changed(1, frames=[[1, 2, 3]]), r":2: frames\[0\]: expected a list of 2"),
        (changed(1, frames=[[1, "2"]]), r":2: frames\[0\]\[1\]: expected an integer"),
        (changed(1, spans=[["nap", "", 1]]), r":2: spans\[0\]\[0\]: 'nap' is not known"),
        (changed(1, spans=[["queue", "", 1]]), ":2: spans: they add up to 1 us, but the request has 110000 us"),
        (changed(2, request="1"), ":3: request: '1' of this tenant is there twice"),
        (changed(5, records=3), ":6: end.records: 3 records were written, but there are 4"),
        (changed(5, offered=None), ":6: end.offered: missing"),
        (changed(5, safety={"checked": 1, "source": "x"}), ":6: end.safety.violations: missing"),
        (changed(5) + '\n{"request": 1}', ":7: there is something after the ending line"),
        ("\n".join(changed(0).splitlines()[:-1]), "no ending line: the file was cut off"),
    ],
)
def test_what_is_wrong_is_named(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match=told):
        read_any_run(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file"):
        read_any_run(tmp_path / "none.jsonl")


# --- other generators -------------------------------------------------------------------------------------------------

VLLM = {
    "duration": 2.0,
    "completed": 2,
    "failed": 1,
    "input_lens": [5, 6, 7],
    "output_lens": [4, 1, 0],
    "ttfts": [0.1, 0.2, 0.0],
    "itls": [[0.01, 0.02, 0.03], [], []],
    "latencies": [0.16, 0.2, 0.0],
    "start_times": [100.0, 100.5, 101.0],
    "queue_times": [0.0, 0.25, 0.0],
    "generated_texts": ["a b c d", "x", ""],
    "errors": ["", "", "Traceback\nServiceUnavailable"],
}


def test_a_result_of_vllm_is_read_with_the_intended_arrival(tmp_path: Path) -> None:
    path = tmp_path / "vllm.json"
    for text in (json.dumps(VLLM), json.dumps(VLLM, indent=2)):
        path.write_text(text)
        first, second, third = (found := read_any_run(path)).records
        assert (first.arrival, first.first_token, first.gaps) == (0, 100_000, (10_000, 20_000, 30_000))
        assert (first.output_tokens, first.completion, first.input_tokens) == (4, 160_000, 5)
        assert (second.arrival, second.first_token, second.completion) == (250_000, 450_000, 450_000)
        assert (third.ending, third.reason, third.frames) == (Ending.FAILED, "ServiceUnavailable", ())
        assert found.offered == 3 and found.safety is None
        assert len({first.output, second.output, ""}) == 3


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ({name: value for name, value in VLLM.items() if name != "itls"}, "itls: missing; run `vllm bench serve` with"),
        ({**VLLM, "errors": []}, "errors: has 0 entries, but ttfts has 3"),
        ({**VLLM, "ttfts": ["soon", 1, 1]}, r"ttfts\[0\]: expected a number"),
        ({**VLLM, "itls": [1, [], []]}, r"itls\[0\]: expected a list"),
    ],
)
def test_a_result_of_vllm_without_details_is_refused(result: object, told: str, tmp_path: Path) -> None:
    path = tmp_path / "vllm.json"
    path.write_text(json.dumps(result))
    with pytest.raises(UserError, match=told):
        read_any_run(path)


def aiperf(number: int, start: int, **changes: object) -> dict[str, object]:
    metrics = {
        "time_to_first_token": {"value": 5.5, "unit": "ms"},
        "inter_chunk_latency": {"value": [4.0, 6.0], "unit": "ms"},
        "output_sequence_length": {"value": 3, "unit": "tokens"},
        "input_sequence_length": {"value": 550, "unit": "tokens"},
    }
    metadata = {
        "session_num": number,
        "turn_index": 0,
        "request_start_ns": start,
        "request_end_ns": start + 16_000_000,
        "benchmark_phase": "profiling",
        "was_cancelled": False,
    }
    return {"metadata": metadata, "metrics": metrics, "error": None} | changes


def test_records_of_aiperf_are_read(tmp_path: Path) -> None:
    failed = aiperf(1, 10**18 + 2_000_000, metrics={}, error={"code": 503, "type": "Busy", "message": "m"})
    cancelled = aiperf(2, 10**18 + 3_000_000, metrics={})
    cancelled["metadata"]["was_cancelled"] = True  # type: ignore[index]
    warm = aiperf(3, 10**18)
    warm["metadata"]["benchmark_phase"] = "warmup"  # type: ignore[index]
    path = tmp_path / "profile_export.jsonl"
    path.write_text("\n".join(map(json.dumps, (aiperf(0, 10**18), failed, cancelled, warm))))
    found = read_any_run(path)
    first, second, third = found.records
    assert (first.request, first.arrival, first.first_token, first.gaps) == ("0/0", 0, 5_500, (4_000, 6_000))
    assert (first.output_tokens, first.completion, first.input_tokens) == (3, 16_000, 550)
    assert (second.arrival, second.ending, second.reason) == (2_000, Ending.FAILED, "503 Busy")
    assert third.ending is Ending.CANCELLED
    assert "1 records of other phases" in found.remarks[0]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (aiperf(0, 0, metadata={}), "metadata.request_start_ns: missing"),
        (aiperf(0, 0, metrics={"time_to_first_token": {"value": 1, "unit": "weeks"}}), "the unit 'weeks' is not known"),
        (aiperf(0, 0, metrics={"time_to_first_token": 7}), "metrics.time_to_first_token: expected a value with a unit"),
    ],
)
def test_what_is_wrong_with_a_record_of_aiperf_is_named(line: object, told: str, tmp_path: Path) -> None:
    path = tmp_path / "profile_export.jsonl"
    path.write_text(json.dumps(line))
    with pytest.raises(UserError, match=told):
        read_any_run(path)


# --- objectives -------------------------------------------------------------------------------------------------------


def test_the_documented_objectives_are_read(repository: Path, tmp_path: Path) -> None:
    page = (repository / "docs" / "grading.md").read_text("utf-8")
    path = tmp_path / "objectives.toml"
    path.write_text(page.partition("```toml")[2].partition("```")[0])
    found = read_objectives(path)
    assert found.confidence.level == 0.95
    assert found.classes["interactive"].first_token == 500_000
    assert found.classes["bulk"].no_objective
    assert found.non_inferiority.given == {"good": 0.01, "first_token": 0.05, "token_gap": 0.02, "completion": 0.05}
    assert list(found.waive) == ["fairness"]
    own = ended_as(Ending.REFUSED, "TENANT_CAPACITY", class_name="interactive")
    assert [each.fate for each in judge_run(run(own, safety=SAFE), found)] == [Fate.OWN_REFUSAL]


CLASS = "[classes.a]\ncompletion = 1\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "classes: name each class"),
        ("classes", "not valid TOML"),
        (CLASS + "[speed]\n", "speed: unknown table"),
        (CLASS + "[run]\nlatest = 1", "run.latest: unknown key; there are late"),
        (CLASS + "[confidence]\nlevel = 1.0", "confidence: level is 1.0: set it to a number between 0.5 and 1"),
        (CLASS + "[confidence]\nlooks = 0", "confidence: looks is 0: set it to an integer of at least 1"),
        (CLASS + "[correctness]\nsame_output = 1", "correctness: same_output is 1: set it to true or false"),
        (CLASS + "[fairness.weights]\ngold = 0", "fairness: weights is .*: set each to a positive integer"),
        (CLASS + "[non_inferiority]\ngood = 2", "non_inferiority: good is 2: set it to a number from 0 to 1"),
        (CLASS + "[waive]\nrun = 'x'", "waive.run: cannot be waived"),
        (CLASS + "[waive]\nsafety = ''", "waive.safety: say in a few words"),
        ("[classes.a]\nattainment = 0.9", "classes.a: it has no objective"),
        ("[classes.a]\ncompletion = 0", "classes.a: completion is 0"),
        ("[classes.a]\nno_objective = 'x'\ncompletion = 1", "classes.a: no_objective: the class has one, completion"),
        ("classes = 1", "classes: expected a table"),
    ],
)
def test_objectives_that_are_wrong_are_named(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "objectives.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=told):
        read_objectives(path)
