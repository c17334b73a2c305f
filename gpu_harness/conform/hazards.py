"""A small workload in which everything that a sabotage needs happens, whatever the seed.

Prompts are repeated whole, in part, across adapters, across tenants and across a change of weights; outputs grow over
page ends; cancels come while prompts and while tokens are computed. The pool is small, so pages are used again soon.
"""

import random
from itertools import count

from kvescrow.gpu_harness.conform.workload import OWNERS, WHILE_WAITING, DrawTokens, Planned
from kvescrow.spec.vocabulary import Key

POOL_PAGES = 28
"""Three or four requests at a time; as many pages as the requests of the burst before the last may need in all."""
EPOCH_AFTER = 9
"""Requests that start before the weights change."""
SPACING = 3_000
"""Microseconds of virtual time between arrivals: requests meet, and later ones hit what earlier ones computed."""
BURST = 8
"""The place from which on requests come together, so that the last one is certain to wait."""

AMBER, BIRCH, CEDAR, AMBER_TUNED = range(len(OWNERS))


def hazards(seed: int, tokens: DrawTokens) -> tuple[Planned, ...]:
    """The workload of `seed`: tokens, output lengths and the moments of cancels are drawn, the course is not.

    One request is cancelled before it starts, while the pool has room for it; the last one, while it waits for room.
    """
    draw = random.Random(f"hazards, seed {seed}")
    first, second, third = (tokens(draw, 96) for _ in range(3))
    numbers = count()

    def ask(owner: int, prompt: list[int], output: int, cancel_at: int | None = None, twin: bool = False) -> Planned:
        number = next(numbers)
        key = Key(OWNERS[owner][0], f"hazard-{number}")
        return Planned(
            key, owner, tuple(prompt), output + draw.randrange(4), min(number, BURST) * SPACING, cancel_at, twin
        )

    withdrawn = Planned(
        Key(OWNERS[BIRCH][0], "hazard-withdrawn"), BIRCH, tuple(third[:33]), 4, SPACING, WHILE_WAITING, is_twin=False
    )
    return (
        ask(AMBER, first[:64], 20),
        withdrawn,
        ask(BIRCH, second[:40], 10),
        ask(AMBER, first[:64], 4),
        ask(BIRCH, first[:64], 4, twin=True),
        ask(AMBER_TUNED, first[:64], 4),
        ask(CEDAR, third[:70], 20, cancel_at=draw.randrange(3, 7)),
        ask(AMBER, first[:56], 6),
        ask(CEDAR, third[:70], 6, cancel_at=1),
        ask(BIRCH, second[:90], 12),
        ask(AMBER, first[:64], 4),
        ask(CEDAR, third[:70], 8),
        ask(AMBER, second[:60], 16, cancel_at=draw.randrange(3, 6)),
        ask(BIRCH, second[:80], 4),
        ask(BIRCH, third[:33], 4, cancel_at=WHILE_WAITING),
    )
