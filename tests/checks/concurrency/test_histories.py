"""Histories with commit numbers: real ones pass, and each planted corruption is named."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from attrs import evolve

from kvescrow.checks.concurrency import Answer, Call, Change, Fault, Terms, check_history
from kvescrow.reference.ledger import Ledger, SqliteLedger
from kvescrow.spec.vocabulary import Cancel, Decision, Finish, Key, Reason, ReservationState, Reserve, UserError
from tests.checks.concurrency.conftest import RING, Record, Recorded, changes, config_of

FAR = 10**12
Plant = Callable[[Recorded], Recorded]


def verdict_of(run: Recorded) -> tuple[str, Fault | None]:
    verdict = check_history(run.calls, run.terms, journal=run.journal, final=run.final)
    return verdict.verdict, verdict.cause


def with_call(run: Recorded, index: int, call: Call) -> Recorded:
    return evolve(run, calls=(*run.calls[:index], call, *run.calls[index + 1 :]))


def with_answer(run: Recorded, index: int, **values: object) -> Recorded:
    call = run.calls[index]
    assert call.answer is not None
    return with_call(run, index, evolve(call, answer=evolve(call.answer, **values)))


@pytest.mark.parametrize("seed", range(3))
def test_the_history_of_many_threads_passes(record: Record, store: Ledger, seed: int) -> None:
    run = record(threads=6, lives=8, seed=seed, ledger=store)
    verdict = check_history(run.calls, run.terms, journal=run.journal, final=run.final)
    assert verdict.findings == ()
    assert (verdict.verdict, verdict.calls, verdict.changes) == ("passed", len(run.calls), len(run.journal))
    assert check_history(run.calls, run.terms, final=run.final).verdict == "passed"


def test_calls_overlap(record: Record, tmp_path: Path, terms: Terms) -> None:
    """Without overlap the other tests would say nothing. Calls wait for the disk here, so others begin meanwhile."""
    ledger = SqliteLedger(tmp_path / "ledger", config_of(terms), keyring=RING)
    calls = sorted(record(ledger=ledger).calls, key=lambda call: call.began)
    assert any(one.ended is not None and one.ended > two.began for one, two in pairwise(calls))
    ledger.close()


def a_wrong_reason(run: Recorded) -> Recorded:
    return with_answer(run, changes(run.calls, Decision.REFUSED)[3], reason=Reason.MALFORMED)


def a_wrong_generation(run: Recorded) -> Recorded:
    index = changes(run.calls, Decision.STARTED)[2]
    answer = run.calls[index].answer
    assert answer is not None
    return with_answer(run, index, generation=answer.generation + 1)


def a_lost_change(run: Recorded) -> Recorded:
    """The journal ends before the last acknowledged change, as after a crash without a sync."""
    return evolve(run, journal=run.journal[:-1])


def a_hole_in_the_journal(run: Recorded) -> Recorded:
    return evolve(run, journal=(*run.journal[:9], *run.journal[10:]))


def a_doubled_change(run: Recorded) -> Recorded:
    """The last admission stands in the journal once more."""
    last = run.journal[-1]
    again = [change for change in run.journal if change.answer.decision is Decision.ADMITTED][-1]
    answer = evolve(again.answer, seq=last.seq + 1)
    return evolve(run, journal=(*run.journal, evolve(again, seq=last.seq + 1, answer=answer, now=last.now)))


def a_change_that_nobody_asked_for(run: Recorded) -> Recorded:
    last = run.journal[-1]
    answer = Answer(Decision.ADMITTED, Reason.NONE, ReservationState.RESERVED, 999, 0, last.seq + 1, (60, 100))
    change = Change(last.seq + 1, Reserve(Key("red", "stranger"), 1, "d", FAR), answer, last.now)
    return evolve(run, journal=(*run.journal, change))


def two_with_one_number(run: Recorded) -> Recorded:
    one, two = changes(run.calls, Decision.ADMITTED)[:2]
    answer = run.calls[one].answer
    assert answer is not None
    return with_answer(run, two, seq=answer.seq)


def a_number_before_its_time(run: Recorded) -> Recorded:
    """The last refusal claims to have been decided before everything."""
    return with_answer(run, changes(run.calls, Decision.REFUSED)[-1], seq=0)


def a_failure_that_was_applied(run: Recorded) -> Recorded:
    index = changes(run.calls, Decision.ADMITTED)[-1]
    return with_call(run, index, evolve(run.calls[index], ended=None, answer=None, failed=True))


def a_forged_receipt(run: Recorded) -> Recorded:
    """The history is right, but the signer never gave this receipt."""
    index = next(i for i in changes(run.calls, Decision.RELEASED) if isinstance(run.calls[i].event, Finish))
    return with_call(run, index, evolve(run.calls[index], authentic=False))


def a_counter_too_high(run: Recorded) -> Recorded:
    return evolve(run, final=evolve(run.final, pool_active=run.final.pool_active + 1))


def a_counter_too_low(run: Recorded) -> Recorded:
    account = run.final.tenants["red"]
    tenants = {**run.final.tenants, "red": evolve(account, spent=account.spent - 1)}
    return evolve(run, final=evolve(run.final, tenants=tenants))


def a_record_that_is_gone(run: Recorded) -> Recorded:
    """One that does not wait: the queue would tell of one that does."""
    reservations = dict(run.final.reservations)
    del reservations[next(key for key in reservations if key not in run.final.queue)]
    return evolve(run, final=evolve(run.final, reservations=reservations))


def a_record_that_differs(run: Recorded) -> Recorded:
    (key, record), *_ = run.final.reservations.items()
    reservations = {**run.final.reservations, key: evolve(record, lease=record.lease + 1)}
    return evolve(run, final=evolve(run.final, reservations=reservations))


def more_free_than_there_was(run: Recorded) -> Recorded:
    index = changes(run.calls, Decision.RECORDED)[3]
    answer = run.calls[index].answer
    assert answer is not None and answer.free is not None
    return with_answer(run, index, free=(answer.free[0], answer.free[1] + 3))


CORRUPTIONS: dict[Plant, Fault] = {
    a_wrong_reason: Fault.WRONG_ANSWER,
    a_wrong_generation: Fault.WRONG_ANSWER,
    a_lost_change: Fault.LOST,
    a_hole_in_the_journal: Fault.MISSING_NUMBER,
    a_doubled_change: Fault.DOUBLED,
    a_change_that_nobody_asked_for: Fault.UNASKED,
    two_with_one_number: Fault.REPEATED_NUMBER,
    a_number_before_its_time: Fault.AGAINST_TIME,
    a_failure_that_was_applied: Fault.NOT_APPLIED_BUT_THERE,
    a_forged_receipt: Fault.FORGED_ACCEPTED,
    a_counter_too_high: Fault.CHARGED_WITHOUT_WORK,
    a_counter_too_low: Fault.WORK_WITHOUT_CHARGE,
    a_record_that_is_gone: Fault.LOST,
    a_record_that_differs: Fault.WRONG_STATE,
    more_free_than_there_was: Fault.WORK_WITHOUT_CHARGE,
}


@pytest.mark.parametrize("plant", CORRUPTIONS, ids=lambda plant: str(plant.__name__))
def test_a_planted_corruption_is_named(record: Record, plant: Plant) -> None:
    run = record()
    assert verdict_of(run) == ("passed", None)
    corrupt = plant(run)
    verdict = check_history(corrupt.calls, corrupt.terms, journal=corrupt.journal, final=corrupt.final)
    assert verdict.verdict == "failed"
    assert CORRUPTIONS[plant] in verdict.counts, verdict.findings
    if plant is not two_with_one_number:  # the number may also be one that real time forbids
        assert verdict.cause is CORRUPTIONS[plant], verdict.findings


def test_the_wrong_call_is_named_and_what_the_tables_give(record: Record) -> None:
    corrupt = a_wrong_reason(record())
    index = changes(corrupt.calls, Decision.REFUSED)[3]
    finding, *_ = check_history(corrupt.calls, corrupt.terms, journal=corrupt.journal).findings
    assert finding.where == str(corrupt.calls[index])
    assert "REFUSED MALFORMED" in finding.what and "reservation." in finding.what


class TestUnanswered:
    """Calls whose answer never came."""

    def test_one_that_made_a_change_explains_it(self, record: Record) -> None:
        run = record()
        index = changes(run.calls, Decision.ADMITTED)[-1]
        unanswered = with_call(run, index, evolve(run.calls[index], ended=None, answer=None))
        assert verdict_of(unanswered) == ("passed", None)

    def test_without_a_journal_nobody_knows(self, record: Record) -> None:
        run = record()
        index = changes(run.calls, Decision.ADMITTED)[1]
        unanswered = with_call(run, index, evolve(run.calls[index], ended=None, answer=None))
        assert check_history(unanswered.calls, run.terms).verdict == "unknown"

    def test_one_that_began_later_does_not_explain_it(self, record: Record) -> None:
        run = record()
        index = changes(run.calls, Decision.ADMITTED)[0]
        late = max(call.ended or 0 for call in run.calls) + 1
        unanswered = with_call(run, index, evolve(run.calls[index], began=late, ended=None, answer=None))
        assert verdict_of(unanswered) == ("failed", Fault.DOUBLED)

    def test_a_retry_that_was_charged_again_is_doubled(self, terms: Terms) -> None:
        """The first reply was lost, the retry was admitted again, and the ledger's journal has both."""
        event = Reserve(Key("red", "r"), 10, "d", FAR)

        def admitted(seq: int, life: int, free: tuple[int, int]) -> Answer:
            return Answer(Decision.ADMITTED, Reason.NONE, ReservationState.RESERVED, life, 0, seq, free)

        first, second = admitted(1, 1, (60, 100)), admitted(2, 1, (50, 90))
        calls = [Call("a", event, 1), Call("a", event, 5, 6, second)]
        verdict = check_history(calls, terms, journal=[Change(1, event, first, 0), Change(2, event, second, 0)])
        assert (verdict.verdict, verdict.cause) == ("failed", Fault.DOUBLED)


def test_a_refusal_may_have_seen_any_clock_between_two_changes(terms: Terms) -> None:
    late = Reserve(Key("red", "late"), 10, "d", 50)
    call = Call("a", late, 1, 2, Answer(Decision.REFUSED, Reason.TOO_LATE, ReservationState.ABSENT, seq=0))

    def after(now: int, slack: int = 0) -> str:
        reserve = Reserve(Key("red", "r"), 10, "d", FAR)
        admitted = Answer(Decision.ADMITTED, Reason.NONE, ReservationState.RESERVED, 1, seq=1)
        other = Call("b", reserve, 1, 4, admitted)
        return check_history([call, other], terms, journal=[Change(1, reserve, admitted, now)], slack=slack).verdict

    assert after(51) == "passed"
    assert after(50) == "failed"
    assert after(50, slack=1) == "passed"


def test_empty_histories_are_refused(terms: Terms) -> None:
    with pytest.raises(UserError, match="nothing was checked"):
        check_history([Call("a", Cancel(Key("red", "r"), 1), 1)], terms)
    unnumbered = Call("a", Cancel(Key("red", "r"), 1), 1, 2, Answer(Decision.REFUSED, Reason.UNKNOWN_KEY))
    with pytest.raises(UserError, match="no commit number"):
        check_history([unnumbered], terms)
