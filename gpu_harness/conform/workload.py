"""A recorded workload made small enough for a decoder, with tenants, equal prompts across them, and cancels.

Lengths are divided by `SCALE` and cut at a bound; a block of the trace stands for tokens of its own, so equal blocks
give equal tokens and the trace's prefix sharing is kept. What recorded traces lack is added and declared:
requests are dealt to the adapters of three tenants in turn, some prompts are offered again by another tenant or by the
same one, some requests are cancelled.
"""

import random
from collections.abc import Callable, Iterator, Sequence

from attrs import frozen

from kvescrow.gpu_harness.pages import PAGE_LENGTH
from kvescrow.reference.traces import Trace, TraceRequest
from kvescrow.spec.vocabulary import Key, PrefixScope, UserError

TENANTS = ("amber", "birch", "cedar")
OWNERS = (("amber", None), ("birch", "tuned"), ("cedar", "tuned"), ("amber", "tuned"))
"""Tenant and adapter, by the number that a request names: one tenant has an adapter beside the base model."""
EPOCHS = 2
"""Weight epochs of a run: weights are changed once, if at all."""
SCOPES = EPOCHS * len(OWNERS)
"""Each has an adapter of its own in the weights, so that a page under another scope has other bits."""

SCALE = 16
"""Tokens of the trace for one of the decoder: a block of 512 becomes two pages."""
BLOCK = 512 // SCALE
"""Tokens that are drawn at once for a trace without block ids."""
LONGEST_PROMPT = 160
LONGEST_OUTPUT = 64
MEAN_GAP = 1_000
"""Microseconds of virtual time between arrivals on average, whatever was recorded: requests meet, and queue."""
ECHO_DELAY = 15_000
"""Microseconds after which a prompt is offered again: it is computed by then, if its request did not wait long."""
TWIN_EVERY = 7
"""The prompt of every seventh request is offered again by another tenant."""
REPEAT_EVERY = 5
"""Every fifth request is offered again by the same tenant."""
CANCEL_RATE = 0.2
CANCELLED_WAITING = 0.25
"""Part of the cancels that are sent while the request waits in the queue."""

TWIN, REPEAT = "/twin", "/repeat"
"""What is added to the name of a request that is offered again."""
WHILE_WAITING = 0

DrawTokens = Callable[[random.Random, int], list[int]]
"""So many tokens of content, drawn."""


@frozen
class Planned:
    """One request as it is offered. Tokens are ids; `arrival` is in microseconds of virtual time."""

    key: Key
    scope: int
    """Number of tenant and adapter in `OWNERS`."""
    prompt: tuple[int, ...]
    output: int
    """Tokens to generate; there is no end token."""
    arrival: int
    cancel_at: int | None
    """The launch, counted from 1, that is in flight when the client cancels; WHILE_WAITING; None: never."""
    is_twin: bool
    """Whether another tenant has offered the same prompt before."""


def any_token(vocabulary: int) -> DrawTokens:
    """Tokens without meaning: each one of the vocabulary is as likely."""
    return lambda draw, count: [draw.randrange(vocabulary) for _ in range(count)]


def workload(
    trace: Trace, *, requests: int, seed: int, tokens: DrawTokens, chunk: int, cancel_rate: float = CANCEL_RATE
) -> tuple[Planned, ...]:
    """The first `requests` requests of `trace`, their twins and repeats. The same arguments give the same workload.

    `tokens` draws the content of a block. `chunk` is the longest prefill chunk, from which the number of launches of a
    request follows. Raises UserError where the trace has fewer requests.
    """
    if not 1 <= requests <= len(trace.requests):
        raise UserError(f"requests: {requests} asked for, but {trace.name} has 1 to {len(trace.requests)} to offer")
    draw = random.Random(f"cancels of a run, seed {seed}")
    last = trace.requests[requests - 1].arrival
    planned = []
    for index, request in enumerate(trace.requests[:requests]):
        prompt = _prompt(request, seed, tokens)
        output = min(-(-request.output_tokens // SCALE), LONGEST_OUTPUT)
        launches = -(-len(prompt) // chunk) + output - 1
        arrival = request.arrival * MEAN_GAP * requests // max(1, last)
        for suffix, scope in _offers(index):
            planned.append(
                Planned(
                    key=Key(OWNERS[scope][0], f"{request.request}{suffix}"),
                    scope=scope,
                    prompt=prompt,
                    output=output,
                    arrival=arrival + (ECHO_DELAY if suffix else 0),
                    cancel_at=_cancel(draw, cancel_rate, launches),
                    is_twin=suffix == TWIN,
                )
            )
    return tuple(sorted(planned, key=lambda each: each.arrival))


def _offers(index: int) -> Iterator[tuple[str, int]]:
    """Under which names, and by whom, the trace's request `index` is offered."""
    own = index % len(OWNERS)
    yield "", own
    if index % TWIN_EVERY == TWIN_EVERY - 1:
        yield TWIN, _another_tenant(index)
    if index % REPEAT_EVERY == REPEAT_EVERY - 1:
        yield REPEAT, own


def scope_number(owner: int, epoch: int) -> int:
    """The number of a scope, in the stamps of pages and in the weights."""
    return epoch * len(OWNERS) + owner


def prefix_scope(number: int) -> PrefixScope:
    """The scope record of a number (SCO-1)."""
    epoch, owner = divmod(number, len(OWNERS))
    tenant, adapter = OWNERS[owner]
    return PrefixScope(tenant=tenant, weight_epoch=epoch, adapter=adapter, page_length=PAGE_LENGTH)


def _another_tenant(index: int) -> int:
    """The next owner after that of request `index` that is another tenant."""
    own = OWNERS[index % len(OWNERS)][0]
    return next(
        number % len(OWNERS) for number in range(index + 1, index + 4) if OWNERS[number % len(OWNERS)][0] != own
    )


def _prompt(request: TraceRequest, seed: int, draw_tokens: DrawTokens) -> tuple[int, ...]:
    length = -(-request.input_tokens // SCALE)
    if length > LONGEST_PROMPT:
        # Prompts that are cut end at every place of a page, as others do.
        length = LONGEST_PROMPT - length % BLOCK
    size = request.block_length // SCALE or BLOCK
    blocks = range(-(-length // size))
    names: Sequence[object] = request.block_ids or [f"{request.request}, block {block}" for block in blocks]
    tokens = [token for block in blocks for token in _block(names[block], seed, draw_tokens, size)]
    return tuple(tokens[:length])


def _block(name: object, seed: int, draw_tokens: DrawTokens, size: int) -> list[int]:
    return draw_tokens(random.Random(f"seed {seed}, block {name}"), size)


def _cancel(draw: random.Random, rate: float, launches: int) -> int | None:
    """Three draws whatever comes of them, so that a higher rate adds cancels and moves none."""
    chosen, waiting, moment = draw.random(), draw.random(), draw.random()
    if chosen >= rate:
        return None
    # The last launches may not come, since a hit makes a prompt shorter.
    return WHILE_WAITING if waiting < CANCELLED_WAITING else 1 + int(moment * max(1, launches - 2))
