"""How many prompt tokens the next step computes: the most that leave the decodes their token gap (CHK-1, CHK-3, CHK-4).

A chunk that is too long keeps every decoding sequence waiting. The rule takes the largest chunk on offer whose step,
at the upper edge of the cost model's band, ends inside what is left of the token-gap budget. Where there is none, or
the prompt cannot meet its deadline in chunks of that size, or the model was not measured there, it says which.

Chunks on offer are multiples of a granule, and the whole rest of the prompt where that is not too much for one step.
Work and range only grow with the chunk, so the largest that fits is found by bisection.
"""

from collections.abc import Callable

from attrs import define, field, frozen, validators

from kvescrow.reference.scheduler.cost import CostModel, StepWork, of_chunk
from kvescrow.spec.vocabulary import Reason, UserError

_not_negative = [validators.instance_of(int), validators.ge(0)]
_positive = [validators.instance_of(int), validators.ge(1)]

NO_WORK = StepWork()


@frozen
class GapBudget:
    """What a worker promises its decodes, and how it cuts prompts."""

    gap: int = field(validator=_positive)
    """Longest time between two tokens of a sequence, in microseconds."""
    largest: int = field(validator=_positive)
    """Most prompt tokens in one step."""
    granule: int = field(default=1, validator=_positive)
    """Chunks are multiples of it, but for the end of a prompt."""
    consecutive: int = field(default=1, validator=_positive)
    """Chunks in steps of their own that may go before decodes that wait."""
    mixed: bool = True
    """Whether a chunk's step carries one token of each decode too. Then no decode is ever passed over."""

    def __attrs_post_init__(self) -> None:
        """Refuse a granule above the largest chunk, under which nothing would be on offer."""
        if self.granule > self.largest:
            raise UserError(
                f"granule is {self.granule} and the largest chunk is {self.largest}: set the granule to at most that"
            )


@frozen
class Moment:
    """What a chunk is chosen for. Times are in microseconds."""

    start: int = field(validator=_not_negative)
    """Position of the next prompt token to compute."""
    left: int = field(validator=_positive)
    """Prompt tokens to compute."""
    decodes: StepWork = NO_WORK
    """One decode step of every sequence that waits for its next token."""
    waited: int = 0
    """Since they had their last token."""
    time_left: int | None = None
    """Until the prompt must be computed; None: it has no deadline."""

    @property
    def waiting(self) -> bool:
        """Whether any sequence waits for its next token."""
        return self.decodes.decode_sequences > 0


@frozen
class ChunkReply:
    """The choice, or why there is none."""

    tokens: int
    """0 where there is none."""
    duration: int
    """Until every waiting decode has its next token, at most as predicted; of the decodes alone where no chunk goes."""
    reason: Reason = Reason.NONE


@define
class ChunkRule:
    """The rule for one worker. It counts the chunks that went before waiting decodes."""

    model: CostModel
    budget: GapBudget
    trusted: bool = True
    """False: the model left its band (CHK-5), and the rule chooses nothing."""
    passed_over: int = 0
    """Chunks in steps of their own since the waiting decodes had a token."""

    def choose(self, moment: Moment) -> ChunkReply:
        """Return the chunk to launch now; the caller launches it, or the decodes where there is none."""
        alone = self.model.at_most(moment.decodes) if moment.waiting else 0
        reason = self._obstacle(moment, alone)
        if reason is not Reason.NONE:
            return ChunkReply(0, alone, reason)
        tokens = self._largest(moment, lambda tokens: self._fits(moment, tokens))
        if tokens == 0:
            measured = self._largest(moment, lambda tokens: self._in_range(moment, tokens))
            return ChunkReply(0, alone, Reason.NO_CHUNK_FITS if measured else Reason.OUT_OF_MODEL_RANGE)
        if moment.time_left is not None and self.finish(moment, tokens) > moment.time_left:
            return ChunkReply(0, alone, Reason.DEADLINE_UNREACHABLE)
        self.passed_over = self.passed_over + 1 if moment.waiting and not self.budget.mixed else 0
        return ChunkReply(tokens, self.duration(moment, tokens))

    def decoded(self) -> None:
        """Take note that a step that carries the waiting decodes was launched."""
        self.passed_over = 0

    def duration(self, moment: Moment, tokens: int) -> int:
        """Return the predicted time until every waiting decode has its next token, if `tokens` go first."""
        chunk = of_chunk(moment.start, tokens)
        if self.budget.mixed or not moment.waiting:
            return self.model.at_most(chunk + moment.decodes)
        return self.model.at_most(chunk) + self.model.at_most(moment.decodes)

    def finish(self, moment: Moment, tokens: int) -> int:
        """Return the least predicted time to the end of the prompt in chunks of `tokens`, the decodes staying as now.

        It is the predicted time itself, not its upper edge: a deadline is called out of reach only where it is so in
        the middle of the band.
        """
        steps, rest = divmod(moment.left, tokens)
        starts = steps * moment.start + tokens * steps * (steps - 1) // 2
        if rest:
            starts += moment.start + tokens * steps
            steps += 1
        pairs = of_chunk(moment.start, moment.left).attended_pairs
        prompt = StepWork(moment.left, context_tokens=starts, attended_pairs=pairs)
        carried = steps if self.budget.mixed else 0
        between = 0 if self.budget.mixed else (self.passed_over + steps - 1) // self.budget.consecutive
        if not moment.waiting:
            between = 0
        return self.model.cost.duration(prompt + moment.decodes.times(carried + between), steps + between)

    # --- what stands in the way -----------------------------------------------------------------------------------

    def _obstacle(self, moment: Moment, alone: int) -> Reason:
        if not self.trusted:
            return Reason.MODEL_FAILED
        if not moment.waiting:
            return Reason.NONE
        if not self.model.covers(moment.decodes):
            return Reason.OUT_OF_MODEL_RANGE
        if moment.waited + alone > self.budget.gap:
            return Reason.GAP_TOO_SMALL_FOR_DECODE
        return Reason.DECODES_FIRST if self.passed_over >= self.budget.consecutive else Reason.NONE

    def _in_range(self, moment: Moment, tokens: int) -> bool:
        chunk = of_chunk(moment.start, tokens)
        return self.model.covers(chunk + moment.decodes if self.budget.mixed else chunk)

    def _fits(self, moment: Moment, tokens: int) -> bool:
        if not self._in_range(moment, tokens):
            return False
        return not moment.waiting or moment.waited + self.duration(moment, tokens) <= self.budget.gap

    def _largest(self, moment: Moment, holds: Callable[[int], bool]) -> int:
        """Return the largest chunk on offer of which `holds`; 0 where there is none. It must hold of all below."""
        whole = moment.left if moment.left <= self.budget.largest else 0
        if whole and holds(whole):
            return whole
        granule = self.budget.granule
        low, high = 0, min(moment.left, self.budget.largest) // granule
        while low < high:
            middle = (low + high + 1) // 2
            if holds(middle * granule):
                low = middle
            else:
                high = middle - 1
        return low * granule
