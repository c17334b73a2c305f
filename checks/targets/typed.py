"""Whether a value has exactly the type that is declared for it, down to the fields of records.

There is one rule for numbers: an integer is an `int`. A float, a bool or the scalar of an array library may compare
equal to one; it rounds, overflows or is written otherwise one step later.
"""

from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from attrs import fields, has

Check = Callable[[Any], str]
"""Returns what is wrong with a value; nothing where it fits."""


def misfit(value: object, hint: Any) -> str:
    """Return what in `value` has not the type `hint`; nothing where all of it has."""
    return check_of(hint)(value)


@cache
def check_of(hint: Any) -> Check:
    """Return the check of a type: of a class, a record, an enum, or a tuple, frozenset, mapping or union of such."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _any_of(hint, [check_of(part) for part in parts])
    if origin is tuple and parts[-1] is not Ellipsis:
        return _row(hint, [check_of(part) for part in parts])
    if origin in (tuple, frozenset):
        return _each(hint, origin, check_of(parts[0]))
    if origin is Mapping:
        return _mapping(*map(check_of, parts))
    if origin is Callable:
        return lambda value: "" if callable(value) else _told(value, "a function")
    if hint is Any or not isinstance(hint, type):
        return lambda value: ""
    if has(hint):
        return _record(hint)
    if hint in (int, bool, NoneType):
        return lambda value: "" if type(value) is hint else _told(value, hint.__name__)
    return lambda value: "" if isinstance(value, hint) else _told(value, hint.__name__)


def _told(value: object, due: str) -> str:
    return f"{value!r} of type {type(value).__name__}, where {due} is due"


def _any_of(hint: Any, checks: list[Check]) -> Check:
    def check(value: Any) -> str:
        return "" if any(not wrong(value) for wrong in checks) else _told(value, str(hint))

    return check


def _each(hint: Any, kind: Any, wrong: Check) -> Check:
    def check(values: Any) -> str:
        if not isinstance(values, kind):
            return _told(values, str(hint))
        return next((told for value in values if (told := wrong(value))), "")

    return check


def _row(hint: Any, checks: list[Check]) -> Check:
    def check(values: Any) -> str:
        if not isinstance(values, tuple) or len(values) != len(checks):
            return _told(values, str(hint))
        return next((told for wrong, value in zip(checks, values, strict=True) if (told := wrong(value))), "")

    return check


def _mapping(wrong_key: Check, wrong_value: Check) -> Check:
    def check(values: Any) -> str:
        if not isinstance(values, Mapping):
            return _told(values, "a mapping")
        for key, value in values.items():
            if told := wrong_key(key):
                return told
            if told := wrong_value(value):
                return f"[{key!r}]{'' if told[:1] in '.[' else ': '}{told}"
        return ""

    return check


def _record(kind: Any) -> Check:
    hints = get_type_hints(kind)
    names = [one.name for one in fields(kind)]
    checks = [(name, check_of(hints[name])) for name in names]

    def check(value: Any) -> str:
        if not isinstance(value, kind):
            return _told(value, kind.__name__)
        for name, wrong in checks:
            if told := wrong(getattr(value, name)):
                return f".{name}{'' if told[:1] in '.[' else ': '}{told}"
        return ""

    return check
