"""Which requests join the batch, and what the next step does: first come, first served, on one worker.

The batch is continuous: a request joins it as soon as there is a place and leaves it when it ends. Admission has
promised its pages before, so nobody leaves for want of a page (PAG-1). Each step carries one token of every
sequence that decodes and, beside them, one prefill chunk of the sequence that came first among those that still
have prompt tokens to compute. No step is a prefill step alone while a sequence decodes, so overlapping prompts
stretch a token gap by one chunk at most (CHK-4).

All functions are pure: they decide over what they are shown and change nothing. A caller with several steps in
flight shows only the sequences that may be launched now.
"""

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from attrs import field, frozen, validators

_positive = [validators.instance_of(int), validators.ge(1)]


class Schedulable(Protocol):
    """What is looked at of a sequence."""

    @property
    def prompt_left(self) -> int:
        """Prompt tokens whose computation has not been launched; 0 where the sequence decodes."""


S = TypeVar("S", bound=Schedulable)


@frozen
class BatchLimits:
    """The bounds of a step."""

    sequences: int = field(validator=_positive)
    """Most sequences in the batch at once; each of them decodes in every step once its prompt is computed."""
    prefill_chunk: int = field(validator=_positive)
    """Most prompt tokens in one step."""


@frozen
class Chunk(Generic[S]):
    """The next `length` prompt tokens of one sequence."""

    sequence: S
    length: int


@frozen
class StepChoice(Generic[S]):
    """What one step does; never nothing."""

    decodes: tuple[S, ...]
    """Sequences that get one more token each."""
    chunk: Chunk[S] | None
    """Prompt tokens computed beside them."""

    @property
    def sequences(self) -> tuple[S, ...]:
        """Every sequence that the step serves, each once."""
        return self.decodes if self.chunk is None else (*self.decodes, self.chunk.sequence)


def places(in_batch: int, limits: BatchLimits) -> int:
    """Return how many more sequences may join a batch of `in_batch`."""
    return max(0, limits.sequences - in_batch)


def next_step(sequences: Iterable[S], limits: BatchLimits) -> StepChoice[S] | None:
    """Return what to launch for `sequences`, given in the order in which they came; None where there is nothing."""
    decodes: list[S] = []
    first: S | None = None
    for sequence in sequences:
        if sequence.prompt_left == 0:
            decodes.append(sequence)
        elif first is None:
            first = sequence
    if first is not None:
        return StepChoice(tuple(decodes), Chunk(first, min(first.prompt_left, limits.prefill_chunk)))
    return StepChoice(tuple(decodes), None) if decodes else None
