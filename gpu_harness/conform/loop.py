"""The worker's loop: admit, launch ahead on two streams, settle what is over, obey cancels that come meanwhile.

The prefill stream computes chunks of prompts, the decode stream one token of every other request; they are not ordered
with each other. A cancel of running work comes under a gate: the step that serves the request is launched and held
back, the cancel is sent, the rest of the worker goes on, and only then the step may run. So that the step was in
flight is certain, and whatever was wrongly given away under it has been used by then (CON-2).
"""

from collections.abc import Sequence

from attrs import define

from kvescrow.gpu_harness.conform.arrivals import Arrivals, Progress
from kvescrow.gpu_harness.conform.client import Clients
from kvescrow.gpu_harness.conform.conduct import Conduct, LaunchedStep
from kvescrow.gpu_harness.conform.control import ConformFault, Control
from kvescrow.gpu_harness.conform.machine import Machine
from kvescrow.gpu_harness.conform.platform import Platform
from kvescrow.gpu_harness.conform.serving import Serving
from kvescrow.gpu_harness.conform.settings import LIMITS, STEPS_AHEAD, Settings
from kvescrow.gpu_harness.conform.tally import Tally
from kvescrow.gpu_harness.conform.workload import OWNERS, Planned, prefix_scope, scope_number
from kvescrow.gpu_harness.evidence import NOTHING, Evidence
from kvescrow.gpu_harness.pages import PAGE_LENGTH
from kvescrow.gpu_harness.plan import Segment, StepBatch
from kvescrow.gpu_harness.streams import Gate, Stream
from kvescrow.reference.executions import Share, Step
from kvescrow.reference.scheduler import Chunk, next_step, places
from kvescrow.spec.vocabulary import Decision, Key, StopOutcome

MICROSECONDS_PER_STEP = 1_000
"""Virtual time that a launch takes: arrivals are on this clock."""
TURNS_UNDER_A_GATE = 3
"""Enough to start a request that waited, hand it pages and compute its first chunk."""


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
        platform: Platform,
        settings: Settings,
        control: Control,
        clock: Clock,
        conduct: Conduct,
        progress: Progress | None = None,
    ) -> None:
        self._platform, self._settings = platform, settings
        self.control, self.conduct, self._clock = control, conduct, clock
        self.clients, self.tally = Clients(clock), Tally()
        self.arrivals = Arrivals(planned, control, self.clients, self.tally, growth=settings.growth, progress=progress)
        self.machine = Machine(platform, conduct, settings.pages, epoch=0)
        self._batch: dict[Key, Serving] = {}
        self._slots = list(range(LIMITS.sequences))
        self._epoch = self._started = 0
        self._kills = list(settings.kills)
        self._under_a_gate = False
        self.evidence = NOTHING
        """Of steps and of machines that are gone; `run` adds the rest."""
        self.served: list[Serving] = []
        """Every request that was started."""

    def run(self) -> Evidence:
        """Serve everything, wait for the device, and return what steps, grants, audits and clients showed."""
        while self.arrivals.left:
            if self._turn():
                continue
            if self.machine.in_flight:
                self.machine.in_flight[0].pending.event.synchronize()
            elif (arrival := self.arrivals.next_arrival) is not None and arrival > self._clock.now:
                self._clock.now = arrival
            elif not self._stop_one_that_waits():
                raise ConformFault(f"{self.arrivals.left} request(s) cannot go on")
        while self.machine.in_flight:
            self.machine.in_flight[0].pending.event.synchronize()
            self._collect()
        self.scrub_free()
        self.tally.scrubbed_pages += self.machine.frames.scrubs
        return self.evidence + self.machine.frames.audit(self.control.free_pages()) + self.clients.evidence

    def close(self) -> None:
        """Let go of the device."""
        self.machine.close()

    def _turn(self) -> bool:
        """Do what can be done now without waiting; whether anything was."""
        self.arrivals.offer(self._clock.now)
        self._start()
        if self._kills and self._started >= self._kills[0] and not self._under_a_gate:
            self._kill_the_worker()
            return True
        launched = self._launch_next()
        return self._collect() or launched

    # --- joining the batch ------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Let the first of the admitted join the batch."""
        while self._slots and places(len(self._batch), LIMITS) and (first := self.arrivals.first_admitted()):
            if not self._weights_are_current():
                return
            planned, admitted = first
            self.control.admitted.remove(admitted)
            generation = self.control.start(admitted)
            serving = Serving(
                planned,
                scope_number(planned.scope, self._epoch),
                admitted.life,
                generation,
                self._slots.pop(0),
                len(planned.prompt),
                planned.output,
                bound=self.arrivals.bound(planned),
            )
            self._batch[admitted.key] = serving
            self.served.append(serving)
            self._started += 1

    def _weights_are_current(self) -> bool:
        """Change the weights when it is time and nothing runs on the old ones; whether a request may start (SCO-5)."""
        if self._epoch or self._settings.epoch_after is None or self._started < self._settings.epoch_after:
            return True
        if self._batch and self.conduct.drains_before(self._epoch + 1):
            return False
        old = [scope_number(owner, self._epoch) for owner in range(len(OWNERS))]
        self._epoch += 1
        self.tally.epochs += 1
        self.machine.load(self._epoch)
        new = [self.conduct.scope(scope_number(owner, self._epoch)) for owner in range(len(OWNERS))]
        for scope in map(self.conduct.scope, old):
            if scope not in new:
                self.control.retire(scope)
        return True

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
            self._launch(self.machine.decode, [(each, 1) for each in decodes])
        return True

    def _can_launch(self, serving: Serving) -> bool:
        machine = self.machine
        if serving.prompt_left:
            return machine.ahead(machine.prefill) < STEPS_AHEAD
        may = serving.is_prefilled and serving.outputs_left > 0 and machine.ahead(machine.decode) < STEPS_AHEAD
        return may and self._has_room(serving)

    def _has_room(self, serving: Serving) -> bool:
        """Whether the next token is within what is reserved; where it is not, more is asked for (GRO-2, GRO-3)."""
        if serving.position < serving.bound:
            return True
        if not self.control.extend(serving, serving.bound + PAGE_LENGTH):
            self.tally.growth_denied += not serving.waits_for_growth
            serving.waits_for_growth = True
            return False
        serving.bound += PAGE_LENGTH
        serving.waits_for_growth = False
        self.tally.grown += 1
        return True

    def _stop_one_that_waits(self) -> bool:
        """Stop the last of those that wait for growth, so that the others can go on; whether there is one (GRO-3)."""
        waiting = [serving for serving in self._batch.values() if serving.waits_for_growth]
        if not waiting:
            return False
        self.tally.stopped_for_growth += 1
        self.control.close(waiting[-1])
        self._confirm_if_idle(waiting[-1], StopOutcome.FAILED)
        self.scrub_free()
        return True

    def _launch_chunk(self, chunk: Chunk[Serving]) -> None:
        serving = chunk.sequence
        if not serving.has_pages:
            self._take_pages(serving)
        self._launch(self.machine.prefill, [(serving, min(serving.prompt_left, LIMITS.prefill_chunk))])

    def _take_pages(self, serving: Serving) -> None:
        """Look the prompt up when its turn comes, so that it hits what came before it."""
        prompt, pool, frames = self.conduct.known_as(serving.planned.prompt), self.control.pool, self.machine.frames
        others = [prefix_scope(number) for number in self._other_tenants(serving)]
        elsewhere = max(pool.lookup(scope, serving.planned.prompt) for scope in others)
        scope = self.conduct.scope(serving.scope)
        acquired = self.control.acquire(serving.holder, scope, prompt, max(serving.bound, len(prompt)))
        self.tally.cross_scope += elsewhere > acquired.cached_tokens
        self.tally.cross_scope_twins += serving.planned.is_twin and elsewhere > acquired.cached_tokens
        self.tally.hits += acquired.cached_tokens > 0
        hits = acquired.cached_tokens // PAGE_LENGTH
        serving.has_pages, serving.published = True, hits
        frames.join(self.machine.prefill, acquired.pages[:hits])
        self._hand_over(self.machine.prefill, serving, acquired.pages[hits:], first_index=hits)
        serving.pages = list(acquired.pages)
        claims = frames.claims(serving.pages)
        serving.claims, cached = self.conduct.hits(serving, claims, acquired.cached_tokens)
        self.tally.cached_tokens += cached
        serving.position = cached
        serving.prompt_left -= cached

    def _other_tenants(self, serving: Serving) -> list[int]:
        tenant = serving.key.tenant
        return [scope_number(owner, self._epoch) for owner, (other, _) in enumerate(OWNERS) if other != tenant]

    def _hand_over(self, stream: Stream, serving: Serving, pages: Sequence[int], *, first_index: int) -> None:
        frames = self.machine.frames
        frames.grant(stream, pages, owner=serving.generation, scope=serving.scope, first_index=first_index)

    def _launch(self, stream: Stream, work: Sequence[tuple[Serving, int]]) -> None:
        """Launch a step that computes so many tokens of each; under a gate where a client is about to cancel."""
        due = [] if self._under_a_gate else [serving for serving, _ in work if serving.cancel_is_due]
        members = [serving for serving, _ in work]
        held = bool(due) or (not self._under_a_gate and self.conduct.holds(self, stream, members))
        if held:
            self._drain(stream)
        self.tally.steps += 1
        self._clock.now += MICROSECONDS_PER_STEP
        segments = [self._segment(stream, serving, length) for serving, length in work]
        step = Step(self.tally.steps, tuple(map(_share, members, segments)))
        self.control.launch(step)
        gate = self.machine.hold(stream) if held else None
        batch = StepBatch(step.number, segments, self.conduct.scratch(self.machine.frames))
        launched = self.machine.launch(stream, batch, members)
        for serving, length in work:
            self.clients.launched(serving.key, serving.generation, step.number)
            self._advance(serving, length)
        if gate is not None:
            self._under(gate, launched, due)

    def _segment(self, stream: Stream, serving: Serving, length: int) -> Segment:
        """What the step does for one request; a page that its next token needs is drawn and granted first."""
        start, prompt = serving.position, serving.planned.prompt
        while len(serving.pages) * PAGE_LENGTH < start + length:
            page = self.control.draw(serving.holder)
            self._hand_over(stream, serving, [page], first_index=len(serving.pages))
            serving.pages.append(page)
            serving.claims += self.machine.frames.claims([page])
        tokens = prompt[start : start + length] if serving.prompt_left else None
        claims = self.conduct.table(serving.claims)
        return Segment(serving.generation, serving.scope, serving.slot, start, tokens, claims)

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
        for step in list(self.machine.in_flight):
            if not step.settled and step.end.query():
                self.settle(step)
                changed = True
            # Settled comes first: a step that was not over a moment ago may be done by now.
            if step.settled and step.stream.name not in behind and step.pending.done():
                self.machine.in_flight.remove(step)
                self._take_in(step)
                changed = True
            else:
                behind.add(step.stream.name)
        if changed:
            self.scrub_free()
            self.machine.frames.collect()
        return changed

    def settle(self, step: LaunchedStep) -> None:
        """Tell the reference that nothing of `step` can touch its pages any more."""
        self.control.settle(step.number)
        step.settled = True

    def scrub_free(self) -> None:
        """Poison the pages that have become free."""
        if self.control.pool.counts().free != self.machine.frames.clean:
            self.machine.frames.scrub(self.control.free_pages())

    def _take_in(self, step: LaunchedStep) -> None:
        result = step.pending.result()
        self.evidence += result.evidence
        for row, (serving, segment) in enumerate(zip(step.members, result.batch.segments, strict=True)):
            is_sampled = segment.end >= len(serving.planned.prompt)
            if is_sampled:
                serving.is_prefilled = True
                serving.tokens.append(result.tokens[row])
                serving.logits.append(result.logits[row])
            if self._batch.get(serving.key) is not serving:
                continue  # confirmed, and yet a step was under way for it
            if is_sampled and self.conduct.may_show(serving):
                self.clients.give(serving.key, serving.generation, result.tokens[row])
                serving.delivered += 1
            if serving.is_stopping:
                self._confirm_if_idle(serving, StopOutcome.STOPPED)
                continue
            if segment.tokens is not None:
                self.publish(serving, segment.end)
            if serving.delivered == serving.planned.output:
                self._complete(serving)

    def publish(self, serving: Serving, computed: int) -> None:
        """Publish what is computed of the prompt, by the device's word (PAG-6)."""
        first = serving.published
        known = self.conduct.known_as(serving.planned.prompt[:computed])
        serving.published = self.control.pool.publish(serving.holder, known)
        if serving.published > first:
            self.machine.frames.publish(serving.pages[first : serving.published])

    def _complete(self, serving: Serving) -> None:
        """Every step of the request is done: what it wrote is summed up before its pages are given up."""
        serving.sums = self.machine.frames.sums([claim.page for claim in serving.claims])
        self.control.close(serving)
        self.tally.completed += 1
        self._confirm_if_idle(serving, StopOutcome.COMPLETED)

    def _confirm_if_idle(self, serving: Serving, outcome: StopOutcome) -> None:
        if not self.control.is_idle(serving.key):
            return
        self.control.confirm(serving, outcome)
        del self._batch[serving.key]
        self._slots.append(serving.slot)
        self.arrivals.ended()

    # --- cancels ----------------------------------------------------------------------------------------------------

    def _drain(self, stream: Stream) -> None:
        """Wait for the steps of `stream`, so that the next one is the first that a gate holds back."""
        stream.synchronize()
        self._collect()

    def _under(self, gate: Gate, step: LaunchedStep, due: Sequence[Serving]) -> None:
        """While `step` is held back, send the cancels and go on without it; then let it run."""
        self._under_a_gate = True
        for serving in due:
            self._cancel(serving)
        if due:
            self.go_on(step, TURNS_UNDER_A_GATE)
        self.conduct.meanwhile(self, step)
        self.scrub_free()
        self.machine.frames.scrubber.synchronize()
        if gate.holding() and not step.pending.done():
            self.tally.cancelled_in_flight += len(due)
        gate.open()
        self._under_a_gate = False

    def go_on(self, held: LaunchedStep, turns: int) -> None:
        """Take so many turns while `held` waits, and see the other stream's steps through."""
        for _ in range(turns):
            self._turn()
            for other in self.machine.in_flight:
                if other.stream is not held.stream:
                    other.pending.event.synchronize()

    def _cancel(self, serving: Serving) -> None:
        """A client cancels a running request: the next launch is withheld, and nothing else can be (LIF-3)."""
        reply = self.control.cancel(serving.key, serving.life)
        if reply.decision is not Decision.ACCEPTED:
            raise ConformFault(f"{serving.key}: it runs, but its cancel was answered {reply.decision.value}")
        self.clients.cancel_accepted(serving.key)
        self.tally.cancelled_running += 1
        serving.cancel_sent = True
        if not self.conduct.obeys(serving):
            return
        serving.is_stopping = True
        serving.prompt_left = serving.outputs_left = 0
        self.control.close(serving)
        flying = [step for step in self.machine.in_flight if serving in step.members and not step.settled]
        for step in self.conduct.over_at_cancel(flying):
            self.settle(step)
        self.scrub_free()
        self._confirm_if_idle(serving, StopOutcome.STOPPED)

    # --- the worker's death -----------------------------------------------------------------------------------------

    def _kill_the_worker(self) -> None:
        """The worker dies with steps launched and held back; another one takes its place with an empty device (LEA-4).

        Closing the device waits for its work, as the end of a process waits for its context: only then is it fenced.
        """
        self._kills.pop(0)
        self._collect()
        gates = [self.machine.hold(stream) for stream in (self.machine.prefill, self.machine.decode)]
        self._under_a_gate = True
        self._launch_next()
        self._under_a_gate = False
        flying = {serving.key for step in self.machine.in_flight for serving in step.members}
        self.tally.lost_in_flight += len(flying & self._batch.keys())
        self.tally.workers_killed += 1
        for gate in gates:
            gate.open()
        self.machine.close()
        self.machine.frames.collect()
        self.evidence += self.machine.frames.found
        self.tally.scrubbed_pages += self.machine.frames.scrubs
        lost = list(self._batch.values())
        self.control.replace_worker(lost)
        for _ in lost:
            self.arrivals.ended()
        # A request whose cancel was accepted ends as cancelled; the other clients ask again.
        self.arrivals.ask_again([each.planned for each in lost if not each.cancel_sent], self._clock.now)
        self._batch.clear()
        self._slots = list(range(LIMITS.sequences))
        self.machine = Machine(self._platform, self.conduct, self._settings.pages, self._epoch)


def _share(serving: Serving, segment: Segment) -> Share:
    """The pages that a step reads and writes for one request, as its ticket lists them (PAG-4)."""
    used = serving.pages[: len(segment.used_claims)]
    return Share(
        serving.key,
        serving.generation,
        reads=tuple(used),
        writes=tuple(used[segment.first_written :]),
        filled=frozenset(used[segment.first_written : segment.end // PAGE_LENGTH]),
    )
