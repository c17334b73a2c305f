"""States as 63-bit integers, a run of bits a digit.

A digit is one kept field. Where that takes too many bits, a digit is a whole place: the records that occur in it are
numbered as they are met. Either way a number that does not fit its bits is an error, found when the step that leads
to it is first tabulated, so that no arithmetic on states can spill into a neighbour.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate

from attrs import define, evolve, field, frozen

from kvescrow.checks.explore.views import Variable
from kvescrow.spec.vocabulary import UserError

BITS = 63
"""Bits of a state: an int64 without its sign."""
MOST_BITS, LEAST_BITS = 10, 5
"""Bits of a place whose records are numbered: as many as there is room for, and never so few that any place needs
more."""
KEY_BITS = 33
"""Most bits of a key where each key has a bit of its own: 1 GiB."""
PLAIN_KEY_BITS = 24
"""A key that is as short as this is not made shorter by numbering records."""


@define(eq=False)
class Digit:
    """Neighbouring bits, and the variables that they stand for."""

    name: str
    variables: tuple[int, ...]
    widths: tuple[int, ...]
    """Bits that each variable takes by itself."""
    width: int
    shift: int = 0
    numbers: dict[tuple[int, ...], int] | None = None
    """Codes of the variables -> number, where the records of the place are numbered."""
    records: list[tuple[int, ...]] = field(factory=list)

    def number(self, codes: Sequence[int]) -> int:
        """Return the number of the record that `codes`, of all variables, have here."""
        own = tuple(codes[v] for v in self.variables)
        if self.numbers is None:
            return own[0]
        number = self.numbers.setdefault(own, len(self.records))
        if number == len(self.records):
            if number >> self.width:
                raise PackedOverflow(
                    f"{self.name} has more than {1 << self.width} records, and a state has no bits for more: choose "
                    "smaller domains or fewer places, or `--engine interpreter`"
                )
            self.records.append(own)
        return number


class PackedOverflow(UserError):
    """A field needs more bits than it has; the message names it."""


@frozen
class Run:
    """Neighbouring bits of a state, and where they go in a shorter number."""

    shift: int
    mask: int
    place: int


@frozen
class Packing:
    """All digits, from the lowest bit."""

    digits: tuple[Digit, ...]
    count: int
    """How many variables there are."""
    apart: int = 0
    """The lowest bits, of digits that follow from the others; the bits above them are the key of a state."""

    indexed: bool = False
    """Whether a state is told by an index: its key, short enough for a bit each."""

    @cached_property
    def digit_of(self) -> Mapping[int, Digit]:
        """Return the digit that stands for each variable."""
        return {variable: digit for digit in self.digits for variable in digit.variables}

    @property
    def key_bits(self) -> int:
        """Return how many bits tell one state from another."""
        return self.bits - self.apart

    @property
    def bits(self) -> int:
        """Return how many bits a state takes."""
        return sum(digit.width for digit in self.digits)

    def pack(self, codes: Sequence[int]) -> int:
        """Return the state as one integer."""
        return sum(digit.number(codes) << digit.shift for digit in self.digits)

    def unpack(self, state: int) -> list[int]:
        """Return the codes of a state; bits of records that were never met stand for the first one."""
        codes = [0] * self.count
        for digit in self.digits:
            number = (state >> digit.shift) & ((1 << digit.width) - 1)
            if digit.numbers is None:
                codes[digit.variables[0]] = number
            else:
                for variable, code in zip(digit.variables, digit.records[number], strict=True):
                    codes[variable] = code
        return codes

    def delta(self, codes: list[int], changes: Sequence[tuple[int, int]], read: set[int]) -> int:
        """Return what is added to the packed state when `changes` (variable, new code) are made.

        Where the records of a place are numbered this depends on the whole record, which is noted in `read`.
        """
        after = list(codes)
        for variable, code in changes:
            after[variable] = code
        total = 0
        for digit in {self.digit_of[variable].shift: self.digit_of[variable] for variable, _ in changes}.values():
            total += (digit.number(after) - digit.number(codes)) << digit.shift
            read.update(digit.variables)
        return total

    def of(self, variables: Sequence[int]) -> tuple[Digit, ...]:
        """Return the digits that stand for any of `variables`."""
        wanted = set(variables)
        return tuple(digit for digit in self.digits if wanted.intersection(digit.variables))


def mask(digits: Sequence[Digit]) -> int:
    """Return the bits of `digits` in a state."""
    return sum(((1 << digit.width) - 1) << digit.shift for digit in digits)


def runs(digits: Sequence[Digit]) -> tuple[Run, ...]:
    """Return how to draw `digits`, in their order, together into one short number."""
    found: list[Run] = []
    place = 0
    for digit in digits:
        last = found[-1] if found else None
        if last is not None and last.shift + last.mask.bit_length() == digit.shift:
            found[-1] = Run(last.shift, (last.mask << digit.width) | ((1 << digit.width) - 1), last.place)
        else:
            found.append(Run(digit.shift, (1 << digit.width) - 1, place))
        place += digit.width
    return tuple(found)


def wide_packing_of(variables: Sequence[Variable]) -> Packing:
    """Return a packing with a digit for each variable, however many bits that takes: the same in every process."""
    return _placed(_plain(variables), len(variables))


def _plain(variables: Sequence[Variable]) -> list[Digit]:
    widths = [_width(len(variable.domain)) for variable in variables]
    return [Digit(str(v), (n,), (width,), width) for n, (v, width) in enumerate(zip(variables, widths, strict=True))]


def packing_of(instance: str, variables: Sequence[Variable]) -> Packing:
    """Return a packing of `variables`; raise `UserError` where there are too many."""
    plain = _plain(variables)
    if sum(digit.width for digit in plain) <= BITS:
        return _placed(plain, len(variables))
    places: dict[str, list[int]] = {}
    for number, variable in enumerate(variables):
        places.setdefault(variable.place, []).append(number)
    largest = max(len(numbers) for numbers in places.values())
    for most in range(MOST_BITS, LEAST_BITS - 1, -1):
        for numbered in range(largest, 1, -1):
            digits = [d for place, own in places.items() for d in _of_place(place, own, plain, numbered, most)]
            if sum(digit.width for digit in digits) <= BITS:
                return _placed(digits, len(variables))
    raise UserError(
        f"instance {instance}: {len(places)} places do not fit the {BITS} bits of a packed state; choose fewer, or "
        "`--engine interpreter`"
    )


def short_packings_of(variables: Sequence[Variable], follow: Sequence[int]) -> Iterator[Packing]:
    """Yield packings with a key of at most `KEY_BITS`, shortest first; a longer one has room for more records.

    The variables that `follow` from the others are no part of the key.
    """
    plain = _plain(variables)
    apart = [plain[number] for number in follow]
    places: dict[str, list[int]] = {}
    for number, variable in enumerate(variables):
        if number not in follow:
            places.setdefault(variable.place, []).append(number)
    own = sum(plain[number].width for numbers in places.values() for number in numbers)
    for most in range(LEAST_BITS, MOST_BITS + 1):
        wide = {place for place, numbers in places.items() if sum(plain[n].width for n in numbers) > most}
        if own <= PLAIN_KEY_BITS:
            wide = set()
        key = [
            digit
            for place, numbers in places.items()
            for digit in _of_place(place, numbers, plain, 1 if place in wide else len(numbers) + 1, most)
        ]
        bits = sum(digit.width for digit in key)
        if bits > KEY_BITS or bits + sum(digit.width for digit in apart) > BITS:
            return
        placed = _placed([*apart, *key], len(variables))
        yield evolve(placed, apart=sum(digit.width for digit in apart), indexed=True)
        if not wide:
            return


def _of_place(place: str, own: list[int], plain: list[Digit], numbered: int, most: int) -> list[Digit]:
    """Return the digits of a place: one for all of it where it has at least `numbered` fields, else one a field."""
    if len(own) < numbered:
        return [plain[n] for n in own]
    widths = tuple(plain[n].width for n in own)
    return [Digit(place, tuple(own), widths, min(most, sum(widths)), numbers={})]


def _placed(digits: Sequence[Digit], count: int) -> Packing:
    shifts = accumulate((digit.width for digit in digits), initial=0)
    placed = tuple(evolve(digit, shift=shift) for digit, shift in zip(digits, shifts, strict=False))
    return Packing(placed, count)


def _width(values: int) -> int:
    return max(1, (values - 1).bit_length())
