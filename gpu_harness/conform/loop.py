"""The worker's loop: admit, launch ahead on two streams, settle what is over, obey cancels that come meanwhile.

The prefill stream computes chunks of prompts, the decode stream one token of every other request; they are not ordered
with each other. A cancel of running work comes under a gate: the step that serves the request is launched and held
back, the cancel is sent, the rest of the worker goes on, and only then the step may run. So that the step was in
flight is certain, and whatever was wrongly given away under it has been used by then (CON-2).
"""

from collections import deque
from collections.abc import Callable, Sequence

from attrs import define

from kvescrow.gpu_harness.conform.client import Clients
from kvescrow.gpu_harness.conform.conduct import Conduct, LaunchedStep
from kvescrow.gpu_harness.conform.control import Admitted, ConformFault, Control
from kvescrow.gpu_harness.conform.frames import Frames
from kvescrow.gpu_harness.conform.serving import Serving
from kvescrow.gpu_harness.conform.settings import LIMITS, STEPS_AHEAD
from kvescrow.gpu_harness.conform.tally import Tally
from kvescrow.gpu_harness.conform.workload import TENANTS, WHILE_WAITING, Planned
from kvescrow.gpu_harness.decoder import PagedDecoder
from kvescrow.gpu_harness.device import Device
from kvescrow.gpu_harness.evidence import NOTHING, Evidence
from kvescrow.gpu_harness.pages import PAGE_LENGTH
from kvescrow.gpu_harness.plan import Segment, StepBatch
from kvescrow.gpu_harness.streams import Event, Gate, Stream
from kvescrow.reference.executions import Share, Step
from kvescrow.reference.scheduler import Chunk, next_step, places
from kvescrow.spec.vocabulary import Decision, Key, StopOutcome

MICROSECONDS_PER_STEP = 1_000
"""Virtual time that a launch takes: arrivals are on this clock."""
TURNS_UNDER_A_GATE = 3
"""Enough to start a request that waited, hand it pages and compute its first chunk."""

Progress = Callable[[int, int], None]
"""Sees how many requests have ended, of how many."""


@define
class Clock:
    """Virtual time in microseconds."""

    now: int = 0

    def __call__(self) -> int:
        """Read it."""
        return self.now


class Loop:
    """One run of a workload on one decoder."""

    def __init__(
        self,
        planned: Sequence[Planned],
        device: Device,
        decoder: PagedDecoder,
        control: Control,
        clock: Clock,
        conduct: Conduct,
        progress: Progress | None = None,
    ) -> None:
        self._planned, self._by_key = deque(planned), {each.key: each for each in planned}
        self._device, self._decoder, self._control = device, decoder, control
        self._clock, self._conduct, self._progress = clock, conduct, progress
        self._waiting: list[Admitted] = []
        """Requests in the queue whose clients will cancel them there."""
        self._batch: dict[Key, Serving] = {}
        self._slots = list(range(LIMITS.sequences))
        self._in_flight: list[LaunchedStep] = []
        self._last: dict[str, Event] = {}
        """The end of the last step on each stream."""
        self._under_a_gate = False
        self._ended = 0
        self._evidence = NOTHING
        self.frames = Frames(decoder.memory)
        self.clients = Clients()
        self.served: list[Serving] = []
        """Every request that was started."""
        self.tally = Tally()

    def run(self) -> Evidence:
        """Serve everything, wait for the device, and return what steps, grants, audits and clients showed."""
        while self._ended < len(self._by_key):
            if self._turn():
                continue
            if self._in_flight:
                self._in_flight[0].pending.event.synchronize()
            elif self._planned:
                self._clock.now = max(self._clock.now, self._planned[0].arrival)
            else:
                raise ConformFault(f"{len(self._by_key) - self._ended} request(s) cannot go on")
        while self._in_flight:
            self._in_flight[0].pending.event.synchronize()
            self._collect()
        self._scrub_free()
        self.tally.scrubbed_pages = self.frames.scrubs
        return self._evidence + self.frames.audit(self._control.free_pages()) + self.clients.evidence

    def _turn(self) -> bool:
        """Do what can be done now without waiting; whether anything was."""
        self._offer()
        self._start()
        launched = self._launch_next()
        return self._collect() or launched

    # --- coming and waiting -----------------------------------------------------------------------------------------

    def _offer(self) -> None:
        reserved = {each.key for each in self._control.admitted}
        for admitted in self._waiting:
            reply = self._control.cancel(admitted.key, admitted.life)
            if reply.decision is not Decision.RELEASED:
                raise ConformFault(f"{admitted.key}: waits, but its cancel was answered {reply.decision.value}")
            self.clients.cancel_accepted(admitted.key)
            self.tally.cancelled_reserved += admitted.key in reserved
            self.tally.cancelled_queued += admitted.key not in reserved
            self._end()
        self._waiting.clear()
        while self._planned and self._planned[0].arrival <= self._clock.now:
            planned = self._planned.popleft()
            pages = -(-(len(planned.prompt) + planned.output) // PAGE_LENGTH)
            reply = self._control.reserve(planned, pages * PAGE_LENGTH)
            if reply.decision not in (Decision.ADMITTED, Decision.QUEUED):
                raise ConformFault(f"{planned.key}: {reply.decision.value} {reply.reason.value}")
            if planned.cancel_at == WHILE_WAITING:
                self._waiting.append(Admitted(planned.key, reply.life))

    def _start(self) -> None:
        """Let the first of the admitted join the batch."""
        waits = {each.key for each in self._waiting}
        for admitted in list(self._control.admitted):
            if not self._slots or not places(len(self._batch), LIMITS):
                return
            if admitted.key in waits:
                continue
            self._control.admitted.remove(admitted)
            planned = self._by_key[admitted.key]
            generation = self._control.start(admitted)
            serving = Serving(
                planned, admitted.life, generation, self._slots.pop(0), len(planned.prompt), planned.output
            )
            self._batch[admitted.key] = serving
            self.served.append(serving)

    def _end(self) -> None:
        self._ended += 1
        if self._progress is not None:
            self._progress(self._ended, len(self._by_key))

    # --- launching --------------------------------------------------------------------------------------------------

    def _launch_next(self) -> bool:
        choice = next_step([each for each in self._batch.values() if self._can_launch(each)], LIMITS)
        if choice is None:
            return False
        if choice.chunk is not None:
            self._launch_chunk(choice.chunk)
        # Launching the chunk may have held a window, in which the batch changed.
        decodes = [each for each in choice.decodes if not each.is_stopping and self._can_launch(each)]
        if decodes:
            self._launch(self._device.decode, [(each, 1) for each in decodes])
        return True

    def _can_launch(self, serving: Serving) -> bool:
        if serving.prompt_left:
            return self._ahead(self._device.prefill) < STEPS_AHEAD
        return serving.is_prefilled and serving.outputs_left > 0 and self._ahead(self._device.decode) < STEPS_AHEAD

    def _ahead(self, stream: Stream) -> int:
        return sum(step.stream is stream for step in self._in_flight)

    def _launch_chunk(self, chunk: Chunk[Serving]) -> None:
        serving = chunk.sequence
        if not serving.has_pages:
            self._take_pages(serving)
        self._launch(self._device.prefill, [(serving, min(serving.prompt_left, LIMITS.prefill_chunk))])

    def _take_pages(self, serving: Serving) -> None:
        """Look the prompt up when its turn comes, so that it hits what came before it."""
        planned, pool = serving.planned, self._control.pool
        others = [Conduct().scope(scope) for scope in range(len(TENANTS)) if scope != planned.scope]
        elsewhere = max(pool.lookup(scope, planned.prompt) for scope in others)
        acquired = self._control.acquire(serving.holder, self._conduct.scope(planned.scope), planned)
        self.tally.cross_scope += elsewhere > acquired.cached_tokens
        self.tally.cross_scope_twins += planned.is_twin and elsewhere > acquired.cached_tokens
        self.tally.cached_tokens += acquired.cached_tokens
        self.tally.hits += acquired.cached_tokens > 0
        hits = acquired.cached_tokens // PAGE_LENGTH
        serving.has_pages, serving.published = True, hits
        serving.position = acquired.cached_tokens
        serving.prompt_left -= acquired.cached_tokens
        self.frames.join(self._device.prefill, acquired.pages[:hits])
        self._hand_over(self._device.prefill, serving, acquired.pages[hits:], first_index=hits)
        serving.pages = list(acquired.pages)
        serving.claims = self.frames.claims(serving.pages)

    def _hand_over(self, stream: Stream, serving: Serving, pages: Sequence[int], *, first_index: int) -> None:
        self.frames.grant(stream, pages, owner=serving.generation, scope=serving.planned.scope, first_index=first_index)

    def _launch(self, stream: Stream, work: Sequence[tuple[Serving, int]]) -> None:
        """Launch a step that computes so many tokens of each; under a gate where a client is about to cancel."""
        due = [] if self._under_a_gate else [serving for serving, _ in work if serving.cancel_is_due]
        if due:
            self._drain(stream)
        self.tally.steps += 1
        self._clock.now += MICROSECONDS_PER_STEP
        segments = [self._segment(stream, serving, length) for serving, length in work]
        members = tuple(serving for serving, _ in work)
        step = Step(self.tally.steps, tuple(map(_share, members, segments)))
        self._control.launch(step)
        gate = self._hold(stream) if due else None
        batch = StepBatch(step.number, segments)
        pending = self._decoder.launch(stream, batch)
        self.frames.watch.launched(step.number, batch.pages, pending.event)
        launched = LaunchedStep(step.number, stream, members, pending, before=self._last.get(stream.name))
        self._last[stream.name] = pending.event
        self._in_flight.append(launched)
        for serving, length in work:
            self._advance(serving, length)
        if gate is not None:
            self._cancel_under(gate, launched, due)

    def _segment(self, stream: Stream, serving: Serving, length: int) -> Segment:
        """What the step does for one request; a page that its next token needs is drawn and granted first."""
        start, prompt = serving.position, serving.planned.prompt
        while len(serving.pages) * PAGE_LENGTH < start + length:
            page = self._control.draw(serving.holder)
            self._hand_over(stream, serving, [page], first_index=len(serving.pages))
            serving.pages.append(page)
            serving.claims += self.frames.claims([page])
        tokens = prompt[start : start + length] if serving.prompt_left else None
        return Segment(serving.generation, serving.planned.scope, serving.slot, start, tokens, tuple(serving.claims))

    def _advance(self, serving: Serving, length: int) -> None:
        serving.launches += 1
        serving.position += length
        if serving.prompt_left:
            serving.prompt_left -= length
            self.tally.prefill_tokens += length
        if not serving.prompt_left:
            serving.outputs_left -= 1

    # --- what is over -----------------------------------------------------------------------------------------------

    def _collect(self) -> bool:
        """Settle the steps that are over and take in the results that are there; whether there was any.

        Tickets may end in any order, but tokens come in the order of their stream.
        """
        changed = False
        behind: set[str] = set()
        for step in list(self._in_flight):
            if not step.settled and self._conduct.is_over(step):
                self._settle(step)
                changed = True
            # Settled comes first: a step that was not over a moment ago may be done by now.
            if step.settled and step.stream.name not in behind and step.pending.done():
                self._in_flight.remove(step)
                self._take_in(step)
                changed = True
            else:
                behind.add(step.stream.name)
        if changed:
            self._scrub_free()
            self.frames.collect()
        return changed

    def _settle(self, step: LaunchedStep) -> None:
        self._control.settle(step.number)
        step.settled = True

    def _scrub_free(self) -> None:
        if self._control.pool.counts().free != self.frames.clean:
            self.frames.scrub(self._control.free_pages())

    def _take_in(self, step: LaunchedStep) -> None:
        result = step.pending.result()
        self._evidence += result.evidence
        for row, (serving, segment) in enumerate(zip(step.members, result.batch.segments, strict=True)):
            is_sampled = segment.end >= len(serving.planned.prompt)
            if is_sampled:
                serving.is_prefilled = True
                serving.tokens.append(result.tokens[row])
                serving.logits.append(result.logits[row])
            if self._batch.get(serving.key) is not serving:
                continue  # confirmed, and yet a step was under way for it
            if is_sampled and self._conduct.may_show(serving):
                self.clients.give(serving.key, serving.generation, result.tokens[row])
                serving.delivered += 1
            if serving.is_stopping:
                self._confirm_if_idle(serving, StopOutcome.STOPPED)
                continue
            if segment.tokens is not None:
                self._publish(serving, segment.end)
            if serving.delivered == serving.planned.output:
                self._control.close(serving)
                self.tally.completed += 1
                self._confirm_if_idle(serving, StopOutcome.COMPLETED)

    def _publish(self, serving: Serving, computed: int) -> None:
        """Publish what is computed of the prompt, by the device's word (PAG-6)."""
        first = serving.published
        serving.published = self._control.pool.publish(serving.holder, serving.planned.prompt[:computed])
        if serving.published > first:
            self.frames.publish(serving.pages[first : serving.published])

    def _confirm_if_idle(self, serving: Serving, outcome: StopOutcome) -> None:
        if not self._control.is_idle(serving.key):
            return
        self._control.confirm(serving, outcome)
        del self._batch[serving.key]
        self._slots.append(serving.slot)
        self._end()

    # --- cancels ----------------------------------------------------------------------------------------------------

    def _drain(self, stream: Stream) -> None:
        """Wait for the steps of `stream`, so that the next one is the first that a gate holds back."""
        stream.synchronize()
        self._collect()

    def _hold(self, stream: Stream) -> Gate:
        gate = self._device.gate()
        gate.hold(stream)
        return gate

    def _cancel_under(self, gate: Gate, step: LaunchedStep, due: Sequence[Serving]) -> None:
        """Send the cancels while `step` is held back, go on without it, then let it run."""
        self._under_a_gate = True
        for serving in due:
            self._cancel(serving)
        for _ in range(TURNS_UNDER_A_GATE):
            self._turn()
            for other in self._in_flight:
                if other.stream is not step.stream:
                    other.pending.event.synchronize()
        self._scrub_free()
        self.frames.scrubber.synchronize()
        if gate.holding() and not step.pending.done():
            self.tally.cancelled_in_flight += len(due)
        gate.open()
        self._under_a_gate = False

    def _cancel(self, serving: Serving) -> None:
        """A client cancels a running request: the next launch is withheld, and nothing else can be (LIF-3)."""
        reply = self._control.cancel(serving.key, serving.life)
        if reply.decision is not Decision.ACCEPTED:
            raise ConformFault(f"{serving.key}: it runs, but its cancel was answered {reply.decision.value}")
        self.clients.cancel_accepted(serving.key)
        self.tally.cancelled_running += 1
        serving.is_stopping = True
        serving.prompt_left = serving.outputs_left = 0
        self._control.close(serving)
        flying = [step for step in self._in_flight if serving in step.members and not step.settled]
        for step in self._conduct.over_at_cancel(flying):
            self._settle(step)
        self._scrub_free()
        self._confirm_if_idle(serving, StopOutcome.STOPPED)


def _share(serving: Serving, segment: Segment) -> Share:
    """The pages that a step reads and writes for one request, as its ticket lists them (PAG-4)."""
    used = [claim.page for claim in segment.used_claims]
    return Share(
        serving.key,
        serving.generation,
        reads=tuple(used),
        writes=tuple(used[segment.first_written :]),
        filled=frozenset(used[segment.first_written : segment.end // PAGE_LENGTH]),
    )
