"""The worker's side of a replay: starts what was admitted, runs it step by step, confirms each stop.

Steps run one after the other. A cancel that comes while a step is in flight takes effect at its end: until then
the step may touch the request's pages, so nothing is released and no receipt is signed (LIF-3, REC-2).

Work that reserved less than its worst case asks for more before a step would cross its bound (GRO-2); until it is
granted, that step is not launched (GRO-3). Under a policy that preempts, the last to start makes room.

A ticket covers a chunk of a prompt, or a run of decode steps of one request, until its page is full or it must
stop: a worker that loops on its device knows no more in between, and a journal stays of a size that can be read.
"""

from collections import Counter
from collections.abc import Iterable

from attrs import define

from kvescrow.reference.executions import ExecutionReply, Executions, Share, Step
from kvescrow.reference.receipts import Keyring
from kvescrow.reference.replay.config import FAIR, FIRST_COME, ReplayConfig
from kvescrow.reference.replay.fault import ReplayFault
from kvescrow.reference.replay.front import Front
from kvescrow.reference.replay.measures import Histogram
from kvescrow.reference.replay.offers import Offer
from kvescrow.reference.replay.pages import BatchPages
from kvescrow.reference.replay.shape import POOL
from kvescrow.reference.scheduler import Chunk, Moment, StepChoice, next_step, of_chunk, of_decodes, places
from kvescrow.reference.scheduler.turns import PrefillTurns
from kvescrow.spec.vocabulary import Decision, Extend, Finish, Key, Reason, Receipt, Renew, Start, StopOutcome

OWNER = "worker-0/incarnation-1"
"""The one incarnation of the one worker."""


@define(eq=False)
class Running:
    """One execution."""

    offer: Offer
    generation: int
    prompt: int
    """Tokens that are computed first: the prompt, and what was generated before a preemption."""
    prompt_left: int
    """Those of them whose computation has not been launched."""
    position: int = 0
    """Tokens whose keys and values are there, or will be when the step in flight ends."""
    has_pages: bool = False
    ticket: int | None = None
    """What is in flight of it: a chunk, or a run of decode steps that goes on from step to step."""
    run_end: int = 0
    """Position at which its run of decode steps ends."""
    stopping: bool = False
    """A cancel was accepted; a step may still be in flight."""
    denied_at: int = -1
    """How often capacity had come back when its growth was last denied; -1 where it does not wait to grow."""

    @property
    def key(self) -> Key:
        """The key of its reservation."""
        return self.offer.key

    @property
    def used(self) -> int:
        """Tokens used so far: prompt computed or reused, and output."""
        return min(self.position, self.offer.request.input_tokens) + self.offer.generated

    @property
    def needs(self) -> int:
        """Tokens that its next step has to be covered for."""
        return max(self.prompt, self.position + 1)

    @property
    def may_launch(self) -> bool:
        """Whether its next step stays inside its bound."""
        return self.denied_at < 0


class Worker:
    """One worker with a continuous batch."""

    def __init__(self, config: ReplayConfig, front: Front, pages: BatchPages, keyring: Keyring) -> None:
        """Stand idle; `keyring` signs its receipts."""
        self._limits = config.scheduler.limits
        self._cost = config.cost.model
        self._rule = config.scheduler.rule(self._cost)
        self._lease = config.times.lease
        self._front = front
        self._pages = pages
        self._executions = Executions(pages.pool)
        self._keyring = keyring
        self._batch: dict[Key, Running] = {}
        self._step: StepChoice[Running] | None = None
        self._tickets = 0
        weights = config.weights
        self._turns = PrefillTurns(weights) if config.scheduler.order == FAIR else None
        self._ranks = {name: rank for rank, name in enumerate(weights)}
        self._by_class = len(weights) > 1 and config.scheduler.order != FIRST_COME
        self.steps = 0
        self.prefill_tokens = 0
        self.generated_tokens = 0
        self.held_back: Counter[str] = Counter()
        """Steps without a chunk although a prompt waited, by the reason that the chunk rule gave."""
        self.deferrals = 0
        """How often work began to wait for a growth."""
        self.gaps = {name: Histogram() for name in weights}
        """Microseconds between two tokens of one request, by class."""

    @property
    def is_idle(self) -> bool:
        """Whether no step is in flight."""
        return self._step is None

    # --- steps --------------------------------------------------------------------------------------------------

    def launch(self) -> int | None:
        """Launch the next step and return its duration in microseconds; None where there is nothing to do."""
        self._fill_batch()
        self._grow()
        choice = self._choose()
        if choice is None:
            return None
        self.steps += 1
        work = of_decodes(running.position for running in choice.decodes)
        for running in choice.decodes:
            self._decode(running)
        if choice.chunk is not None:
            work += of_chunk(choice.chunk.sequence.position, choice.chunk.length)
            self._prefill(choice.chunk)
        self._step = choice
        return self._cost.duration(work)

    def _fill_batch(self) -> None:
        """Let the first of the admitted join; nothing is launched before the ledger says that it runs (LIF-2)."""
        for _ in range(min(places(len(self._batch), self._limits), len(self._front.admitted))):
            offer = self._front.admitted.popleft()
            reply = self._front.submit(Start(offer.key, offer.life, OWNER, lease=self._lease))
            if reply.decision is not Decision.STARTED:
                raise ReplayFault(f"{offer.key}: admitted, but not started: {reply.reason.value}")
            _expect(Decision.STARTED, self._executions.begin(offer.key, reply.generation))
            self._batch[offer.key] = Running(offer, reply.generation, offer.tokens, offer.tokens)

    def _choose(self) -> StepChoice[Running] | None:
        """Decide the next step; a prompt is looked up when its turn comes, so that it hits what came before it."""
        choice = next_step(self._in_turn(), self._limits)
        if choice is None or choice.chunk is None or choice.chunk.sequence.has_pages:
            return self._paced(choice)
        running, offer = choice.chunk.sequence, choice.chunk.sequence.offer
        running.position = self._pages.begin(
            running.key, running.generation, offer.request, running.prompt, offer.bound
        )
        running.prompt_left -= running.position
        running.has_pages = True
        if not offer.generated:
            offer.cached = running.position
        return self._paced(next_step(self._in_turn(), self._limits))

    def _paced(self, choice: StepChoice[Running] | None) -> StepChoice[Running] | None:
        """Cut the chunk to what leaves the decodes beside it their token gap; to none where nothing does (CHK-1)."""
        if self._rule is None or choice is None or choice.chunk is None:
            return choice
        running = choice.chunk.sequence
        decodes = of_decodes(each.position for each in choice.decodes)
        reply = self._rule.choose(Moment(running.position, running.prompt_left, decodes))
        if reply.tokens:
            return StepChoice(choice.decodes, Chunk(running, reply.tokens))
        self.held_back[reply.reason.value] += 1
        return StepChoice(choice.decodes, None)

    def _in_turn(self) -> Iterable[Running]:
        """Return what may be launched: prompts of the class whose turn it is come first, each class by arrival."""
        ready = [running for running in self._batch.values() if running.may_launch]
        if not self._by_class:
            return ready
        pending = {running.offer.class_name for running in ready if running.prompt_left}
        if len(pending) < 2:
            return ready
        first = self._turns.first(pending) if self._turns else min(pending, key=self._ranks.__getitem__)
        return sorted(ready, key=lambda running: running.offer.class_name != first)

    def _decode(self, running: Running) -> None:
        """Let a decode step be part of the run in flight, or of a new one that goes to the end of its page."""
        if running.ticket is None:
            left = running.offer.request.output_tokens - running.offer.generated
            length = min(self._pages.room_in_page(running.position), left)
            running.run_end = running.position + length
            self._fly(running, self._pages.share(running.key, running.position, length))
        running.position += 1

    def _prefill(self, chunk: Chunk[Running]) -> None:
        running, length = chunk.sequence, chunk.length
        self._fly(running, self._pages.share(running.key, running.position, length))
        running.position += length
        running.run_end = running.position
        running.prompt_left -= length
        self.prefill_tokens += length
        if self._turns:
            self._turns.charge(running.offer.class_name, length)

    def _fly(self, running: Running, share: Share) -> None:
        self._tickets += 1
        running.ticket = self._tickets
        _expect(Decision.LAUNCHED, self._executions.launch(Step(self._tickets, (share,))))

    def _land(self, running: Running) -> None:
        """End what is in flight of `running`."""
        if running.ticket is not None:
            _expect(Decision.SETTLED, self._executions.settle(running.ticket))
            running.ticket = None

    def finish_step(self, now: int) -> None:
        """Take in that the step in flight is over."""
        step, self._step = self._step, None
        if step is None:
            raise ReplayFault("a step ended that was not launched")
        for running in step.sequences:
            if running.stopping or running.position == running.run_end:
                self._land(running)
        if step.chunk is not None and not step.chunk.sequence.stopping:
            self._pages.publish(step.chunk.sequence.key, step.chunk.sequence.position)
        for running in step.sequences:
            if running.stopping:
                self._confirm(running, StopOutcome.STOPPED)
            elif running.prompt_left == 0:
                self._add_token(running, now)

    def _add_token(self, running: Running, now: int) -> None:
        offer = running.offer
        gap = offer.token(now)
        if gap is not None:
            self.gaps[offer.class_name].add(gap)
        self.generated_tokens += 1
        if offer.generated == offer.request.output_tokens:
            self._close(running)
            self._confirm(running, StopOutcome.COMPLETED)

    # --- growth -------------------------------------------------------------------------------------------------

    def _grow(self) -> None:
        """Ask for more for all whose next step would cross their bound; no step is in flight now."""
        short = [
            running
            for running in self._batch.values()
            if running.ticket is None and running.offer.bound < running.needs
        ]
        if not short:
            return
        self._front.hold()
        for running in short:
            if running.key in self._batch and running.denied_at != self._front.releases:
                self._extend(running)
        self._front.let_go()

    def _extend(self, running: Running) -> None:
        """Let `running` grow until its next step is covered, or wait, or stop."""
        offer, front = running.offer, self._front
        while offer.bound < running.needs:
            before = offer.bound
            wanted = front.policy.grown(offer, tuple(front.holdings.values()), front.free)
            if wanted == before:
                return self._defer(running)
            reply = front.submit(Extend(running.key, OWNER, running.generation, wanted))
            if reply.decision is Decision.EXTENDED:
                if running.has_pages:
                    self._pages.grow(running.key, offer.bound - before)
            elif reply.reason is not Reason.POOL_CAPACITY:
                return self._give_up(running, reply.reason)
            elif not front.policy.preempts:
                return self._defer(running)
            elif self._preempt_last() is running:
                return None
        running.denied_at = -1
        front.growing.discard(running.key)
        return None

    def _defer(self, running: Running) -> None:
        self.deferrals += running.denied_at < 0
        running.denied_at = self._front.releases
        self._front.growing.add(running.key)

    def _give_up(self, running: Running, reason: Reason) -> None:
        """Stop work whose growth no waiting brings: its contract does not cover it (GRO-3, ADM-8)."""
        self._front.failed[reason.value] += 1
        self._close(running)
        self._confirm(running, StopOutcome.FAILED)

    def _preempt_last(self) -> Running:
        """Stop the last to start; it gives everything back and waits again (LIF-9)."""
        last = next(reversed(self._batch.values()))
        self._front.preempt(last.offer, last.generation)
        last.stopping = True
        self._close(last)
        self._land(last)
        self._confirm(last, StopOutcome.STOPPED)
        return last

    # --- stops --------------------------------------------------------------------------------------------------

    def cancel(self, offer: Offer) -> None:
        """Obey an accepted cancel: launch nothing more; the stop is confirmed once nothing is in flight."""
        running = self._batch[offer.key]
        running.stopping = True
        self._close(running)
        if self._step is None or running not in self._step.sequences:
            self._land(running)
        if not self._executions.in_flight(running.key):
            self._confirm(running, StopOutcome.STOPPED)

    def _close(self, running: Running) -> None:
        """Leave the batch and give the pages up; those that a step in flight may touch drain first (PAG-4)."""
        _expect(Decision.ACCEPTED, self._executions.close(running.key))
        del self._batch[running.key]
        if running.has_pages:
            self._pages.release(running.key)

    def _confirm(self, running: Running, outcome: StopOutcome) -> None:
        """Sign the receipt and deliver it (REC-2)."""
        certified = self._executions.certify(running.key)
        _expect(Decision.CERTIFIED, certified)
        receipt = Receipt(
            pool=POOL,
            key=running.key,
            owner=OWNER,
            generation=running.generation,
            last_ticket=certified.last_ticket,
            outcome=outcome,
            used=running.used,
            key_id=self._keyring.current,
            mac=b"",
        )
        reply = self._front.submit(Finish(self._keyring.sign(receipt)))
        if reply.decision not in (Decision.RELEASED, Decision.REQUEUED):
            raise ReplayFault(f"{running.key}: its stop was not taken: {reply.reason.value}")
        _expect(Decision.FORGOTTEN, self._executions.acknowledge(running.key))
        if running.has_pages:
            self._pages.forget(running.key, running.generation)

    def renew(self) -> None:
        """Renew the lease of everything in the batch."""
        for running in self._batch.values():
            self._front.submit(Renew(running.key, running.offer.life, OWNER, running.generation, lease=self._lease))


def _expect(decision: Decision, reply: ExecutionReply) -> None:
    if reply.decision is not decision:
        raise ReplayFault(f"expected {decision.value}, found {reply.decision.value}: {reply.reason.value}")
