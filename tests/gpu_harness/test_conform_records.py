"""A conformance run writes a record of each offered request, whatever name its client asked under last."""

from __future__ import annotations

from pathlib import Path

from kvescrow.gpu_harness.conform.client import Clients
from kvescrow.gpu_harness.front import Asked, run
from kvescrow.reference.grading.files import read_run
from kvescrow.reference.grading.records import Ending
from kvescrow.spec.vocabulary import Key


def test_every_offered_request_has_a_record(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    report = run(Asked(device="cpu", requests=12, records=path))
    written = read_run(path)
    endings = [record.ending for record in written.records]
    assert report.json["verdict"] in ("passed", "vacuous")
    assert endings.count(Ending.COMPLETED) == report.json["completed"] >= 1
    assert all(bool(record.output) == (record.ending is Ending.COMPLETED) for record in written.records)
    assert written.offered == len(endings) >= 12
    assert not any("/again" in record.request for record in written.records)
    assert written.safety is not None and written.safety.checked == report.json["journal_events"]
    assert written.safety.violations == ()


def test_a_second_generation_begins_its_answer_anew() -> None:
    key, time = Key("t", "r"), [3]
    clients = Clients(lambda: time[0])
    clients.give(key, 1, 7)
    clients.give(key, 1, 8)
    time[0] = 9
    clients.give(key, 2, 7)
    assert list(clients.given(key)) == [(9, 7)]
    assert clients.cancelled(key) is None
    clients.cancel_accepted(key)
    assert clients.cancelled(key) == 9
