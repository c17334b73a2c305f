"""What holds of every reservation: invariants, rules over a step, what is assumed, and what must be reached."""

from kvescrow.spec.language.expressions import (
    NOBODY,
    all_of,
    any_of,
    as_count,
    before,
    if_else,
    implies,
)
from kvescrow.spec.language.table import Assumption, Ghost, Invariant, Sometimes, StepRule
from kvescrow.spec.tables.reservation.view import (
    EVENTS,
    event,
    ghost,
    other,
    pool,
    queue,
    reservation,
    rest,
    tenant,
)
from kvescrow.spec.vocabulary import (
    CHARGED_STATES,
    OWNED_STATES,
    TERMINAL_STATES,
    ReservationState,
)

S = ReservationState

charged = reservation.state.is_in(CHARGED_STATES)
owned = reservation.state.is_in(OWNED_STATES)
terminal = reservation.state.is_in(TERMINAL_STATES)
absent = reservation.state == S.ABSENT
charge = if_else(charged, reservation.bound, 0)
disowned = terminal & (reservation.generation >= 1) & (reservation.owner == NOBODY)
"""The mark of the one declared breach: an execution that an operator released without proof of its stop."""

INVARIANTS = (
    Invariant("pool_active_is_the_sum", pool.active == charge + rest.pool_active, ("LIF-10",),
              "the pool's counter is the sum over live owned work"),
    Invariant("tenant_active_is_the_sum", tenant.active == charge + rest.tenant_active, ("LIF-10",),
              "and so is each tenant's"),
    Invariant("tenant_held_is_the_sum", tenant.held == charge + rest.tenant_held, ("ADM-8", "GRO-4"),
              "the budget holds back exactly what live work may still cost"),
    Invariant("tenant_queued_is_the_count",
              tenant.queued == as_count(reservation.state == S.QUEUED) + rest.tenant_queued, ("QUE-1",),
              "the queue's length counts queued reservations"),
    Invariant("bound_covers_amount",
              if_else(absent, reservation.bound == 0, (reservation.amount >= 1)
                      & (reservation.bound >= reservation.amount)), ("ADM-4", "GRO-2"),
              "a bound only grows from the amount that was asked"),
    Invariant("usage_is_bounded_or_flagged",
              (reservation.used >= 0) & (reservation.overrun >= 0)
              & (reservation.used <= reservation.bound + reservation.overrun), ("GRO-6", "GRO-3"),
              "usage above the bound is on record as an overrun"),
    Invariant("accounts_are_not_negative", (tenant.spent >= 0) & (tenant.overrun >= 0), ("LIF-5",),
              "no counter is ever clamped, and none goes below zero"),
    Invariant("identities_come_from_the_counters",
              (reservation.life >= 0) & (reservation.life < pool.next_life)
              & (reservation.generation >= 0) & (reservation.generation < pool.next_generation), ("IDN-5",),
              "a life and a generation were drawn from counters that only grow"),
    Invariant("known_records_have_a_life", absent == (reservation.life == 0), ("IDN-5",),
              "every record belongs to one life of its key"),
    Invariant("owned_work_has_an_owner",
              implies(owned, (reservation.generation >= 1) & (reservation.owner != NOBODY)), ("LIF-2", "LEA-2"),
              "nothing runs without owner and generation"),
    Invariant("executions_keep_their_owner",
              implies((reservation.generation >= 1) & ~terminal, reservation.owner != NOBODY), ("LEA-3", "REC-3"),
              "even while it waits again: only an ended record can name no owner of its last execution"),
    Invariant("generations_are_unique",
              (reservation.generation == 0) | (reservation.generation != other.generation), ("IDN-5", "IDN-3"),
              "no two reservations ever share an execution generation"),
    Invariant("lives_are_unique",
              (reservation.life == 0) | (reservation.life != other.life), ("IDN-5",),
              "no two reservations ever share a life"),
    Invariant("released_exactly_once",
              ghost.grants == ghost.releases + as_count(charged), ("LIF-4", "LIF-5"),
              "each grant is given back once, when the reservation leaves a charged state, and not before"),
    Invariant("absent_holds_nothing",
              implies(absent, (reservation.used == 0) & (reservation.generation == 0)), ("IDN-5",),
              "a forgotten key keeps nothing of its last life"),
)  # fmt: skip

unchanged = all_of(
    *(before(getattr(reservation, name)) == getattr(reservation, name) for name in reservation.fields),
    *(before(getattr(tenant, name)) == getattr(tenant, name) for name in tenant.fields),
    *(before(getattr(pool, name)) == getattr(pool, name) for name in pool.fields),
)
_OTHERS_THAN = {e.name for e in EVENTS}

RULES = (
    StepRule("grants_respect_the_pool_limit",
             (pool.active <= before(pool.active)) | (pool.active <= pool.limit), ("ADM-2", "ADM-5"),
             "no step takes the pool above its limit; a lowered limit only blocks new grants"),
    StepRule("grants_respect_the_tenant_limit",
             (tenant.active <= before(tenant.active)) | (tenant.active <= tenant.limit), ("ADM-2", "ADM-5"),
             "no step takes a tenant above its limit"),
    StepRule("grants_respect_the_budget",
             (tenant.spent + tenant.held <= before(tenant.spent + tenant.held))
             | (tenant.spent + tenant.held <= tenant.budget), ("ADM-8", "GRO-6"),
             "neither a grant nor an overrun takes a tenant above its budget"),
    StepRule("the_queue_is_bounded",
             (tenant.queued <= before(tenant.queued)) | (tenant.queued <= tenant.queue_limit), ("QUE-1",),
             "a new request never makes the queue longer than its limit", events=frozenset({"reserve"})),
    StepRule("only_a_confirmed_stop_releases", implies(before(owned), owned), ("LIF-3", "LEA-3", "LIF-7"),
             "owned work stays charged: no cancel, expiry or renewal releases it",
             events=frozenset(_OTHERS_THAN - {"finish", "fence", "force_release"})),
    StepRule("a_forced_release_is_declared", implies(before(owned) & ~owned, disowned), ("LEA-3", "LIF-4"),
             "what is released without a confirmed stop names no owner for as long as it is on record",
             events=frozenset({"force_release"})),
    StepRule("nothing_else_is_disowned", implies(disowned, before(disowned)), ("LEA-3",),
             "so every record with that mark, and no other, is outside the safety claim",
             events=frozenset(_OTHERS_THAN - {"force_release"})),
    StepRule("a_stop_needs_the_owners_receipt",
             implies(before(owned) & ~owned,
                     event.authentic & (event.owner == before(reservation.owner))
                     & (event.generation == before(reservation.generation))), ("REC-1", "LIF-4"),
             "authentic, of this owner, of this generation", events=frozenset({"finish"})),
    StepRule("a_fence_needs_proof",
             implies(before(owned) & ~owned, event.authentic & (event.owner == before(reservation.owner))), ("LEA-4",),
             "authentic, of this incarnation of the owner", events=frozenset({"fence"})),
    StepRule("start_is_the_commit_point", implies(~before(owned), ~owned), ("LIF-2", "ADM-1"),
             "nothing runs before a successful start", events=frozenset(_OTHERS_THAN - {"start"})),
    StepRule("start_needs_a_reservation",
             implies(owned & ~before(owned), before(reservation.state) == S.RESERVED), ("LIF-2", "ADM-1"),
             "only what is reserved can start", events=frozenset({"start"})),
    StepRule("each_start_has_a_new_generation",
             implies(owned & ~before(owned), reservation.generation > before(reservation.generation)),
             ("LIF-9", "IDN-5"), "a later execution has a larger generation", events=frozenset({"start"})),
    StepRule("cancel_dominates",
             implies(before(reservation.state) == S.CANCELLING,
                     reservation.state.is_in((S.CANCELLING, S.CANCELLED))), ("LIF-6",),
             "after an accepted cancel the outcome is CANCELLED"),
    StepRule("terminal_states_absorb", implies(before(terminal), unchanged), ("LIF-8",),
             "nothing changes after the end", events=frozenset(_OTHERS_THAN - {"forget"})),
    StepRule("identity_is_kept",
             implies(~before(absent) & ~absent,
                     (before(reservation.life) == reservation.life)
                     & (before(reservation.amount) == reservation.amount)
                     & (before(reservation.deadline) == reservation.deadline)
                     & (before(reservation.digest) == reservation.digest)), ("IDN-2", "IDN-3"),
             "a key is bound to its parameters for its whole life"),
    StepRule("identity_counters_only_grow",
             (pool.next_life >= before(pool.next_life)) & (pool.next_generation >= before(pool.next_generation)),
             ("IDN-5",), "lives and generations are never used again"),
    StepRule("spending_is_never_undone", tenant.spent >= before(tenant.spent), ("GRO-4",),
             "what was billed stays billed"),
    StepRule("growth_keeps_the_old_bound",
             implies(before(owned) & owned, reservation.bound >= before(reservation.bound)), ("GRO-2", "GRO-3"),
             "a denied growth leaves the old size standing"),
)  # fmt: skip

ASSUMPTIONS = (
    Assumption("others_contribute_no_less_than_nothing",
               (rest.pool_active >= 0) & (rest.tenant_active >= 0) & (rest.tenant_active <= rest.pool_active)
               & (rest.tenant_held >= 0) & (rest.tenant_queued >= 0) & (queue.ahead >= 0),
               "sums and counts over the other reservations, each of which satisfies the same invariants"),
    Assumption("the_other_reservation_is_valid",
               (other.life >= 0) & (other.life < pool.next_life)
               & (other.generation >= 0) & (other.generation < pool.next_generation),
               "the other reservation's identities came from the same counters"),
    Assumption("the_clock_has_started", (pool.clock >= 0) & (pool.retention >= 0),
               "time and retention are not negative"),
    Assumption("identity_counters_start_at_one", (pool.next_life >= 1) & (pool.next_generation >= 1),
               "0 means none"),
    Assumption("leases_are_positive", event.lease >= 1,
               "the event's constructor refuses any other", events=frozenset({"promote", "start", "renew"})),
    Assumption("owners_have_names", event.owner != NOBODY,
               "an owner is a process incarnation", events=frozenset({"start", "finish", "fence"})),
    Assumption("receipts_speak_of_an_execution", event.generation >= 1,
               "generation 0 means that nothing ran", events=frozenset({"finish"})),
)  # fmt: skip

_given_back = pool.active < before(pool.active)
_taken = pool.active > before(pool.active)

GHOSTS = (
    Ghost(ghost.grants, before(ghost.grants) + as_count(_taken & ~before(charged)),
          "counts charges taken from outside a charged state"),
    Ghost(ghost.releases, before(ghost.releases) + as_count(_given_back),
          "counts every step that lowers the pool's counter, wherever it comes from"),
)  # fmt: skip

SOMETIMES = (
    *(Sometimes(f"a_reservation_is_{state.value.lower()}", reservation.state == state,
                "every state is reached") for state in S),
    Sometimes("the_pool_is_full", (pool.active == pool.limit) & (pool.limit >= 1),
              "the limit is attained, so it is the limit that refuses"),
    Sometimes("a_tenant_is_full", (tenant.active == tenant.limit) & (tenant.limit >= 1), "and so is the tenant's"),
    Sometimes("an_overrun_is_recorded", reservation.overrun >= 1, "usage does exceed a bound"),
    Sometimes("a_bound_has_grown", reservation.bound > reservation.amount, "growth is granted"),
    Sometimes("a_limit_is_below_what_is_active", any_of(pool.active > pool.limit, tenant.active > tenant.limit),
              "an operator lowered a limit under live work"),
)  # fmt: skip

INITIAL = all_of(
    absent,
    *(getattr(reservation, name) == 0 for name, kind in reservation.fields.items()
      if name in ("amount", "bound", "used", "overrun", "life", "generation", "lease", "expires", "retained")),
    pool.active == 0, pool.next_life == 1, pool.next_generation == 1,
    *(getattr(tenant, name) == 0 for name in ("active", "held", "spent", "overrun", "queued")),
    *(getattr(rest, name) == 0 for name in rest.fields),
    ghost.grants == 0, ghost.releases == 0, other.life == 0, other.generation == 0,
)  # fmt: skip
