"""Records, accounts and journal entries as rows, and back: the same for every store that keeps them."""

import json
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from typing import Any, get_args

from attrs import fields

from kvescrow.reference.ledger.port import JournalEntry, LedgerReply
from kvescrow.reference.ledger.records import PoolAccount, Reservation, TenantAccount
from kvescrow.spec.vocabulary import (
    Decision,
    Key,
    LedgerEvent,
    Reason,
    Receipt,
    ReservationState,
    StopOutcome,
    UserError,
)

Row = tuple[Any, ...]

_EVENTS: Mapping[str, type] = {event.__name__: event for event in get_args(LedgerEvent)}

LARGEST = 2**62 - 1
"""Largest integer in an event: the sum of two still fits the signed 64 bits of a store."""

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
_PLAIN = RESERVATION_COLUMNS[3:-1]
"""Columns that hold a field of the record as it is."""


def reservation_row(record: Reservation, place: int) -> Row:
    """Return the row of `record`; `place` is its place in the queue, 0 where it does not wait."""
    plain = (getattr(record, name) for name in _PLAIN)
    return (record.key.tenant, record.key.request, record.state.value, *plain, place)


def reservation_of(row: Row) -> tuple[Reservation, int]:
    """Return the record and its place in the queue."""
    tenant, request, state, *plain, place = row
    values = dict(zip(_PLAIN, plain, strict=True))
    return Reservation(key=Key(tenant, request), state=ReservationState(state), **values), place


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
    event = {"type": type(entry.event).__name__, **_fields(entry.event)}
    return (entry.seq, entry.now, _encode(event), _encode(_fields(entry.reply)))


def entry_of(row: Row) -> JournalEntry:
    """Return one change. Whoever could change something was vouched for, and was told the whole reply."""
    _, now, event, reply = row
    answer = _reply(json.loads(reply))
    return JournalEntry(
        now=now,
        event=_event(json.loads(event)),
        reply=answer,
        vouched=True,
        state=answer.state,
        life=answer.life,
        generation=answer.generation,
    )


def check_storable(event: LedgerEvent) -> None:
    """Raise `UserError` where `event` holds what no store can: an integer beyond 63 bits, or text that is no text."""
    for name, value in _leaves(event):
        if isinstance(value, int) and abs(value) > LARGEST:
            raise UserError(f"{type(event).__name__}.{name} is beyond 2**62: use a smaller number")
        if isinstance(value, str) and not _is_text(value):
            raise UserError(f"{type(event).__name__}.{name} holds a lone surrogate: give valid Unicode text")


def check_no_zeros(event: LedgerEvent, store: str) -> None:
    """Raise `UserError` where a text of `event` holds the character NUL, which `store` cannot keep."""
    for name, value in _leaves(event):
        if isinstance(value, str) and "\0" in value:
            raise UserError(f"{type(event).__name__}.{name} holds a NUL, which {store} cannot keep: leave it out")


def _leaves(record: Any) -> Iterator[tuple[str, object]]:
    for name in _names(type(record)):
        value = getattr(record, name)
        if isinstance(value, Key | Receipt):
            yield from _leaves(value)
        else:
            yield name, value


def _is_text(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _plain(value: object) -> object:
    """Return what stands in JSON for a value that JSON does not know."""
    match value:
        case Enum():
            return value.value
        case Key():
            return [value.tenant, value.request]
        case bytes():
            return value.hex()
        case _:
            return _fields(value)


def _fields(record: Any) -> dict[str, object]:
    return {name: getattr(record, name) for name in _names(type(record))}


_FIELD_NAMES: dict[type, tuple[str, ...]] = {}


def _names(kind: Any) -> tuple[str, ...]:
    names = _FIELD_NAMES.get(kind)
    if names is None:
        names = _FIELD_NAMES[kind] = tuple(field.name for field in fields(kind))
    return names


_encode = json.JSONEncoder(separators=(",", ":"), default=_plain).encode
"""An encoder that is made once: `json.dumps` makes one at every call that is not plain."""


def _event(values: dict[str, Any]) -> LedgerEvent:
    kind = _EVENTS[values.pop("type")]
    event: LedgerEvent = kind(**{name: _value(name, value) for name, value in values.items()})
    return event


def _value(name: str, value: Any) -> Any:
    """Return the value of the field called `name`; the names of fields that need it say what they are."""
    match name:
        case "key":
            return Key(*value)
        case "outcome":
            return StopOutcome(value)
        case "mac" | "proof":
            return bytes.fromhex(value)
        case "receipt":
            return Receipt(**{inner: _value(inner, content) for inner, content in value.items()})
        case _:
            return value


def _reply(values: dict[str, Any]) -> LedgerReply:
    state = values.pop("state")
    return LedgerReply(
        decision=Decision(values.pop("decision")),
        reason=Reason(values.pop("reason")),
        state=None if state is None else ReservationState(state),
        **values,
    )
