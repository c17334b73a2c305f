"""Reading of lines and fields: a `UserError` for whatever is wrong names file, line, field and remedy.

Readers see a file as a stream of numbered lines of bounded length, so that a file of any size, or of no lines
at all, costs bounded memory until it is refused.
"""

import json
from collections.abc import Iterator
from decimal import Decimal, DecimalException
from pathlib import Path
from typing import NoReturn

from attrs import frozen

from kvescrow.spec.vocabulary import UserError

MAXIMUM_LINE_BYTES = 64 * 1024 * 1024
"""Longest line that is read. A result file of 1,500 requests is one line of 0.3 MB."""
MAXIMUM_COUNT = 2**31 - 1
"""Largest token count; more is a damaged file, not a request."""
MAXIMUM_BLOCK_ID = 2**64 - 1
"""Largest block id: some tools write 64-bit hashes."""
MAXIMUM_MICROSECONDS = 10**17
"""Latest time, about 3,000 years; more is a damaged file."""


@frozen
class Place:
    """Where in a file something stands."""

    path: Path
    line: int
    within: str = ""
    """Prefix of field names, such as `result.responses[3].`."""

    def fail(self, message: str, field: str = "") -> NoReturn:
        """Raise a `UserError` for `field` here, or for the whole line."""
        named = f"{self.within}{field}".removesuffix(".")
        raise UserError(f"{self.path}:{self.line}: {named and named + ': '}{message}")


def shown(value: object) -> str:
    """Return `value` for a message, shortened; a number as the file has it."""
    text = str(value) if isinstance(value, (list, dict, Decimal)) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def read_lines(path: Path) -> Iterator[tuple[Place, str]]:
    """Yield each line that is not blank, without its end, with its place.

    Raises:
        UserError: The file cannot be read, a line is not UTF-8 text or longer than `MAXIMUM_LINE_BYTES`.

    """
    try:
        with path.open("rb") as stream:
            number = 0
            while line := stream.readline(MAXIMUM_LINE_BYTES + 1):
                number += 1
                place = Place(path, number)
                if len(line) > MAXIMUM_LINE_BYTES:
                    place.fail(f"longer than {MAXIMUM_LINE_BYTES} bytes; is this a trace?")
                if text := decoded(place, line).strip("\r\n\t "):
                    yield place, text
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; give the path of a trace") from None
    except IsADirectoryError:
        raise UserError(f"{path}: a directory; give one file in it") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None


def decoded(place: Place, line: bytes) -> str:
    """Return `line` as text; a byte order mark at the start of a file is dropped."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        place.fail("not UTF-8 text; a compressed or binary file must be unpacked or exported first")
    return text.removeprefix("\ufeff") if place.line == 1 else text


def json_object(place: Place, text: str) -> dict[str, object]:
    """Return the JSON object on this line; fractions become `Decimal`: times are rounded once, later."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        members = dict(pairs)
        if len(members) != len(pairs):
            names = [name for name, _ in pairs]
            place.fail(f"named twice: {shown(next(name for name in names if names.count(name) > 1))}")
        return members

    def no_constant(name: str) -> NoReturn:
        place.fail(f"{name} is not a JSON value")

    try:
        value = json.loads(text, parse_float=Decimal, parse_constant=no_constant, object_pairs_hook=once)
    except (ValueError, DecimalException, RecursionError) as error:
        place.fail(f"not valid JSON ({shown(str(error))}); is the line cut off?")
    if not isinstance(value, dict):
        place.fail(f"expected a JSON object, found {shown(value)}")
    return value


def known_fields(place: Place, members: dict[str, object], known: frozenset[str]) -> None:
    """Refuse a field that the format does not have, since it might change what the others mean."""
    for name in members:
        if name not in known:
            place.fail(f"unknown field; known are {', '.join(sorted(known))}", shown(name))


def required(place: Place, members: dict[str, object], field: str) -> object:
    """Return a field that must be there."""
    if field not in members:
        place.fail("missing; every request needs it", field)
    return members[field]


def whole_number(place: Place, field: str, value: object, least: int, most: int) -> int:
    """Return `value`, which must be an integer from `least` to `most`; `true` is no number."""
    if isinstance(value, bool) or not isinstance(value, int):
        place.fail(f"expected an integer, found {shown(value)}", field)
    if not least <= value <= most:
        place.fail(f"{shown(value)} is outside {least} to {most}", field)
    return value


def token_count(place: Place, field: str, value: object) -> int:
    """Return a number of tokens, at least one."""
    return whole_number(place, field, value, 1, MAXIMUM_COUNT)


def microseconds(place: Place, field: str, value: object, unit: int) -> int:
    """Return the time `value`, given in units of `unit` microseconds, rounded to the microsecond."""
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        place.fail(f"expected a number, found {shown(value)}", field)
    if not 0 <= value <= MAXIMUM_MICROSECONDS // unit:
        place.fail(f"{shown(str(value))} is outside 0 to {MAXIMUM_MICROSECONDS // unit}", field)
    return round(Decimal(value) * unit)


def nonempty_text(place: Place, field: str, value: object) -> str:
    """Return `value`, which must be text."""
    if not isinstance(value, str) or not value:
        place.fail(f"expected text, found {shown(value)}", field)
    return value


def decimal_number(place: Place, field: str, text: str) -> Decimal:
    """Return the plain decimal number in a CSV cell."""
    if not text.isascii() or any(character not in "0123456789.+-eE" for character in text):
        place.fail(f"expected a number, found {shown(text)}", field)
    try:
        return Decimal(text)
    except DecimalException:
        place.fail(f"expected a number, found {shown(text)}", field)


def integer_cell(place: Place, field: str, text: str) -> int:
    """Return the integer in a CSV cell."""
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        place.fail(f"expected a whole number without sign, found {shown(text)}", field)
    return int(text)
