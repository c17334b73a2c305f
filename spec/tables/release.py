"""The release of one candidate: baseline, canary, looks, hold with a time limit, ship, roll back (REL-2 to REL-4).

Only a passed look promotes: no data, an invalid run and an inconclusive one hold, and a hold has a time limit, after
which the candidate has failed. Failed is absorbing. What remains is the roll back, and it has an order: the decision
itself stops new grants; then the epoch is raised, so that nobody can grant under the candidate's; then its work drains,
or is marked orphaned and stays charged; then the ledger's charge is verified; and only then traffic is switched.

Looks are planned before the run. A look beyond the plan is refused, since the stated error rate holds for those that
were planned; a failure is taken in at any time.
"""

from kvescrow.spec.language.expressions import Entity, Kind, all_of, as_count, before, if_else, implies, maximum
from kvescrow.spec.language.table import (
    Assumption,
    Event,
    Invariant,
    Reply,
    Sometimes,
    StepRule,
    Table,
    merged_event_entity,
)
from kvescrow.spec.tables.authoring import RECORDED, refused, rows_of
from kvescrow.spec.vocabulary import Decision, GradeVerdict, Reason, ReleaseState

INT, BOOL = Kind.INTEGER, Kind.BOOLEAN
R = ReleaseState

UNDECIDED = (R.CANARY, R.HOLDING)
SERVING = (R.CANARY, R.HOLDING, R.PASSED, R.SHIPPED)
"""The candidate may grant."""
BEFORE = (R.PLANNED, R.BASELINE)
GOING_BACK = (R.FAILED, R.FENCED, R.DRAINED, R.VERIFIED, R.ROLLED_BACK)
"""Failed is absorbing: from any of these only the later ones are reached."""

release = Entity(
    "release",
    {"state": ReleaseState, "looks": INT, "until": INT, "clock": INT},
    note="the release: looks taken, when its time limit ends, and the clock of its authority",
)
plan = Entity(
    "plan",
    {"looks": INT, "limit": INT},
    settled=True,
    note="what was fixed before the run: the looks, and microseconds from the canary's start to a decision",
)
candidate = Entity(
    "candidate",
    {"grants": BOOL, "routed": BOOL, "epoch": INT, "under": INT, "in_flight": INT, "orphaned": INT},
    note="the candidate: whether it may grant, whether traffic is routed to it, the epoch that is in force and the one "
    "that it was started under, its work in flight, and its work that is marked orphaned, both charged",
)

EVENTS = (
    Event("tick", {"now": INT}, "the clock is read"),
    Event("measure", {"requests": INT}, "a run of the baseline was recorded, with so many requests"),
    Event("start", {}, "let the candidate serve its share"),
    Event("grant", {"epoch": INT}, "a gateway of the candidate asks to admit one request under an epoch"),
    Event("settle", {"orphan": BOOL}, "the stop of one request of the candidate is confirmed"),
    Event("look", {"verdict": GradeVerdict}, "a planned look at the evidence so far"),
    Event("breach", {}, "an invariant was violated"),
    Event("sweep", {}, "has the time limit passed?"),
    Event("ship", {"authorised": BOOL}, "let the candidate serve everything"),
    Event("abandon", {"authorised": BOOL}, "an operator gives the candidate up"),
    Event("raise_epoch", {"epoch": INT}, "fence the candidate's epoch off at the ledger"),
    Event("orphan", {}, "the wait for its work is over: mark what is in flight as orphaned"),
    Event("drain", {}, "is anything of it in flight?"),
    Event("verify", {"charged": INT}, "compare what the ledger charges for the candidate with what is known of it"),
    Event("switch", {}, "route everything to the baseline"),
)
event = merged_event_entity(EVENTS)
row = rows_of("release")

FAIL = (candidate.grants.becomes(False),)
LOOKED = (release.looks.adds(1),)
spent = release.looks >= plan.looks
passed = event.verdict == GradeVerdict.PASS
failed = event.verdict == GradeVerdict.FAIL
ROLLBACK, HOLD, SHIP = Reply(Decision.ROLLBACK), Reply(Decision.HOLD), Reply(Decision.SHIP)
NOTED = Reply(Decision.NOTED)
HAS_FAILED = refused(Reason.FAILED)
EARLY = (*BEFORE, *SERVING)
FENCED_OFF = (R.FENCED, R.DRAINED, R.VERIFIED, R.ROLLED_BACK)

ROWS = (
    row("tick.forward", tuple(R), NOTED, "LEA-6", "time moves", when=event.now > release.clock,
        do=[release.clock.becomes(event.now)]),
    row("tick.floor", tuple(R), RECORDED, "LEA-6", "a clock that steps back moves nothing"),

    row("measure.empty", [R.PLANNED], refused(Reason.NO_BASELINE), "REL-2", "a run without a request measures nothing",
        when=event.requests <= 0),
    row("measure.noted", [R.PLANNED], NOTED, "REL-3", "there is something to compare with", to=R.BASELINE),
    row("measure.recorded", [s for s in R if s is not R.PLANNED], RECORDED, "REL-3", "measured before"),

    row("start.no_baseline", [R.PLANNED], refused(Reason.NO_BASELINE), "REL-3", "the baseline comes first"),
    row("start.started", [R.BASELINE], Reply(Decision.STARTED), "REL-3",
        "from here its time limit runs, looked at or not", to=R.CANARY,
        do=[candidate.grants.becomes(True), candidate.routed.becomes(True), candidate.under.becomes(candidate.epoch),
            release.until.becomes(release.clock + plan.limit)]),
    row("start.recorded", SERVING, RECORDED, "REL-3", "started before"),
    row("start.failed", GOING_BACK, HAS_FAILED, "REL-2", "a changed candidate is another release"),

    row("grant.not_started", BEFORE, refused(Reason.NOT_CANARY), "REL-3", "it serves nothing yet"),
    row("grant.failed", GOING_BACK, refused(Reason.STOPPING), "REL-4", "nothing new once it has failed"),
    row("grant.stale_epoch", SERVING, refused(Reason.STALE_GENERATION), "REL-4 LEA-2", "another epoch is in force",
        when=event.epoch != candidate.epoch),
    row("grant.admitted", SERVING, Reply(Decision.ADMITTED), "REL-1", "one more request of the candidate's",
        do=[candidate.in_flight.adds(1)]),

    row("settle.no_orphans_yet", [*EARLY, R.FAILED], refused(Reason.NOT_OUTSTANDING), "LIF-5",
        "none of it is marked orphaned before the fence", when=event.orphan),
    row("settle.no_orphan", FENCED_OFF, refused(Reason.NOT_OUTSTANDING), "LIF-5", "none of it is marked orphaned",
        when=event.orphan & (candidate.orphaned <= 0)),
    row("settle.orphan", FENCED_OFF, Reply(Decision.RELEASED), "LEA-4 LIF-4",
        "its stop was proved after all, whatever the release has come to", when=event.orphan,
        do=[candidate.orphaned.loses(1)]),
    row("settle.idle", [*BEFORE, R.DRAINED, R.VERIFIED, R.ROLLED_BACK], refused(Reason.NOT_OUTSTANDING), "LIF-5",
        "nothing of it was granted yet, or nothing is in flight any more"),
    row("settle.not_in_flight", [*SERVING, R.FAILED, R.FENCED], refused(Reason.NOT_OUTSTANDING), "LIF-5",
        "nothing of it is in flight", when=candidate.in_flight <= 0),
    row("settle.released", [*SERVING, R.FAILED, R.FENCED], Reply(Decision.RELEASED), "LIF-4",
        "one request less, once", do=[candidate.in_flight.loses(1)]),

    row("look.not_canary", BEFORE, refused(Reason.NOT_CANARY), "REL-2", "there is nothing to look at"),
    row("look.failed_before", GOING_BACK, HAS_FAILED, "REL-2", "no later look makes a failed candidate good"),
    row("look.shipped", [R.SHIPPED], refused(Reason.CLOSED), "REL-3", "the decision was taken"),
    row("look.fail", [*UNDECIDED, R.PASSED], ROLLBACK, "REL-3 REL-4", "a failure is taken in whatever was planned",
        when=failed, to=R.FAILED, do=FAIL),
    row("look.spent", [*UNDECIDED, R.PASSED], refused(Reason.LOOKS_SPENT), "REL-3",
        "the error rate is stated for the planned looks", when=spent),
    row("look.pass", UNDECIDED, SHIP, "REL-3", "every gate is passed", when=passed, to=R.PASSED, do=LOOKED),
    row("look.pass_again", [R.PASSED], SHIP, "REL-3", "every gate is still passed", when=passed, do=LOOKED),
    row("look.undecided", [*UNDECIDED, R.PASSED], HOLD, "REL-2 REL-3",
        "inconclusive, without data or invalid: it promotes nothing, and it takes back what the look before allowed",
        to=R.HOLDING, do=LOOKED),

    row("breach.not_canary", BEFORE, refused(Reason.NOT_CANARY), "REL-4", "it serves nothing, so it violates nothing"),
    row("breach.rollback", SERVING, ROLLBACK, "REL-4", "at the first event, whatever the speed; after shipping too",
        to=R.FAILED, do=FAIL),
    row("breach.recorded", GOING_BACK, RECORDED, "REL-2", "failed before"),

    row("sweep.expired", UNDECIDED, ROLLBACK, "REL-2 REL-3", "what has not passed by then has failed",
        when=release.clock >= release.until, to=R.FAILED, do=FAIL),
    row("sweep.nothing_due", tuple(R), Reply(Decision.NOTHING_DUE), "REL-3", "no limit has passed, or none runs"),

    row("ship.not_passed", [*BEFORE, *UNDECIDED], refused(Reason.NOT_PASSED), "REL-2", "no data never promotes"),
    row("ship.forbidden", [R.PASSED], refused(Reason.FORBIDDEN), "ADM-3", "shipping is an authorised act",
        when=~event.authorised),
    row("ship.shipped", [R.PASSED], SHIP, "REL-3", "on a passed look alone", to=R.SHIPPED),
    row("ship.recorded", [R.SHIPPED], RECORDED, "REL-3", "shipped before"),
    row("ship.failed", GOING_BACK, HAS_FAILED, "REL-2", "failed is absorbing"),

    row("abandon.forbidden", tuple(R), refused(Reason.FORBIDDEN), "ADM-3", "giving up is an authorised act",
        when=~event.authorised),
    row("abandon.not_canary", BEFORE, refused(Reason.NOT_CANARY), "REL-4", "there is nothing to roll back"),
    row("abandon.rollback", SERVING, ROLLBACK, "REL-4", "the same way back as for a failure", to=R.FAILED, do=FAIL),
    row("abandon.recorded", GOING_BACK, RECORDED, "REL-2", "failed before"),

    row("raise_epoch.early", EARLY, refused(Reason.OUT_OF_ORDER), "REL-4", "grants are stopped first"),
    row("raise_epoch.stale", [R.FAILED], refused(Reason.STALE_GENERATION), "REL-4 LEA-2",
        "the new epoch is above the one in force, or it fences nobody", when=event.epoch <= candidate.epoch),
    row("raise_epoch.fenced", [R.FAILED], Reply(Decision.ACCEPTED), "REL-4 LEA-4",
        "a gateway that missed the stop can grant nothing either", to=R.FENCED,
        do=[candidate.epoch.becomes(event.epoch)]),
    row("raise_epoch.recorded", FENCED_OFF, RECORDED, "REL-4", "raised before"),

    row("orphan.out_of_order", [*EARLY, R.FAILED], refused(Reason.OUT_OF_ORDER), "REL-4 LEA-3",
        "what may still be granted cannot be counted"),
    row("orphan.marked", [R.FENCED], Reply(Decision.SUSPECTED), "REL-4 LEA-3",
        "suspect, still charged: time proves no stop", when=candidate.in_flight > 0,
        do=[candidate.orphaned.adds(candidate.in_flight), candidate.in_flight.becomes(0)]),
    row("orphan.recorded", FENCED_OFF, RECORDED, "REL-4",
        "nothing is in flight"),

    row("drain.out_of_order", [*EARLY, R.FAILED], refused(Reason.OUT_OF_ORDER), "REL-4", "the epoch is raised first"),
    row("drain.in_flight", [R.FENCED], refused(Reason.IN_FLIGHT), "REL-4 REC-2",
        "wait for its confirmed stops, or mark it orphaned", when=candidate.in_flight > 0),
    row("drain.drained", [R.FENCED], Reply(Decision.ACCEPTED), "REL-4", "nothing of it is in flight", to=R.DRAINED),
    row("drain.recorded", [R.DRAINED, R.VERIFIED, R.ROLLED_BACK], RECORDED, "REL-4", "drained before"),

    row("verify.out_of_order", [*EARLY, R.FAILED, R.FENCED], refused(Reason.OUT_OF_ORDER), "REL-4",
        "a charge that still moves cannot be compared"),
    row("verify.not_conserved", [R.DRAINED], refused(Reason.NOT_CONSERVED), "REL-4 LIF-10",
        "units were lost or are charged twice: nobody switches over that",
        when=event.charged != candidate.orphaned),
    row("verify.verified", [R.DRAINED], Reply(Decision.ACCEPTED), "REL-4 LIF-10",
        "what is charged is what is marked orphaned", to=R.VERIFIED),
    row("verify.recorded", [R.VERIFIED, R.ROLLED_BACK], RECORDED, "REL-4", "verified before"),

    row("switch.out_of_order", [*EARLY, R.FAILED, R.FENCED, R.DRAINED], refused(Reason.OUT_OF_ORDER), "REL-4",
        "the ledger is verified first"),
    row("switch.switched", [R.VERIFIED], Reply(Decision.SWITCHED), "REL-4", "the last step of the way back",
        to=R.ROLLED_BACK, do=[candidate.routed.becomes(False)]),
    row("switch.recorded", [R.ROLLED_BACK], RECORDED, "REL-4", "switched before"),
)  # fmt: skip

was_serving = before(release.state).is_in(SERVING)
LATER = {
    R.FAILED: (R.FAILED, R.FENCED),
    R.FENCED: (R.FENCED, R.DRAINED),
    R.DRAINED: (R.DRAINED, R.VERIFIED),
    R.VERIFIED: (R.VERIFIED, R.ROLLED_BACK),
    R.ROLLED_BACK: (R.ROLLED_BACK,),
}
ON_ITS_EVENT = {
    R.BASELINE: "measure",
    R.CANARY: "start",
    R.SHIPPED: "ship",
    R.FENCED: "raise_epoch",
    R.DRAINED: "drain",
    R.VERIFIED: "verify",
    R.ROLLED_BACK: "switch",
}
"""States that one event alone leads into."""
FAILING = frozenset({"look", "breach", "sweep", "abandon"})
work = candidate.in_flight + candidate.orphaned
work_before = before(candidate.in_flight) + before(candidate.orphaned)


def all_events_but(*names: str) -> frozenset[str]:
    """Return the events without `names`."""
    return frozenset(each.name for each in EVENTS) - set(names)


RULES = (
    StepRule("failed_is_absorbing",
             all_of(*(implies(before(release.state) == state, release.state.is_in(later))
                      for state, later in LATER.items())), ("REL-2", "REL-4"),
             "a failed candidate stays failed, and its way back goes step by step"),
    StepRule("no_data_never_promotes",
             implies((event.verdict != GradeVerdict.PASS) & (release.state == R.PASSED),
                     (before(release.state) == R.PASSED) & (before(release.looks) >= plan.looks)), ("REL-2",),
             "nor does any verdict but PASS; what passed at the last planned look stands",
             events=frozenset({"look"})),
    StepRule("a_failed_look_fails",
             implies((event.verdict == GradeVerdict.FAIL) & was_serving & (before(release.state) != R.SHIPPED),
                     release.state == R.FAILED), ("REL-3", "REL-4"), "whatever was planned",
             events=frozenset({"look"})),
    StepRule("a_passed_look_passes",
             implies((event.verdict == GradeVerdict.PASS) & (before(release.looks) < plan.looks) & was_serving
                     & (before(release.state) != R.SHIPPED), release.state == R.PASSED), ("REL-3",),
             "nothing else is asked of it", events=frozenset({"look"})),
    StepRule("a_look_without_a_verdict_holds",
             implies(~event.verdict.is_in((GradeVerdict.PASS, GradeVerdict.FAIL))
                     & (before(release.looks) < plan.looks) & was_serving & (before(release.state) != R.SHIPPED),
                     release.state == R.HOLDING), ("REL-2",), "until the time limit", events=frozenset({"look"})),
    StepRule("only_a_look_passes", implies(release.state == R.PASSED, before(release.state) == R.PASSED), ("REL-2",),
             "no other event does", events=all_events_but("look")),
    StepRule("only_a_look_holds", implies(release.state == R.HOLDING, before(release.state) == R.HOLDING), ("REL-2",),
             "no other event does", events=all_events_but("look")),
    StepRule("only_failures_fail", implies(release.state == R.FAILED, before(release.state) == R.FAILED), ("REL-4",),
             "no other event does", events=all_events_but(*FAILING)),
    StepRule("only_a_passed_look_ships",
             implies(release.state == R.SHIPPED, before(release.state).is_in((R.PASSED, R.SHIPPED))),
             ("REL-2", "REL-3"), "not a look that passed earlier and does no more"),
    StepRule("shipping_is_authorised",
             (release.state == R.SHIPPED) == ((before(release.state) == R.SHIPPED)
                                              | ((before(release.state) == R.PASSED) & event.authorised)),
             ("ADM-3", "REL-3"), "and then it is done", events=frozenset({"ship"})),
    *(StepRule(f"{state.value.lower()}_is_reached_by_{name}_alone",
               implies(release.state == state, before(release.state) == state), ("REL-3", "REL-4"),
               "no other event leads there", events=all_events_but(name))
      for state, name in ON_ITS_EVENT.items()),
    StepRule("a_baseline_is_measured",
             implies(before(release.state) == R.PLANNED, (release.state == R.BASELINE) == (event.requests > 0)),
             ("REL-2",), "and not with an empty run", events=frozenset({"measure"})),
    StepRule("a_canary_starts_with_its_limit",
             implies(before(release.state) == R.BASELINE,
                     all_of(release.state == R.CANARY, release.until == release.clock + plan.limit,
                            candidate.under == candidate.epoch)), ("REL-3",),
             "under the epoch in force", events=frozenset({"start"})),
    StepRule("the_baseline_comes_first", implies(before(release.state) == R.PLANNED, release.state == R.PLANNED),
             ("REL-3",), "nothing starts without it", events=all_events_but("measure")),
    StepRule("a_hold_ends",
             implies(before(release.state).is_in(UNDECIDED),
                     (release.state == R.FAILED) == (release.clock >= release.until)), ("REL-2", "REL-3"),
             "at its time limit, and not before", events=frozenset({"sweep"})),
    StepRule("a_passed_release_is_not_swept",
             implies(~before(release.state).is_in(UNDECIDED), release.state == before(release.state)), ("REL-3",),
             "its decision was taken", events=frozenset({"sweep"})),
    StepRule("a_breach_is_a_rollback", implies(was_serving, release.state == R.FAILED), ("REL-4",),
             "whatever the speed", events=frozenset({"breach"})),
    StepRule("an_operator_may_give_up",
             implies(was_serving, (release.state == R.FAILED) == event.authorised), ("REL-4", "ADM-3"),
             "where it is authorised", events=frozenset({"abandon"})),
    StepRule("the_limit_is_never_moved", release.until == before(release.until), ("REL-3",),
             "it was fixed before the run", events=all_events_but("start")),
    StepRule("looks_are_counted",
             release.looks == before(release.looks)
             + as_count(release.state.is_in((R.PASSED, R.HOLDING)) & (before(release.looks) < plan.looks)), ("REL-3",),
             "those that were taken in, up to the plan", events=frozenset({"look"})),
    StepRule("nothing_else_is_a_look", release.looks == before(release.looks), ("REL-3",), "no other event counts",
             events=all_events_but("look")),
    StepRule("time_never_goes_back", release.clock >= before(release.clock), ("LEA-6",),
             "one authority, on a clock that only moves forward"),
    StepRule("a_reading_moves_the_clock", release.clock == maximum(before(release.clock), event.now), ("LEA-6",),
             "to the later of the two", events=frozenset({"tick"})),
    StepRule("nothing_else_moves_the_clock", release.clock == before(release.clock), ("LEA-6",),
             "no other event does", events=all_events_but("tick")),
    StepRule("a_grant_is_one_request_of_the_epoch_in_force",
             work == work_before + as_count(was_serving & (event.epoch == candidate.epoch)), ("REL-4", "LEA-2"),
             "and a candidate that has failed, or that was fenced off, is granted nothing",
             events=frozenset({"grant"})),
    StepRule("a_stop_releases_once",
             if_else(event.orphan,
                     (candidate.orphaned == before(candidate.orphaned) - as_count(before(candidate.orphaned) > 0))
                     & (candidate.in_flight == before(candidate.in_flight)),
                     (candidate.in_flight == before(candidate.in_flight) - as_count(before(candidate.in_flight) > 0))
                     & (candidate.orphaned == before(candidate.orphaned))), ("LIF-4", "LIF-5"),
             "the request that stopped, and no other", events=frozenset({"settle"})),
    StepRule("no_work_is_lost", work == work_before, ("REL-4", "LIF-10"),
             "marking work orphaned moves it; nothing else touches it", events=all_events_but("grant", "settle")),
    StepRule("orphans_are_marked_when_the_epoch_is_fenced",
             implies(before(release.state) == R.FENCED, candidate.in_flight == 0), ("REL-4", "LEA-3"), "all at once",
             events=frozenset({"orphan"})),
    StepRule("only_that_marks_orphans",
             implies(candidate.orphaned > before(candidate.orphaned), before(release.state) == R.FENCED), ("LEA-3",),
             "what may still be granted cannot be counted"),
    StepRule("an_epoch_is_raised_once",
             implies(before(release.state) == R.FAILED,
                     if_else(event.epoch > before(candidate.epoch),
                             (candidate.epoch == event.epoch) & (release.state == R.FENCED),
                             release.state == R.FAILED)), ("REL-4",), "above the one in force",
             events=frozenset({"raise_epoch"})),
    StepRule("nothing_else_raises_it", candidate.epoch == before(candidate.epoch), ("REL-4",), "no other event does",
             events=all_events_but("raise_epoch")),
    StepRule("a_drained_candidate_is_drained",
             implies(before(release.state) == R.FENCED,
                     (release.state == R.DRAINED) == (before(candidate.in_flight) == 0)), ("REL-4", "REC-2"),
             "when nothing of it is in flight", events=frozenset({"drain"})),
    StepRule("conservation_is_verified",
             implies(before(release.state) == R.DRAINED,
                     (release.state == R.VERIFIED) == (event.charged == candidate.orphaned)), ("REL-4", "LIF-10"),
             "before anything is switched", events=frozenset({"verify"})),
    StepRule("a_verified_candidate_is_switched_from",
             implies(before(release.state) == R.VERIFIED, release.state == R.ROLLED_BACK), ("REL-4",), "at last",
             events=frozenset({"switch"})),
)  # fmt: skip

RELEASE = Table(
    name="release",
    moves=release,
    state_type=ReleaseState,
    entities=(release, plan, candidate),
    events=EVENTS,
    rows=ROWS,
    initial=all_of(
        release.state == R.PLANNED, release.looks == 0, release.until == 0, release.clock == 0, ~candidate.grants,
        ~candidate.routed, candidate.epoch >= 1, candidate.under == 0, candidate.in_flight == 0,
        candidate.orphaned == 0,
    ),
    note="One candidate from its baseline to shipped or rolled back. Only a passed look promotes.",
    invariants=(
        Invariant("grants_stop_with_the_failure", candidate.grants == release.state.is_in(SERVING), ("REL-4",),
                  "the candidate grants while it serves, and in no other state"),
        Invariant("traffic_is_switched_last",
                  candidate.routed == ~release.state.is_in((*BEFORE, R.ROLLED_BACK)), ("REL-4",),
                  "routed to it from its start until the way back is over"),
        Invariant("looks_were_planned", (release.looks >= 0) & (release.looks <= plan.looks), ("REL-3",),
                  "the stated error rate holds for these"),
        Invariant("work_is_counted", (candidate.in_flight >= 0) & (candidate.orphaned >= 0), ("LIF-10",),
                  "nothing is settled that was not there"),
        Invariant("nothing_before_the_start",
                  implies(release.state.is_in(BEFORE),
                          all_of(candidate.in_flight == 0, candidate.orphaned == 0, release.looks == 0,
                                 release.until == 0, candidate.under == 0)), ("REL-3",),
                  "an unstarted candidate has no work and was not looked at"),
        Invariant("a_failed_candidate_is_fenced_off",
                  implies(~release.state.is_in(BEFORE),
                          if_else(release.state.is_in((*SERVING, R.FAILED)), candidate.under == candidate.epoch,
                                  candidate.under < candidate.epoch)), ("REL-4", "LEA-2"),
                  "from the fence on, the epoch in force is above the candidate's"),
        Invariant("orphans_come_after_the_fence",
                  implies(release.state.is_in((*SERVING, R.FAILED)), candidate.orphaned == 0), ("LEA-3",),
                  "before it, work is in flight and nothing else"),
        Invariant("a_drained_candidate_has_nothing_in_flight",
                  implies(release.state.is_in((R.DRAINED, R.VERIFIED, R.ROLLED_BACK)), candidate.in_flight == 0),
                  ("REL-4", "REC-2"), "what is left of it is marked orphaned, and charged"),
    ),
    rules=RULES,
    assumptions=(
        Assumption("a_release_has_a_look_and_a_limit", (plan.looks >= 1) & (plan.limit >= 1), "the plan says so"),
        Assumption("epochs_start_at_one", candidate.epoch >= 1, "0 means none"),
    ),
    sometimes=(
        *(Sometimes(f"a_release_is_{state.value.lower()}", release.state == state, "every state is reached")
          for state in R),
        Sometimes("a_switch_leaves_orphans", (release.state == R.ROLLED_BACK) & (candidate.orphaned >= 1),
                  "what nobody confirmed stays charged after the way back"),
        Sometimes("the_looks_are_spent", (release.state == R.HOLDING) & (release.looks == plan.looks),
                  "then only the time limit is left"),
    ),
)  # fmt: skip
