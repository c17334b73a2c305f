"""The clock, and the limits that an operator may change under live work (ADM-11, LEA-6).

A limit below what is active is legal: it takes nothing from live work and only blocks new grants.
"""

from kvescrow.reference.ledger.records import RECORDED, Outcome, PoolAccount, TenantAccount, refused
from kvescrow.spec.vocabulary import Decision, Reason, SetBudget, SetPoolLimit, SetTenantLimit, Tick

LimitEvent = Tick | SetPoolLimit | SetTenantLimit | SetBudget
"""The events about limits and time."""

_NOTED = Outcome(Decision.NOTED)


def decide_limit(event: LimitEvent, tenant: TenantAccount | None, pool: PoolAccount) -> Outcome:
    """Return whether the new value is noted, was recorded before, or is refused."""
    if isinstance(event, Tick):
        return _NOTED if event.now > pool.clock else RECORDED
    if isinstance(event, SetPoolLimit):
        return _compared(event.limit, pool.limit)
    if tenant is None:
        return refused(Reason.UNKNOWN_KEY)
    if isinstance(event, SetTenantLimit):
        return _compared(event.limit, tenant.limit)
    return _compared(event.budget, tenant.budget)


def _compared(value: int, current: int) -> Outcome:
    if value < 0:
        return refused(Reason.MALFORMED)
    return RECORDED if value == current else _NOTED


def apply_limit(event: LimitEvent, tenant: TenantAccount | None, pool: PoolAccount) -> None:
    """Give the account that a noted `event` speaks of its new value."""
    match event:
        case Tick():
            pool.clock = event.now
        case SetPoolLimit():
            pool.limit = event.limit
        case SetTenantLimit() if tenant is not None:
            tenant.limit = event.limit
        case SetBudget() if tenant is not None:
            tenant.budget = event.budget
