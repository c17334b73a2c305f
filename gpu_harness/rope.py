"""Rotary positions and their usual scalings, as transformers has them (`modeling_rope_utils`).

A scaling changes how fast each pair of a head turns, and for some also how long its vectors are. Both are fixed for a
model: a key is turned by its own position alone, so a page is a function of its tokens, whoever reads it later. Dynamic
scaling breaks that beyond the length that a model was trained for, since there every key turns with the length of the
whole context; it is accepted up to that length, where it changes nothing.
"""

import math
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from attrs import frozen

from kvescrow.spec.vocabulary import UserError


class RopeKind(Enum):
    """How positions beyond the trained ones are brought back among them."""

    LINEAR = "linear"
    """Every pair turns slower by the factor."""

    DYNAMIC = "dynamic"
    """The base grows with the context beyond the trained length."""

    LLAMA3 = "llama3"
    """Slow pairs turn slower by the factor, fast ones do not, those between by something between."""

    YARN = "yarn"
    """The same by another ramp, and vectors grow with the logarithm of the factor."""


@frozen
class RopeScaling:
    """A scaling with its numbers. `trained`: positions that the model was first trained for."""

    kind: RopeKind
    factor: float
    trained: int
    slow_below: float = 1.0
    """Turns over the trained length below which a pair is slow: low_freq_factor, beta_slow."""
    fast_above: float = 4.0
    """Turns above which it is fast: high_freq_factor, beta_fast."""
    amplitude: float = 1.0
    """Factor of cosine and sine."""
    whole_bounds: bool = True
    """Whether the ramp of yarn begins and ends at whole pairs."""

    @property
    def most_positions(self) -> int | None:
        """Positions up to which a page is a function of its tokens; None: all."""
        return self.trained if self.kind is RopeKind.DYNAMIC else None

    def scaled(self, frequencies: list[float], theta: float) -> list[float]:
        """Radians a position of each pair, from those of the base `theta`."""
        if self.kind is RopeKind.LINEAR:
            return [frequency / self.factor for frequency in frequencies]
        if self.kind is RopeKind.DYNAMIC:
            return frequencies
        share = self._llama3_share if self.kind is RopeKind.LLAMA3 else self._yarn_share(len(frequencies), theta)
        shares = [share(pair, frequency) for pair, frequency in enumerate(frequencies)]
        return [f * kept + f / self.factor * (1 - kept) for f, kept in zip(frequencies, shares, strict=True)]

    def _llama3_share(self, _: int, frequency: float) -> float:
        turns = self.trained * frequency / (2 * math.pi)
        return _clamped((turns - self.slow_below) / (self.fast_above - self.slow_below))

    def _yarn_share(self, pairs: int, theta: float) -> Callable[[int, float], float]:
        def pair_of(turns: float) -> float:
            return pairs * math.log(self.trained / (turns * 2 * math.pi)) / math.log(theta)

        low, high = pair_of(self.fast_above), pair_of(self.slow_below)
        if self.whole_bounds:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, 2 * pairs - 1)
        width = high - low or 0.001  # a ramp of no width is a step
        return lambda pair, _: 1 - _clamped((pair - low) / width)


def frequencies_of(theta: float, head_size: int, scaling: RopeScaling | None) -> list[float]:
    """Radians a position of the pairs (i, i + head_size / 2)."""
    plain = [theta ** -(2 * pair / head_size) for pair in range(head_size // 2)]
    return plain if scaling is None else scaling.scaled(plain, theta)


def scaling_of(rope: Mapping[str, Any], positions: int | None, where: object) -> RopeScaling | None:
    """The scaling in a `rope_scaling` or `rope_parameters` of config.json; None for the default.

    `positions`: max_position_embeddings. `where` names the file. Raises UserError for an unknown type, and for a field
    that is missing or not a positive number.
    """
    if inner := [field for field, value in rope.items() if isinstance(value, Mapping)]:
        raise UserError(f"{where}: rope field {inner[0]} is an object; this decoder turns every layer alike")
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise UserError(f"{where}: partial_rotary_factor is not 1; this decoder turns whole heads only")
    name = rope.get("rope_type", rope.get("type", "default"))
    if name == "default":
        return None
    if name not in [kind.value for kind in RopeKind]:
        known = ", ".join(kind.value for kind in RopeKind)
        raise UserError(f"{where}: rope type is {name!r}; this decoder supports default, {known}")
    kind = RopeKind(name)

    def number(field: str, default: float | None = None) -> float:
        value = rope.get(field)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
            raise UserError(f"{where}: rope field {field} is {value!r}, and must be a positive number")
        return float(value)

    def length(field: str) -> int:
        if (value := number(field, positions)) < 1:
            raise UserError(f"{where}: rope field {field} is {value}, and must be a position or more")
        return int(value)

    factor = number("factor")
    if kind is RopeKind.DYNAMIC:  # what transformers takes as trained, whatever else the file says
        return RopeScaling(kind, factor, length("max_position_embeddings"))
    trained = length("original_max_position_embeddings")
    if kind is RopeKind.LINEAR:
        return RopeScaling(kind, factor, trained)
    if kind is RopeKind.LLAMA3:
        slow, fast = number("low_freq_factor"), number("high_freq_factor")
        if slow >= fast:
            raise UserError(
                f"{where}: rope field low_freq_factor is {slow}, and must be below high_freq_factor, {fast}"
            )
        return RopeScaling(kind, factor, trained, slow, fast)
    growth = _growth(factor, 1.0)
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        growth = _growth(factor, number("mscale")) / _growth(factor, number("mscale_all_dim"))
    amplitude = number("attention_factor", growth)
    slow, fast = number("beta_slow", 1.0), number("beta_fast", 32.0)
    return RopeScaling(kind, factor, trained, slow, fast, amplitude, bool(rope.get("truncate", True)))


def _growth(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _clamped(value: float) -> float:
    return min(max(value, 0.0), 1.0)
