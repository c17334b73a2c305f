"""What holds of every state, read from the projected state alone: it knows neither rows nor records."""

from __future__ import annotations

from kvescrow.spec.vocabulary import (
    CHARGED_STATES,
    LedgerSnapshot,
    PageSnapshot,
    PageState,
    PoolSnapshot,
    ReservationState,
)


def broken_page_laws(pool: PoolSnapshot) -> list[str]:
    """Return the laws of PAG that the pool breaks, each with the page that it breaks them for."""
    broken = [f"{law} of page {number}" for number, page in enumerate(pool.pages) for law in _of_page(number, page)]
    broken += [
        f"draining pages wait for something of page {number}"
        for number, page in enumerate(pool.pages)
        if page.state is PageState.DRAINING and not _waits(page, pool)
    ]
    reachable = sum(page.state in (PageState.FREE, PageState.CACHED) for page in pool.pages)
    if sum(pool.promised.values()) > reachable:
        broken.append("promises can be kept")
    return broken


def _waits(page: PageSnapshot, pool: PoolSnapshot) -> bool:
    """Return whether a step may touch `page`, or a published page of its scope that may follow it is in use."""
    in_use = (PageState.SHARED, PageState.DRAINING)
    followers = [p for p in pool.pages if p is not page and p.scope == page.scope and p.tokens and p.state in in_use]
    return page.readers + page.writers > 0 or bool(page.tokens and followers)


def _of_page(number: int, page: PageSnapshot) -> list[str]:
    state, holders, tickets = page.state, len(page.holders), page.readers + page.writers
    laws = {
        "the sink is page 0 alone": (state is PageState.SINK) == (number == 0),
        "holders fit the state": {PageState.PRIVATE: holders == 1, PageState.SHARED: holders >= 1}.get(
            state, holders == 0
        ),
        "nothing free or cached is in flight": tickets == 0
        or state in (PageState.PRIVATE, PageState.SHARED, PageState.DRAINING),
        "shared pages have no writer": state is not PageState.SHARED or page.writers == 0,
        "counts are not negative": min(page.readers, page.writers) >= 0,
        "only published pages carry tokens": not page.tokens
        or state in (PageState.SHARED, PageState.CACHED, PageState.DRAINING),
        "cached pages carry tokens": state is not PageState.CACHED or bool(page.tokens),
        "content has a scope": (page.scope is None) == (state in (PageState.SINK, PageState.FREE)),
    }
    return [law for law, holds in laws.items() if not holds]


def broken_ledger_laws(ledger: LedgerSnapshot) -> list[str]:
    """Return the accounts that are not the sum over live reservations, or are above their limit (LIF-10, ADM-5)."""
    charged = {key: r.bound for key, r in ledger.reservations.items() if r.state in CHARGED_STATES}
    waiting = [key for key, r in ledger.reservations.items() if r.state is ReservationState.QUEUED]
    laws = {
        "the pool is charged the sum": ledger.pool_active == sum(charged.values()),
        "the pool is within its limit": ledger.pool_active <= ledger.pool_limit,
        "the queue is who waits": sorted(ledger.queue) == sorted(waiting),
    }
    for name, tenant in ledger.tenants.items():
        own = sum(bound for key, bound in charged.items() if key.tenant == name)
        laws[f"{name} is charged the sum"] = tenant.active == own == tenant.held
        laws[f"{name} is within its limit"] = tenant.active <= tenant.limit
        laws[f"{name} has as many waiting"] = tenant.queued == sum(key.tenant == name for key in waiting)
    return [law for law, holds in laws.items() if not holds]
