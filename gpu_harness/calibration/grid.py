"""Which steps are measured: every number of decodes with short, middling and long contexts, beside chunks of all sizes.

Each episode lets some requests decode while one long prompt is computed beside them, in chunks drawn without order. So
the start of a chunk, its length and the decodes vary apart from each other, as a fit needs it.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise

from attrs import evolve, field, frozen, validators

from kvescrow.gpu_harness.calibration.workbench import Bench
from kvescrow.reference.scheduler import MeasuredStep

_positive = [validators.instance_of(int), validators.ge(1)]


@frozen
class Grid:
    """The sizes. Everything that is served later must lie inside: outside the model says nothing (CHK-2)."""

    decodes: tuple[int, ...] = (0, 2, 5, 8)
    contexts: tuple[int, ...] = (16, 128, 384)
    """Prompt tokens of the requests that decode."""
    chunks: tuple[int, ...] = (0, 8, 16, 32, 64, 96, 128, 256, 512)
    """Beside the decodes; 0 is a step of the decodes alone."""
    prompt: int = field(default=1536, validator=_positive)
    """Tokens of the prompt that is computed beside them."""

    @property
    def slots(self) -> int:
        """Requests at a time."""
        return max(self.decodes) + 1

    @property
    def steps(self) -> int:
        """Most steps of an episode, which bounds what its requests decode."""
        return len(self.chunks) * (2 + self.prompt // sum(self.chunks))

    @property
    def positions(self) -> int:
        """Most tokens of a request."""
        return max(self.prompt + 1, max(self.contexts) + self.steps)

    def between(self, draw: random.Random) -> "Grid":
        """Return a grid with chunks and contexts that lie between those of this one, for steps that no fit has seen."""
        return evolve(
            self, contexts=_between((1, *self.contexts), draw), chunks=(0, *_between(sorted(self.chunks), draw))
        )


def _between(sizes: Sequence[int], draw: random.Random) -> tuple[int, ...]:
    return tuple(draw.randrange(low + 1, high) if high - low > 1 else high for low, high in pairwise(sizes))


def measured(bench: Bench, grid: Grid, draw: random.Random) -> Iterator[MeasuredStep]:
    """Run every episode of `grid` once, in an order and with chunks that are drawn, and yield its steps."""
    episodes = [(decodes, context) for decodes in grid.decodes for context in grid.contexts]
    draw.shuffle(episodes)
    for decodes, context in episodes:
        yield from _episode(bench, grid, decodes, context, draw)


def _episode(bench: Bench, grid: Grid, decodes: int, context: int, draw: random.Random) -> Iterator[MeasuredStep]:
    requests = [bench.open(context, grid.steps) for _ in range(decodes)]
    for request in requests:
        yield bench.step([], (request, context))
    prompt = bench.open(grid.prompt, 1)
    sizes: list[int] = []
    for _ in range(grid.steps):
        sizes = sizes or draw.sample(grid.chunks, len(grid.chunks))
        size = min(sizes.pop(), prompt.prompt_left)
        if size or requests:
            yield bench.step(requests, (prompt, size) if size else None)
    for request in (*requests, prompt):
        bench.close(request)
