"""What a line may say, and its values in the types of the tables.

Every line has `event`, `parameters`, `decision` and `reason`, and `table` where it is not a ledger's. Besides these:

    reservation, account   now, key ([tenant, request], or null), seq, state, life, generation
    promise                holder, seq; state where it is known
    page                   page, holder (or null), seq; state and generation where they are known
    execution              key; state and generation where they are known
    ticket                 key, number; state where it is known

`parameters` has the table's names. Where a table has a name that only an implementation can compute, the line has
what it is computed from: `admit` and `retire_scope` the `scope` record, `seal` and `share` the page's `tokens` and
its `parent` page (null for the first page of a prompt). A `share` may give `chain` and `tokens_equal` instead, with
the chain as `places` defines it, in hexadecimal.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Protocol, cast

from attrs import asdict, frozen

from kvescrow.spec.language.expressions import Kind, Type
from kvescrow.spec.language.interpreter import Record, Value
from kvescrow.spec.tables.registry import TABLE_BY_NAME
from kvescrow.spec.vocabulary import Decision, Key, PrefixScope, Reason, UserError

Entry = Mapping[str, object]
"""A line as JSON gives it."""

LEDGER_TABLES = ("reservation", "account")
PAGE_TABLES = ("promise", "page")
EXECUTION_TABLES = ("execution", "ticket")

_COMMON = frozenset({"event", "parameters", "decision", "reason"})
_REQUIRED: Mapping[str, frozenset[str]] = {
    "reservation": _COMMON | {"now", "key", "seq", "state", "life", "generation"},
    "account": _COMMON | {"now", "key", "seq", "state", "life", "generation"},
    "promise": _COMMON | {"table", "holder", "seq"},
    "page": _COMMON | {"table", "page", "holder", "seq"},
    "execution": _COMMON | {"table", "key"},
    "ticket": _COMMON | {"table", "key", "number"},
}
_OPTIONAL: Mapping[str, frozenset[str]] = {
    "reservation": frozenset({"table"}),
    "account": frozenset({"table"}),
    "promise": frozenset({"state"}),
    "page": frozenset({"state", "generation"}),
    "execution": frozenset({"state", "generation"}),
    "ticket": frozenset({"state"}),
}
_LEDGER_TABLE_OF = {event.name: name for name in LEDGER_TABLES for event in TABLE_BY_NAME[name].events}
_EVENTS = {name: frozenset(event.name for event in TABLE_BY_NAME[name].events) for name in _REQUIRED}
_DECISIONS: Mapping[object, Decision] = {decision.value: decision for decision in Decision}
_REASONS: Mapping[object, Reason] = {reason.value: reason for reason in Reason}


def table_of(entry: Entry) -> str:
    """Return the table that `entry` speaks of, and check that it has the keys of that table and a known event.

    Raises `UserError` where it has not.
    """
    event = entry.get("event")
    name = entry.get("table")
    if name is None and "table" not in entry:
        name = _LEDGER_TABLE_OF.get(event) if isinstance(event, str) else None
        if name is None:
            raise UserError(f"unknown event {event!r}: the tables know {', '.join(_LEDGER_TABLE_OF)}")
    if not isinstance(name, str) or name not in _REQUIRED:
        raise UserError(f"unknown table {name!r}: a journal may speak of {', '.join(_REQUIRED)}")
    keys = entry.keys()
    if keys != _REQUIRED[name]:
        _check_keys(name, frozenset(keys))
    if event not in _EVENTS[name]:
        raise UserError(f"unknown event {event!r} of {name}: its table knows {', '.join(sorted(_EVENTS[name]))}")
    return name


def _check_keys(name: str, keys: frozenset[str]) -> None:
    unknown = keys - _REQUIRED[name] - _OPTIONAL[name]
    if unknown:
        raise UserError(f"unknown key {', '.join(map(repr, sorted(unknown)))} in a line of {name}: take it out")
    missing = _REQUIRED[name] - keys
    if missing:
        raise UserError(f"missing key {', '.join(map(repr, sorted(missing)))} in a line of {name}: add it")


def reply_of(entry: Entry) -> tuple[Decision, Reason]:
    """Return the decision and the reason in `entry`. Raises `UserError` for words that are not in the vocabulary."""
    decision, reason = entry["decision"], entry["reason"]
    if not isinstance(decision, str) or decision not in _DECISIONS:
        raise UserError(f"unknown decision {decision!r}: see the vocabulary")
    if not isinstance(reason, str) or reason not in _REASONS:
        raise UserError(f"unknown reason {reason!r}: see the vocabulary")
    return _DECISIONS[decision], _REASONS[reason]


def _integer(value: object, name: str) -> int:
    if type(value) is not int:
        raise UserError(f"{name} is {value!r}, not an integer")
    return value


def _boolean(value: object, name: str) -> bool:
    if type(value) is not bool:
        raise UserError(f"{name} is {value!r}, neither true nor false")
    return value


def _text(value: object, name: str) -> str:
    if type(value) is not str:
        raise UserError(f"{name} is {value!r}, not a text")
    return value


def _member_of(kind: type[Enum]) -> Callable[[object, str], Value]:
    members: Mapping[object, Enum] = {member.value: member for member in kind}

    def convert(value: object, name: str) -> Enum:
        if not isinstance(value, str) or value not in members:
            raise UserError(f"{name} is {value!r}, not one of {', '.join(map(str, members))}")
        return members[value]

    return convert


def _converter(kind: Type) -> Callable[[object, str], Value]:
    match kind:
        case Kind.INTEGER:
            return _integer
        case Kind.BOOLEAN:
            return _boolean
        case Kind.NAME:
            return _text
        case _:
            return _member_of(kind)


_CONVERTERS: Mapping[str, Mapping[str, Callable[[object, str], Value]]] = {
    event.name: {name: _converter(kind) for name, kind in event.parameters.items()}
    for table in LEDGER_TABLES
    for event in TABLE_BY_NAME[table].events
}


def parameters_of(entry: Entry) -> Record:
    """Return the parameters of a ledger event in its table's types. Raises `UserError` where they do not fit."""
    converters = _CONVERTERS[cast(str, entry["event"])]
    given = mapping(entry, "parameters")
    if given.keys() != converters.keys():
        wanted = ", ".join(converters) or "none"
        raise UserError(f"parameters are {', '.join(given) or 'none'}; `{entry['event']}` has {wanted}")
    return {name: convert(given[name], name) for name, convert in converters.items()}


def mapping(entry: Entry, name: str) -> Entry:
    """Return the object at `name`. Raises `UserError` where there is none."""
    value = entry.get(name)
    if not isinstance(value, dict):
        raise UserError(f"{name} is {value!r}, not an object")
    return value


def integer(entry: Entry, name: str, *, least: int | None = None) -> int:
    """Return the integer at `name`. Raises `UserError` where there is none, or one below `least`."""
    value = _integer(entry.get(name), name)
    if least is not None and value < least:
        raise UserError(f"{name} is {value}, below {least}")
    return value


def boolean(entry: Entry, name: str) -> bool:
    """Return the boolean at `name`. Raises `UserError` where there is none."""
    return _boolean(entry.get(name), name)


def text(entry: Entry, name: str) -> str:
    """Return the text at `name`. Raises `UserError` where there is none."""
    return _text(entry.get(name), name)


def key_of(entry: Entry) -> Key | None:
    """Return the key in `entry`, or None where it is null. Raises `UserError` where it is neither."""
    match entry["key"]:
        case None:
            return None
        case [str(tenant), str(request)]:
            return Key(tenant, request)
        case other:
            raise UserError(f"key is {other!r}, neither null nor [tenant, request]")


def tokens_of(entry: Entry, length: int) -> tuple[int, ...]:
    """Return the tokens of one page, which has `length`. Raises `UserError` for others, or for none of 32 bits."""
    value = entry.get("tokens")
    if not isinstance(value, list | tuple) or len(value) != length:
        raise UserError(f"tokens are {value!r}; a published page has {length}")
    for token in value:
        if not -(2**31) <= _integer(token, "token") < 2**31:
            raise UserError(f"token {token} is no integer of 32 bits")
    return tuple(value)


_SCOPE_TYPES: Mapping[str, tuple[type, ...]] = {
    "tenant": (str,),
    "group": (bool,),
    "model": (str,),
    "weight_epoch": (int,),
    "adapter": (str, type(None)),
    "adapter_generation": (int,),
    "tokenizer": (str,),
    "position_scheme": (str,),
    "kv_dtype": (str,),
    "page_length": (int,),
    "salt": (str,),
    "media": (list, tuple),
}
"""The fields of `PrefixScope`; a test compares the two lists."""


def scope_of(entry: Entry) -> PrefixScope:
    """Return the scope record at `scope`, which must have every field (SCO-1). Raises `UserError` otherwise."""
    given = mapping(entry, "scope")
    if given.keys() != _SCOPE_TYPES.keys():
        raise UserError(f"scope has {', '.join(given) or 'nothing'}; a scope record has {', '.join(_SCOPE_TYPES)}")
    for name, types in _SCOPE_TYPES.items():
        if type(given[name]) not in types:
            raise UserError(f"scope.{name} is {given[name]!r}, not {types[0].__name__}")
    media = cast(Sequence[object], given["media"])
    fields = {**given, "media": tuple(_text(each, "scope.media") for each in media)}
    return PrefixScope(**fields)  # type: ignore[arg-type]  # the types were compared above


@frozen
class LedgerConfig:
    """What a ledger starts with, as the header says it."""

    pool_limit: int
    tenants: Mapping[str, tuple[int, int, int]]
    """Limit, budget and queue limit by tenant."""
    retention: int


@frozen
class PageConfig:
    """What a page pool starts with, as the header says it; `pages` counts the sink."""

    pages: int
    page_length: int
    scope_limit: int | None


_TENANT_NAMES = ("limit", "budget", "queue_limit")
_LEDGER_NAMES = ("pool_limit", "tenants", "retention")
_PAGE_NAMES = ("pages", "page_length", "scope_limit")


def configs_of(config: Entry) -> tuple[LedgerConfig | None, PageConfig | None]:
    """Return what the header says of a ledger and of a page pool; None for what it does not speak of.

    Raises `UserError` where a value is missing, unknown or outside its domain.
    """
    unknown = config.keys() - {"pool", *_LEDGER_NAMES, *_PAGE_NAMES}
    if unknown:
        raise UserError(f"unknown key {', '.join(map(repr, sorted(unknown)))} in config: take it out")
    ledger = pages = None
    if config.keys() & {"pool", *_LEDGER_NAMES}:
        ledger = LedgerConfig(
            integer(config, "pool_limit", least=0),
            {name: _terms(mapping(config, "tenants"), name) for name in mapping(config, "tenants")},
            integer(config, "retention", least=0),
        )
    if config.keys() & set(_PAGE_NAMES):
        unlimited = config.get("scope_limit") is None
        pages = PageConfig(
            integer(config, "pages", least=2),
            integer(config, "page_length", least=1),
            None if unlimited else integer(config, "scope_limit", least=0),
        )
    return ledger, pages


def _terms(tenants: Entry, name: str) -> tuple[int, int, int]:
    terms = mapping(tenants, name)
    if terms.keys() != set(_TENANT_NAMES):
        raise UserError(f"tenant {name!r} has {', '.join(terms) or 'nothing'}; it needs {', '.join(_TENANT_NAMES)}")
    limit, budget, queue_limit = (integer(terms, each, least=0) for each in _TENANT_NAMES)
    return limit, budget, queue_limit


class SeenPageEvent(Protocol):
    """An event of a page pool as a recorder sees it."""

    @property
    def name(self) -> str:
        """The table's name of the event."""

    @property
    def page(self) -> int | None:
        """The page, where the event names one."""

    @property
    def holder(self) -> str | None:
        """The holder, where the event names one."""

    @property
    def parameters(self) -> Mapping[str, object]:
        """By the table's names, with scope record, tokens and parent where a line needs them."""

    @property
    def decision(self) -> Decision:
        """What was decided."""

    @property
    def reason(self) -> Reason:
        """Why."""

    @property
    def seq(self) -> int:
        """Commit number of the change, or of the last one before it."""


def page_line(event: SeenPageEvent) -> dict[str, object]:
    """Return the journal's line for one event of a page pool."""
    promise = event.name in _EVENTS["promise"]
    return {
        "table": "promise" if promise else "page",
        "event": event.name,
        **({} if promise else {"page": event.page}),
        "holder": event.holder,
        "parameters": {name: _plain(value) for name, value in event.parameters.items()},
        "decision": event.decision.value,
        "reason": event.reason.value,
        "seq": event.seq,
    }


def _plain(value: object) -> object:
    match value:
        case PrefixScope():
            return _plain(asdict(value))
        case bytes():
            return value.hex()
        case tuple():
            return [_plain(each) for each in value]
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case _:
            return value
