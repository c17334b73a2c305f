"""One candidate on its way to shipped, or back: every event in every state, with the state that it leaves."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvescrow.spec.vocabulary import Decision, GradeVerdict, Reason, ReleaseSnapshot, ReleaseState
from kvescrow.spec.world.release import ReleaseWorld
from tests.field_reports.replies import (
    ACCEPTED,
    ADMITTED,
    NOTED,
    NOTHING_DUE,
    RECORDED,
    RELEASED,
    STARTED,
    SUSPECTED,
    refused,
)
from tests.field_reports.replies import Answer as A
from tests.spec.world.conftest import ReleaseOf, answer

SHIP, HOLD, ROLLBACK, SWITCHED = (A(Decision[name]) for name in ("SHIP", "HOLD", "ROLLBACK", "SWITCHED"))
PASS, FAIL = GradeVerdict.PASS, GradeVerdict.FAIL
UNDECIDED = (GradeVerdict.INCONCLUSIVE, GradeVerdict.NO_DATA, GradeVerdict.INVALID_RUN)
S = ReleaseState
SERVING = (S.CANARY, S.HOLDING, S.PASSED, S.SHIPPED)
BACK = (S.FAILED, S.FENCED, S.DRAINED, S.VERIFIED, S.ROLLED_BACK)
EPOCH, LIMIT = 7, 10


def in_state(release_of: ReleaseOf, state: ReleaseState, *, looks: int = 3, work: int = 0) -> ReleaseWorld:
    """A release in `state`, with so much work in flight where it can be, at time 2 since its start at 1."""
    release = release_of(looks, LIMIT, EPOCH)
    release.tick(1)
    if state is S.PLANNED:
        return release
    release.measure(5)
    if state is S.BASELINE:
        return release
    release.start()
    release.tick(2)
    for _ in range(work):
        release.grant(EPOCH)
    if state in (S.HOLDING, S.PASSED, S.SHIPPED):
        release.look(PASS if state is not S.HOLDING else UNDECIDED[0])
        if state is S.SHIPPED:
            release.ship(True)
    if state in BACK:
        release.breach()
        steps = (lambda: release.raise_epoch(EPOCH + 1), release.drain, lambda: release.verify(0), release.switch)
        for step in steps[: BACK.index(state)]:
            step()
    assert release.snapshot().state is state
    return release


def unchanged(release: ReleaseWorld, before: ReleaseSnapshot) -> bool:
    return release.snapshot() == before


def test_a_candidate_ships_on_a_passed_look(release_of: ReleaseOf) -> None:
    """REL-3: baseline, canary, a look that does not decide, one that passes, and an authorised act."""
    release = release_of(3, LIMIT, EPOCH)
    assert release.snapshot() == ReleaseSnapshot(S.PLANNED, 0, 0, 0, False, False, EPOCH, 0, 0, 0)
    assert answer(release.tick(4)) == NOTED
    assert answer(release.measure(1)) == NOTED
    assert answer(release.start()) == STARTED
    assert release.snapshot() == ReleaseSnapshot(S.CANARY, 0, 4 + LIMIT, 4, True, True, EPOCH, EPOCH, 0, 0)
    assert answer(release.grant(EPOCH)) == ADMITTED
    assert answer(release.look(GradeVerdict.INCONCLUSIVE)) == HOLD
    assert answer(release.grant(EPOCH)) == ADMITTED
    assert answer(release.settle(False)) == RELEASED
    assert answer(release.look(PASS)) == SHIP
    assert release.snapshot() == ReleaseSnapshot(S.PASSED, 2, 4 + LIMIT, 4, True, True, EPOCH, EPOCH, 1, 0)
    assert answer(release.ship(True)) == SHIP
    assert release.snapshot() == ReleaseSnapshot(S.SHIPPED, 2, 4 + LIMIT, 4, True, True, EPOCH, EPOCH, 1, 0)


def test_the_way_back_has_its_order(release_of: ReleaseOf) -> None:
    """REL-4: grants stop with the decision; epoch, drain or orphan, verify, switch; one orphan stays charged."""
    release = in_state(release_of, S.CANARY, work=3)
    assert answer(release.look(FAIL)) == ROLLBACK
    failed = ReleaseSnapshot(S.FAILED, 0, 1 + LIMIT, 2, False, True, EPOCH, EPOCH, 3, 0)
    assert release.snapshot() == failed
    assert answer(release.grant(EPOCH)) == refused(Reason.STOPPING)
    assert answer(release.settle(False)) == RELEASED
    for early in (release.orphan, release.drain, lambda: release.verify(0), release.switch):
        assert answer(early()) == refused(Reason.OUT_OF_ORDER)
    for stale in (EPOCH - 1, EPOCH):
        assert answer(release.raise_epoch(stale)) == refused(Reason.STALE_GENERATION)
    assert unchanged(release, evolve(failed, in_flight=2))
    assert answer(release.raise_epoch(EPOCH + 2)) == ACCEPTED
    assert release.snapshot() == evolve(failed, state=S.FENCED, epoch=EPOCH + 2, in_flight=2)
    assert answer(release.drain()) == refused(Reason.IN_FLIGHT)
    assert answer(release.settle(True)) == refused(Reason.NOT_OUTSTANDING)
    assert answer(release.settle(False)) == RELEASED
    assert answer(release.orphan()) == SUSPECTED
    assert release.snapshot() == evolve(failed, state=S.FENCED, epoch=EPOCH + 2, in_flight=0, orphaned=1)
    assert answer(release.orphan()) == RECORDED
    assert answer(release.settle(False)) == refused(Reason.NOT_OUTSTANDING)
    for early in (lambda: release.verify(1), release.switch):
        assert answer(early()) == refused(Reason.OUT_OF_ORDER)
    assert answer(release.drain()) == ACCEPTED
    assert answer(release.switch()) == refused(Reason.OUT_OF_ORDER)
    for wrong in (0, 2):
        assert answer(release.verify(wrong)) == refused(Reason.NOT_CONSERVED)
    assert answer(release.verify(1)) == ACCEPTED
    assert release.snapshot().state is S.VERIFIED
    assert answer(release.switch()) == SWITCHED
    back = ReleaseSnapshot(S.ROLLED_BACK, 0, 1 + LIMIT, 2, False, False, EPOCH + 2, EPOCH, 0, 1)
    assert release.snapshot() == back
    assert answer(release.settle(True)) == RELEASED
    assert release.snapshot() == evolve(back, orphaned=0)
    assert answer(release.settle(True)) == refused(Reason.NOT_OUTSTANDING)
    assert answer(release.settle(False)) == refused(Reason.NOT_OUTSTANDING)


def test_two_are_marked_orphaned_at_once_and_released_one_by_one(release_of: ReleaseOf) -> None:
    """LEA-3 LIF-4: in every state behind the fence."""
    release = in_state(release_of, S.FENCED, work=0)
    assert answer(release.orphan()) == RECORDED
    release = in_state(release_of, S.CANARY, work=4)
    release.breach()
    release.raise_epoch(EPOCH + 1)
    assert answer(release.orphan()) == SUSPECTED
    assert (release.snapshot().in_flight, release.snapshot().orphaned) == (0, 4)
    for step, left in ((release.drain, 3), (lambda: release.verify(2), 2), (release.switch, 1)):
        assert answer(release.settle(True)) == RELEASED
        assert release.snapshot().orphaned == left
        step()
    assert answer(release.settle(True)) == RELEASED
    assert release.snapshot() == ReleaseSnapshot(S.ROLLED_BACK, 0, 1 + LIMIT, 2, False, False, EPOCH + 1, EPOCH, 0, 0)


@pytest.mark.parametrize("verdict", UNDECIDED)
@pytest.mark.parametrize("state", [S.CANARY, S.HOLDING, S.PASSED])
def test_what_does_not_decide_holds_and_promotes_nothing(
    release_of: ReleaseOf, state: ReleaseState, verdict: GradeVerdict
) -> None:
    """REL-2: no data is neither zero nor good, and takes back what an earlier look allowed."""
    release = in_state(release_of, state)
    before = release.snapshot()
    assert answer(release.look(verdict)) == HOLD
    assert release.snapshot() == evolve(before, state=S.HOLDING, looks=before.looks + 1)
    assert answer(release.ship(True)) == refused(Reason.NOT_PASSED)


@pytest.mark.parametrize("state", [S.CANARY, S.HOLDING, S.PASSED])
def test_a_look_that_passes_allows_and_one_that_fails_ends(release_of: ReleaseOf, state: ReleaseState) -> None:
    """REL-3 REL-4: from each state in which looks are taken."""
    release = in_state(release_of, state, work=1)
    before = release.snapshot()
    assert answer(release.look(PASS)) == SHIP
    assert release.snapshot() == evolve(before, state=S.PASSED, looks=before.looks + 1)
    release = in_state(release_of, state, work=1)
    assert answer(release.look(FAIL)) == ROLLBACK
    assert release.snapshot() == evolve(before, state=S.FAILED, grants=False)


@pytest.mark.parametrize("state", [S.HOLDING, S.PASSED])
def test_looks_beyond_the_plan_are_refused_unless_they_fail(release_of: ReleaseOf, state: ReleaseState) -> None:
    """REL-3: peeking voids the error rate; a failure is taken in at any time."""
    release = in_state(release_of, state, looks=1)
    before = release.snapshot()
    for verdict in (PASS, *UNDECIDED):
        assert answer(release.look(verdict)) == refused(Reason.LOOKS_SPENT)
    assert unchanged(release, before)
    assert answer(release.look(FAIL)) == ROLLBACK
    assert release.snapshot().state is S.FAILED


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (S.PLANNED, Reason.NOT_CANARY),
        (S.BASELINE, Reason.NOT_CANARY),
        (S.SHIPPED, Reason.CLOSED),
        *((state, Reason.FAILED) for state in BACK),
    ],
)
def test_looks_are_taken_while_both_serve(release_of: ReleaseOf, state: ReleaseState, reason: Reason) -> None:
    """REL-2: whatever the verdict, and a failed candidate least of all."""
    release = in_state(release_of, state)
    before = release.snapshot()
    for verdict in GradeVerdict:
        assert answer(release.look(verdict)) == refused(reason)
    assert unchanged(release, before)


@pytest.mark.parametrize("state", S)
def test_an_invariant_violated_is_a_rollback_from_wherever_it_serves(
    release_of: ReleaseOf, state: ReleaseState
) -> None:
    """REL-4: after shipping too; the way is the same when an operator gives up, which is an authorised act."""
    for authorised in (None, True):
        release = in_state(release_of, state)
        before = release.snapshot()
        reply = answer(release.breach() if authorised is None else release.abandon(authorised))
        if state in SERVING:
            assert reply == ROLLBACK
            assert release.snapshot() == evolve(before, state=S.FAILED, grants=False)
        else:
            assert reply == (RECORDED if state in BACK else refused(Reason.NOT_CANARY))
            assert unchanged(release, before)
    release = in_state(release_of, state)
    before = release.snapshot()
    assert answer(release.abandon(False)) == refused(Reason.FORBIDDEN)
    assert unchanged(release, before)


@pytest.mark.parametrize("state", S)
def test_a_hold_has_a_time_limit(release_of: ReleaseOf, state: ReleaseState) -> None:
    """REL-2: what has not passed by then has failed; both sides of the limit."""
    release = in_state(release_of, state)
    release.tick(LIMIT)
    before = release.snapshot()
    assert answer(release.sweep()) == NOTHING_DUE
    assert unchanged(release, before)
    release.tick(1 + LIMIT)
    before = release.snapshot()
    waits = state in (S.CANARY, S.HOLDING)
    assert answer(release.sweep()) == (ROLLBACK if waits else NOTHING_DUE)
    assert release.snapshot() == (evolve(before, state=S.FAILED, grants=False) if waits else before)


@pytest.mark.parametrize("state", S)
def test_time_never_goes_back(release_of: ReleaseOf, state: ReleaseState) -> None:
    """LEA-6: in no state."""
    release = in_state(release_of, state)
    before = release.snapshot()
    for now in (before.clock, before.clock - 1):
        assert answer(release.tick(now)) == RECORDED
    assert unchanged(release, before)
    assert answer(release.tick(before.clock + 3)) == NOTED
    assert release.snapshot() == evolve(before, clock=before.clock + 3)


@pytest.mark.parametrize("state", S)
def test_a_baseline_is_measured_once_and_not_with_nothing(release_of: ReleaseOf, state: ReleaseState) -> None:
    """REL-2: an empty run is no baseline."""
    release = in_state(release_of, state)
    before = release.snapshot()
    for empty in (0, -1):
        expected = refused(Reason.NO_BASELINE) if state is S.PLANNED else RECORDED
        assert answer(release.measure(empty)) == expected
    assert unchanged(release, before)
    assert answer(release.measure(1)) == (NOTED if state is S.PLANNED else RECORDED)
    assert release.snapshot() == evolve(before, state=S.BASELINE if state is S.PLANNED else state)


@pytest.mark.parametrize("state", S)
def test_a_candidate_starts_once_after_its_baseline(release_of: ReleaseOf, state: ReleaseState) -> None:
    """REL-2 REL-3: a failed one never again."""
    release = in_state(release_of, state)
    before = release.snapshot()
    expected = {S.PLANNED: refused(Reason.NO_BASELINE), S.BASELINE: STARTED, **dict.fromkeys(SERVING, RECORDED)}
    assert answer(release.start()) == expected.get(state, refused(Reason.FAILED))
    started = {"state": S.CANARY, "grants": True, "routed": True, "under": EPOCH, "until": 1 + LIMIT}
    assert release.snapshot() == (evolve(before, **started) if state is S.BASELINE else before)


@pytest.mark.parametrize("state", S)
def test_work_is_granted_under_the_epoch_in_force_while_it_serves(release_of: ReleaseOf, state: ReleaseState) -> None:
    """REL-4 LEA-2: and settled once."""
    release = in_state(release_of, state)
    before = release.snapshot()
    if state in SERVING:
        for epoch in (EPOCH - 1, EPOCH + 1):
            assert answer(release.grant(epoch)) == refused(Reason.STALE_GENERATION)
        assert unchanged(release, before)
        assert answer(release.grant(EPOCH)) == ADMITTED
        assert release.snapshot() == evolve(before, in_flight=1)
        assert answer(release.settle(True)) == refused(Reason.NOT_OUTSTANDING)
        assert answer(release.settle(False)) == RELEASED
    else:
        reason = Reason.STOPPING if state in BACK else Reason.NOT_CANARY
        for epoch in (EPOCH - 1, EPOCH, EPOCH + 1):
            assert answer(release.grant(epoch)) == refused(reason)
    for orphan in (False, True):
        assert answer(release.settle(orphan)) == refused(Reason.NOT_OUTSTANDING)
    assert unchanged(release, before)


@pytest.mark.parametrize("state", S)
def test_shipping_needs_a_passed_look_and_authority(release_of: ReleaseOf, state: ReleaseState) -> None:
    """REL-2 ADM-3: no data never promotes, failed is absorbing."""
    release = in_state(release_of, state)
    before = release.snapshot()
    expected = {S.PASSED: refused(Reason.FORBIDDEN), S.SHIPPED: RECORDED}
    expected |= dict.fromkeys(BACK, refused(Reason.FAILED))
    assert answer(release.ship(False)) == expected.get(state, refused(Reason.NOT_PASSED))
    assert unchanged(release, before)
    expected[S.PASSED] = SHIP
    assert answer(release.ship(True)) == expected.get(state, refused(Reason.NOT_PASSED))
    assert release.snapshot() == evolve(before, state=S.SHIPPED if state is S.PASSED else state)


@pytest.mark.parametrize("state", S)
def test_each_step_back_is_taken_once_and_in_its_turn(release_of: ReleaseOf, state: ReleaseState) -> None:
    """REL-4: what comes too early is refused, what was done is recorded."""
    steps = (
        (S.FAILED, lambda release: release.raise_epoch(EPOCH + 1), ACCEPTED),
        (S.FENCED, lambda release: release.drain(), ACCEPTED),
        (S.DRAINED, lambda release: release.verify(0), ACCEPTED),
        (S.VERIFIED, lambda release: release.switch(), SWITCHED),
    )
    for turn, step, reply in steps:
        release = in_state(release_of, state)
        before = release.snapshot()
        done = state in BACK and BACK.index(state) > BACK.index(turn)
        expected = reply if state is turn else RECORDED if done else refused(Reason.OUT_OF_ORDER)
        assert answer(step(release)) == expected
        assert (release.snapshot().state is state) == (state is not turn)
        assert state is turn or unchanged(release, before)
    release = in_state(release_of, state)
    before = release.snapshot()
    assert answer(release.orphan()) == (RECORDED if state in BACK[1:] else refused(Reason.OUT_OF_ORDER))
    assert unchanged(release, before)
