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


_SHARED: set[type] = set()
"""Kinds that were found to be shared, for a quick look."""


def _copy(value: Any, memo: Memo) -> Any:
    plan = _plan(value.__class__)
    if plan is None:
        _SHARED.add(type(value))
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
        # Later Pythons copy no counters; what one shows is its next number.
        return lambda value, _: count(int(repr(value)[len("count(") : -1]))
    if _cannot_change(kind):
        return None
    return _plan_of_object(kind)


def _cannot_change(kind: type) -> bool:
    frozen = "frozen" in getattr(kind.__setattr__, "__name__", "")
    plain = kind.__module__ in ("builtins", "_thread", "functools") or issubclass(kind, Enum)
    return plain or frozen


def _copy_dict(value: Any, memo: Memo) -> Any:
    if _SHARED.issuperset(map(type, value)) and _SHARED.issuperset(map(type, value.values())):
        made = memo[id(value)] = value.copy()
        return made
    made = memo[id(value)] = type(value)()
    for key, item in value.items():
        new = key if key.__class__ in _SHARED else _copy(key, memo)
        made[new] = item if item.__class__ in _SHARED else _copy(item, memo)
    return made


def _copy_items(value: Any, memo: Memo) -> Any:
    kinds = set(map(type, value))
    if _SHARED.issuperset(kinds) or (kinds == {tuple} and _SHARED.issuperset(map(type, chain.from_iterable(value)))):
        made = memo[id(value)] = value.copy()
        return made
    made = memo[id(value)] = type(value)()
    add = made.append if isinstance(made, list) else made.add
    for item in value:
        add(item if item.__class__ in _SHARED else _copy(item, memo))
    return made


def _copy_tuple(value: Any, memo: Memo) -> Any:
    if all(item.__class__ in _SHARED for item in value):
        return value
    parts = [_copy(item, memo) for item in value]
    return value if all(new is old for new, old in zip(parts, value, strict=True)) else type(value)(parts)


def _plan_of_object(kind: Any) -> Plan:
    """Return how objects of `kind` are copied: a function written for it, since most of the time is spent here."""
    slots = [
        name
        for base in kind.__mro__
        for name in getattr(base, "__slots__", ())
        if name not in ("__weakref__", "__dict__")
    ]
    plain = kind.__setattr__ is object.__setattr__
    known: dict[str, Any] = {"kind": kind, "new": object.__new__, "shared": _SHARED, "copy": _copy, "put": _copy_named}
    lines = ["def plan(value, memo):", "    made = memo[id(value)] = new(kind)"]
    for name in slots:
        known[f"set_{name}"] = getattr(kind, name).__set__
        lines += [f"    item = value.{name}", "    if item.__class__ not in shared:", "        item = copy(item, memo)"]
        lines.append(f"    made.{name} = item" if plain else f"    set_{name}(made, item)")
    if any("__dict__" in vars(base) for base in kind.__mro__):
        lines.append("    put(value, made, memo)")
    exec("\n".join([*lines, "    return made"]), known)
    plan: Plan = known["plan"]
    return plan


def _copy_named(value: Any, made: Any, memo: Memo) -> None:
    """Copy the attributes that `value` has by name."""
    named = dict(vars(value))
    for name, item in named.items():
        if item.__class__ not in _SHARED:
            named[name] = _copy(item, memo)
    object.__setattr__(made, "__dict__", named)
