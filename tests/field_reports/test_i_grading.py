"""Family i: figures that look good because of what they leave out."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvescrow.reference.grading.grade import grade
from kvescrow.reference.grading.objectives import ClassObjectives, Margins, Objectives, RunLimits
from kvescrow.reference.grading.outcomes import Fate, judge, judge_run, quantile, tally
from kvescrow.reference.grading.records import Ending, Evidence, RequestRecord, Run
from kvescrow.spec.vocabulary import GradeVerdict, Reason, ReservationState
from tests.field_reports.conftest import LedgerOf
from tests.field_reports.replies import ADMITTED, STARTED, queued

MS, SECOND = 1_000, 1_000_000


def record(request: int, arrival: int, ended: int | None, **changes: object) -> RequestRecord:
    """A request of which one token came at its end, or that is under way."""
    frames = ((ended, 1),) if ended is not None else ()
    ending = Ending.UNFINISHED if ended is None else Ending.COMPLETED
    made = RequestRecord(str(request), "t", "chat", arrival, ending, sent=arrival, frames=frames, ended=ended)
    return evolve(made, **changes)


def run(records: list[RequestRecord], ended: int = 1000 * SECOND) -> Run:
    return Run("a run", tuple(records), ended, len(records), safety=Evidence(1, (), "a monitor"))


def wants(**objectives: object) -> Objectives:
    return Objectives(classes={"chat": ClassObjectives(**objectives)})  # type: ignore[arg-type]


def test_b90_a_stall_is_measured_from_the_intended_arrival() -> None:
    """scylladb/scylla-bench#47, openmessaging/benchmark#247: latency was measured from the actual send.

    Wrong: 100, 3, 3, ...: the 90th percentile is 3 ms.
    Right: 100, 93, 86, 79, ...; and a generator that was late is reported.
    REL-2
    """
    # Given a request each 10 ms on one connection; the first takes 100 ms
    records = [record(0, 0, 100 * MS)]
    # When the other nine are sent once it is over, 3 ms each
    records += [record(n, n * 10 * MS, (100 + 3 * n) * MS, sent=(97 + 3 * n) * MS) for n in range(1, 10)]
    # Then each is as late as its user saw
    completions = [each.completion for each in records]
    assert completions == [(100 - 7 * n) * MS for n in range(10)]
    assert quantile([each for each in completions if each], 0, 0.9) == 93 * MS
    # And the run is not graded
    late = run(records)
    found = grade(late, late, wants(completion=SECOND))
    assert (found.verdict, found.decided_by) == (GradeVerdict.INVALID_RUN, "run")
    assert "9 of 10 requests were sent" in found.gates[0].why


def test_b91_a_chunk_of_three_tokens_is_three_tokens_and_one_gap() -> None:
    """sgl-project/sglang#12064, vllm-project/vllm#35471, PaddlePaddle/FastDeploy#8113: each chunk was one token.

    Wrong: 9 ms a token.
    Right: 3 ms a token; the gap that a user sees is 9 ms, and is another figure with a name of its own.
    REL-1
    """
    # Given chunks of 3 tokens each 9 ms, ten after the first
    frames = tuple((n * 9 * MS, 3) for n in range(11))
    stream = record(0, 0, 90 * MS, frames=frames)
    # Then a token takes 3 ms, and a gap 9 ms
    assert stream.time_per_token == 3 * MS
    assert stream.gaps == (9 * MS,) * 10
    # And each objective bounds the figure that it names
    assert judge(stream, wants(time_per_token=3 * MS), SECOND).fate is Fate.GOOD
    assert judge(stream, wants(time_per_token=3 * MS - 1), SECOND).cause == "time per token"
    assert judge(stream, wants(token_gap=9 * MS), SECOND).fate is Fate.GOOD
    assert judge(stream, wants(token_gap=9 * MS - 1), SECOND).cause == "token gap"


def test_b92_requests_that_fail_are_misses() -> None:
    """ai-dynamo/aiperf#688, vllm-project/guidellm#1085, gpustack/gpustack#1677: only successes were looked at.

    Wrong: the 95th percentile is 2 s and everything is attained.
    Right: 6 of 256, and the percentile is not met. What the generator withdrew is in no count; what the server cut
    off is a miss.
    REL-2 ADM-9
    """
    # Given 250 requests that fail at once, and 6 whose first token comes after 2 s
    records = [record(n, 0, 0, ending=Ending.FAILED, reason="503", frames=()) for n in range(250)]
    records += [record(n, 0, 2 * SECOND) for n in range(250, 256)]
    # When 10 more are withdrawn at the end of the run, and 5 are cut off by the server
    records += [record(n, 0, SECOND, ending=Ending.WITHDRAWN, frames=()) for n in range(256, 266)]
    records += [record(n, 0, SECOND, ending=Ending.FAILED, reason="cut off", frames=()) for n in range(266, 271)]
    # Then 6 of 261 are good
    counts = tally(judge_run(run(records), wants(first_token=3 * SECOND)))
    assert (counts.good, counts.counted, counts.left_out) == (6, 261, 10)
    assert counts.causes == {"failed: 503": 250, "failed: cut off": 5}
    # And without the variant 6 of 256, whose 95th percentile is not met
    assert quantile([2 * SECOND] * 6, 250, 0.95) is None
    assert quantile([2 * SECOND] * 6, 0, 0.95) == 2 * SECOND


def test_b93_no_data_is_neither_zero_nor_good() -> None:
    """spinnaker/spinnaker#5622, spinnaker/kayenta#377: missing values became zero, and a zero baseline no deviation.

    Wrong: the canary passes.
    Right: its own ceiling catches it without a baseline; a canary without data promotes nothing.
    REL-2
    """
    # Given a baseline without a sample, and a canary of which most is too slow
    empty, slow = run([]), run([record(n, n * SECOND, (n + 5) * SECOND, correct=True) for n in range(100)])
    objectives = evolve(wants(completion=SECOND), waive={"fairness": "one tenant", "non_inferiority": "no baseline"})
    # Then the canary fails on what it must meet alone
    found = grade(empty, slow, objectives)
    assert (found.verdict, found.action) == (GradeVerdict.FAIL, "ROLLBACK")
    # And a canary without a sample is held
    found = grade(slow, empty, objectives)
    assert (found.verdict, found.action) == (GradeVerdict.NO_DATA, "HOLD")


def test_b95_a_request_that_timed_out_in_the_queue_is_no_short_answer(ledger_of: LedgerOf) -> None:
    """Avarok-Cybersecurity/atlas#482: what timed out in the queue came back as a normal answer of one token.

    Wrong: it is prefilled, killed after a token, and counted as a success.
    Right: it expires at its limit without a start; its outcome is not that of a completed one, and it is a miss.
    REL-2 QUE-2 QUE-3
    """
    # Given one slot, which A holds until 6; B may wait until 5
    ledger = ledger_of(1)
    assert ledger.reserve("a", 1) == ADMITTED
    assert ledger.start("a", "w1") == STARTED
    assert ledger.reserve("b", 1, wait=5) == queued(Reason.POOL_CAPACITY)
    # When 5 comes
    ledger.passes(5)
    ledger.sweep("b")
    # Then B has expired, and never started
    assert ledger.record("b").state is ReservationState.EXPIRED
    assert ledger.record("b").generation == 0
    # And it is a miss with a cause of its own, whatever came with it
    expired = record(1, 0, 5, ending=Ending.EXPIRED, reason="QUEUE_TIMEOUT")
    assert judge(expired, wants(completion=SECOND), SECOND).cause == "expired: QUEUE_TIMEOUT"


@pytest.mark.parametrize(("share", "expected"), [(0.95, 10 * MS), (0.995, 2000 * MS)])
def test_b96_samples_are_merged_before_a_quantile_is_taken(share: float, expected: int) -> None:
    """transithq/tropel#64, linera-io/linera-protocol#5851, scylladb/scylla-monitoring#1886: quantiles were combined.

    Wrong: 2000 ms (the worst part) or 1005 ms (the mean of the parts).
    Right: of the merged samples; a part without samples has no weight.
    REL-2
    """
    # Given 1,000 samples of 10 ms from one worker, 10 of 2 s from another, and none from a third
    parts: list[list[int]] = [[10 * MS] * 1000, [2000 * MS] * 10, []]
    # Then the quantile is of all of them
    assert quantile([sample for part in parts for sample in part], 0, share) == expected


def test_b97_the_first_token_is_the_first_frame_with_a_token() -> None:
    """api7/aisix#869, vllm-project/vllm#55508, sgl-project/sglang#29251: an empty frame stopped the clock.

    Wrong: 1 ms, or 183.6 s; and the frame with the usage moves the last token.
    Right: 1175 ms; a stream without a token has no sample and is a miss.
    REL-1
    """
    # Given a frame with a role, a thinking token, an answer token, and a frame with the usage
    frames = ((MS, 0), (1175 * MS, 1), (183_581 * MS, 1), (192_851 * MS, 0))
    stream = record(0, 0, 192_851 * MS, frames=frames)
    # Then the first token came with the thinking, and the last with the answer
    assert stream.first_token == 1175 * MS
    assert stream.token_times == (1175 * MS, 183_581 * MS)
    # And a stream of which no frame has a token is a miss
    silent = record(1, 0, SECOND, frames=((MS, 0), (SECOND, 0)))
    assert silent.first_token is None
    assert judge(silent, wants(completion=2 * SECOND), 3 * SECOND).cause == "no token"


def test_b98_a_class_without_a_goal_is_in_no_share() -> None:
    """inference-sim/inference-sim#1409: requests without a goal counted as met.

    Wrong: 75 %.
    Right: 25 of 50 of the class with a goal; the other class has no goal, and nothing is promoted on that.
    REL-1 REL-2
    """
    # Given 50 interactive requests of which 25 meet their goal, and 50 of a class without one
    records = [record(n, 0, (1 + n % 2) * SECOND) for n in range(50)]
    records += [record(n, 0, SECOND, class_name="bulk") for n in range(50, 100)]
    mixed = run(records)
    # Then the share is that of the class with a goal
    counts = tally(judge_run(mixed, wants(completion=SECOND)))
    assert (counts.good, counts.counted, counts.no_objective) == (25, 50, 50)
    # And the other is named
    found = grade(mixed, mixed, evolve(wants(completion=3 * SECOND), non_inferiority=Margins(good=0.5)))
    attainment = next(gate for gate in found.gates if gate.name == "attainment")
    assert (attainment.verdict, "bulk" in attainment.why) == (GradeVerdict.NO_DATA, True)


def test_b99_membership_is_by_start_and_the_cut_off_hides_nothing() -> None:
    """vllm-project/guidellm#1073, ai-dynamo/aiperf#240: overlap with the window, and what had not ended was dropped.

    Wrong: the crowd of the warm-up counts, slow requests at the end vanish.
    Right: by start: U and X out, V in; Y, 29 s old, is undecided; one that is older than its goal is a miss.
    REL-2
    """
    # Given a run of 100 s with 70 s of warm-up, and a goal of 30 s
    objectives = evolve(wants(completion=30 * SECOND), run=RunLimits(warm_up=70 * SECOND))
    spans = {"U": (20, 75), "V": (72, 90), "X": (60, None), "Y": (71, None), "Z": (70, None)}
    # When recording ends at 100 s, or half a second later
    fates = {}
    for name, (start, end) in spans.items():
        each = record(0, start * SECOND, None if end is None else end * SECOND)
        fates[name] = [judge(each, objectives, cut).fate for cut in (100 * SECOND, 100_500 * MS)]
    # Then each is in by its start, and undecided only while it may still be good
    assert fates == {
        "U": [Fate.LEFT_OUT] * 2,
        "V": [Fate.GOOD] * 2,
        "X": [Fate.LEFT_OUT] * 2,
        "Y": [Fate.UNDECIDED] * 2,
        "Z": [Fate.UNDECIDED, Fate.MISS],
    }
