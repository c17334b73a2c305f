"""The design sheet of one worker as Markdown (EXP-2)."""

from collections.abc import Iterable, Sequence

from attrs import frozen

from kvescrow.checks.experiments.result import Origin, milliseconds
from kvescrow.checks.sheet.figures import ChunkLine, Sheet, sheet_of
from kvescrow.checks.sheet.worker import WorkerSpecification
from kvescrow.spec.language.table import Row
from kvescrow.spec.render.markdown import code, document, table
from kvescrow.spec.tables.reservation import RESERVATION
from kvescrow.spec.vocabulary import Decision

UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


@frozen
class Assumption:
    """One thing that the figures take for granted."""

    says: str
    overturned_by: str
    """The observation that would show it to be wrong."""


def sheet_page(worker: WorkerSpecification) -> str:
    """Return the whole sheet. Raises `UserError` where the worker cannot serve at all."""
    sheet = sheet_of(worker)
    return document(
        f"# Design sheet: {worker.name}",
        "Computed by `kvescrow sheet` from the worker's specification, with the functions that the reference decides "
        f"by. Step costs are **{worker.coefficients.origin.value}**.",
        _memory(worker, sheet),
        _admission(worker, sheet),
        _chunks(worker, sheet),
        _cancellation(),
        _release(worker, sheet),
        _assumptions(worker),
    )


def binary(size: int) -> str:
    """Return bytes in the largest binary unit that is not below one."""
    for unit, name in UNITS:
        if size >= unit:
            return f"{size / unit:,.2f} {name}"
    return f"{size} B"


def _memory(worker: WorkerSpecification, sheet: Sheet) -> str:
    memory, model = sheet.memory, worker.model
    parts = [
        ("device", memory.device, "as the driver says"),
        ("reserved", -memory.reserved, "driver, context, other processes, fragmentation"),
        ("activations", -memory.activations, "the largest step's intermediate results"),
        ("weights", -memory.weights, f"{model.parameters:,} parameters in {model.weight_dtype}"),
        ("pages", -memory.pages * memory.page, f"{memory.pages:,} pages of {binary(memory.page)}"),
        ("left over", memory.rest, "less than a page"),
    ]
    rows = [(name, f"{'-' if size < 0 else ''}{binary(abs(size))}", f"{size:,}", why) for name, size, why in parts]
    formula = (
        f"2 x {model.layers} layers x {model.kv_heads} KV heads x {model.head_size} x {worker.pages.page_length} tokens"
    )
    return document(
        "## Memory",
        table(("part", "size", "bytes", "what"), rows),
        f"A page is {formula}, in {model.kv_dtype}: **{binary(memory.page)}**, {memory.page:,} bytes. "
        f"{memory.pages:,} pages less {worker.pages.set_aside} set aside are **{sheet.usable:,} usable pages**, "
        f"{sheet.usable * worker.pages.page_length:,} tokens.",
    ).rstrip()


def _admission(worker: WorkerSpecification, sheet: Sheet) -> str:
    rows = [
        (
            each.name,
            f"{each.tokens:,}",
            f"{each.pages:,}",
            "never fits" if each.never_fits else f"{each.at_once:,}",
        )
        for each in sheet.needs
    ]
    return document(
        "## Admission",
        f"A request of n pages is admitted where `active + n <= {sheet.usable}`, checked and charged in one step; n is "
        f"its worst case, prompt and whole output rounded up to pages of {worker.pages.page_length} tokens. "
        f"n above {sheet.usable} is refused at once as NEVER_FITS; what does not fit now waits, and holds nothing.",
        table(("class", "tokens at most", "pages at most", "at once, if alone"), rows),
    ).rstrip()


def _chunks(worker: WorkerSpecification, sheet: Sheet) -> str:
    parts = []
    for name, lines in sheet.chunks.items():
        each = worker.classes[name]
        parts += [
            f"### {name}",
            f"A prompt of {each.prompt:,} tokens within {each.first_token_ms:,} ms, beside decodes of "
            f"{each.prompt + each.output:,} tokens each with a gap of {each.gap_ms} ms.",
            table(("decodes", "chunk", "step at most", "prompt computed after", "answer"), map(_chunk_row, lines)),
            _feasible_until(worker, sheet, name),
        ]
    return document(
        "## Chunks",
        "The largest chunk whose step, beside the decodes at hand, ends inside their token gap; and whether the prompt "
        "then meets its deadline.",
        *parts,
    ).rstrip()


def _chunk_row(line: ChunkLine) -> Sequence[str]:
    return (
        str(line.decodes),
        f"{line.reply.tokens:,}" if line.reply.tokens else "none",
        milliseconds(line.reply.duration),
        "-" if line.finish is None else milliseconds(line.finish),
        "feasible" if line.reply.tokens else line.reply.reason.value,
    )


def _feasible_until(worker: WorkerSpecification, sheet: Sheet, name: str) -> str:
    found = sheet.infeasible_from[name]
    at_once = next(each.at_once for each in sheet.needs if each.name == name)
    if found is None:
        return f"Every batch up to {worker.scheduler.sequences} leaves a feasible chunk."
    batch, reason = found
    memory = f"Memory admits {at_once:,} such requests at once"
    limit = "fewer, so pages run out first" if at_once < batch else "more, so the batch must be kept smaller than that"
    return f"**Infeasible from {batch} decodes on**: {reason.value}. {memory}: {limit}."


def _cancellation() -> str:
    """Return the machine of a cancel, read from the rows of the reservation table."""
    rows = [
        (code(row.id), ", ".join(state.name for state in row.sources), row.to.name if row.to else "stays", row.note)
        for row in _rows_of_a_cancel()
    ]
    return document(
        "## Cancellation",
        "A cancel of running work only asks. Its pages stay charged until the owner's receipt, or the proof that the "
        "owner is fenced off, says that no launched step can touch them.",
        table(("row", "in", "to", "since"), rows),
    ).rstrip()


def _rows_of_a_cancel() -> Iterable[Row]:
    """Yield the rows that act on a cancel, or confirm a stop."""
    acts = (Decision.ACCEPTED, Decision.RELEASED)
    for row in RESERVATION.rows:
        if row.event in ("cancel", "finish", "fence") and row.reply.decision in acts and row.to is not None:
            yield row


def _release(worker: WorkerSpecification, sheet: Sheet) -> str:
    objectives = worker.objectives
    rows = [
        (
            name,
            f"first token within {each.first_token_ms:,} ms, every gap within {each.gap_ms} ms, and the right output",
        )
        for name, each in worker.classes.items()
    ]
    return document(
        "## Release",
        f"A change ships where at least {objectives.attainment_percent} % of the offered requests of every class meet "
        f"all objectives, at {objectives.confidence_percent} % confidence, from the intended arrival on. In one look "
        f"that takes at least **{sheet.requests_to_pass:,} requests** of a class without a miss. Refusals, time-outs "
        "and failures are misses; no data is a hold; a broken invariant rolls back, whatever the speed.",
        table(("class", "a request is good where"), rows),
        "The gates are read in this order: validity of the run, safety, correctness, fairness, attainment, and "
        "no inferiority against a baseline that runs at the same time.",
    ).rstrip()


def _assumptions(worker: WorkerSpecification) -> str:
    rows = [(each.says, each.overturned_by) for each in assumptions_of(worker)]
    return document("## Assumptions", table(("assumed", "overturned where one observes"), rows)).rstrip()


def assumptions_of(worker: WorkerSpecification) -> tuple[Assumption, ...]:
    """Return what the sheet takes for granted, each with the observation that would overturn it."""
    model, memory = worker.model, worker.memory
    measured = worker.coefficients.origin is Origin.MEASURED
    costs = "as measured elsewhere" if measured else "synthetic, measured on nothing"
    return (
        Assumption(
            f"The device has {memory.device_mib:,} MiB, and others take at most {memory.reserved_mib:,} of them.",
            "the driver reports less, or an allocation fails while pages are free",
        ),
        Assumption(
            f"Weights take {model.parameters:,} numbers of {model.weight_dtype} and nothing beside them.",
            "memory after loading exceeds it: scales of a quantisation, padding, a second copy",
        ),
        Assumption(
            f"No step needs more than {memory.activations_mib:,} MiB beside weights and pages.",
            f"the peak of a step with {worker.scheduler.largest_chunk:,} prompt tokens is above it",
        ),
        Assumption(
            "Every layer keeps keys and values of every token, in one type and with the same heads.",
            "the allocated pool divided by its pages is not the size of a page: windowed, latent or shared layers",
        ),
        Assumption(
            "Requests use what they reserve: prompt and whole output.",
            "mean use is far below the reservation, so that estimates with growth would admit more",
        ),
        Assumption(
            f"A step takes a fixed time and time in proportion to its work; the coefficients are {costs}.",
            "measured steps leave the stated band around the prediction",
        ),
        Assumption(
            "Beside a prompt, each decode has the greatest length of its class.",
            "decodes of a longer class share the batch, so a step takes longer than predicted",
        ),
        Assumption(
            "A prompt is computed as soon as it arrives, alone among prompts.",
            "requests wait in the queue or behind other prompts, and the first token comes later than the table says",
        ),
        Assumption(
            "Stops are confirmed within a step of their cancel.",
            "reclaim lag grows while steps do not: receipts are lost, or copies go on",
        ),
        Assumption(
            "Requests meet or miss their objectives independently.",
            "misses come in bursts, so that blocks of requests vary more than a binomial count",
        ),
    )
