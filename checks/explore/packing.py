"""States as 63-bit integers: one bit field a kept field, and what a place holds at neighbouring bits."""

from collections.abc import Sequence

from attrs import frozen

from kvescrow.checks.explore.views import Variable
from kvescrow.spec.vocabulary import UserError

BITS = 63
"""Bits of a state: an int64 without its sign."""


@frozen
class Run:
    """Neighbouring bits of a state, and where they go in a shorter number."""

    shift: int
    mask: int
    place: int


@frozen
class Packing:
    """Where each variable stands. A code never leaves its field: whoever packs has checked it against the domain."""

    shifts: tuple[int, ...]
    widths: tuple[int, ...]

    @property
    def bits(self) -> int:
        """Return how many bits a state takes."""
        return sum(self.widths)

    def pack(self, codes: Sequence[int]) -> int:
        """Return the state as one integer."""
        return sum(code << shift for code, shift in zip(codes, self.shifts, strict=True))

    def unpack(self, state: int) -> list[int]:
        """Return the codes of a state."""
        return [(state >> s) & ((1 << w) - 1) for s, w in zip(self.shifts, self.widths, strict=True)]

    def mask(self, variables: Sequence[int]) -> int:
        """Return the bits of `variables`."""
        return sum(((1 << self.widths[v]) - 1) << self.shifts[v] for v in variables)

    def runs(self, variables: Sequence[int]) -> tuple[Run, ...]:
        """Return how to draw `variables`, in their order, together into one short number."""
        runs: list[Run] = []
        place = 0
        for variable in variables:
            shift, width = self.shifts[variable], self.widths[variable]
            last = runs[-1] if runs else None
            if last is not None and last.shift + last.mask.bit_length() == shift:
                runs[-1] = Run(last.shift, (last.mask << width) | ((1 << width) - 1), last.place)
            else:
                runs.append(Run(shift, (1 << width) - 1, place))
            place += width
        return tuple(runs)


def packing_of(instance: str, variables: Sequence[Variable]) -> Packing:
    """Return the packing of `variables`, in their order from the lowest bit; raise `UserError` where they do not fit."""
    widths = [max(1, (len(variable.domain) - 1).bit_length()) for variable in variables]
    if sum(widths) > BITS:
        raise UserError(
            f"instance {instance}: a state takes {sum(widths)} bits and the packed engine has {BITS}; choose fewer "
            "slots or smaller domains, or `--engine interpreter` or `dense`"
        )
    shifts = [sum(widths[:index]) for index in range(len(widths))]
    return Packing(tuple(shifts), tuple(widths))
