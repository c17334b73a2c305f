"""The clock and the limits of a ledger: what an operator and the store's clock may change (LEA-6, ADM-5, ADM-8).

Lowering a limit below what is active is legal: it releases nothing and only blocks new grants.
"""

from kvescrow.spec.language.expressions import Entity, Kind, all_of, before, implies, maximum
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
from kvescrow.spec.vocabulary import AccountState, Decision, Reason

INT, BOOL = Kind.INTEGER, Kind.BOOLEAN
OPEN = (AccountState.OPEN,)

account = Entity("account", {"state": AccountState}, note="the ledger's accounts as a whole")
pool = Entity("pool", {"active": INT, "limit": INT, "clock": INT}, note="the pool's accounts and its clock")
tenant = Entity(
    "tenant",
    {"configured": BOOL, "active": INT, "limit": INT, "spent": INT, "held": INT, "budget": INT},
    note="the accounts of the tenant that the event names",
)

EVENTS = (
    Event("tick", {"now": INT}, "the store's clock is read"),
    Event("set_pool_limit", {"limit": INT}, "an operator changes the usable pool"),
    Event("set_tenant_limit", {"limit": INT}, "an operator changes a tenant's limit"),
    Event("set_budget", {"budget": INT}, "an operator changes a tenant's period budget"),
)
event = merged_event_entity(EVENTS)
row = rows_of("account")
NOTED = Reply(Decision.NOTED)

ROWS = (
    row("tick.forward", OPEN, NOTED, "LEA-6", "time moves", when=event.now > pool.clock,
        do=[pool.clock.becomes(event.now)]),
    row("tick.floor", OPEN, RECORDED, "LEA-6", "a clock that steps back moves nothing"),
    row("set_pool_limit.malformed", OPEN, refused(Reason.MALFORMED), "ADM-9", "a limit is not negative",
        when=event.limit < 0),
    row("set_pool_limit.recorded", OPEN, RECORDED, "ADM-5", "it is the limit already",
        when=event.limit == pool.limit),
    row("set_pool_limit.noted", OPEN, NOTED, "ADM-5 ADM-11 QUE-4", "live work keeps what it holds",
        do=[pool.limit.becomes(event.limit)]),
    row("set_tenant_limit.unknown", OPEN, refused(Reason.UNKNOWN_KEY), "ADM-3", "no such tenant",
        when=~tenant.configured),
    row("set_tenant_limit.malformed", OPEN, refused(Reason.MALFORMED), "ADM-9", "a limit is not negative",
        when=event.limit < 0),
    row("set_tenant_limit.recorded", OPEN, RECORDED, "ADM-5", "it is the limit already",
        when=event.limit == tenant.limit),
    row("set_tenant_limit.noted", OPEN, NOTED, "ADM-5 QUE-4", "live work keeps what it holds",
        do=[tenant.limit.becomes(event.limit)]),
    row("set_budget.unknown", OPEN, refused(Reason.UNKNOWN_KEY), "ADM-3", "no such tenant",
        when=~tenant.configured),
    row("set_budget.malformed", OPEN, refused(Reason.MALFORMED), "ADM-9", "a budget is not negative",
        when=event.budget < 0),
    row("set_budget.recorded", OPEN, RECORDED, "ADM-8", "it is the budget already",
        when=event.budget == tenant.budget),
    row("set_budget.noted", OPEN, NOTED, "ADM-8 QUE-4", "what was spent and held stays spent and held",
        do=[tenant.budget.becomes(event.budget)]),
)  # fmt: skip

limited = (pool.limit >= 0) & (tenant.limit >= 0) & (tenant.budget >= 0)

ACCOUNT = Table(
    name="account",
    moves=account,
    state_type=AccountState,
    entities=(account, pool, tenant),
    events=EVENTS,
    rows=ROWS,
    initial=all_of(account.state == AccountState.OPEN, pool.clock == 0, pool.active == 0, tenant.active == 0, limited),
    note="The store's clock and the operator's limits.",
    invariants=(
        Invariant("limits_are_never_negative", limited, ("ADM-5", "ADM-8"), "a limit is one that can be met"),
    ),
    rules=(
        StepRule("time_never_goes_back", pool.clock >= before(pool.clock), ("LEA-6",),
                 "one authority, on a clock that only moves forward"),
        StepRule("a_reading_moves_the_clock", pool.clock == maximum(before(pool.clock), event.now), ("LEA-6",),
                 "to the later of the two", events=frozenset({"tick"})),
        StepRule("only_known_tenants_have_limits",
                 implies(~before(tenant.configured),
                         (tenant.limit == before(tenant.limit)) & (tenant.budget == before(tenant.budget))),
                 ("ADM-3",), "no event makes a tenant"),
        StepRule("limits_move_no_counter",
                 (pool.active == before(pool.active)) & (tenant.active == before(tenant.active))
                 & (tenant.spent == before(tenant.spent)) & (tenant.held == before(tenant.held)),
                 ("LEA-6", "ADM-5"), "neither time nor an operator releases or charges"),
    ),
    assumptions=(
        Assumption("accounts_start_sound",
                   (pool.clock >= 0) & (pool.active >= 0) & (tenant.active >= 0),
                   "the reservation table keeps them so"),
    ),
    sometimes=(
        Sometimes("a_limit_falls_below_what_is_active", pool.limit < pool.active, "lowering is legal"),
    ),
)  # fmt: skip
