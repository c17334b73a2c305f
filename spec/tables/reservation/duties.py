"""What each event must do where it acts: a law that only forbids is kept by idleness too.

`laws` says what no step may do. These rules say whom a step may listen to, and what it must leave behind.
"""

from kvescrow.spec.language.expressions import (
    NOBODY,
    Expression,
    Field,
    above,
    all_of,
    before,
    if_else,
    implies,
    maximum,
    minimum,
)
from kvescrow.spec.language.table import StepRule
from kvescrow.spec.tables.reservation.laws import absent, charged, owned, terminal, unchanged
from kvescrow.spec.tables.reservation.view import event, pool, queue, reservation, tenant
from kvescrow.spec.vocabulary import ReservationState, StopOutcome

S = ReservationState

changed = ~unchanged
admitted = (reservation.state == S.RESERVED) & (before(reservation.state) != S.RESERVED)
enqueued = (reservation.state == S.QUEUED) & (before(reservation.state) != S.QUEUED)
started = owned & ~before(owned)
stopped = before(owned) & ~owned
ended = terminal & ~before(terminal)
moved = reservation.state != before(reservation.state)
this_life = event.life == before(reservation.life)
this_owner = event.owner == before(reservation.owner)
this_generation = event.generation == before(reservation.generation)
growth = event.bound - before(reservation.bound)
final_usage = maximum(before(reservation.used), event.used)


def _on(*events: str) -> frozenset[str]:
    return frozenset(events)


def _was(*states: ReservationState) -> Expression:
    return before(reservation.state.is_in(states))


def _billed(used: Expression) -> Expression:
    return implies(
        stopped,
        (tenant.spent == before(tenant.spent) + minimum(used, before(reservation.bound)))
        & (tenant.overrun == before(tenant.overrun) + above(used, before(reservation.bound)))
        & implies(terminal, reservation.used == used),
    )


def _bound_to_event(name: str, parameter: str) -> Expression:
    recorded: Field = getattr(reservation, name)
    given: Field = getattr(event, parameter)
    return recorded == given


_EMPTY = all_of(
    reservation.digest == NOBODY,
    reservation.owner == NOBODY,
    *(getattr(reservation, name) == 0 for name in reservation.fields if name not in {"state", "digest", "owner"}),
)

WHOM_TO_OBEY = (
    StepRule("only_the_authorised_change_anything", implies(~event.authorised, unchanged), ("ADM-3",),
             "FORBIDDEN comes first",
             events=_on("reserve", "start", "extend", "report_usage", "cancel", "preempt", "renew",
                        "force_release")),
    StepRule("only_proofs_change_anything", implies(~event.authentic, unchanged), ("REC-1", "LEA-4"),
             "a forged receipt or proof changes nothing", events=_on("finish", "fence")),
    StepRule("only_the_owner_moves_its_work", implies(before(owned) & changed, this_owner & this_generation),
             ("LEA-2", "IDN-5"), "this owner, this generation", events=_on("extend", "report_usage", "renew")),
    StepRule("only_this_life_is_meant", implies(changed, this_life), ("IDN-5",),
             "an event of an earlier life of the key changes nothing", events=_on("start", "cancel", "renew")),
    StepRule("only_this_execution_is_preempted", implies(changed, this_generation), ("IDN-5", "LIF-9"),
             "a stale list of victims stops nothing", events=_on("preempt")),
    StepRule("only_silent_work_is_forced",
             implies(changed, this_generation & (before(reservation.lease) <= pool.clock)), ("LEA-2", "LEA-3", "IDN-5"),
             "this execution, and not before its owner's lease has run out", events=_on("force_release")),
)  # fmt: skip

HOW_WORK_BEGINS = (
    StepRule("records_are_bound_to_the_request",
             implies(changed, all_of(*(_bound_to_event(name, name) for name in
                                       ("amount", "digest", "deadline", "least_service")))), ("IDN-2",),
             "a new record keeps the parameters that retries are compared with", events=_on("reserve")),
    StepRule("only_well_formed_requests_are_recorded",
             implies(changed, (event.amount >= 1) & (event.lease >= 1) & (event.max_wait >= 0)
                     & (event.least_service >= 0)), ("ADM-9",), "amounts, times and leases inside their domains",
             events=_on("reserve")),
    StepRule("growth_that_fits_is_granted",
             implies(event.authorised & this_owner & this_generation & _was(S.RUNNING)
                     & (event.bound > before(reservation.bound)) & (event.bound <= tenant.limit)
                     & (event.bound <= pool.limit)
                     & (before(tenant.spent + tenant.held) + growth <= tenant.budget)
                     & (before(tenant.active) + growth <= tenant.limit)
                     & (before(pool.active) + growth <= pool.limit), reservation.bound == event.bound),
             ("GRO-2",), "every limit is attained, and none refuses before it", events=_on("extend")),
    StepRule("what_is_taken_can_be_useful",
             implies(admitted | enqueued, pool.clock + reservation.least_service <= reservation.deadline),
             ("ADM-7", "QUE-3"), "the deadline leaves room for useful work", events=_on("reserve", "promote")),
    StepRule("what_can_never_fit_does_not_wait",
             implies(enqueued, (reservation.amount <= tenant.limit) & (reservation.amount <= pool.limit)), ("ADM-6",),
             "waiting cannot help it", events=_on("reserve")),
    StepRule("grants_keep_the_order", implies(admitted, queue.ahead <= 0), ("QUE-5",),
             "nobody overtakes a request that waits for the pool only", events=_on("reserve", "promote")),
    StepRule("waits_are_bounded", implies(enqueued, reservation.expires == pool.clock + event.max_wait),
             ("QUE-1",), "each wait has its end", events=_on("reserve")),
    StepRule("preempted_work_waits_until_its_deadline", implies(enqueued, reservation.expires == reservation.deadline),
             ("LIF-9", "QUE-1"), "it did not choose to wait", events=_on("finish", "fence")),
    StepRule("who_waited_out_is_not_admitted", implies(admitted, before(reservation.expires) > pool.clock),
             ("QUE-2",), "it ends without execution", events=_on("promote")),
    StepRule("grants_come_with_a_lease", implies(admitted | started, reservation.lease == pool.clock + event.lease),
             ("LEA-1", "LEA-2"), "capacity is held for a stated time", events=_on("reserve", "promote", "start")),
    StepRule("starts_come_before_the_lease_ends", implies(started, before(reservation.lease) > pool.clock), ("LEA-1",),
             "a lapsed reservation never starts, swept or not", events=_on("start")),
    StepRule("a_start_runs",
             implies(started, reservation.state == S.RUNNING)
             & implies(event.authorised & this_life & _was(S.RESERVED) & (before(reservation.lease) > pool.clock),
                       started), ("LIF-2",), "what is reserved starts when it is asked to", events=_on("start")),
)  # fmt: skip

HOW_WORK_IS_ASKED_TO_STOP = (
    StepRule("a_cancel_ends_or_asks",
             implies(event.authorised & this_life & ~before(absent) & ~before(terminal),
                     reservation.state == if_else(before(owned), S.CANCELLING, S.CANCELLED)), ("LIF-2", "LIF-3"),
             "what has not started ends at once; what may run is asked", events=_on("cancel")),
    StepRule("a_preemption_asks",
             implies(event.authorised & this_generation & _was(S.RUNNING), reservation.state == S.PREEMPTING),
             ("LIF-9",), "running work is asked", events=_on("preempt")),
    StepRule("renewals_run_longer",
             implies(changed & charged, (reservation.lease >= pool.clock + event.lease)
                     & (reservation.lease >= before(reservation.lease))), ("LEA-1", "LEA-2", "LEA-5"),
             "no renewal shortens a lease", events=_on("renew")),
    StepRule("only_suspicion_is_renewed_away",
             implies(before(owned) & moved, _was(S.ORPHANED) & (reservation.state == S.RUNNING)), ("LEA-5",),
             "a renewal undoes no cancel and no preemption", events=_on("renew")),
    StepRule("the_owner_recovers_its_work",
             implies(event.authorised & this_life & this_owner & this_generation & _was(S.ORPHANED),
                     reservation.state == S.RUNNING), ("LEA-5",), "suspicion ends when the same owner is heard",
             events=_on("renew")),
    StepRule("lapsed_reservations_are_not_renewed",
             implies(_was(S.RESERVED) & (before(reservation.lease) <= pool.clock) & changed,
                     reservation.state == S.EXPIRED), ("LEA-1", "LEA-6"), "expiry counts from its moment",
             events=_on("renew")),
    StepRule("time_only_suspects_owned_work",
             implies(before(owned) & moved, _was(S.RUNNING) & (reservation.state == S.ORPHANED)), ("LEA-3",),
             "an expired lease proves no stop", events=_on("sweep")),
    StepRule("time_limits_have_passed",
             implies(moved & reservation.state.is_in((S.EXPIRED, S.ORPHANED)),
                     if_else(_was(S.QUEUED),
                             (before(reservation.expires) <= pool.clock)
                             | (pool.clock + reservation.least_service > reservation.deadline),
                             before(reservation.lease) <= pool.clock)), ("LEA-1", "LEA-3", "QUE-2", "QUE-3"),
             "nothing expires and nothing is suspected before its time", events=_on("promote", "start", "renew",
                                                                                    "sweep")),
    StepRule("a_sweep_leaves_nothing_due",
             implies(reservation.state.is_in((S.RESERVED, S.RUNNING)), reservation.lease > pool.clock)
             & implies(reservation.state == S.QUEUED,
                       (reservation.expires > pool.clock)
                       & (pool.clock + reservation.least_service <= reservation.deadline)),
             ("LEA-1", "LEA-3", "QUE-2", "QUE-3"), "every limit that has passed is applied", events=_on("sweep")),
)  # fmt: skip

HOW_WORK_ENDS = (
    StepRule("a_receipt_confirms_the_stop",
             implies(before(owned) & event.authentic & this_owner & this_generation, ~owned), ("LIF-4", "REC-1"),
             "the owner's authentic receipt always releases", events=_on("finish")),
    StepRule("a_proof_confirms_the_stop", implies(before(owned) & event.authentic & this_owner, ~owned), ("LEA-4",),
             "there is a bounded second exit", events=_on("fence")),
    StepRule("an_operator_can_always_end_silence",
             implies(event.authorised & before(owned) & this_generation & (before(reservation.lease) <= pool.clock),
                     reservation.state == if_else(_was(S.CANCELLING), S.CANCELLED, S.FAILED)), ("LEA-3", "LIF-6"),
             "capacity is never lost for good, and nothing waits again", events=_on("force_release")),
    StepRule("outcomes_say_what_happened",
             implies(stopped, reservation.state == if_else(
                 _was(S.CANCELLING), S.CANCELLED,
                 if_else(event.outcome == StopOutcome.COMPLETED, S.COMPLETED,
                         if_else(_was(S.PREEMPTING) & (event.outcome == StopOutcome.STOPPED), S.QUEUED, S.FAILED)))),
             ("LIF-4", "LIF-6", "LIF-9"), "cancelled, completed, waiting again, or failed", events=_on("finish")),
    StepRule("fenced_work_ends_as_it_was_asked",
             implies(stopped, reservation.state == if_else(
                 _was(S.CANCELLING), S.CANCELLED, if_else(_was(S.PREEMPTING), S.QUEUED, S.FAILED))),
             ("LEA-4", "LIF-6", "LIF-9"), "cancelled, waiting again, or failed", events=_on("fence")),
    StepRule("time_limits_end_as_expired", implies(ended, reservation.state == S.EXPIRED), ("LEA-1", "QUE-2"),
             "it never ran", events=_on("promote", "start", "renew", "sweep")),
    StepRule("a_receipt_is_billed", _billed(final_usage), ("GRO-4", "GRO-6"),
             "the usage up to the bound is spent, and the rest is an overrun", events=_on("finish")),
    StepRule("a_fenced_execution_is_billed", _billed(before(reservation.used)), ("GRO-4", "GRO-6", "LEA-4"),
             "the last usage reported is billed", events=_on("fence", "force_release")),
    StepRule("nothing_else_is_billed",
             (tenant.spent == before(tenant.spent)) & (tenant.overrun == before(tenant.overrun)), ("GRO-4",),
             "billing happens once, at the stop",
             events=_on("reserve", "promote", "start", "extend", "report_usage", "cancel", "preempt", "renew", "sweep",
                        "forget")),
    StepRule("reports_are_recorded",
             implies(changed, (reservation.used == event.used)
                     & (reservation.overrun == maximum(before(reservation.overrun),
                                                       above(event.used, reservation.bound)))), ("GRO-4", "GRO-6"),
             "usage above the bound is flagged when it is told", events=_on("report_usage")),
    StepRule("requeued_work_holds_nothing",
             implies(stopped & enqueued, (reservation.used == 0) & (reservation.overrun == 0)
                     & (reservation.lease == 0)), ("LIF-9", "QUE-6"), "it waits as if it had never run",
             events=_on("finish", "fence")),
    StepRule("ended_records_are_kept", implies(ended, reservation.retained == pool.clock + pool.retention),
             ("IDN-5",), "retries find the outcome for the whole retention"),
    StepRule("only_old_records_are_forgotten",
             implies(changed, before(terminal) & (before(reservation.retained) <= pool.clock) & absent & _EMPTY),
             ("IDN-5", "IDN-6"), "terminal, past its retention, and all of it", events=_on("forget")),
)  # fmt: skip

DUTIES = (*WHOM_TO_OBEY, *HOW_WORK_BEGINS, *HOW_WORK_IS_ASKED_TO_STOP, *HOW_WORK_ENDS)
