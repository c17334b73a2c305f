"""The decisions of the scheduler, over every small batch."""

from __future__ import annotations

import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from kvescrow.reference.scheduler import BatchLimits, Chunk, StepChoice, next_step, places


@frozen
class Waiting:
    name: int
    prompt_left: int


def batch(*prompts_left: int) -> list[Waiting]:
    return [Waiting(name, left) for name, left in enumerate(prompts_left)]


def test_nothing_to_do_is_no_step() -> None:
    assert next_step([], BatchLimits(4, 8)) is None


def test_every_decoding_sequence_is_served_beside_the_chunk_of_the_first_prompt() -> None:
    first, second, third, fourth = batch(0, 20, 5, 0)
    assert next_step([first, second, third, fourth], BatchLimits(4, 8)) == StepChoice((first, fourth), Chunk(second, 8))


def test_a_prompt_ends_with_what_is_left_of_it() -> None:
    (only,) = batch(3)
    assert next_step([only], BatchLimits(4, 8)) == StepChoice((), Chunk(only, 3))


def test_a_step_may_decode_alone() -> None:
    sequences = batch(0, 0)
    choice = next_step(sequences, BatchLimits(4, 8))
    assert choice == StepChoice(tuple(sequences), None)
    assert choice.sequences == tuple(sequences)


@pytest.mark.parametrize(("in_batch", "free"), [(0, 4), (3, 1), (4, 0), (5, 0)])
def test_places(in_batch: int, free: int) -> None:
    assert places(in_batch, BatchLimits(4, 8)) == free


@pytest.mark.parametrize(("sequences", "chunk"), [(0, 8), (4, 0), (-1, 8)])
def test_a_batch_without_room_is_refused(sequences: int, chunk: int) -> None:
    with pytest.raises(ValueError, match="must be >= 1"):
        BatchLimits(sequences, chunk)


@given(st.lists(st.integers(0, 30), max_size=8), st.integers(1, 10))
def test_no_sequence_that_decodes_is_left_out_and_prompts_go_in_order(prompts: list[int], size: int) -> None:
    """CHK-4: a token gap holds one chunk at most."""
    sequences = batch(*prompts)
    choice = next_step(sequences, BatchLimits(8, size))
    if not prompts:
        assert choice is None
        return
    assert choice is not None
    assert list(choice.decodes) == [each for each in sequences if each.prompt_left == 0]
    prompting = [each for each in sequences if each.prompt_left > 0]
    if prompting:
        assert choice.chunk == Chunk(prompting[0], min(size, prompting[0].prompt_left))
    else:
        assert choice.chunk is None
    assert len(set(choice.sequences)) == len(choice.sequences)
