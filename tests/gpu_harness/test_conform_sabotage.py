"""Every sabotage is caught by the evidence that must catch it, whatever the seed (FRM-5, CON-2)."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from attrs import evolve

from kvescrow.gpu_harness.conform import ConformResult, Settings, Verdict
from kvescrow.gpu_harness.conform.platform import Platform, open_platform
from kvescrow.gpu_harness.evidence import NOTHING, Evidence, EvidenceKind
from kvescrow.gpu_harness.sabotage import (
    CAUGHT,
    MISSED,
    SABOTAGES,
    SabotageResult,
    check_name,
    counted,
    matrix,
    sabotaged,
    unsabotaged,
)
from kvescrow.spec.vocabulary import UserError

DEVICE = os.environ.get("KVESCROW_TEST_DEVICE", "cpu")
SETTINGS = Settings(device=DEVICE, seed=1)


@pytest.fixture(scope="module")
def platform() -> Iterator[Platform]:
    with open_platform(SETTINGS) as opened:
        yield opened


@pytest.fixture(scope="module")
def clean(platform: Platform) -> ConformResult:
    return unsabotaged(platform, SETTINGS)


@pytest.mark.parametrize("name", SABOTAGES)
def test_a_sabotage_is_caught_by_the_expected_evidence(name: str, platform: Platform) -> None:
    result = sabotaged(name, platform, SETTINGS)
    assert result.missing == frozenset()
    assert result.verdict == CAUGHT
    assert SABOTAGES[name].all_of <= result.run.evidence.kinds
    assert result.run.violations == (), "the tables were told what is not so, and agree"


@pytest.mark.parametrize("name", ["release-at-cancel", "event-on-wrong-stream", "descriptor-slot-reused"])
def test_races_are_certain_under_other_seeds_too(name: str) -> None:
    other = evolve(SETTINGS, seed=2)
    with open_platform(other) as platform:
        assert unsabotaged(platform, other).verdict is Verdict.PASSED
        assert sabotaged(name, platform, other).verdict == CAUGHT


def test_in_bfloat16_bits_are_as_sharp() -> None:
    settings = evolve(SETTINGS, dtype="bfloat16")
    with open_platform(settings) as platform:
        assert unsabotaged(platform, settings).verdict is Verdict.PASSED
        for name in ("ulp-in-private-page", "hash-only-match", "weights-changed-under-work"):
            assert sabotaged(name, platform, settings).verdict == CAUGHT


def test_the_same_run_without_a_sabotage_shows_nothing_and_exercises_all(clean: ConformResult) -> None:
    assert clean.evidence == NOTHING
    assert clean.verdict is Verdict.PASSED
    assert clean.tally.epochs == 1
    assert clean.tally.cancelled_in_flight == 3
    assert clean.tally.cancelled_queued == 1


def test_there_are_twenty_or_more_and_each_says_what_it_does() -> None:
    assert len(SABOTAGES) >= 20
    assert len({sabotage.summary for sabotage in SABOTAGES.values()}) == len(SABOTAGES)
    assert all(sabotage.all_of for sabotage in SABOTAGES.values())


@pytest.mark.parametrize("name", SABOTAGES)
def test_a_sabotage_that_leaves_no_evidence_is_missed(name: str, clean: ConformResult) -> None:
    result = SabotageResult(name, clean)
    assert result.verdict == MISSED
    said = result.as_json()
    assert said["verdict"] == "missed"
    assert said["missing"] == sorted(kind.value for kind in SABOTAGES[name].all_of | SABOTAGES[name].any_of)
    assert SabotageResult(name, evolve(clean, exact=False, reason="of a test")).verdict == MISSED


def test_one_kind_of_content_is_enough_and_the_stamp_must_be_there(clean: ConformResult) -> None:
    def missing(*kinds: EvidenceKind) -> frozenset[EvidenceKind]:
        found = evolve(clean, evidence=Evidence(dict.fromkeys(kinds, 1)))
        return SabotageResult("release-at-cancel", found).missing

    assert missing(EvidenceKind.GENERATION_MISMATCH, EvidenceKind.CANARY_BROKEN) == frozenset()
    assert missing(EvidenceKind.CANARY_BROKEN) == {EvidenceKind.GENERATION_MISMATCH}
    assert missing(EvidenceKind.GENERATION_MISMATCH) == SABOTAGES["release-at-cancel"].any_of


def test_where_bits_do_not_count_stamps_are_enough(clean: ConformResult) -> None:
    inexact = evolve(clean, exact=False, reason="of a test")
    assert SabotageResult("scope-without-tenant", inexact).missing == {EvidenceKind.SCOPE_MISMATCH}


def test_the_matrix_marks_what_must_be_found(clean: ConformResult) -> None:
    stamped = evolve(clean, evidence=Evidence({EvidenceKind.SCOPE_MISMATCH: 7}))
    rows = matrix([SabotageResult("scope-without-tenant", each) for each in (clean, stamped)], [clean, clean])
    assert rows[1] == ("none", "clean 2 of 2", "nothing")
    assert rows[2] == ("scope-without-tenant", "missed 2 of 2", "scope_mismatch 1*, logits_differ 0*")
    (_, one) = matrix([SabotageResult("scope-without-tenant", stamped)], [])
    assert one == ("scope-without-tenant", "missed", "scope_mismatch 7*, logits_differ 0*")


def test_the_count_says_in_how_many_runs_what_was_found(clean: ConformResult) -> None:
    kinds = (EvidenceKind.SCOPE_MISMATCH, EvidenceKind.LOGITS_DIFFER)
    runs = [evolve(clean, evidence=Evidence(dict.fromkeys(found, 3))) for found in ((), kinds[:1], kinds)]
    (row,) = counted([SabotageResult("scope-without-tenant", run) for run in runs])
    assert row == {
        "sabotage": "scope-without-tenant",
        "runs": 3,
        "caught": 1,
        "all_of": ["logits_differ", "scope_mismatch"],
        "any_of": [],
        "found_in": {"scope_mismatch": 2, "logits_differ": 1},
    }


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match="no sabotage is called 'leak'; choose from release-at-cancel, "):
        check_name("leak")
