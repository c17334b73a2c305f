"""The worker's side of a replay: starts what was admitted, runs it step by step, confirms each stop.

Steps run one after the other. A cancel that comes while a step is in flight takes effect at its end: until then
the step may touch the request's pages, so nothing is released and no receipt is signed (LIF-3, REC-2).

A ticket covers a chunk of a prompt, or a run of decode steps of one request, until its page is full or it must
stop: a worker that loops on its device knows no more in between, and a journal stays of a size that can be read.
"""

from attrs import define

from kvescrow.reference.executions import ExecutionReply, Executions, Share, Step
from kvescrow.reference.receipts import Keyring
from kvescrow.reference.replay.config import ReplayConfig
from kvescrow.reference.replay.fault import ReplayFault
from kvescrow.reference.replay.front import Front, Offer
from kvescrow.reference.replay.pages import BatchPages
from kvescrow.reference.replay.shape import POOL
from kvescrow.reference.scheduler import Chunk, StepChoice, next_step, of_chunk, of_decodes, places
from kvescrow.spec.vocabulary import Decision, Finish, Key, Receipt, Renew, Start, StopOutcome

OWNER = "worker-0/incarnation-1"
"""The one incarnation of the one worker."""


@define(eq=False)
class Running:
    """One execution."""

    offer: Offer
    generation: int
    prompt_left: int
    """Prompt tokens whose computation has not been launched."""
    position: int = 0
    """Tokens whose keys and values are there, or will be when the step in flight ends."""
    generated: int = 0
    has_pages: bool = False
    ticket: int | None = None
    """What is in flight of it: a chunk, or a run of decode steps that goes on from step to step."""
    run_end: int = 0
    """Position at which its run of decode steps ends."""
    stopping: bool = False
    """A cancel was accepted; a step may still be in flight."""

    @property
    def key(self) -> Key:
        """The key of its reservation."""
        return self.offer.key

    @property
    def used(self) -> int:
        """Tokens used so far: prompt computed or reused, and output."""
        return min(self.position, self.offer.request.input_tokens) + self.generated


class Worker:
    """One worker with a continuous batch."""

    def __init__(self, config: ReplayConfig, front: Front, pages: BatchPages, keyring: Keyring) -> None:
        """Stand idle; `keyring` signs its receipts."""
        self._limits = config.scheduler.limits
        self._cost = config.cost.model
        self._lease = config.times.lease
        self._front = front
        self._pages = pages
        self._executions = Executions(pages.pool)
        self._keyring = keyring
        self._batch: dict[Key, Running] = {}
        self._step: StepChoice[Running] | None = None
        self._tickets = 0
        self.steps = 0
        self.prefill_tokens = 0
        self.generated_tokens = 0
        self.first_tokens: list[int] = []
        """Microseconds from arrival to the first token, of each request that got one."""

    @property
    def is_idle(self) -> bool:
        """Whether no step is in flight."""
        return self._step is None

    # --- steps --------------------------------------------------------------------------------------------------

    def launch(self) -> int | None:
        """Launch the next step and return its duration in microseconds; None where there is nothing to do."""
        self._fill_batch()
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
            self._batch[offer.key] = Running(offer, reply.generation, offer.request.input_tokens)

    def _choose(self) -> StepChoice[Running] | None:
        """Decide the next step; a prompt is looked up when its turn comes, so that it hits what came before it."""
        choice = next_step(self._batch.values(), self._limits)
        if choice is None or choice.chunk is None or choice.chunk.sequence.has_pages:
            return choice
        running = choice.chunk.sequence
        running.position = self._pages.begin(running.key, running.generation, running.offer.request)
        running.prompt_left -= running.position
        running.has_pages = True
        return next_step(self._batch.values(), self._limits)

    def _decode(self, running: Running) -> None:
        """Let a decode step be part of the run in flight, or of a new one that goes to the end of its page."""
        if running.ticket is None:
            left = running.offer.request.output_tokens - running.generated
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
        request = running.offer.request
        if running.generated == 0:
            self.first_tokens.append(now - request.arrival)
        running.generated += 1
        self.generated_tokens += 1
        if running.generated == request.output_tokens:
            self._close(running)
            self._confirm(running, StopOutcome.COMPLETED)

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
        if reply.decision is not Decision.RELEASED:
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
