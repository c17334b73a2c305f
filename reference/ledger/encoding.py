"""Events and replies as JSON texts, and back; and what no store can keep of an event.

Every change is written as two such texts, so this is the inner loop of a durable ledger. Which fields a class has is
therefore found out once: asking anew about every value took `json` two and a half times as long.
"""

import json
from collections.abc import Callable, Mapping
from enum import Enum
from json.encoder import encode_basestring_ascii
from operator import attrgetter
from typing import Any, get_args, get_type_hints

from attrs import fields, has

from kvescrow.reference.ledger.port import LedgerReply
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

_EVENTS: Mapping[str, type] = {event.__name__: event for event in get_args(LedgerEvent)}

LARGEST = 2**62 - 1
"""Largest integer in an event: the sum of two still fits the signed 64 bits of a store."""

quote: Callable[[str], str] = encode_basestring_ascii
"""Returns a text as a JSON string, in ASCII."""

_Values = Callable[[Any], tuple[Any, ...]]


def _getter(paths: tuple[str, ...]) -> _Values:
    """Return what reads the attributes at `paths` of a record, always as a tuple."""
    get = attrgetter(*paths)
    return get if len(paths) > 1 else lambda record: (get(record),)


# --- what can be kept -----------------------------------------------------------------------------------------------


def check_storable(event: LedgerEvent) -> None:
    """Raise `UserError` where `event` holds what no store can: an integer beyond 63 bits, or text that is no text."""
    paths, values_of = _LEAVES[type(event)]
    for path, value in zip(paths, values_of(event), strict=True):
        if isinstance(value, str):
            if not (value.isascii() or _is_text(value)):
                raise UserError(f"{_named(event, path)} holds a lone surrogate: give valid Unicode text")
        elif isinstance(value, int) and not -LARGEST <= value <= LARGEST:
            raise UserError(f"{_named(event, path)} is beyond 2**62: use a smaller number")


def check_no_zeros(event: LedgerEvent, store: str) -> None:
    """Raise `UserError` where a text of `event` holds the character NUL, which `store` cannot keep."""
    paths, values_of = _LEAVES[type(event)]
    for path, value in zip(paths, values_of(event), strict=True):
        if isinstance(value, str) and "\0" in value:
            raise UserError(f"{_named(event, path)} holds a NUL, which {store} cannot keep: leave it out")


def _paths(kind: Any) -> tuple[str, ...]:
    hints = get_type_hints(kind)
    found: list[str] = []
    for name in (field.name for field in fields(kind)):
        inner = hints[name]
        found += [f"{name}.{path}" for path in _paths(inner)] if has(inner) else [name]
    return tuple(found)


_LEAVES: Mapping[type, tuple[tuple[str, ...], _Values]] = {
    kind: (_paths(kind), _getter(_paths(kind))) for kind in _EVENTS.values()
}
"""Event -> the paths to the plain values in it, and what reads them."""


def _named(event: LedgerEvent, path: str) -> str:
    return f"{type(event).__name__}.{path.rpartition('.')[2]}"


def _is_text(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


# --- to JSON --------------------------------------------------------------------------------------------------------


def event_text(event: LedgerEvent) -> str:
    """Return `event` as a JSON object, its class under "type"."""
    return f'{{"type":"{type(event).__name__}",{_members(event)}}}'


def reply_text(reply: LedgerReply) -> str:
    """Return `reply` as a JSON object."""
    return f"{{{_members(reply)}}}"


def key_text(key: Key) -> str:
    """Return `key` as a JSON array."""
    return f"[{quote(key.tenant)},{quote(key.request)}]"


def _members(record: Any) -> str:
    form, values_of = _FORMS[type(record)]
    return form % tuple([_TEXTS[type(value)](value) for value in values_of(record)])


def _form(kind: Any) -> tuple[str, _Values]:
    names = tuple(field.name for field in fields(kind))
    return ",".join(f'"{name}":%s' for name in names), _getter(names)


_FORMS: Mapping[type, tuple[str, _Values]] = {kind: _form(kind) for kind in (*_EVENTS.values(), LedgerReply, Receipt)}
"""Class -> the members of its JSON object, with a place for each value, and what reads the values."""


class _Texts(dict[type, Callable[[Any], str]]):
    """What writes a value of a class as JSON; a subclass is written as the first of its bases that is known."""

    def __missing__(self, kind: type) -> Callable[[Any], str]:
        for base in kind.__mro__[1:]:
            if base in self:
                return self.setdefault(kind, self[base])
        raise TypeError(f"{kind.__name__} has no form in a journal")


_TEXTS = _Texts(
    {
        int: int.__repr__,
        bool: lambda value: "true" if value else "false",
        str: quote,
        type(None): lambda _: "null",
        Enum: lambda value: f'"{value.value}"',
        Key: key_text,
        bytes: lambda value: f'"{value.hex()}"',
        Receipt: lambda value: f"{{{_members(value)}}}",
    }
)


# --- from JSON ------------------------------------------------------------------------------------------------------


def event_of(text: str) -> LedgerEvent:
    """Return the event that `event_text` wrote."""
    values = json.loads(text)
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


def reply_of(text: str) -> LedgerReply:
    """Return the reply that `reply_text` wrote."""
    values = json.loads(text)
    state = values.pop("state")
    return LedgerReply(
        decision=Decision(values.pop("decision")),
        reason=Reason(values.pop("reason")),
        state=None if state is None else ReservationState(state),
        **values,
    )
