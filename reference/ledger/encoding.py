"""Events and replies as JSON texts, and back; and what no store can keep of an event.

Every change is written as two such texts, so this is the inner loop of a durable ledger. Which fields a class has is
therefore found out once: asking anew about every value took `json` two and a half times as long.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from json.encoder import encode_basestring_ascii
from operator import attrgetter
from typing import Any, get_args, get_type_hints

from attrs import fields, frozen, has

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
    if not paths:
        return lambda _: ()
    get = attrgetter(*paths)
    return get if len(paths) > 1 else lambda record: (get(record),)


# --- what can be kept -----------------------------------------------------------------------------------------------


def check_storable(event: LedgerEvent) -> None:
    """Raise `UserError` where `event` holds what no store can: an integer beyond 63 bits, or text that is no text."""
    numbers, texts = _NUMBERS[type(event)], _TEXTS[type(event)]
    found = numbers.of(event)
    if found and (max(found) > LARGEST or min(found) < -LARGEST):
        raise UserError(f"{numbers.first(event, _is_large)} is beyond 2**62: use a smaller number")
    text = "".join(texts.of(event))
    if not (text.isascii() or _is_text(text)):
        raise UserError(
            f"{texts.first(event, lambda value: not _is_text(value))} holds a lone surrogate: give valid Unicode text"
        )


def check_no_zeros(event: LedgerEvent, store: str) -> None:
    """Raise `UserError` where a text of `event` holds the character NUL, which `store` cannot keep."""
    texts = _TEXTS[type(event)]
    if "\0" in "".join(texts.of(event)):
        where = texts.first(event, lambda value: "\0" in value)
        raise UserError(f"{where} holds a NUL, which {store} cannot keep: leave it out")


@frozen
class _Leaves:
    """The values of one kind in an event of one class."""

    paths: tuple[str, ...]
    of: _Values
    """Reads them."""

    def first(self, event: LedgerEvent, fails: Callable[[Any], bool]) -> str:
        """Return the name of the first of them in `event` that fails."""
        path = next(path for path, value in zip(self.paths, self.of(event), strict=True) if fails(value))
        return f"{type(event).__name__}.{path.rpartition('.')[2]}"


def _leaves(kind: type, wanted: type) -> _Leaves:
    paths = tuple(_paths(kind, wanted))
    return _Leaves(paths, _getter(paths))


def _paths(kind: Any, wanted: type) -> Iterator[str]:
    hints = get_type_hints(kind)
    for name in (field.name for field in fields(kind)):
        if hints[name] is wanted:
            yield name
        elif has(hints[name]):
            yield from (f"{name}.{path}" for path in _paths(hints[name], wanted))


_NUMBERS: Mapping[type, _Leaves] = {kind: _leaves(kind, int) for kind in _EVENTS.values()}
_TEXTS: Mapping[type, _Leaves] = {kind: _leaves(kind, str) for kind in _EVENTS.values()}


def _is_large(value: int) -> bool:
    return not -LARGEST <= value <= LARGEST


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


_WORDS = ("decision", "reason")
"""Members of a reply that are always words."""
_REPLY = (
    "{" + ",".join(f'"{each.name}":' + ('"%s"' if each.name in _WORDS else "%s") for each in fields(LedgerReply)) + "}"
)


def reply_text(reply: LedgerReply) -> str:
    """Return `reply` as a JSON object."""
    state, retry_after = reply.state, reply.retry_after
    # `value` of an enum is computed by a property; `_value_` is what it reads.
    return _REPLY % (
        reply.decision._value_,
        reply.reason._value_,
        reply.seq,
        "null" if state is None else f'"{state._value_}"',
        reply.life,
        reply.generation,
        reply.bound,
        reply.asked,
        reply.free_tenant,
        reply.free_pool,
        "null" if retry_after is None else retry_after,
    )


def key_text(key: Key) -> str:
    """Return `key` as a JSON array."""
    return f"[{quote(key.tenant)},{quote(key.request)}]"


def _members(record: Any) -> str:
    form, values_of = _FORMS[type(record)]
    # Most values are integers, which the form writes as they are.
    return form % tuple([v if type(v) is int else _WRITERS[type(v)](v) for v in values_of(record)])


def _form(kind: Any) -> tuple[str, _Values]:
    names = tuple(field.name for field in fields(kind))
    return ",".join(f'"{name}":%s' for name in names), _getter(names)


_FORMS: Mapping[type, tuple[str, _Values]] = {kind: _form(kind) for kind in (*_EVENTS.values(), Receipt)}
"""Class -> the members of its JSON object, with a place for each value, and what reads the values."""


class _Writers(dict[type, Callable[[Any], str]]):
    """What writes a value of a class as JSON; a subclass is written as the first of its bases that is known."""

    def __missing__(self, kind: type) -> Callable[[Any], str]:
        for base in kind.__mro__[1:]:
            if base in self:
                return self.setdefault(kind, self[base])
        raise TypeError(f"{kind.__name__} has no form in a journal")


_WRITERS = _Writers(
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
