"""The figures of a design sheet: what memory holds, what each class needs, what each batch leaves for prompts."""

import math
from collections.abc import Mapping

from attrs import evolve, frozen

from kvescrow.checks.experiments.prefill_deadline import Constraints, choose, finish_of
from kvescrow.checks.sheet.worker import DTYPE_BYTES, MIB, RequestClass, WorkerSpecification
from kvescrow.reference.scheduler.chunk_rule import ChunkReply
from kvescrow.spec.vocabulary import Reason, UserError

MICROSECONDS = 1000
"""In a millisecond."""


@frozen
class MemorySplit:
    """Where the device's bytes go; the parts add up to the whole (PAG-10)."""

    device: int
    reserved: int
    activations: int
    weights: int
    page: int
    """Bytes of one page: keys and values of every layer for its tokens."""
    pages: int
    """Whole pages in what is left."""
    rest: int
    """Bytes left over, less than a page."""


@frozen
class ClassNeeds:
    """What one class takes at worst (ADM-4)."""

    name: str
    tokens: int
    pages: int
    at_once: int
    """Such requests that fit together."""
    never_fits: bool
    """Whether one alone exceeds the usable pool (ADM-6)."""


@frozen
class ChunkLine:
    """What the chunk rule answers beside one decode batch."""

    decodes: int
    reply: ChunkReply
    finish: int | None
    """Microseconds to the end of the class's longest prompt; None where no chunk is feasible."""


@frozen
class Sheet:
    """All figures of one worker."""

    memory: MemorySplit
    usable: int
    """Pages that requests may get (ADM-11)."""
    needs: tuple[ClassNeeds, ...]
    chunks: Mapping[str, tuple[ChunkLine, ...]]
    infeasible_from: Mapping[str, tuple[int, Reason] | None]
    """Class -> the smallest decode batch for which no chunk is feasible, and why; None: each batch leaves one."""
    requests_to_pass: int
    """Requests without a miss that one look needs (REL-3)."""


def sheet_of(worker: WorkerSpecification) -> Sheet:
    """Return the figures of `worker`. Raises `UserError` where its memory leaves no usable page."""
    memory = memory_split(worker)
    usable = memory.pages - worker.pages.set_aside
    if usable < 1:
        raise UserError(
            f"memory: weights, activations and what is reserved leave {memory.pages} pages, of which "
            f"{worker.pages.set_aside} are set aside; take a larger device or a smaller model"
        )
    return Sheet(
        memory=memory,
        usable=usable,
        needs=tuple(_needs(worker, name, each, usable) for name, each in worker.classes.items()),
        chunks={name: _chunks(worker, each) for name, each in worker.classes.items()},
        infeasible_from={name: infeasible_from(worker, each) for name, each in worker.classes.items()},
        requests_to_pass=requests_to_pass(
            worker.objectives.attainment_percent / 100, worker.objectives.confidence_percent / 100
        ),
    )


def memory_split(worker: WorkerSpecification) -> MemorySplit:
    """Return where the bytes go. Raises `UserError` where they do not suffice for the weights."""
    model, memory = worker.model, worker.memory
    page = page_bytes(worker)
    weights = model.parameters * DTYPE_BYTES[model.weight_dtype]
    device, reserved, activations = (
        mib * MIB for mib in (memory.device_mib, memory.reserved_mib, memory.activations_mib)
    )
    left = device - reserved - activations - weights
    if left < 0:
        raise UserError(
            f"memory: weights, activations and what is reserved exceed device_mib by {-left / MIB:,.0f} MiB; take a "
            "larger device or a smaller model"
        )
    return MemorySplit(device, reserved, activations, weights, page, left // page, left % page)


def page_bytes(worker: WorkerSpecification) -> int:
    """Return the bytes of one page: two (keys, values) x layers x KV heads x head size x tokens x bytes of a number."""
    model = worker.model
    numbers = 2 * model.layers * model.kv_heads * model.head_size * worker.pages.page_length
    return numbers * DTYPE_BYTES[model.kv_dtype]


def pages_of(worker: WorkerSpecification, tokens: int) -> int:
    """Return the pages for `tokens`, rounded up."""
    return -(-tokens // worker.pages.page_length)


def requests_to_pass(attainment: float, confidence: float) -> int:
    """Return the fewest requests that, all without a miss, show `attainment` with `confidence` in one look.

    It is the exact (Clopper-Pearson) bound: `attainment ** n <= 1 - confidence`.
    """
    return math.ceil(math.log(1 - confidence) / math.log(attainment))


def _needs(worker: WorkerSpecification, name: str, each: RequestClass, usable: int) -> ClassNeeds:
    tokens = each.prompt + each.output
    pages = pages_of(worker, tokens)
    return ClassNeeds(name, tokens, pages, usable // pages, pages > usable)


def _constraints(worker: WorkerSpecification, each: RequestClass, decodes: int) -> Constraints:
    """Return the question of a class's longest prompt beside `decodes` sequences at their class's greatest length."""
    scheduler = worker.scheduler
    return Constraints(
        gap=each.gap_ms * MICROSECONDS,
        deadline=each.first_token_ms * MICROSECONDS,
        prompt=each.prompt,
        decodes=decodes,
        context=each.prompt + each.output,
        largest=scheduler.largest_chunk,
        granule=scheduler.granule,
    )


def _chunks(worker: WorkerSpecification, each: RequestClass) -> tuple[ChunkLine, ...]:
    return tuple(_line(worker, each, decodes) for decodes in batches(worker.scheduler.sequences))


def batches(most: int) -> tuple[int, ...]:
    """Return none, the powers of two, and `most`: the batches of the table."""
    powers = [1 << power for power in range(32) if 1 << power < most]
    return (0, *powers, most)


def _line(worker: WorkerSpecification, each: RequestClass, decodes: int) -> ChunkLine:
    asked = _constraints(worker, each, decodes)
    reply = choose(asked, worker.coefficients)
    return ChunkLine(decodes, reply, finish_of(asked, worker.coefficients, reply.tokens) if reply.tokens else None)


def infeasible_from(worker: WorkerSpecification, each: RequestClass) -> tuple[int, Reason] | None:
    """Return the smallest batch up to the scheduler's for which no chunk is feasible, and why; None: there is none.

    More decodes leave less time for prompts, so it is found by bisection.
    """
    asked = _constraints(worker, each, 0)

    def reply_at(decodes: int) -> ChunkReply:
        return choose(evolve(asked, decodes=decodes), worker.coefficients)

    low, high = 0, worker.scheduler.sequences + 1
    while low < high:
        middle = (low + high) // 2
        if reply_at(middle).tokens:
            low = middle + 1
        else:
            high = middle
    return None if low > worker.scheduler.sequences else (low, reply_at(low).reason)
