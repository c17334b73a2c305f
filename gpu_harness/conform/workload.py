"""A recorded workload made small enough for a decoder, with tenants, equal prompts across them, and cancels.

Lengths are divided by `SCALE` and cut at a bound; a block of the trace stands for a block of tokens of its own, so
equal blocks give equal tokens and the trace's prefix sharing is kept. What recorded traces lack is added and declared:
requests are dealt to the adapters of three tenants in turn, some prompts are offered again by another tenant, some
requests are cancelled.
"""

import random
from collections.abc import Sequence

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
"""Tokens that one block id stands for."""
LONGEST_PROMPT = 160
LONGEST_OUTPUT = 64
ARRIVAL_DIVISOR = 100
"""Arrivals come so much faster than recorded, so that requests meet and queue."""
TWIN_EVERY = 8
"""Every eighth request is followed by one of another tenant with the same prompt."""
CANCEL_RATE = 0.2
CANCELLED_WAITING = 0.25
"""Part of the cancels that are sent while the request waits in the queue."""

WHILE_WAITING = 0


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
    """Whether another tenant offered the same prompt just before."""


def workload(
    trace: Trace, *, requests: int, seed: int, vocabulary: int, chunk: int, cancel_rate: float = CANCEL_RATE
) -> tuple[Planned, ...]:
    """The first `requests` requests of `trace`, and their twins. The same arguments give the same workload.

    `chunk` is the longest prefill chunk, from which the number of launches of a request follows. Raises UserError
    where the trace has fewer requests.
    """
    if not 1 <= requests <= len(trace.requests):
        raise UserError(f"requests: {requests} asked for, but {trace.name} has 1 to {len(trace.requests)} to offer")
    draw = random.Random(f"cancels of a run, seed {seed}")
    planned = []
    for index, request in enumerate(trace.requests[:requests]):
        prompt = _prompt(request, seed, vocabulary)
        output = min(-(-request.output_tokens // SCALE), LONGEST_OUTPUT)
        for twin in range(2 if index % TWIN_EVERY == TWIN_EVERY - 1 else 1):
            scope = _another_tenant(index) if twin else index % len(OWNERS)
            name = f"{request.request}/twin" if twin else request.request
            planned.append(
                Planned(
                    key=Key(OWNERS[scope][0], name),
                    scope=scope,
                    prompt=prompt,
                    output=output,
                    arrival=request.arrival // ARRIVAL_DIVISOR,
                    cancel_at=_cancel(draw, cancel_rate, -(-len(prompt) // chunk) + output - 1),
                    is_twin=bool(twin),
                )
            )
    return tuple(planned)


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


def _prompt(request: TraceRequest, seed: int, vocabulary: int) -> tuple[int, ...]:
    length = -(-request.input_tokens // SCALE)
    if length > LONGEST_PROMPT:
        # Prompts that are cut end at every place of a page, as others do.
        length = LONGEST_PROMPT - length % BLOCK
    blocks = range(-(-length // BLOCK))
    names: Sequence[object] = request.block_ids or [f"{request.request}, block {block}" for block in blocks]
    tokens = [token for block in blocks for token in _block(names[block], seed, vocabulary)]
    return tuple(tokens[:length])


def _block(name: object, seed: int, vocabulary: int) -> list[int]:
    draw = random.Random(f"seed {seed}, block {name}")
    return [draw.randrange(vocabulary) for _ in range(BLOCK)]


def _cancel(draw: random.Random, rate: float, launches: int) -> int | None:
    """Three draws whatever comes of them, so that a higher rate adds cancels and moves none."""
    chosen, waiting, moment = draw.random(), draw.random(), draw.random()
    if chosen >= rate:
        return None
    # The last launches may not come, since a hit makes a prompt shorter.
    return WHILE_WAITING if waiting < CANCELLED_WAITING else 1 + int(moment * max(1, launches - 2))
