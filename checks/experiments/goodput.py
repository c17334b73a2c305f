"""Why a larger chunk can raise prompt throughput and lower goodput (REL-1, CHK-1).

Short requests of a chat decode while long documents are computed beside them. The same workload is replayed once for
each chunk. A larger chunk has fewer steps, so more prompt tokens a second; and each step keeps the chat's decodes
waiting longer, until their token gap is missed. Goodput counts requests that meet every objective of their class, of
those offered.
"""

from attrs import frozen

from kvescrow.checks.experiments.coefficients import Coefficients
from kvescrow.checks.experiments.result import Experiment, Input, Line, Origin, Plot, milliseconds
from kvescrow.reference.replay import CostConfig, PoolConfig, ReplayConfig, ReplayResult, SchedulerConfig, replay
from kvescrow.reference.replay.config import FAIR
from kvescrow.reference.replay.terms import ArrivalsConfig, ClassConfig, StreamConfig, TenantSettings
from kvescrow.reference.traces import Trace, TraceFormat

CHUNKS = (256, 512, 1024, 2048, 4096, 8192, 16_384)
"""Chunks that the workload is replayed with, in tokens."""
CHAT, DOCUMENTS = "chat", "documents"
CHATS, CHAT_PROMPT, CHAT_OUTPUT = 40, 256, 64
DOCUMENT_COUNT, DOCUMENT_OUTPUT = 20, 16
POOL = 1 << 20
"""Tokens: room for the whole workload, so that memory is not what decides."""

ASSUMPTIONS = (
    "A step takes a fixed time, and time for each prompt token, decoding sequence and context token; nothing else.",
    "The chunk is the same in every step; the rule of the token gap would choose one for each.",
    "Requests come at equal distances, and those of one class are alike. No prefix is shared and nobody cancels.",
    "The pool has room for the whole workload. Classes share the worker evenly.",
    "Every output is right: the replay runs no model.",
)


@frozen
class Constraints:
    """What a reader moves. Times are in microseconds."""

    gap: int = 30_000
    """Objective of the chat: the widest token gap."""
    first_token: int = 500_000
    """Objective of the chat."""
    document_first_token: int = 4_000_000
    """Objective of the documents; they have none for their gaps."""
    document: int = 16_000
    """Prompt tokens of a document."""
    document_every: int = 200_000
    """From one document to the next."""
    chat_every: int = 100_000
    """From one chat request to the next."""


@frozen
class Outcome:
    """What one chunk came to."""

    chunk: int
    prompt_throughput: float
    """Prompt tokens computed a second, from the first arrival to the last event."""
    goodput: float
    """Requests a second that met every objective."""
    share: float
    """The same, of the requests offered."""
    chat: float
    documents: float
    widest_gap: int
    """Of the chat, in microseconds."""


def goodput(constraints: Constraints | None = None, coefficients: Coefficients | None = None) -> Experiment:
    """Run the experiment: one replay for each chunk."""
    asked, costs = constraints or Constraints(), coefficients or Coefficients()
    found = tuple(_outcome(chunk, _replayed(asked, costs, chunk)) for chunk in CHUNKS)
    best = max(found, key=lambda each: each.goodput)
    fastest = max(found, key=lambda each: each.prompt_throughput)
    return Experiment(
        name="goodput",
        question="Does the chunk with the highest prompt throughput serve the most requests well?",
        inputs=(*_inputs(asked), *costs.inputs()),
        assumptions=(*ASSUMPTIONS, *_left_out(costs)),
        findings=_findings(asked, best, fastest),
        figures={
            "best_goodput": {"chunk": best.chunk, "per_second": best.goodput, "share": best.share},
            "highest_throughput": {
                "chunk": fastest.chunk,
                "prompt_tokens_per_second": fastest.prompt_throughput,
                "goodput_per_second": fastest.goodput,
            },
        },
        columns=("chunk", "prompt tokens/s", "good requests/s", "good", "chat", "documents", "widest gap of chat"),
        rows=tuple(map(_row, found)),
        plots=_plots(asked, found),
    )


def _replayed(asked: Constraints, costs: Coefficients, chunk: int) -> ReplayResult:
    config = ReplayConfig(
        pool=PoolConfig(tokens=POOL),
        scheduler=SchedulerConfig(order=FAIR, prefill_chunk=chunk),
        cost=_cost(costs),
        arrivals=ArrivalsConfig(trace=False),
        classes={
            CHAT: ClassConfig(share=0.5, first_token=asked.first_token, token_gap=asked.gap),
            DOCUMENTS: ClassConfig(share=0.5, first_token=asked.document_first_token),
        },
        tenants={name: TenantSettings(class_=name) for name in (CHAT, DOCUMENTS)},
        streams=(
            StreamConfig(CHAT, CHATS, CHAT_PROMPT, CHAT_OUTPUT, every=asked.chat_every),
            StreamConfig(DOCUMENTS, DOCUMENT_COUNT, asked.document, DOCUMENT_OUTPUT, every=asked.document_every),
        ),
    )
    return replay(Trace("streams", TraceFormat.VIDUR, (), "synthetic streams of equal requests"), config)


def _cost(costs: Coefficients) -> CostConfig:
    cost = costs.cost
    return CostConfig(cost.fixed, cost.per_prefill_token, cost.per_decode_sequence, cost.per_context_token)


def _left_out(costs: Coefficients) -> tuple[str, ...]:
    """Return what of a measured model a replay does not take."""
    return (
        ("Attended pairs cost nothing: a replay has no coefficient for them.",) if costs.cost.per_attended_pair else ()
    )


def _outcome(chunk: int, result: ReplayResult) -> Outcome:
    chat, documents = result.classes[CHAT], result.classes[DOCUMENTS]
    return Outcome(
        chunk=chunk,
        prompt_throughput=result.prefill_tokens * 1_000_000 / result.virtual_span,
        goodput=result.goodput.per_second,
        share=result.goodput.share or 0.0,
        chat=chat.attainment or 0.0,
        documents=documents.attainment or 0.0,
        widest_gap=chat.token_gap.maximum or 0,
    )


def _inputs(asked: Constraints) -> tuple[Input, ...]:
    chosen, made_up = Origin.CHOSEN, Origin.SYNTHETIC
    return (
        Input("token gap of the chat, at most", asked.gap, "us", chosen),
        Input("first token of the chat, at most", asked.first_token, "us", chosen),
        Input("first token of a document, at most", asked.document_first_token, "us", chosen),
        Input("document", asked.document, "tokens", chosen),
        Input("a document every", asked.document_every, "us", chosen),
        Input("a chat request every", asked.chat_every, "us", chosen),
        Input("documents", DOCUMENT_COUNT, "requests", made_up),
        Input("output of a document", DOCUMENT_OUTPUT, "tokens", made_up),
        Input("chat requests", CHATS, "requests", made_up),
        Input("prompt of a chat request", CHAT_PROMPT, "tokens", made_up),
        Input("output of a chat request", CHAT_OUTPUT, "tokens", made_up),
    )


def _findings(asked: Constraints, best: Outcome, fastest: Outcome) -> tuple[str, ...]:
    lines = [
        f"Most requests are served well with chunks of {best.chunk:,}: {best.share:.0%} of those offered, "
        f"{best.goodput:.2f} a second.",
        f"Prompt throughput is highest with chunks of {fastest.chunk:,}: {fastest.prompt_throughput:,.0f} tokens a "
        f"second, {fastest.prompt_throughput / best.prompt_throughput - 1:+.1%} against chunks of {best.chunk:,}.",
    ]
    if fastest.goodput < best.goodput:
        lines.append(
            f"There goodput is {fastest.goodput:.2f} a second, {fastest.goodput / best.goodput - 1:+.0%}: the chat's "
            f"widest gap is {milliseconds(fastest.widest_gap)}, its objective {milliseconds(asked.gap)}."
        )
    return tuple(lines)


def _row(each: Outcome) -> tuple[str, ...]:
    return (
        f"{each.chunk:,}",
        f"{each.prompt_throughput:,.0f}",
        f"{each.goodput:.2f}",
        f"{each.share:.0%}",
        f"{each.chat:.0%}",
        f"{each.documents:.0%}",
        milliseconds(each.widest_gap),
    )


def _plots(asked: Constraints, found: tuple[Outcome, ...]) -> tuple[Plot, ...]:
    throughput = Line("prompt tokens", tuple((each.chunk, each.prompt_throughput) for each in found))
    good = Line("good requests", tuple((each.chunk, each.goodput) for each in found))
    gaps = Line("widest gap of the chat", tuple((each.chunk, each.widest_gap / 1000) for each in found))
    chunk = "chunk (tokens)"
    return (
        Plot("Prompt throughput", chunk, "tokens a second", (throughput,), logarithmic=True),
        Plot("Goodput", chunk, "requests a second", (good,), logarithmic=True),
        Plot("Token gap", chunk, "ms", (gaps,), (("objective", asked.gap / 1000),), logarithmic=True),
    )
