"""When a history may be searched in parts: the calls of two tenants, or of two keys, that cannot touch each other.

Parts meet in the pool's and the tenant's counters, in the queue, in the clock, and in the numbers that lives and
generations are drawn from. Where the counters can never refuse, nothing queues and the clock stands still, only the
numbers are left. A history in parts is therefore judged by a weaker law: lives and generations must be new, wherever
they were drawn from. It is the same ledger up to the names of its lives and generations.
"""

from collections.abc import Callable, Hashable, Sequence

from attrs import frozen

from kvescrow.checks.concurrency.history import Call, Terms, key_of
from kvescrow.spec.vocabulary import (
    Extend,
    Preempt,
    Promote,
    Reserve,
    SetBudget,
    SetPoolLimit,
    SetTenantLimit,
    Tick,
)


@frozen
class Parts:
    """Histories that can be searched one by one."""

    by: str
    """`whole`, `tenant` or `key`."""
    parts: tuple[tuple[Call, ...], ...]


def parts_of(calls: Sequence[Call], terms: Terms) -> Parts:
    """Return the smallest parts in which `calls` may be searched."""
    if not _keeps_apart(calls, terms):
        return Parts("whole", (tuple(calls),))
    if _never_limited(calls, terms):
        return Parts("key", _grouped(calls, lambda call: key_of(call.event)))
    return Parts("tenant", _grouped(calls, _tenant))


def _tenant(call: Call) -> str:
    key = key_of(call.event)
    return key.tenant if key is not None else ""


def _grouped(calls: Sequence[Call], by: Callable[[Call], Hashable]) -> tuple[tuple[Call, ...], ...]:
    groups: dict[Hashable, list[Call]] = {}
    for call in calls:
        groups.setdefault(by(call), []).append(call)
    return tuple(tuple(group) for group in groups.values())


def _keeps_apart(calls: Sequence[Call], terms: Terms) -> bool:
    """Return whether tenants cannot touch each other: no common clock or limit moves, no queue, room for all."""
    for call in calls:
        match call.event:
            case Tick() | SetPoolLimit() | Preempt() | Promote():
                return False
            case Reserve(max_wait=wait) if wait != 0:
                return False
            case _:
                pass
    return sum(_asked(call) for call in calls) <= terms.pool_limit


def _never_limited(calls: Sequence[Call], terms: Terms) -> bool:
    """Return whether no tenant's limit or budget can refuse."""
    if any(isinstance(call.event, SetTenantLimit | SetBudget) for call in calls):
        return False
    asked: dict[str, int] = {}
    for call in calls:
        asked[_tenant(call)] = asked.get(_tenant(call), 0) + _asked(call)
    return all(
        name not in terms.tenants or total <= min(terms.tenants[name].limit, terms.tenants[name].budget)
        for name, total in asked.items()
    )


def _asked(call: Call) -> int:
    """Return what the event can charge at most, so that the sum bounds every counter."""
    match call.event:
        case Reserve(amount=amount) | Extend(bound=amount):
            return max(0, amount)
        case _:
            return 0
