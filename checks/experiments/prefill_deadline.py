"""Can a prompt meet its deadline in chunks that leave the decodes beside it their token gap (CHK-1, CHK-3)?

A larger chunk ends the prompt sooner and keeps the decodes waiting longer. Where the largest chunk that the gap allows
is too small for the deadline, no chunk is feasible, and the rule says so instead of trying.
"""

from attrs import evolve, frozen

from kvescrow.checks.experiments.coefficients import Coefficients
from kvescrow.checks.experiments.result import Experiment, Input, Line, Origin, Plot, milliseconds
from kvescrow.reference.scheduler.chunk_rule import ChunkReply, ChunkRule, GapBudget, Moment
from kvescrow.reference.scheduler.cost import of_decodes
from kvescrow.spec.vocabulary import Reason

BATCHES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Decoding sequences beside the prompt, for which the chunk is shown."""

ASSUMPTIONS = (
    "A step takes a fixed time, and time for each prompt token, decoding sequence and context token; nothing else.",
    "The decodes stay as they are until the prompt is computed: none ends and none joins.",
    "Each step carries one token of each decode beside the chunk, so a decode waits for one step.",
    "The prompt has the worker's chunks to itself: no other prompt is computed before it.",
)


@frozen
class Constraints:
    """What a reader moves. Times are in microseconds."""

    gap: int = 20_000
    """Longest time between two tokens of a decoding sequence."""
    deadline: int = 1_000_000
    """Until the whole prompt must be computed."""
    prompt: int = 32_768
    """Its tokens."""
    decodes: int = 32
    """Sequences that decode beside it."""
    context: int = 4_000
    """Tokens that each of them has behind it."""
    largest: int = 8_192
    """Most prompt tokens in a step, whatever the gap."""
    granule: int = 64
    """Chunks are multiples of it."""


@frozen
class Candidate:
    """One chunk size with its predicted times, in microseconds."""

    tokens: int
    gap: int
    finish: int


def prefill_deadline(constraints: Constraints | None = None, coefficients: Coefficients | None = None) -> Experiment:
    """Run the experiment: what the chunk rule answers, for this batch and for others."""
    asked, costs = constraints or Constraints(), coefficients or Coefficients()
    reply = choose(asked, costs)
    others = {decodes: choose(evolve(asked, decodes=decodes), costs) for decodes in BATCHES}
    candidates = candidates_of(asked, costs)
    return Experiment(
        name="prefill-deadline",
        question="Which chunk keeps the decodes inside their token gap and ends the prompt in time?",
        inputs=(*_inputs(asked), *costs.inputs()),
        assumptions=ASSUMPTIONS,
        findings=_findings(asked, reply, candidates),
        figures={
            "chunk": reply.tokens,
            "reason": reply.reason.value,
            "step_microseconds": reply.duration,
            "finish_microseconds": finish_of(asked, costs, reply.tokens) if reply.tokens else None,
            "feasible": [each.tokens for each in candidates if _is_feasible(each, asked)],
        },
        columns=("decodes", "chunk", "step", "prompt computed after", "answer"),
        rows=tuple(_row(evolve(asked, decodes=decodes), costs, answer) for decodes, answer in others.items()),
        plots=_plots(asked, candidates),
    )


def choose(asked: Constraints, costs: Coefficients) -> ChunkReply:
    """Return what the reference's chunk rule answers."""
    return _rule(asked, costs).choose(_moment(asked))


def candidates_of(asked: Constraints, costs: Coefficients) -> tuple[Candidate, ...]:
    """Return every power of two from the granule up, and the largest chunk, with what the cost model predicts."""
    sizes = [asked.granule << power for power in range(32) if asked.granule << power < asked.largest]
    rule, moment = _rule(asked, costs), _moment(asked)
    return tuple(
        Candidate(tokens, rule.duration(moment, tokens), rule.finish(moment, tokens))
        for tokens in (*sizes, asked.largest)
    )


def _rule(asked: Constraints, costs: Coefficients) -> ChunkRule:
    return ChunkRule(costs.model, GapBudget(asked.gap, asked.largest, asked.granule))


def _moment(asked: Constraints) -> Moment:
    decodes = of_decodes([asked.context] * asked.decodes)
    return Moment(start=0, left=asked.prompt, decodes=decodes, time_left=asked.deadline)


def finish_of(asked: Constraints, costs: Coefficients, tokens: int) -> int:
    """Return the least predicted time to the end of the prompt in chunks of `tokens`, in microseconds."""
    return _rule(asked, costs).finish(_moment(asked), tokens)


def _is_feasible(each: Candidate, asked: Constraints) -> bool:
    return (asked.decodes == 0 or each.gap <= asked.gap) and each.finish <= asked.deadline


def _row(asked: Constraints, costs: Coefficients, reply: ChunkReply) -> tuple[str, ...]:
    chunk = f"{reply.tokens:,}" if reply.tokens else "none"
    finish = milliseconds(finish_of(asked, costs, reply.tokens)) if reply.tokens else "-"
    answer = "chosen" if reply.tokens else reply.reason.value
    return (str(asked.decodes), chunk, milliseconds(reply.duration), finish, answer)


def _inputs(asked: Constraints) -> tuple[Input, ...]:
    chosen = Origin.CHOSEN
    return (
        Input("token gap", asked.gap, "us", chosen),
        Input("deadline of the prompt", asked.deadline, "us", chosen),
        Input("prompt", asked.prompt, "tokens", chosen),
        Input("decoding sequences", asked.decodes, "sequences", chosen),
        Input("context of each", asked.context, "tokens", chosen),
        Input("largest chunk", asked.largest, "tokens", chosen),
        Input("granule", asked.granule, "tokens", chosen),
    )


def _findings(asked: Constraints, reply: ChunkReply, candidates: tuple[Candidate, ...]) -> tuple[str, ...]:
    quick = [each for each in candidates if each.finish <= asked.deadline]
    kind = [each for each in candidates if asked.decodes == 0 or each.gap <= asked.gap]
    told = {
        Reason.NONE: f"The rule takes {reply.tokens:,} tokens a step: a step lasts {milliseconds(reply.duration)}.",
        Reason.GAP_TOO_SMALL_FOR_DECODE: f"No chunk is feasible: the decodes alone take "
        f"{milliseconds(reply.duration)}, more than their gap of {milliseconds(asked.gap)}.",
        Reason.NO_CHUNK_FITS: f"No chunk is feasible: even {asked.granule} tokens beside these decodes exceed the gap.",
        Reason.DEADLINE_UNREACHABLE: "No chunk is feasible: every chunk that leaves the decodes their gap ends the "
        "prompt after its deadline.",
    }
    lines = [told.get(reply.reason, f"No chunk is chosen: {reply.reason.value}.")]
    lines.append(
        f"Of the sizes shown, {', '.join(f'{each.tokens:,}' for each in kind) or 'none'} keep the gap, and "
        f"{', '.join(f'{each.tokens:,}' for each in quick) or 'none'} meet the deadline."
    )
    if kind and quick and reply.reason is Reason.DEADLINE_UNREACHABLE:
        lines.append(
            f"The largest that keeps the gap ends the prompt after {milliseconds(kind[-1].finish)}; the smallest that "
            f"is in time keeps the decodes waiting for {milliseconds(quick[0].gap)}."
        )
    return tuple(lines)


def _plots(asked: Constraints, candidates: tuple[Candidate, ...]) -> tuple[Plot, ...]:
    gaps = Line("step beside the decodes", tuple((each.tokens, each.gap / 1000) for each in candidates))
    ends = Line("prompt computed", tuple((each.tokens, each.finish / 1000) for each in candidates))
    return (
        Plot("Time of a step", "chunk (tokens)", "ms", (gaps,), (("token gap", asked.gap / 1000),), True),
        Plot("End of the prompt", "chunk (tokens)", "ms", (ends,), (("deadline", asked.deadline / 1000),), True),
    )
