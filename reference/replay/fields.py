"""Validators of a configuration's fields: what is outside its domain is a `UserError` that names the field."""

from collections.abc import Callable
from typing import Any

from attrs import Attribute

from kvescrow.spec.vocabulary import UserError

LARGEST = 10**15
"""Largest amount or time: thirty years in microseconds."""


def whole(least: int, most: int = LARGEST) -> "Callable[[object, Attribute[int], object], None]":
    """Return a validator of integers from `least` to `most`."""

    def check(_: object, attribute: "Attribute[int]", value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise UserError(f"{attribute.name} is {value!r}: set it to an integer from {least} to {most}")

    return check


def optional_whole(least: int) -> "Callable[[object, Attribute[int | None], object], None]":
    """Return a validator of None and of integers from `least` to `LARGEST`."""
    check = whole(least)

    def check_given(instance: object, attribute: "Attribute[int | None]", value: object) -> None:
        if value is not None:
            check(instance, attribute, value)  # type: ignore[arg-type]

    return check_given


def share(_: object, attribute: "Attribute[float]", value: object) -> None:
    """Accept numbers from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise UserError(f"{attribute.name} is {value!r}: set it to a share from 0.0 to 1.0")


def nonempty(_: object, attribute: "Attribute[str]", value: object) -> None:
    """Accept None and text."""
    if value is not None and (not isinstance(value, str) or not value):
        raise UserError(f"{key_of(attribute)} is {value!r}: set it to a name")


def key_of(attribute: "Attribute[Any]") -> str:
    """Return the key that a field has in a file: a name that Python keeps for itself has an underscore here."""
    return attribute.name.rstrip("_")
