"""A real trace on the decoder under the reference: nothing is wrong, and everything was exercised (CON-1, CON-2)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from attrs import evolve

from kvescrow.checks.monitor import check_journal
from kvescrow.gpu_harness.conform import Conduct, ConformResult, Settings, Verdict, conform
from kvescrow.gpu_harness.conform.client import Clients
from kvescrow.gpu_harness.conform.control import FAR, POOL, Control
from kvescrow.gpu_harness.conform.frames import Frames
from kvescrow.gpu_harness.conform.journal import RunJournal
from kvescrow.gpu_harness.conform.loop import Clock
from kvescrow.gpu_harness.conform.serving import Serving
from kvescrow.gpu_harness.conform.workload import any_token, workload
from kvescrow.gpu_harness.device import Device
from kvescrow.gpu_harness.evidence import NOTHING, EvidenceKind
from kvescrow.gpu_harness.model import SHAPES
from kvescrow.gpu_harness.pages import PagedMemory
from kvescrow.gpu_harness.streams import Gate, Stream
from kvescrow.reference.ledger import LedgerConfig, TenantConfig
from kvescrow.reference.traces import packaged_trace
from kvescrow.spec.vocabulary import Key, UserError

DEVICE = os.environ.get("KVESCROW_TEST_DEVICE", "cpu")


def run(requests: int, dtype: str = "float32", rate: float = 0.2, journal: Path | None = None) -> ConformResult:
    settings = Settings(device=DEVICE, dtype=dtype, requests=requests, cancel_rate=rate)
    return conform(packaged_trace("mooncake"), settings, journal=journal)


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("conform") / "run.jsonl"


@pytest.fixture(scope="module")
def result(journal: Path) -> ConformResult:
    return run(40, journal=journal)


def test_a_run_passes_with_everything_exercised(result: ConformResult) -> None:
    assert result.evidence == NOTHING
    assert result.violations == ()
    assert result.not_exercised == ()
    assert result.verdict is Verdict.PASSED
    assert result.exact


def test_every_request_ends_once_and_every_page_is_accounted_for(result: ConformResult) -> None:
    tally = result.tally
    cancelled = tally.cancelled_running + tally.cancelled_queued + tally.cancelled_reserved
    assert tally.completed + cancelled == result.requests == 53
    assert tally.cancelled_in_flight == tally.cancelled_running >= 3
    assert tally.scrubbed_pages > 96, "the pool was used more than once"


def test_the_result_lists_every_kind_of_evidence(result: ConformResult) -> None:
    said = result.as_json()
    assert said["evidence"] == {kind.value: 0 for kind in EvidenceKind}
    for name in ("device", "requests", "steps", "tokens", "shape", "dtype", "seed", "exact", "torch", "seconds"):
        assert said[name] not in (None, 0, "")
    assert said["verdict"] == "passed"
    assert "conform: passed" in result.summary


def test_the_journal_of_the_run_is_one_that_the_tables_allow(result: ConformResult, journal: Path) -> None:
    verdict = check_journal(journal)
    assert verdict.outcome.value == "passed"
    assert verdict.events == result.journal_events > 1000
    assert len(verdict.rows) == result.rows


def test_a_journal_is_never_written_over(result: ConformResult, journal: Path) -> None:
    with pytest.raises(UserError, match="the file exists"):
        run(1, journal=journal)


def test_bfloat16_has_no_evidence_either() -> None:
    result = run(12, dtype="bfloat16")
    assert result.exact, result.reason
    assert result.evidence == NOTHING
    assert result.violations == ()


def test_a_run_that_exercised_too_little_is_vacuous() -> None:
    result = run(2, rate=0.0)
    assert result.verdict is Verdict.VACUOUS
    assert "no cancel came while a step was in flight" in result.not_exercised
    assert "no prompt was cached for another tenant and missed" in result.not_exercised
    assert "not exercised: no cancel came while a step was in flight" in result.summary


def test_one_finding_or_one_violation_refutes(result: ConformResult) -> None:
    clients = Clients()
    clients.cancel_accepted(Key("amber", "one"))
    clients.give(Key("amber", "one"), 7, 42)
    late = evolve(result, evidence=clients.evidence)
    assert late.verdict is Verdict.REFUTED
    assert "OUTPUT_AFTER_CANCEL: page -1, request 7" in late.summary
    assert evolve(result, violations=("something",)).verdict is Verdict.REFUTED


def test_output_after_a_cancel_is_seen_from_the_client_s_side() -> None:
    clients, one, other = Clients(), Key("amber", "one"), Key("birch", "one")
    clients.give(one, 1, 42)
    clients.cancel_accepted(one)
    clients.give(other, 2, 42)
    assert clients.evidence == NOTHING
    clients.give(one, 1, 43)
    assert dict(clients.evidence.counts) == {EvidenceKind.OUTPUT_AFTER_CANCEL: 1}
    assert clients.tokens == 3


class ExpiredGate(Gate):
    def hold(self, stream: Stream) -> None: ...

    def open(self) -> None: ...

    def holding(self) -> bool:
        return False


def test_a_window_that_closed_too_early_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "gate", lambda self: ExpiredGate())
    result = run(12, rate=0.5)
    assert result.evidence == NOTHING
    assert result.tally.cancelled_running > result.tally.cancelled_in_flight == 0
    assert "no cancel came while a step was in flight" in result.not_exercised


class ShowsAll(Conduct):
    def may_show(self, serving: Serving) -> bool:
        return True


def test_a_worker_that_shows_output_after_a_cancel_is_refuted() -> None:
    settings = Settings(device=DEVICE, requests=12, cancel_rate=0.5)
    result = conform(packaged_trace("mooncake"), settings, conduct=ShowsAll())
    assert result.evidence.kinds == {EvidenceKind.OUTPUT_AFTER_CANCEL}
    assert result.verdict is Verdict.REFUTED


@pytest.fixture
def memory(device: Device) -> PagedMemory:
    return PagedMemory(device, SHAPES["tiny"], 8)


@pytest.fixture
def frames(memory: PagedMemory) -> Frames:
    return Frames(memory)


def grant(frames: Frames, device: Device, pages: Sequence[int]) -> None:
    frames.grant(device.decode, pages, owner=1, scope=0, first_index=0)


def test_a_shared_page_that_changes_is_seen_by_the_audit(frames: Frames, memory: PagedMemory, device: Device) -> None:
    grant(frames, device, [3, 4])
    frames.publish([3, 4])
    device.synchronize()
    memory.bits[0, 4, 0, 0, 0, 0] ^= 1
    assert dict(frames.audit([1, 2, 5, 6, 7]).counts) == {EvidenceKind.PARKED_PAGE_CHANGED: 1}


def test_a_shared_page_that_changed_before_its_scrub_is_seen(
    frames: Frames, memory: PagedMemory, device: Device
) -> None:
    grant(frames, device, [3])
    frames.publish([3])
    device.synchronize()
    memory.bits[1, 3, 1, 2, 0, 0] ^= 1
    frames.scrub([3])
    assert dict(frames.audit([3]).counts) == {EvidenceKind.PARKED_PAGE_CHANGED: 1}


def test_a_free_page_that_somebody_wrote_is_seen_by_audit_and_grant(
    frames: Frames, memory: PagedMemory, device: Device
) -> None:
    memory.bits[0, 2, 0, 0, 0, 0] ^= 1
    assert dict(frames.audit([1, 2]).counts) == {EvidenceKind.CANARY_BROKEN: 1}
    grant(frames, device, [2])
    assert dict(frames.audit([1]).counts) == {EvidenceKind.CANARY_BROKEN: 2}


def test_pages_are_scrubbed_once_and_before_every_grant(frames: Frames, device: Device) -> None:
    grant(frames, device, [1, 2])
    assert (frames.clean, frames.scrubs) == (5, 0)
    frames.scrub([1, 3])
    frames.scrub([1, 3])
    assert (frames.clean, frames.scrubs) == (6, 1)
    grant(frames, device, [2])
    assert frames.scrubs == 2
    assert frames.audit([1, 3, 4, 5, 6, 7]) == NOTHING


def test_what_is_left_over_at_the_end_is_said() -> None:
    config = LedgerConfig(POOL, 1024, {name: TenantConfig(1024, FAR, 9) for name in ("amber", "birch", "cedar")}, 0)
    control = Control(config, 64, 16, RunJournal(config, 64, 16), Clock())
    planned = workload(packaged_trace("mooncake"), requests=1, seed=1, tokens=any_token(512), chunk=40)[0]
    assert control.not_conserved([planned.key]) == []
    control.reserve(planned, 256)
    control.acquire("holder", Conduct().scope(0), planned.prompt, 256)
    left = control.not_conserved([planned.key])
    assert "at the end the ledger's pool is charged: 256" in left
    assert any(each.startswith("at the end pages are promised") for each in left)
    assert any(each.startswith("at the end pages are neither free nor cached") for each in left)
