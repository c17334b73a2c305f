"""Copies of a target that lives in memory: what can change is copied, what cannot is shared.

`copy.deepcopy` does the same ten times more slowly, since it copies what nothing can change.
"""

from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from functools import cache
from itertools import chain, count
from typing import Any

Memo = dict[int, Any]
Plan = Callable[[Any, Memo], Any]


def cloned(target: Any) -> Any:
    """Return a copy of `target` that shares nothing that either can change."""
    return _copy(target, {})


SHARED: set[type] = set()
"""Kinds that were found to be shared, for a quick look."""


def is_shared(kind: type) -> bool:
    """Return whether copies share values of `kind`, since nothing can change them."""
    return _plan(kind) is None


def next_of(counter: "count[int]") -> int:
    """Return the next number of a counter, which stays its next: what a counter shows is that number."""
    return int(repr(counter)[len("count(") : -1])


@cache
def slots_of(kind: type) -> tuple[str, ...]:
    """Return the names of the slots that objects of `kind` have."""
    slots = chain.from_iterable(getattr(base, "__slots__", ()) for base in kind.__mro__)
    return tuple(name for name in slots if name not in ("__weakref__", "__dict__"))


def _copy(value: Any, memo: Memo) -> Any:
    plan = _plan(value.__class__)
    if plan is None:
        SHARED.add(type(value))
        return value
    known = memo.get(id(value))
    return plan(value, memo) if known is None else known


@cache
def _plan(kind: Any) -> Plan | None:
    """Return how values of `kind` are copied; None where they are shared."""
    if issubclass(kind, OrderedDict | dict):
        return _copy_dict
    if issubclass(kind, list | set):
        return _copy_items
    if issubclass(kind, tuple):
        return _copy_tuple
    if kind is count:
        # Later Pythons copy no counters.
        return lambda value, _: count(next_of(value))
    if _cannot_change(kind):
        return None
    return _plan_of_object(kind)


def _cannot_change(kind: type) -> bool:
    frozen = "frozen" in getattr(kind.__setattr__, "__name__", "")
    plain = kind.__module__ in ("builtins", "_thread", "functools") or issubclass(kind, Enum)
    return plain or frozen


def _copy_dict(value: Any, memo: Memo) -> Any:
    if SHARED.issuperset(map(type, value)) and SHARED.issuperset(map(type, value.values())):
        made = memo[id(value)] = value.copy()
        return made
    made = memo[id(value)] = type(value)()
    for key, item in value.items():
        new = key if key.__class__ in SHARED else _copy(key, memo)
        made[new] = item if item.__class__ in SHARED else _copy(item, memo)
    return made


def _copy_items(value: Any, memo: Memo) -> Any:
    kinds = set(map(type, value))
    if SHARED.issuperset(kinds) or (kinds == {tuple} and SHARED.issuperset(map(type, chain.from_iterable(value)))):
        made = memo[id(value)] = value.copy()
        return made
    made = memo[id(value)] = type(value)()
    add = made.append if isinstance(made, list) else made.add
    for item in value:
        add(item if item.__class__ in SHARED else _copy(item, memo))
    return made


def _copy_tuple(value: Any, memo: Memo) -> Any:
    if all(item.__class__ in SHARED for item in value):
        return value
    parts = [_copy(item, memo) for item in value]
    return value if all(new is old for new, old in zip(parts, value, strict=True)) else type(value)(parts)


def _plan_of_object(kind: Any) -> Plan:
    """Return how objects of `kind` are copied: a function written for it, since most of the time is spent here."""
    named = any("__dict__" in vars(base) for base in kind.__mro__)
    if not named and not slots_of(kind):
        raise TypeError(f"a {kind.__name__} cannot be copied: it has no attributes, so it keeps its state elsewhere")
    plain = kind.__setattr__ is object.__setattr__
    known: dict[str, Any] = {"kind": kind, "new": object.__new__, "shared": SHARED, "copy": _copy, "put": _copy_named}
    lines = ["def plan(value, memo):", "    made = memo[id(value)] = new(kind)"]
    for name in slots_of(kind):
        known[f"set_{name}"] = getattr(kind, name).__set__
        lines += [f"    item = value.{name}", "    if item.__class__ not in shared:", "        item = copy(item, memo)"]
        lines.append(f"    made.{name} = item" if plain else f"    set_{name}(made, item)")
    if named:
        lines.append("    put(value, made, memo)")
    exec("\n".join([*lines, "    return made"]), known)
    plan: Plan = known["plan"]
    return plan


def _copy_named(value: Any, made: Any, memo: Memo) -> None:
    """Copy the attributes that `value` has by name."""
    named = dict(vars(value))
    for name, item in named.items():
        if item.__class__ not in SHARED:
            named[name] = _copy(item, memo)
    object.__setattr__(made, "__dict__", named)
