"""Prompts that are computed beside requests that decode all the time, and the token gaps that these see.

Every step gives each decode a token, so the time from one step's tokens to the next one's is the token gap of all of
them. How many prompt tokens go into a step is a policy: the chunk rule, or a fixed number.
"""

from collections import Counter
from collections.abc import Callable, Mapping

from attrs import field, frozen

from kvescrow.gpu_harness.calibration.workbench import Bench, Request
from kvescrow.reference.scheduler import ChunkReply, ChunkRule, DriftDetector, Moment, of_decodes
from kvescrow.spec.vocabulary import Reason

Policy = Callable[[Moment], ChunkReply]
PATIENCE = 25
"""Steps without a chunk after which a prompt is given up: contexts only grow, so what does not fit will not."""


@frozen
class Load:
    """What is served."""

    decodes: int = 6
    context: int = 64
    """Prompt tokens of the requests that decode; they are computed before the first gap."""
    prompts: int = 12
    prompt: int = 1024
    """Tokens of each prompt that comes meanwhile, one after the other."""
    most_steps: int = 400
    """A bound on the run, and on what the requests decode."""

    @property
    def positions(self) -> int:
        """Most tokens of a request."""
        return max(self.context + self.most_steps, self.prompt + 1)


@frozen
class Served:
    """What came of one policy. Times are in microseconds."""

    gaps: tuple[int, ...] = field(repr=False)
    """From one step's tokens to the next one's, once a step; each of the decodes saw all of them."""
    predicted: tuple[int, ...] = field(repr=False)
    """What the model predicted of each of these steps (CHK-5)."""
    chunks: tuple[int, ...] = field(repr=False)
    """Prompt tokens of each step."""
    prompts_done: int
    answers: Mapping[Reason, int]
    """Steps without a chunk, by reason."""
    drifted: bool
    """Whether the cost model was declared failed on the way."""

    @property
    def given_up(self) -> Reason:
        """Why a prompt was given up; NONE where none was."""
        return max(self.answers, key=lambda reason: self.answers[reason], default=Reason.NONE)


def fixed(tokens: int) -> Policy:
    """Return the policy of a fixed chunk, whatever the step may take."""
    return lambda moment: ChunkReply(min(tokens, moment.left), 0)


def serve(bench: Bench, load: Load, policy: Policy, rule: ChunkRule) -> Served:
    """Serve `load` under `policy`. What `rule` predicts is compared with what was measured, and may fail the model."""
    decodes = [bench.open(load.context, load.most_steps) for _ in range(load.decodes)]
    for request in decodes:
        bench.step([], (request, load.context))
    run = _Run(bench, load, policy, rule, decodes)
    try:
        return run.served()
    finally:
        for request in decodes:
            bench.close(request)


class _Run:
    def __init__(self, bench: Bench, load: Load, policy: Policy, rule: ChunkRule, decodes: list[Request]) -> None:
        self._bench, self._load, self._policy, self._rule, self._decodes = bench, load, policy, rule, decodes
        self._drift = DriftDetector(max(1, rule.model.band))
        self._last = bench.now()
        self._gaps: list[int] = []
        self._predicted: list[int] = []
        self._chunks: list[int] = []
        self._answers: Counter[Reason] = Counter()
        self._without = 0
        """Steps without a chunk since the last one."""

    def served(self) -> Served:
        done = 0
        while done < self._load.prompts and self._goes_on():
            done += self._prompt()
        return Served(
            gaps=tuple(self._gaps),
            predicted=tuple(self._predicted),
            chunks=tuple(self._chunks),
            prompts_done=done,
            answers=dict(self._answers),
            drifted=self._drift.failed,
        )

    def _goes_on(self) -> bool:
        return self._without < PATIENCE and len(self._gaps) < self._load.most_steps

    def _prompt(self) -> bool:
        prompt = self._bench.open(self._load.prompt, 1)
        # Pages are granted between two steps here, which no decode of a real worker would have to wait for.
        self._last = self._bench.now()
        while prompt.prompt_left and self._goes_on():
            self._step(prompt)
        self._bench.close(prompt)
        self._last = self._bench.now()
        return prompt.prompt_left == 0

    def _step(self, prompt: Request) -> None:
        decodes = of_decodes(request.position for request in self._decodes)
        reply = self._policy(Moment(prompt.position, prompt.prompt_left, decodes))
        if reply.tokens == 0:
            self._answers[reply.reason] += 1
        self._without = 0 if reply.tokens else self._without + 1
        step = self._bench.step(self._decodes, (prompt, reply.tokens) if reply.tokens else None)
        now = self._bench.now()
        predicted = self._rule.model.cost.duration(step.work)
        self._gaps.append(now - self._last)
        self._predicted.append(predicted)
        self._chunks.append(reply.tokens)
        self._last = now
        if self._rule.model.covers(step.work):
            self._rule.trusted = not self._drift.observe(predicted, step.microseconds)
