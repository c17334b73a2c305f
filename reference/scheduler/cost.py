"""The cost model of a step: linear in what the step does (CHK-2).

    duration = fixed + per_prefill_token * prompt tokens computed
                     + per_decode_sequence * sequences that decode
                     + per_context_token * context tokens read

Coefficients are integer nanoseconds, since a token read from the context costs far less than a microsecond. The
default is synthetic: round figures for a model of some ten billion parameters spread over several datacentre
accelerators. It was measured on nothing: calibrate before concluding anything about a machine.
"""

from collections.abc import Iterable

from attrs import field, frozen, validators

NANOSECONDS_PER_MICROSECOND = 1000

_not_negative = [validators.instance_of(int), validators.ge(0)]
_positive = [validators.instance_of(int), validators.ge(1)]


@frozen
class StepWork:
    """What one step does; see `of_chunk` and `of_decodes`."""

    prefill_tokens: int = 0
    decode_sequences: int = 0
    context_tokens: int = 0
    """Tokens read: of each sequence, those before the ones that the step computes, each once."""

    def __add__(self, other: "StepWork") -> "StepWork":
        return StepWork(
            self.prefill_tokens + other.prefill_tokens,
            self.decode_sequences + other.decode_sequences,
            self.context_tokens + other.context_tokens,
        )


def of_chunk(start: int, length: int) -> StepWork:
    """Return the work of a prefill chunk of `length` tokens that begins at position `start`."""
    return StepWork(prefill_tokens=length, context_tokens=start)


def of_decodes(contexts: Iterable[int]) -> StepWork:
    """Return the work of one decode step of sequences with these context lengths."""
    lengths = list(contexts)
    return StepWork(decode_sequences=len(lengths), context_tokens=sum(lengths))


@frozen
class StepCost:
    """Coefficients in nanoseconds; the default is synthetic."""

    fixed: int = field(default=5_000_000, validator=_positive)
    per_prefill_token: int = field(default=10_000, validator=_not_negative)
    per_decode_sequence: int = field(default=50_000, validator=_not_negative)
    per_context_token: int = field(default=10, validator=_not_negative)

    def duration(self, work: StepWork) -> int:
        """Return the predicted duration of a step in microseconds, rounded up, so that no step takes no time."""
        nanoseconds = (
            self.fixed
            + self.per_prefill_token * work.prefill_tokens
            + self.per_decode_sequence * work.decode_sequences
            + self.per_context_token * work.context_tokens
        )
        return -(-nanoseconds // NANOSECONDS_PER_MICROSECOND)
