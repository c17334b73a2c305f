"""The rows of the reservation lifecycle, event by event, first match first."""

from kvescrow.spec.language.expressions import (
    NOBODY,
    Effect,
    Expression,
    above,
    maximum,
    minimum,
)
from kvescrow.spec.language.table import Reply, Row
from kvescrow.spec.tables.authoring import RECORDED, refused, rows_of
from kvescrow.spec.tables.reservation.view import event, pool, queue, reservation, tenant
from kvescrow.spec.vocabulary import (
    OWNED_STATES,
    TERMINAL_STATES,
    Decision,
    Reason,
    ReservationState,
    StopOutcome,
)

S = ReservationState
D = Decision
R = Reason

ALL = tuple(S)
KNOWN = tuple(state for state in S if state is not S.ABSENT)
OWNED = tuple(state for state in S if state in OWNED_STATES)
TERMINAL = tuple(state for state in S if state in TERMINAL_STATES)


row = rows_of("reservation")

# --- What rows have in common ---------------------------------------------------------------------------------------

forbidden = ~event.authorised
forged = ~event.authentic
foreign = event.owner != reservation.owner
stale_generation = event.generation != reservation.generation
stale_life = event.life != reservation.life
lapsed = reservation.lease <= pool.clock
waited_out = reservation.expires <= pool.clock
hopeless = pool.clock + reservation.least_service > reservation.deadline


def charge(amount: Expression) -> tuple[Effect, ...]:
    """Return the effects that charge `amount` to every account at once (ADM-2)."""
    return (pool.active.adds(amount), tenant.active.adds(amount), tenant.held.adds(amount))


RELEASE = (
    pool.active.loses(reservation.bound),
    tenant.active.loses(reservation.bound),
    tenant.held.loses(reservation.bound),
)
"""Give back the whole bound, once (LIF-4)."""

END = (reservation.retained.becomes(pool.clock + pool.retention),)
"""Start the retention of a terminal record (IDN-5)."""


def bill(used: Expression) -> tuple[Effect, ...]:
    """Return the effects that bill `used`, up to the bound; what is above is an overrun, not spent (GRO-4, GRO-6)."""
    return (
        tenant.spent.adds(minimum(used, reservation.bound)),
        tenant.overrun.adds(above(used, reservation.bound)),
        reservation.used.becomes(used),
        reservation.overrun.becomes(maximum(reservation.overrun, above(used, reservation.bound))),
    )


final_usage = maximum(reservation.used, event.used)
SETTLE = (*RELEASE, *bill(final_usage), *END)
"""Leave a charged state with the usage in the receipt."""
SETTLE_FENCED = (*RELEASE, *bill(reservation.used), *END)
"""Leave a charged state with the last usage reported, since the owner is gone."""


def requeue(used: Expression) -> tuple[Effect, ...]:
    """Return the effects that give everything back and wait again, with the usage so far billed (LIF-9).

    The caller's patience was for the first answer; work that the scheduler stopped waits until its deadline.
    """
    return (
        *RELEASE,
        tenant.spent.adds(minimum(used, reservation.bound)),
        tenant.overrun.adds(above(used, reservation.bound)),
        reservation.used.becomes(0),
        reservation.overrun.becomes(0),
        reservation.lease.becomes(0),
        reservation.expires.becomes(reservation.deadline),
        tenant.queued.adds(1),
    )


# --- reserve --------------------------------------------------------------------------------------------------------
# Precedence: authorised, identity, shape, never fits, deadline, budget, tenant, pool, queue.

BIND = (
    reservation.amount.becomes(event.amount),
    reservation.digest.becomes(event.digest),
    reservation.deadline.becomes(event.deadline),
    reservation.least_service.becomes(event.least_service),
    reservation.bound.becomes(event.amount),
    reservation.life.becomes(pool.next_life),
    pool.next_life.adds(1),
)
"""Bind the key to its parameters and to a new life (IDN-2, IDN-5)."""

ENQUEUE = (*BIND, reservation.expires.becomes(pool.clock + event.max_wait), tenant.queued.adds(1))

malformed = (event.amount <= 0) | (event.max_wait < 0) | (event.least_service < 0) | (event.lease <= 0)
impatient = event.max_wait == 0
queue_full = tenant.queued >= tenant.queue_limit
tenant_lacks_room = tenant.active + event.amount > tenant.limit
pool_lacks_room = pool.active + event.amount > pool.limit
others_first = queue.ahead > 0


def _shortage(name: str, lacks: Expression, reason: Reason, cites: str) -> tuple[Row, ...]:
    return (
        row(f"reserve.{name}", [S.ABSENT], refused(reason), f"{cites} ADM-9 IDN-4",
            "it does not fit now and may not wait", when=lacks & impatient),
        row(f"reserve.{name}_queue_full", [S.ABSENT], refused(R.QUEUE_FULL), "QUE-1 ADM-9",
            "it does not fit now and the tenant's queue is full", when=lacks & queue_full),
        row(f"reserve.{name}_queued", [S.ABSENT], Reply(D.QUEUED, reason), f"{cites} QUE-1 QUE-6",
            "it waits, for a bounded time, and holds nothing", when=lacks, to=S.QUEUED, do=ENQUEUE),
    )  # fmt: skip


RESERVE = (
    row("reserve.forbidden", ALL, refused(R.FORBIDDEN), "ADM-3",
        "authorisation comes before anything is told or changed", when=forbidden),
    row("reserve.conflict_amount", KNOWN, refused(R.CONFLICT_AMOUNT), "IDN-2",
        "the key is bound to another amount", when=event.amount != reservation.amount),
    row("reserve.conflict_deadline", KNOWN, refused(R.CONFLICT_DEADLINE), "IDN-2",
        "the key is bound to another deadline", when=event.deadline != reservation.deadline),
    row("reserve.conflict_digest", KNOWN, refused(R.CONFLICT_DIGEST), "IDN-2",
        "the key is bound to other parameters", when=event.digest != reservation.digest),
    row("reserve.recorded", KNOWN, RECORDED, "IDN-3 IDN-6",
        "a retry gets the recorded outcome, in flight or terminal, and charges nothing"),
    row("reserve.malformed", [S.ABSENT], refused(R.MALFORMED), "ADM-9",
        "an amount, a time or a lease outside its domain", when=malformed),
    row("reserve.never_fits_tenant", [S.ABSENT], refused(R.NEVER_FITS), "ADM-6 ADM-5",
        "above the tenant's limit: waiting cannot help", when=event.amount > tenant.limit),
    row("reserve.never_fits_pool", [S.ABSENT], refused(R.NEVER_FITS), "ADM-6 ADM-11",
        "above the usable pool: waiting cannot help", when=event.amount > pool.limit),
    row("reserve.too_late", [S.ABSENT], refused(R.TOO_LATE), "ADM-7",
        "the deadline leaves no room for useful work", when=pool.clock + event.least_service > event.deadline),
    row("reserve.budget", [S.ABSENT], refused(R.BUDGET), "ADM-8",
        "the budget holds even when the pool is idle", when=tenant.spent + tenant.held + event.amount > tenant.budget),
    *_shortage("tenant_capacity", tenant_lacks_room, R.TENANT_CAPACITY, "ADM-5"),
    *_shortage("pool_capacity", pool_lacks_room, R.POOL_CAPACITY, "ADM-5 ADM-11"),
    *_shortage("behind_others", others_first, R.BEHIND_OTHERS, "QUE-5"),
    row("reserve.admit", [S.ABSENT], Reply(D.ADMITTED), "ADM-1 ADM-2 ADM-4 ADM-5",
        "key, tenant and pool are checked and charged in one step", to=S.RESERVED,
        do=(*BIND, *charge(event.amount), reservation.lease.becomes(pool.clock + event.lease))),
)  # fmt: skip

# --- promote --------------------------------------------------------------------------------------------------------

need = reservation.bound

PROMOTE = (
    row("promote.unknown", [S.ABSENT], refused(R.UNKNOWN_KEY), "QUE-4", "there is nothing to promote"),
    row("promote.timeout", [S.QUEUED], Reply(D.EXPIRED, R.QUEUE_TIMEOUT), "QUE-2 QUE-1",
        "it waited its maximum wait; it ends without execution", when=waited_out, to=S.EXPIRED,
        do=(tenant.queued.loses(1), *END)),
    row("promote.too_late", [S.QUEUED], Reply(D.EXPIRED, R.TOO_LATE), "QUE-3 ADM-7",
        "it waited away its useful life", when=hopeless, to=S.EXPIRED, do=(tenant.queued.loses(1), *END)),
    row("promote.budget", [S.QUEUED], refused(R.BUDGET), "ADM-8 QUE-6",
        "the budget does not cover it now", when=tenant.spent + tenant.held + need > tenant.budget),
    row("promote.tenant_capacity", [S.QUEUED], refused(R.TENANT_CAPACITY), "ADM-5 QUE-5",
        "blocked by its own tenant's limit; it blocks no one else", when=tenant.active + need > tenant.limit),
    row("promote.pool_capacity", [S.QUEUED], refused(R.POOL_CAPACITY), "ADM-5 QUE-6",
        "the pool has no room for it now", when=pool.active + need > pool.limit),
    row("promote.behind_others", [S.QUEUED], refused(R.BEHIND_OTHERS), "QUE-5",
        "an earlier request waits for the pool only", when=others_first),
    row("promote.admit", [S.QUEUED], Reply(D.ADMITTED), "QUE-4 ADM-2",
        "it leaves the queue and is charged in one step", to=S.RESERVED,
        do=(*charge(need), tenant.queued.loses(1), reservation.lease.becomes(pool.clock + event.lease))),
    row("promote.not_queued", [s for s in KNOWN if s is not S.QUEUED], refused(R.NOT_QUEUED), "LIF-1",
        "it waits for nothing"),
)  # fmt: skip

# --- start ----------------------------------------------------------------------------------------------------------

START = (
    row("start.forbidden", ALL, refused(R.FORBIDDEN), "ADM-3", "not a worker of this pool", when=forbidden),
    row("start.unknown", [S.ABSENT], refused(R.UNKNOWN_KEY), "LIF-2", "nothing was admitted under this key"),
    row("start.stale_life", KNOWN, refused(R.STALE_LIFE), "IDN-5",
        "the worker was told of an earlier life of this key", when=stale_life),
    row("start.not_reserved", [S.QUEUED], refused(R.NOT_RESERVED), "QUE-6", "it holds nothing yet"),
    row("start.lapsed", [S.RESERVED], Reply(D.EXPIRED, R.LEASE_EXPIRED), "LEA-1",
        "expiry counts from its moment, swept or not", when=lapsed, to=S.EXPIRED, do=(*RELEASE, *END)),
    row("start.commit", [S.RESERVED], Reply(D.STARTED), "LIF-2 LEA-2 IDN-5",
        "the only way to run: owner and a new generation are recorded before any launch", to=S.RUNNING,
        do=(reservation.owner.becomes(event.owner), reservation.generation.becomes(pool.next_generation),
            pool.next_generation.adds(1), reservation.lease.becomes(pool.clock + event.lease))),
    row("start.other_owner", [S.RUNNING], refused(R.NOT_OWNER), "IDN-3 LEA-2",
        "another owner won; a second generation never starts", when=foreign),
    row("start.recorded", [S.RUNNING], RECORDED, "IDN-3", "the owner asks again after a lost reply"),
    row("start.cancelling", [S.CANCELLING], refused(R.CANCEL_ACCEPTED), "LIF-3", "a cancel forbids new launches"),
    row("start.preempting", [S.PREEMPTING], refused(R.PREEMPT_ACCEPTED), "LIF-9",
        "the old execution has not confirmed its stop"),
    row("start.orphaned", [S.ORPHANED], refused(R.SUSPECT), "LEA-3", "suspect work may still run"),
    row("start.closed", TERMINAL, refused(R.CLOSED), "LIF-2 LIF-8",
        "after a cancel or an expiry the start can never succeed"),
)  # fmt: skip

# --- extend ---------------------------------------------------------------------------------------------------------

growth = event.bound - reservation.bound

EXTEND = (
    row("extend.forbidden", ALL, refused(R.FORBIDDEN), "ADM-3", "not a worker of this pool", when=forbidden),
    row("extend.unknown", [S.ABSENT], refused(R.UNKNOWN_KEY), "LIF-1", "there is nothing to grow"),
    row("extend.not_running", [S.QUEUED, S.RESERVED], refused(R.NOT_RUNNING), "GRO-2", "only running work grows"),
    row("extend.closed", TERMINAL, refused(R.CLOSED), "LIF-8", "terminal records absorb everything"),
    row("extend.foreign_owner", OWNED, refused(R.NOT_OWNER), "LEA-2", "another owner runs it", when=foreign),
    row("extend.stale_generation", OWNED, refused(R.STALE_GENERATION), "LEA-2 IDN-5",
        "an earlier execution asks", when=stale_generation),
    row("extend.cancelling", [S.CANCELLING], Reply(D.STOP, R.CANCEL_ACCEPTED), "LIF-3",
        "a cancelled execution does not grow"),
    row("extend.preempting", [S.PREEMPTING], Reply(D.STOP, R.PREEMPT_ACCEPTED), "LIF-9",
        "an execution that must stop does not grow"),
    row("extend.orphaned", [S.ORPHANED], refused(R.SUSPECT), "LEA-3 LEA-5", "it must renew first"),
    row("extend.recorded", [S.RUNNING], RECORDED, "GRO-2 IDN-3",
        "the bound is an absolute value, so a retry charges nothing", when=event.bound <= reservation.bound),
    row("extend.never_fits_tenant", [S.RUNNING], refused(R.NEVER_FITS), "GRO-3 ADM-6",
        "above the tenant's limit", when=event.bound > tenant.limit),
    row("extend.never_fits_pool", [S.RUNNING], refused(R.NEVER_FITS), "GRO-3 ADM-6",
        "above the usable pool", when=event.bound > pool.limit),
    row("extend.budget", [S.RUNNING], refused(R.BUDGET), "GRO-3 ADM-8",
        "the old size stands", when=tenant.spent + tenant.held + growth > tenant.budget),
    row("extend.tenant_capacity", [S.RUNNING], refused(R.TENANT_CAPACITY), "GRO-3 ADM-5",
        "the old size stands", when=tenant.active + growth > tenant.limit),
    row("extend.pool_capacity", [S.RUNNING], refused(R.POOL_CAPACITY), "GRO-3 ADM-5",
        "the old size stands", when=pool.active + growth > pool.limit),
    row("extend.grant", [S.RUNNING], Reply(D.EXTENDED), "GRO-2",
        "only the difference is charged", do=(*charge(growth), reservation.bound.becomes(event.bound))),
)  # fmt: skip

# --- report_usage ---------------------------------------------------------------------------------------------------

REPORT_USAGE = (
    row("report_usage.forbidden", ALL, refused(R.FORBIDDEN), "ADM-3", "not a worker of this pool", when=forbidden),
    row("report_usage.unknown", [S.ABSENT], refused(R.UNKNOWN_KEY), "LIF-1", "there is no record"),
    row("report_usage.not_running", [S.QUEUED, S.RESERVED], refused(R.NOT_RUNNING), "LIF-1", "it uses nothing yet"),
    row("report_usage.closed", TERMINAL, refused(R.CLOSED), "LIF-8 LIF-5", "usage was settled at the stop"),
    row("report_usage.foreign_owner", OWNED, refused(R.NOT_OWNER), "LEA-2", "another owner runs it", when=foreign),
    row("report_usage.stale_generation", OWNED, refused(R.STALE_GENERATION), "LEA-2 IDN-5",
        "an earlier execution reports", when=stale_generation),
    row("report_usage.recorded", OWNED, RECORDED, "GRO-4",
        "usage never goes back", when=event.used <= reservation.used),
    row("report_usage.within", OWNED, Reply(D.NOTED), "GRO-4",
        "usage inside the bound", when=event.used <= reservation.bound, do=(reservation.used.becomes(event.used),)),
    row("report_usage.overrun", OWNED, Reply(D.NOTED, R.OVERRUN), "GRO-6",
        "it happened, so it is recorded; it changes no counter",
        do=(reservation.used.becomes(event.used),
            reservation.overrun.becomes(maximum(reservation.overrun, event.used - reservation.bound)))),
)  # fmt: skip

# --- cancel ---------------------------------------------------------------------------------------------------------

CANCEL = (
    row("cancel.forbidden", ALL, refused(R.FORBIDDEN), "ADM-3", "not this tenant's caller", when=forbidden),
    row("cancel.unknown", [S.ABSENT], refused(R.UNKNOWN_KEY), "LIF-1", "there is nothing to cancel"),
    row("cancel.stale_life", KNOWN, refused(R.STALE_LIFE), "IDN-5",
        "a delayed cancel of an earlier life cannot touch this one", when=stale_life),
    row("cancel.queued", [S.QUEUED], Reply(D.RELEASED), "LIF-2 QUE-4",
        "it held nothing", to=S.CANCELLED, do=(tenant.queued.loses(1), *END)),
    row("cancel.reserved", [S.RESERVED], Reply(D.RELEASED), "LIF-2",
        "nothing was launched, so it is released at once", to=S.CANCELLED, do=(*RELEASE, *END)),
    row("cancel.running", [S.RUNNING, S.PREEMPTING, S.ORPHANED], Reply(D.ACCEPTED), "LIF-3 LIF-7 LIF-9 LEA-5",
        "it only asks: everything stays charged until the stop is confirmed", to=S.CANCELLING),
    row("cancel.recorded", [S.CANCELLING, *TERMINAL], RECORDED, "LIF-5 LIF-8", "asked before, or over"),
)  # fmt: skip

# --- preempt --------------------------------------------------------------------------------------------------------

PREEMPT = (
    row("preempt.forbidden", ALL, refused(R.FORBIDDEN), "ADM-3", "not this pool's scheduler", when=forbidden),
    row("preempt.unknown", [S.ABSENT], refused(R.UNKNOWN_KEY), "LIF-1", "there is nothing to preempt"),
    row("preempt.not_running", [S.QUEUED, S.RESERVED], refused(R.NOT_RUNNING), "LIF-1", "it runs nothing"),
    row("preempt.closed", TERMINAL, refused(R.CLOSED), "LIF-8", "a stale list of victims names it"),
    row("preempt.stale_generation", OWNED, refused(R.STALE_GENERATION), "IDN-5",
        "the victim was an earlier execution", when=stale_generation),
    row("preempt.running", [S.RUNNING], Reply(D.ACCEPTED), "LIF-9",
        "it only asks: charged until the stop is confirmed", to=S.PREEMPTING),
    row("preempt.recorded", [S.PREEMPTING], RECORDED, "LIF-9", "asked before"),
    row("preempt.cancelling", [S.CANCELLING], refused(R.CANCEL_ACCEPTED), "LIF-6", "a cancel wins"),
    row("preempt.orphaned", [S.ORPHANED], refused(R.SUSPECT), "LEA-3", "no one is there to obey"),
)  # fmt: skip

# --- finish ---------------------------------------------------------------------------------------------------------

completed = event.outcome == StopOutcome.COMPLETED

FINISH = (
    row("finish.forged", ALL, refused(R.FORGED), "REC-1", "the receipt is not authentic", when=forged),
    row("finish.unknown", [S.ABSENT], refused(R.UNKNOWN_KEY), "IDN-5 LIF-5", "forgotten, or never known"),
    row("finish.foreign_owner", KNOWN, refused(R.NOT_OWNER), "REC-1", "another owner's receipt", when=foreign),
    row("finish.stale_generation", KNOWN, refused(R.STALE_GENERATION), "REC-1 IDN-5",
        "a late stop of an earlier execution", when=stale_generation),
    row("finish.recorded", [S.QUEUED, S.RESERVED, *TERMINAL], RECORDED, "LIF-5 REC-3 LEA-4",
        "this stop was confirmed before; nothing is released again"),
    row("finish.completed", [S.RUNNING, S.ORPHANED, S.PREEMPTING], Reply(D.RELEASED), "LIF-4 GRO-4 LEA-5",
        "the work ended; the whole bound is released once", when=completed, to=S.COMPLETED, do=SETTLE),
    row("finish.failed", [S.RUNNING, S.ORPHANED], Reply(D.RELEASED), "LIF-4 GRO-4",
        "the work ended without a result", to=S.FAILED, do=SETTLE),
    row("finish.cancelled", [S.CANCELLING], Reply(D.RELEASED), "LIF-4 LIF-6",
        "an accepted cancel dominates whatever the work came to", to=S.CANCELLED, do=SETTLE),
    row("finish.preempted_failed", [S.PREEMPTING], Reply(D.RELEASED), "LIF-4 LIF-9",
        "it failed by itself before it was stopped",
        when=event.outcome == StopOutcome.FAILED, to=S.FAILED, do=SETTLE),
    row("finish.requeued", [S.PREEMPTING], Reply(D.REQUEUED), "LIF-9 QUE-6",
        "stopped as asked: it holds nothing and waits again", to=S.QUEUED, do=requeue(final_usage)),
)  # fmt: skip

# --- renew ----------------------------------------------------------------------------------------------------------

PROLONG = (reservation.lease.becomes(maximum(reservation.lease, pool.clock + event.lease)),)

RENEW = (
    row("renew.forbidden", ALL, refused(R.FORBIDDEN), "ADM-3", "neither its gateway nor a worker", when=forbidden),
    row("renew.unknown", [S.ABSENT], refused(R.UNKNOWN_KEY), "LIF-1", "there is nothing to renew"),
    row("renew.stale_life", KNOWN, refused(R.STALE_LIFE), "IDN-5 LEA-2",
        "an earlier life of this key", when=stale_life),
    row("renew.not_reserved", [S.QUEUED], refused(R.NOT_RESERVED), "QUE-6", "a queued request has no lease"),
    row("renew.closed", TERMINAL, refused(R.CLOSED), "LIF-8", "terminal records absorb everything"),
    row("renew.lapsed", [S.RESERVED], Reply(D.EXPIRED, R.LEASE_EXPIRED), "LEA-1 LEA-6",
        "expiry counts from its moment, swept or not", when=lapsed, to=S.EXPIRED, do=(*RELEASE, *END)),
    row("renew.reserved", [S.RESERVED], Reply(D.RENEWED), "LEA-1", "the gateway is alive", do=PROLONG),
    row("renew.foreign_owner", OWNED, refused(R.NOT_OWNER), "LEA-2", "another owner runs it", when=foreign),
    row("renew.stale_generation", OWNED, refused(R.STALE_GENERATION), "LEA-2",
        "an earlier execution", when=stale_generation),
    row("renew.running", [S.RUNNING], Reply(D.RENEWED), "LEA-2", "the owner is alive", do=PROLONG),
    row("renew.recovered", [S.ORPHANED], Reply(D.RENEWED), "LEA-5",
        "the same owner and generation came back", to=S.RUNNING, do=PROLONG),
    row("renew.cancelling", [S.CANCELLING], Reply(D.STOP, R.CANCEL_ACCEPTED), "LEA-5 LIF-3",
        "the owner is told to stop"),
    row("renew.preempting", [S.PREEMPTING], Reply(D.STOP, R.PREEMPT_ACCEPTED), "LIF-9",
        "the owner is told to stop"),
)  # fmt: skip

# --- sweep, fence, force_release, forget ----------------------------------------------------------------------------

NOTHING_DUE = Reply(D.NOTHING_DUE)

SWEEP = (
    row("sweep.unknown", [S.ABSENT], refused(R.UNKNOWN_KEY), "LIF-1", "there is no record"),
    row("sweep.queue_timeout", [S.QUEUED], Reply(D.EXPIRED, R.QUEUE_TIMEOUT), "QUE-2",
        "it waited its maximum wait", when=waited_out, to=S.EXPIRED, do=(tenant.queued.loses(1), *END)),
    row("sweep.queue_too_late", [S.QUEUED], Reply(D.EXPIRED, R.TOO_LATE), "QUE-3",
        "it waited away its useful life", when=hopeless, to=S.EXPIRED, do=(tenant.queued.loses(1), *END)),
    row("sweep.reserved_lapsed", [S.RESERVED], Reply(D.EXPIRED, R.LEASE_EXPIRED), "LEA-1",
        "its gateway is gone; nothing was launched, so release is safe", when=lapsed, to=S.EXPIRED,
        do=(*RELEASE, *END)),
    row("sweep.running_lapsed", [S.RUNNING], Reply(D.SUSPECTED), "LEA-3 LEA-6",
        "time alone proves no stop: suspect, and still charged", when=lapsed, to=S.ORPHANED),
    row("sweep.nothing_due", KNOWN, NOTHING_DUE, "LEA-3 LEA-6 LIF-8",
        "no limit has passed, or none applies: work asked to stop is not made suspect, or a cancel would be lost"),
)  # fmt: skip

FENCE = (
    row("fence.forged", ALL, refused(R.FORGED), "LEA-4 REC-1", "the proof is not authentic", when=forged),
    row("fence.unknown", [S.ABSENT], refused(R.UNKNOWN_KEY), "LIF-1", "there is no record"),
    row("fence.not_running", [S.QUEUED, S.RESERVED], refused(R.NOT_RUNNING), "LEA-4", "no owner holds it"),
    row("fence.closed", TERMINAL, refused(R.CLOSED), "LIF-8 LEA-4", "its stop was confirmed before"),
    row("fence.foreign_owner", OWNED, refused(R.NOT_OWNER), "LEA-4",
        "another incarnation was fenced off", when=foreign),
    row("fence.failed", [S.RUNNING, S.ORPHANED], Reply(D.RELEASED, R.OWNER_FENCED), "LEA-4 LIF-4",
        "process gone and its device context destroyed: a confirmed stop", to=S.FAILED, do=SETTLE_FENCED),
    row("fence.cancelled", [S.CANCELLING], Reply(D.RELEASED, R.OWNER_FENCED), "LEA-4 LIF-6",
        "the cancel it was asked for", to=S.CANCELLED, do=SETTLE_FENCED),
    row("fence.requeued", [S.PREEMPTING], Reply(D.REQUEUED, R.OWNER_FENCED), "LEA-4 LIF-9",
        "the stop it was asked for; it waits again", to=S.QUEUED, do=requeue(reservation.used)),
)  # fmt: skip

# Not a stop: the execution may still run. So the record names no owner, for all to see, and never waits again.
DISOWN = (*SETTLE_FENCED, reservation.owner.becomes(NOBODY))

FORCE_RELEASE = (
    row("force_release.forbidden", ALL, refused(R.FORBIDDEN), "ADM-3", "not an operator of this pool", when=forbidden),
    row("force_release.unknown", [S.ABSENT], refused(R.UNKNOWN_KEY), "LIF-1", "there is no record"),
    row("force_release.not_running", [S.QUEUED, S.RESERVED], refused(R.NOT_RUNNING), "LIF-2",
        "nothing was launched: a cancel releases it safely"),
    row("force_release.closed", TERMINAL, refused(R.CLOSED), "LIF-8 LIF-5", "it was released before"),
    row("force_release.stale_generation", OWNED, refused(R.STALE_GENERATION), "IDN-5",
        "an earlier execution was meant", when=stale_generation),
    row("force_release.live", OWNED, refused(R.LIVE), "LEA-2 LEA-3",
        "its owner's lease has not run out: ask it to stop, or fence it off", when=~lapsed),
    row("force_release.cancelled", [S.CANCELLING], Reply(D.RELEASED, R.FORCED), "LEA-3 LIF-6",
        "outside the safety claim, and the record says so: it names no owner", to=S.CANCELLED, do=DISOWN),
    row("force_release.failed", [S.RUNNING, S.PREEMPTING, S.ORPHANED], Reply(D.RELEASED, R.FORCED), "LEA-3 IDN-3",
        "likewise; it never waits again, since a second execution could meet the first", to=S.FAILED, do=DISOWN),
)  # fmt: skip

FORGET = (
    row("forget.unknown", [S.ABSENT], refused(R.UNKNOWN_KEY), "LIF-1", "there is no record"),
    row("forget.live", [s for s in KNOWN if s not in TERMINAL_STATES], refused(R.LIVE), "IDN-6",
        "a key stays taken until its stop is confirmed"),
    row("forget.retained", TERMINAL, refused(R.RETAINED), "IDN-5",
        "retries may still come", when=pool.clock < reservation.retained),
    row("forget.gone", TERMINAL, Reply(D.FORGOTTEN), "IDN-5",
        "the counters of lives and generations go on, so nothing late can touch a new life", to=S.ABSENT,
        do=(*(getattr(reservation, name).becomes(0) for name in
              ("amount", "deadline", "least_service", "bound", "used", "overrun", "life", "generation",
               "lease", "expires", "retained")),
            reservation.digest.becomes(NOBODY), reservation.owner.becomes(NOBODY))),
)  # fmt: skip

ROWS: tuple[Row, ...] = (
    *RESERVE, *PROMOTE, *START, *EXTEND, *REPORT_USAGE, *CANCEL, *PREEMPT, *FINISH, *RENEW, *SWEEP, *FENCE,
    *FORCE_RELEASE, *FORGET,
)  # fmt: skip
