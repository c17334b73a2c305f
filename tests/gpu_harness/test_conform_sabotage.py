"""Every sabotage is caught by the evidence that must catch it, whatever the seed (FRM-5, CON-2)."""

from __future__ import annotations

import os

import pytest
from attrs import evolve

from kvescrow.gpu_harness.conform import ConformResult, Settings, conform
from kvescrow.gpu_harness.evidence import NOTHING, Evidence, EvidenceKind
from kvescrow.gpu_harness.sabotage import CAUGHT, MISSED, SABOTAGES, SabotageResult, matrix, sabotaged
from kvescrow.reference.traces import packaged_trace
from kvescrow.spec.vocabulary import UserError

DEVICE = os.environ.get("KVESCROW_TEST_DEVICE", "cpu")
SEEDS = (1, 2, 3)
HOST_LAWS = {EvidenceKind.GRANT_BEFORE_TICKET_DONE, EvidenceKind.OUTPUT_AFTER_CANCEL}


def settings(seed: int) -> Settings:
    return Settings(device=DEVICE, requests=16, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", SABOTAGES)
def test_a_sabotage_is_caught_by_the_expected_evidence(name: str, seed: int) -> None:
    result = sabotaged(name, packaged_trace("mooncake"), settings(seed))
    assert result.run.tally.cancelled_in_flight > 0
    assert result.missing == frozenset()
    assert result.verdict == CAUGHT
    assert SABOTAGES[name].all_of <= result.run.evidence.kinds
    assert SABOTAGES[name].any_of & result.run.evidence.kinds
    assert result.run.violations == (), "the tables were told what is not so, and agree"


@pytest.fixture(scope="module")
def clean() -> ConformResult:
    return conform(packaged_trace("mooncake"), settings(1))


@pytest.mark.parametrize("name", SABOTAGES)
def test_a_sabotage_that_leaves_no_evidence_is_missed(name: str, clean: ConformResult) -> None:
    assert clean.evidence == NOTHING
    result = SabotageResult(name, clean)
    assert result.verdict == MISSED
    said = result.as_json()
    assert said["verdict"] == "missed"
    assert said["missing"] == sorted(kind.value for kind in SABOTAGES[name].all_of | SABOTAGES[name].any_of)


@pytest.mark.parametrize("name", SABOTAGES)
def test_a_sabotage_needs_evidence_of_the_device(name: str) -> None:
    sabotage = SABOTAGES[name]
    assert sabotage.all_of and sabotage.any_of
    assert not (sabotage.all_of | sabotage.any_of) & HOST_LAWS


def test_one_kind_of_content_is_enough_and_the_stamp_must_be_there(clean: ConformResult) -> None:
    def missing(*kinds: EvidenceKind) -> frozenset[EvidenceKind]:
        found = evolve(clean, evidence=Evidence(dict.fromkeys(kinds, 1)))
        return SabotageResult("release-at-cancel", found).missing

    assert missing(EvidenceKind.GENERATION_MISMATCH, EvidenceKind.CANARY_BROKEN) == frozenset()
    assert missing(EvidenceKind.CANARY_BROKEN) == {EvidenceKind.GENERATION_MISMATCH}
    assert missing(EvidenceKind.GENERATION_MISMATCH) == SABOTAGES["release-at-cancel"].any_of


def test_where_logits_do_not_count_stamps_are_enough(clean: ConformResult) -> None:
    inexact = evolve(clean, exact=False, reason="of a test")
    assert SabotageResult("cross-scope-reuse", inexact).missing == {EvidenceKind.SCOPE_MISMATCH}


def test_the_matrix_marks_what_must_be_found(clean: ConformResult) -> None:
    rows = matrix([SabotageResult(name, clean) for name in SABOTAGES])
    assert rows[0] == ("evidence", *SABOTAGES)
    assert ("scope_mismatch", "0", "0*", "0") in rows
    assert rows[-1] == ("verdict", MISSED, MISSED, MISSED)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match="no sabotage is called 'leak'; choose from release-at-cancel, "):
        sabotaged("leak", packaged_trace("mooncake"), settings(1))
