"""The cost model of a step: linear in what the step does (CHK-2).

    duration = fixed + per_prefill_token * prompt tokens computed
                     + per_decode_sequence * sequences that decode
                     + per_context_token * context tokens read
                     + per_attended_pair * pairs of a prompt token computed and a token that it attends to

Coefficients are integer nanoseconds, since a token read from the context costs far less than a microsecond. A pair
costs far less than that, and its coefficient is in femtoseconds. The default is synthetic: round figures for a model of
some ten billion parameters spread over several datacentre accelerators. It was measured on nothing: calibrate before
concluding anything about a machine.
"""

from collections.abc import Iterable

from attrs import field, frozen, validators

FEMTOSECONDS_PER_NANOSECOND = 10**6
FEMTOSECONDS_PER_MICROSECOND = 10**9
PERMILLE = 1000

_not_negative = [validators.instance_of(int), validators.ge(0)]
_positive = [validators.instance_of(int), validators.ge(1)]


@frozen
class StepWork:
    """What one step does; see `of_chunk` and `of_decodes`."""

    prefill_tokens: int = 0
    decode_sequences: int = 0
    context_tokens: int = 0
    """Tokens read: of each sequence, those before the ones that the step computes, each once."""
    attended_pairs: int = 0
    """(token, token at or before it) over the prompt tokens computed. What decodes attend to is what they read."""

    def __add__(self, other: "StepWork") -> "StepWork":
        return StepWork(
            self.prefill_tokens + other.prefill_tokens,
            self.decode_sequences + other.decode_sequences,
            self.context_tokens + other.context_tokens,
            self.attended_pairs + other.attended_pairs,
        )

    def times(self, steps: int) -> "StepWork":
        """Return the work of `steps` steps that do this each."""
        return StepWork(
            self.prefill_tokens * steps,
            self.decode_sequences * steps,
            self.context_tokens * steps,
            self.attended_pairs * steps,
        )


def of_chunk(start: int, length: int) -> StepWork:
    """Return the work of a prefill chunk of `length` tokens that begins at position `start`."""
    return StepWork(
        prefill_tokens=length, context_tokens=start, attended_pairs=length * start + length * (length + 1) // 2
    )


def of_decodes(contexts: Iterable[int]) -> StepWork:
    """Return the work of one decode step of sequences with these context lengths."""
    lengths = list(contexts)
    return StepWork(decode_sequences=len(lengths), context_tokens=sum(lengths))


@frozen
class StepCost:
    """Coefficients in nanoseconds, of an attended pair in femtoseconds; the default is synthetic."""

    fixed: int = field(default=5_000_000, validator=_positive)
    per_prefill_token: int = field(default=10_000, validator=_not_negative)
    per_decode_sequence: int = field(default=50_000, validator=_not_negative)
    per_context_token: int = field(default=10, validator=_not_negative)
    per_attended_pair: int = field(default=0, validator=_not_negative)

    def duration(self, work: StepWork, steps: int = 1) -> int:
        """Return the predicted duration in microseconds of `steps` steps that do `work` together.

        It is rounded up once, so that no step takes no time.
        """
        return -(-self.femtoseconds(work, steps) // FEMTOSECONDS_PER_MICROSECOND)

    def femtoseconds(self, work: StepWork, steps: int = 1) -> int:
        """Return the same exactly, in femtoseconds."""
        nanoseconds = (
            self.fixed * steps
            + self.per_prefill_token * work.prefill_tokens
            + self.per_decode_sequence * work.decode_sequences
            + self.per_context_token * work.context_tokens
        )
        return nanoseconds * FEMTOSECONDS_PER_NANOSECOND + self.per_attended_pair * work.attended_pairs


@frozen
class WorkRange:
    """The most of each that was measured: beyond it the model says nothing (CHK-2)."""

    prefill_tokens: int = field(validator=_not_negative)
    decode_sequences: int = field(validator=_not_negative)
    context_tokens: int = field(validator=_not_negative)
    attended_pairs: int = field(validator=_not_negative)

    def covers(self, work: StepWork) -> bool:
        """Whether a step of this work lies inside."""
        return (
            work.prefill_tokens <= self.prefill_tokens
            and work.decode_sequences <= self.decode_sequences
            and work.context_tokens <= self.context_tokens
            and work.attended_pairs <= self.attended_pairs
        )


@frozen
class CostModel:
    """Coefficients with where they hold and how far they may be off."""

    cost: StepCost = StepCost()
    range: WorkRange | None = None
    """None: a synthetic model holds everywhere."""
    band: int = field(default=0, validator=_not_negative)
    """By how much a measured step may lie above or below the predicted one, in thousandths of that."""

    def covers(self, work: StepWork) -> bool:
        """Whether anything is known of a step of this work."""
        return self.range is None or self.range.covers(work)

    def at_most(self, work: StepWork, steps: int = 1) -> int:
        """Return the upper edge of the band around the predicted duration, in microseconds, rounded up."""
        edge = self.cost.femtoseconds(work, steps) * (PERMILLE + self.band)
        return -(-edge // (PERMILLE * FEMTOSECONDS_PER_MICROSECOND))
