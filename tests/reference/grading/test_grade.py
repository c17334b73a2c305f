"""Each fault gets its verdict at its gate; a workload against itself is neither better nor failed too often."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from kvescrow.reference.grading.compare import Paired, attained, compared
from kvescrow.reference.grading.gates import Gate, worst
from kvescrow.reference.grading.grade import Grade, grade
from kvescrow.reference.grading.objectives import ClassObjectives, Confidence, Correctness, Margins
from kvescrow.reference.grading.records import Ending, Evidence, Run, Span, SpanKind
from kvescrow.reference.grading.statistics import ErrorRates
from kvescrow.spec.vocabulary import GradeVerdict
from tests.reference.grading.runs import OBJECTIVES, SECOND, drawn, ended_as, record, run

PASS, FAIL, INCONCLUSIVE = GradeVerdict.PASS, GradeVerdict.FAIL, GradeVerdict.INCONCLUSIVE
NO_DATA, INVALID_RUN = GradeVerdict.NO_DATA, GradeVerdict.INVALID_RUN
BASE = drawn(1)
SEEDS, COUNT = 200, 600


def gate(found: Grade, name: str) -> Gate:
    return next(each for each in found.gates if each.name == name)


def decided(found: Grade) -> tuple[GradeVerdict, str]:
    return found.verdict, found.decided_by


# --- a workload against itself ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("looks", [1, 10])
def test_a_workload_against_itself_errs_no_more_than_stated(looks: int) -> None:
    """REL-3: over 200 seeds, ever failed, or ever better, in at most 5 % with one look and with ten."""
    rates = ErrorRates(0.05, 0.05, looks)
    margins = {"good": 0.02, "first_token": 0.05, "token_gap": 0.02, "completion": 0.05}
    failed = better = passed = 0
    for seed in range(SEEDS):
        draw = np.random.default_rng(seed)
        latencies = {name: np.exp(draw.normal(10, 0.1, (2, COUNT))) for name in margins if name != "good"}
        good = draw.random((2, COUNT)) < 0.995
        verdicts = set()
        claims = False
        for look in range(1, looks + 1):
            seen = COUNT * look // looks
            columns = {name: (both[0][:seen], both[1][:seen]) for name, both in latencies.items()}
            found = compared(Paired((good[0][:seen], good[1][:seen]), columns), margins, 1, rates)
            share = attained(good[1][:seen].astype(float), 0.97, 1, rates.shared(2))
            now = worst([share[0], *(each.verdict for each in found.values())])
            verdicts.add(now)
            claims |= any(each.better for each in found.values())
        failed, better, passed = failed + (FAIL in verdicts), better + claims, passed + (PASS in verdicts)
    assert failed <= 0.05 * SEEDS
    assert better <= 0.05 * SEEDS
    assert passed >= 1


def test_the_same_run_against_itself_passes_and_is_not_better() -> None:
    found = grade(BASE, BASE, OBJECTIVES)
    assert decided(found) == (PASS, "non_inferiority")
    assert not found.better
    assert found.action == "SHIP"


def test_a_candidate_that_is_faster_passes_as_better() -> None:
    found = grade(BASE, drawn(2, gaps=0.8), OBJECTIVES)
    assert found.verdict is PASS and found.better


# --- planted faults ---------------------------------------------------------------------------------------------------


def test_gaps_that_are_slower_by_a_twentieth_fail_against_the_base_alone() -> None:
    found = grade(BASE, drawn(2, gaps=1.05), OBJECTIVES)
    assert decided(found) == (FAIL, "non_inferiority")
    assert gate(found, "attainment").verdict is PASS
    figures = gate(found, "non_inferiority").figures
    assert {name for name, each in figures.items() if each["verdict"] == "FAIL"} == {"token_gap"}  # type: ignore[index]


def test_failures_that_faster_survivors_hide_fail_on_requests_offered() -> None:
    """REL-2: every percentile of the survivors is better."""
    candidate = drawn(2, 2000, gaps=0.8, first=0.8, failed=0.02)
    strict = evolve(OBJECTIVES, classes={"chat": evolve(OBJECTIVES.classes["chat"], attainment=0.99)})
    found = grade(drawn(1, 2000), candidate, strict)
    assert decided(found) == (FAIL, "attainment")
    assert found.offered["candidate"]["causes"] == {"failed: 503": 52}
    lenient = evolve(OBJECTIVES, non_inferiority=Margins(good=0.005, token_gap=0.02))
    found = grade(drawn(1, 2000), candidate, lenient)
    assert decided(found) == (FAIL, "non_inferiority")
    assert gate(found, "non_inferiority").figures["token_gap"]["better"]  # type: ignore[index]


def two_tenants(starved: bool) -> Run:
    """Both offer a request each 5 ms; one each 10 ms is served."""
    records = []
    for n in range(300):
        for tenant in ("big", "small"):
            request, arrival = f"{tenant}{n}", n * 5_000
            turn = n if starved else 2 * n + (tenant == "small")
            if starved and tenant == "small":
                records.append(ended_as(Ending.EXPIRED, "QUEUE_TIMEOUT", request, arrival, tenant=tenant,
                                        ended=arrival + SECOND))  # fmt: skip
                continue
            started = max(arrival, turn * 10_000)
            tokens = (started - arrival + 1000, started - arrival + 2000)
            records.append(record(request, arrival, tokens, tenant=tenant, started=started))
    return run(*records)


def test_a_starved_tenant_fails_fairness_and_its_own_share() -> None:
    """FAI-2: on its own gate; the average over tenants would not tell who."""
    objectives = evolve(OBJECTIVES, classes={"chat": ClassObjectives(attainment=0.4, completion=10 * SECOND)})
    base = two_tenants(starved=False)
    assert gate(grade(base, base, objectives), "fairness").verdict is PASS
    found = grade(base, two_tenants(starved=True), objectives)
    assert decided(found) == (FAIL, "fairness")
    assert "small" in gate(found, "fairness").why
    assert gate(found, "attainment").verdict is FAIL
    assert "tenant small" in gate(found, "attainment").why


def test_a_tenant_that_its_own_limit_keeps_back_is_not_starved() -> None:
    kept = (Span(SpanKind.QUEUE, "TENANT_CAPACITY", SECOND),)
    unfair = two_tenants(starved=True)
    own = [evolve(r, spans=kept) if r.tenant == "small" else r for r in unfair.records]
    assert gate(grade(unfair, evolve(unfair, records=tuple(own)), OBJECTIVES), "fairness").verdict is PASS


def test_a_class_without_objective_has_no_data_unless_the_file_says_why() -> None:
    mixed = run(*BASE.records, *(record(f"b{n}", n * 1000, class_name="bulk") for n in range(50)))
    found = grade(mixed, mixed, OBJECTIVES)
    assert decided(found) == (NO_DATA, "attainment")
    assert "bulk" in gate(found, "attainment").why
    told = evolve(
        OBJECTIVES, classes={**OBJECTIVES.classes, "bulk": ClassObjectives(no_objective="nobody waits for it")}
    )
    assert grade(mixed, mixed, told).verdict is PASS


def test_an_objective_whose_class_was_not_offered_has_no_data() -> None:
    more = evolve(OBJECTIVES, classes={**OBJECTIVES.classes, "bulk": OBJECTIVES.classes["chat"]})
    assert decided(grade(BASE, BASE, more)) == (NO_DATA, "attainment")


def test_an_empty_candidate_has_no_data() -> None:
    found = grade(BASE, run(), OBJECTIVES)
    assert decided(found) == (NO_DATA, "run")
    assert found.action == "HOLD"
    assert found.goodput["candidate"]["share"] is None


def test_clocks_that_run_apart_make_the_run_invalid() -> None:
    fast = [record(r.request, r.arrival * 101 // 100) for r in BASE.records]
    found = grade(BASE, run(*fast), OBJECTIVES)
    assert decided(found) == (INVALID_RUN, "run")
    assert found.action == "HOLD"
    read = evolve(BASE, clock_readings=((0, 7), (SECOND, SECOND + 100_000)))
    assert decided(grade(BASE, read, OBJECTIVES)) == (INVALID_RUN, "run")
    steady = evolve(BASE, clock_readings=((0, 10**9), (SECOND, SECOND + 10**9 + 40_000)))
    assert grade(BASE, steady, OBJECTIVES).verdict is PASS


def test_wrong_outputs_that_are_fast_fail_before_speed_is_asked() -> None:
    fast = drawn(2, gaps=0.5)
    wrong = evolve(fast, records=tuple(evolve(r, correct=n % 50 != 0) for n, r in enumerate(fast.records)))
    found = grade(BASE, wrong, OBJECTIVES)
    assert decided(found) == (FAIL, "correctness")


def test_outputs_are_compared_with_the_base_where_that_is_asked_for() -> None:
    def with_outputs(digest: str) -> Run:
        return evolve(BASE, records=tuple(evolve(r, correct=None, output=digest) for r in BASE.records))

    same = evolve(OBJECTIVES, correctness=Correctness(same_output=True))
    assert grade(with_outputs("a"), with_outputs("a"), same).verdict is PASS
    assert decided(grade(with_outputs("a"), with_outputs("b"), same)) == (FAIL, "correctness")
    assert decided(grade(with_outputs("a"), with_outputs("b"), OBJECTIVES)) == (NO_DATA, "correctness")


def test_a_violated_invariant_rolls_back_whatever_the_speed_even_of_an_invalid_run() -> None:
    """REL-4."""
    seen = Evidence(1000, ("page 3 has two owners",), "a monitor")
    fast = evolve(drawn(2, gaps=0.5), safety=seen)
    assert decided(grade(BASE, fast, OBJECTIVES)) == (FAIL, "safety")
    assert decided(grade(BASE, evolve(fast, offered=7), OBJECTIVES)) == (FAIL, "safety")


def test_unchecked_safety_promotes_nothing_unless_waived() -> None:
    unchecked = evolve(BASE, safety=None)
    assert decided(grade(BASE, unchecked, OBJECTIVES)) == (NO_DATA, "safety")
    assert decided(grade(BASE, evolve(BASE, safety=Evidence(0, (), "m")), OBJECTIVES)) == (NO_DATA, "safety")
    waived = evolve(OBJECTIVES, waive={"safety": "no journal here"})
    found = grade(BASE, unchecked, waived)
    assert found.verdict is PASS and found.waived == {"safety": "no journal here"}
    violated = evolve(BASE, safety=Evidence(1, ("x",), "m"))
    assert grade(BASE, violated, waived).verdict is FAIL


def test_a_workload_without_margins_is_not_called_no_worse() -> None:
    assert decided(grade(BASE, BASE, evolve(OBJECTIVES, non_inferiority=Margins()))) == (NO_DATA, "non_inferiority")


# --- the run ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("candidate", "told"),
    [
        (evolve(BASE, offered=601), "601 requests were offered, but 600"),
        (evolve(BASE, records=BASE.records[1:], offered=599), "1 requests are in one run only"),
        (evolve(BASE, workload="another"), "the workloads differ"),
        (evolve(BASE, records=(evolve(BASE.records[0], ended=1), *BASE.records[1:])), "out of order"),
        (evolve(BASE, records=(evolve(BASE.records[0], started=10**12), *BASE.records[1:])), "out of order"),
        (
            evolve(BASE, records=tuple(evolve(r, sent=r.arrival + 10_001 * (n < 7)) for n, r in
                                       enumerate(BASE.records))),
            "7 of 600 requests were sent more than",
        ),
    ],
)  # fmt: skip
def test_a_run_that_cannot_be_trusted_decides_nothing(candidate: Run, told: str) -> None:
    found = grade(BASE, candidate, OBJECTIVES)
    assert decided(found) == (INVALID_RUN, "run")
    assert told in gate(found, "run").why


def test_a_slow_candidate_is_not_let_off_by_an_empty_base() -> None:
    """REL-2: its own objectives need no base."""
    slow = drawn(2, gaps=30.0)
    found = grade(run(), slow, OBJECTIVES)
    assert decided(found) == (FAIL, "attainment")
    assert grade(run(), BASE, OBJECTIVES).verdict is NO_DATA


@pytest.mark.parametrize(("count", "verdict"), [(58, INCONCLUSIVE), (59, PASS)])
def test_a_share_is_passed_once_there_are_enough_requests(count: int, verdict: GradeVerdict) -> None:
    """REL-3: 95 % at 95 % confidence needs 59 requests without a miss; both sides."""
    few = drawn(1, count)
    assert gate(grade(few, few, OBJECTIVES), "attainment").verdict is verdict


def test_fewer_requests_than_the_file_wants_are_no_data() -> None:
    least = evolve(OBJECTIVES, classes={"chat": evolve(OBJECTIVES.classes["chat"], least=601)})
    assert decided(grade(BASE, BASE, least)) == (NO_DATA, "attainment")


def test_several_looks_need_more_than_one() -> None:
    few = drawn(1, 70)
    ten = evolve(OBJECTIVES, confidence=Confidence(looks=10))
    assert gate(grade(few, few, OBJECTIVES), "attainment").verdict is PASS
    assert gate(grade(few, few, ten), "attainment").verdict is INCONCLUSIVE


def test_wrong_outputs_may_be_allowed_for() -> None:
    some = evolve(BASE, records=tuple(evolve(r, correct=n != 0) for n, r in enumerate(BASE.records)))
    lenient = evolve(OBJECTIVES, correctness=Correctness(wrong=0.01))
    assert gate(grade(BASE, some, lenient), "correctness").verdict is PASS
    few = evolve(some, records=some.records[:100], offered=100)
    assert gate(grade(few, few, lenient), "correctness").verdict is INCONCLUSIVE


def test_the_result_has_the_documented_form() -> None:
    written = grade(BASE, drawn(2), OBJECTIVES).as_json()
    assert {"verdict", "gates", "goodput", "offered"} <= set(written)
    gates = written["gates"]
    assert isinstance(gates, list)
    assert [each["name"] for each in gates] == [
        "run", "safety", "correctness", "fairness", "attainment", "non_inferiority"
    ]  # fmt: skip
    assert all({"name", "verdict", "figures"} <= set(each) for each in gates)
    assert set(written["goodput"]) == set(written["offered"]) == {"base", "candidate"}  # type: ignore[call-overload]
