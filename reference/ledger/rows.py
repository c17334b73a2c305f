"""Records, accounts and journal entries as rows, and back: the same for every store that keeps them."""

from collections.abc import Collection
from operator import attrgetter
from typing import Any

from kvescrow.reference.ledger.encoding import event_of, event_text, quote, reply_of, reply_text
from kvescrow.reference.ledger.port import JournalEntry
from kvescrow.reference.ledger.records import PoolAccount, Reservation, TenantAccount
from kvescrow.spec.vocabulary import Key, ReservationState

Row = tuple[Any, ...]

KEPT_STATES = tuple(state for state in ReservationState if state is not ReservationState.ABSENT)


def listed(states: Collection[ReservationState]) -> str:
    """Return `states` as a list of SQL string literals, in the order of the vocabulary."""
    return ", ".join(f"'{state.value}'" for state in ReservationState if state in states)


RESERVATION_COLUMNS = (
    "tenant",
    "request",
    "state",
    "amount",
    "digest",
    "deadline",
    "least_service",
    "bound",
    "life",
    "used",
    "overrun",
    "generation",
    "owner",
    "lease",
    "expires",
    "retained",
    "place",
)
BOUND_COLUMNS = ("tenant", "request", "amount", "digest", "deadline", "least_service", "life")
"""What a record keeps for its whole life (IDN-2, IDN-5)."""
_PLAIN = RESERVATION_COLUMNS[3:-1]
"""Columns that hold a field of the record as it is, in the order of its fields."""

_columns_of = attrgetter("key.tenant", "key.request", "state.value", *_PLAIN)
_STATES = {state.value: state for state in ReservationState}


def reservation_row(record: Reservation, place: int) -> Row:
    """Return the row of `record`; `place` is its place in the queue, 0 where it does not wait."""
    return (*_columns_of(record), place)


def reservation_texts(record: Reservation, place: int) -> Row:
    """Return the same row with each value as JSON writes it: a value's kind is known here, so `json` need not ask."""
    key, owner = record.key, record.owner
    return (
        quote(key.tenant),
        quote(key.request),
        quote(record.state.value),
        record.amount,
        quote(record.digest),
        record.deadline,
        record.least_service,
        record.bound,
        record.life,
        record.used,
        record.overrun,
        record.generation,
        "null" if owner is None else quote(owner),
        record.lease,
        record.expires,
        record.retained,
        place,
    )


def reservation_of(row: Row) -> tuple[Reservation, int]:
    """Return the record and its place in the queue."""
    tenant, request, state, *plain, place = row
    return Reservation(Key(tenant, request), _STATES[state], *plain), place


TENANT_COLUMNS = ("name", "capacity", "budget", "queue_limit", "active", "held", "spent", "overrun", "queued")


def tenant_row(name: str, account: TenantAccount) -> Row:
    """Return the row of one tenant's account."""
    return (
        name,
        account.limit,
        account.budget,
        account.queue_limit,
        account.active,
        account.held,
        account.spent,
        account.overrun,
        account.queued,
    )


def tenant_of(row: Row) -> tuple[str, TenantAccount]:
    """Return a tenant's name and account."""
    name, *values = row
    return name, TenantAccount(*values)


POOL_COLUMNS = (
    "id",
    "name",
    "capacity",
    "retention",
    "active",
    "clock",
    "next_life",
    "next_generation",
    "seq",
)


def pool_row(name: str, pool: PoolAccount) -> Row:
    """Return the one row of the pool's account."""
    return (
        1,
        name,
        pool.limit,
        pool.retention,
        pool.active,
        pool.clock,
        pool.next_life,
        pool.next_generation,
        pool.seq,
    )


def pool_of(row: Row) -> tuple[str, PoolAccount]:
    """Return the pool's name and account."""
    _, name, *values = row
    return name, PoolAccount(*values)


def entry_row(entry: JournalEntry) -> Row:
    """Return the journal's row of one change."""
    return (entry.seq, entry.now, event_text(entry.event), reply_text(entry.reply))


def entry_of(row: Row) -> JournalEntry:
    """Return one change. Whoever could change something was vouched for, and was told the whole reply."""
    _, now, event, reply = row
    answer = reply_of(reply)
    return JournalEntry(
        now=now,
        event=event_of(event),
        reply=answer,
        vouched=True,
        state=answer.state,
        life=answer.life,
        generation=answer.generation,
    )
