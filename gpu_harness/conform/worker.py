"""One incarnation of the worker: the requests in its batch, the steps that it launches for them, and what these give.

Nothing here knows of time, of other incarnations, or of what interrupts the work: `loop` does.
"""

from collections.abc import Callable, Sequence

from kvescrow.gpu_harness.conform.client import Clients
from kvescrow.gpu_harness.conform.conduct import Conduct, LaunchedStep
from kvescrow.gpu_harness.conform.control import Admitted, Control
from kvescrow.gpu_harness.conform.machine import Machine
from kvescrow.gpu_harness.conform.order import Order
from kvescrow.gpu_harness.conform.serving import Serving
from kvescrow.gpu_harness.conform.settings import LIMITS, STEPS_AHEAD
from kvescrow.gpu_harness.conform.tally import Tally
from kvescrow.gpu_harness.conform.workload import OWNERS, Planned, prefix_scope, scope_number
from kvescrow.gpu_harness.evidence import NOTHING
from kvescrow.gpu_harness.pages import PAGE_LENGTH
from kvescrow.gpu_harness.plan import Segment, StepBatch
from kvescrow.gpu_harness.streams import Stream
from kvescrow.reference.executions import Share, Step
from kvescrow.reference.scheduler import places
from kvescrow.spec.vocabulary import Key, StopOutcome

Work = Sequence[tuple[Serving, int]]
"""Requests, and how many tokens of each a step computes."""


class Worker:
    """A batch of requests on one machine. `ended` is called when one of them has left it for good."""

    def __init__(
        self,
        machine: Machine,
        control: Control,
        conduct: Conduct,
        clients: Clients,
        tally: Tally,
        order: Order,
        ended: Callable[[], None],
    ) -> None:
        self.machine = machine
        self._control, self._conduct, self._clients, self._tally = control, conduct, clients, tally
        self._order, self._ended = order, ended
        self._slots = list(range(LIMITS.sequences))
        self.batch: dict[Key, Serving] = {}
        self.evidence = NOTHING
        """Of the steps that were taken in."""

    # --- joining the batch ------------------------------------------------------------------------------------------

    @property
    def has_place(self) -> bool:
        """Whether one more may join."""
        return bool(self._slots and places(len(self.batch), LIMITS))

    def join(self, planned: Planned, admitted: Admitted, epoch: int, bound: int) -> Serving:
        """Start an admitted request, for which `bound` tokens are reserved, on the weights of `epoch`."""
        self._control.admitted.remove(admitted)
        generation = self._control.start(admitted)
        serving = Serving(
            planned,
            scope_number(planned.scope, epoch),
            admitted.life,
            generation,
            self._slots.pop(0),
            len(planned.prompt),
            planned.output,
            bound=bound,
        )
        self.batch[admitted.key] = serving
        return serving

    # --- launching --------------------------------------------------------------------------------------------------

    def can_launch(self, serving: Serving) -> bool:
        """Whether its next tokens may be computed now."""
        machine = self.machine
        if serving.prompt_left:
            return machine.ahead(machine.prefill) < STEPS_AHEAD
        may = serving.is_prefilled and serving.outputs_left > 0 and machine.ahead(machine.decode) < STEPS_AHEAD
        return may and self._has_room(serving)

    def _has_room(self, serving: Serving) -> bool:
        """Whether the next token is within what is reserved; where it is not, more is asked for (GRO-2, GRO-3)."""
        if serving.position < serving.bound:
            return True
        if not self._control.extend(serving, serving.bound + PAGE_LENGTH):
            self._tally.growth_denied += not serving.waits_for_growth
            serving.waits_for_growth = True
            return False
        serving.bound += PAGE_LENGTH
        serving.waits_for_growth = False
        self._tally.grown += 1
        return True

    def prepare(self, stream: Stream, work: Work) -> StepBatch:
        """Make the step that computes so many tokens of each: hand over the pages that it needs, and get its ticket."""
        self._tally.steps += 1
        segments = [self._segment(stream, serving, length) for serving, length in work]
        step = Step(self._tally.steps, tuple(_share(each, own) for (each, _), own in zip(work, segments, strict=True)))
        self._control.launch(step)
        return StepBatch(step.number, segments)

    def launch(self, stream: Stream, batch: StepBatch, work: Work) -> LaunchedStep:
        """Launch the step that was prepared for this work."""
        launched = self.machine.launch(stream, batch, [serving for serving, _ in work])
        self._order.launched(launched)
        for serving, length in work:
            self._clients.launched(serving.key, serving.generation, batch.ticket)
            self._advance(serving, length)
        return launched

    def take_pages(self, serving: Serving) -> None:
        """Look the prompt up when its turn comes, so that it hits what came before it."""
        prompt, pool, frames = self._conduct.known_as(serving.planned.prompt), self._control.pool, self.machine.pages
        others = [prefix_scope(number) for number in _other_tenants(serving)]
        elsewhere = max(pool.lookup(scope, serving.planned.prompt) for scope in others)
        scope = self._conduct.scope(serving.scope)
        acquired = self._control.acquire(serving.holder, scope, prompt, max(serving.bound, len(prompt)))
        self._tally.cross_scope += elsewhere > acquired.cached_tokens
        self._tally.cross_scope_twins += serving.planned.is_twin and elsewhere > acquired.cached_tokens
        self._tally.hits += acquired.cached_tokens > 0
        hits = acquired.cached_tokens // PAGE_LENGTH
        serving.has_pages, serving.published = True, hits
        frames.join(self.machine.prefill, acquired.pages[:hits])
        self._hand_over(self.machine.prefill, serving, acquired.pages[hits:], first_index=hits)
        serving.pages = list(acquired.pages)
        claims = frames.claims(serving.pages)
        serving.claims, cached = self._conduct.hits(serving, claims, acquired.cached_tokens)
        self._tally.cached_tokens += cached
        serving.position = cached
        serving.prompt_left -= cached

    def _hand_over(self, stream: Stream, serving: Serving, pages: Sequence[int], *, first_index: int) -> None:
        frames = self.machine.pages
        frames.grant(stream, pages, owner=serving.generation, scope=serving.scope, first_index=first_index)

    def _segment(self, stream: Stream, serving: Serving, length: int) -> Segment:
        """What the step does for one request; a page that its next token needs is drawn and granted first."""
        start, prompt = serving.position, serving.planned.prompt
        while len(serving.pages) * PAGE_LENGTH < start + length:
            page = self._control.draw(serving.holder)
            self._hand_over(stream, serving, [page], first_index=len(serving.pages))
            serving.pages.append(page)
            serving.claims += self.machine.pages.claims([page])
        tokens = prompt[start : start + length] if serving.prompt_left else None
        claims = self._conduct.table(serving.claims)
        return Segment(serving.generation, serving.scope, serving.slot, start, tokens, claims)

    def _advance(self, serving: Serving, length: int) -> None:
        serving.launches += 1
        serving.position += length
        if serving.prompt_left:
            serving.prompt_left -= length
            self._tally.prefill_tokens += length
        if not serving.prompt_left:
            serving.outputs_left -= 1

    # --- what is over -----------------------------------------------------------------------------------------------

    def drain(self, stream: Stream) -> None:
        """Wait for the steps of `stream`, so that the next one is the first that a gate holds back."""
        stream.synchronize()
        for step in self.machine.in_flight:
            if step.stream is stream:
                self._order.see_through(step)
        self.collect()

    def collect(self) -> bool:
        """Settle the steps that are over and take in the results that are there; whether there was any.

        Tickets may end in any order, but tokens come in the order of their stream.
        """
        changed = False
        behind: set[str] = set()
        for step in list(self.machine.in_flight):
            if not step.settled and self._order.is_over(step):
                self.settle(step)
                changed = True
            # Settled comes first: a step that was not over a moment ago may be done by now.
            if step.settled and step.stream.name not in behind and self._order.is_there(step):
                self.machine.in_flight.remove(step)
                self._take_in(step)
                changed = True
            else:
                behind.add(step.stream.name)
        if changed:
            self.scrub_free()
            self.machine.pages.collect()
        return changed

    def settle(self, step: LaunchedStep) -> None:
        """Tell the reference that nothing of `step` can touch its pages any more."""
        self._control.settle(step.number)
        step.settled = True

    def scrub_free(self) -> None:
        """Poison the pages that have become free."""
        if self._control.pool.counts().free != self.machine.pages.clean:
            self.machine.pages.scrub(self._control.free_pages())

    def _take_in(self, step: LaunchedStep) -> None:
        result = step.pending.result()
        self.evidence += result.evidence
        for row, (serving, segment) in enumerate(zip(step.members, result.batch.segments, strict=True)):
            is_sampled = segment.end >= len(serving.planned.prompt)
            if is_sampled:
                serving.is_prefilled = True
                serving.tokens.append(result.tokens[row])
                serving.logits.append(result.logits[row])
            if self.batch.get(serving.key) is not serving:
                continue  # confirmed, and yet a step was under way for it
            if is_sampled and self._conduct.may_show(serving):
                self._clients.give(serving.key, serving.generation, result.tokens[row])
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
        known = self._conduct.known_as(serving.planned.prompt[:computed])
        serving.published = self._control.pool.publish(serving.holder, known)
        if serving.published > first:
            self.machine.pages.publish(serving.pages[first : serving.published])

    def _complete(self, serving: Serving) -> None:
        """Every step of the request is done: what it wrote is summed up before its pages are given up."""
        serving.sums = self.machine.pages.sums([claim.page for claim in serving.claims])
        self._tally.completed += 1
        self._close(serving, StopOutcome.COMPLETED)

    def stop(self, serving: Serving) -> None:
        """Withhold the next launch of a cancelled request, and give its pages up: nothing else can be done (LIF-3).

        Its stop is confirmed when the steps in flight for it are over.
        """
        serving.is_stopping = True
        serving.prompt_left = serving.outputs_left = 0
        self._control.close(serving)
        flying = [step for step in self.machine.in_flight if serving in step.members and not step.settled]
        for step in self._conduct.over_at_cancel(flying):
            self.settle(step)
        self.scrub_free()
        self._confirm_if_idle(serving, StopOutcome.STOPPED)

    def stop_one_that_waits(self) -> bool:
        """Stop the last of those that wait for growth, so that the others can go on; whether there is one (GRO-3)."""
        waiting = [serving for serving in self.batch.values() if serving.waits_for_growth]
        if not waiting:
            return False
        self._tally.stopped_for_growth += 1
        self._close(waiting[-1], StopOutcome.FAILED)
        self.scrub_free()
        return True

    def _close(self, serving: Serving, outcome: StopOutcome) -> None:
        self._control.close(serving)
        self._confirm_if_idle(serving, outcome)

    def _confirm_if_idle(self, serving: Serving, outcome: StopOutcome) -> None:
        if not self._control.is_idle(serving.key):
            return
        self._control.confirm(serving, outcome)
        del self.batch[serving.key]
        self._slots.append(serving.slot)
        self._ended()


def _other_tenants(serving: Serving) -> list[int]:
    """The scopes of the other tenants under the weights that it started on."""
    tenant, epoch = serving.key.tenant, serving.scope // len(OWNERS)
    return [scope_number(owner, epoch) for owner, (other, _) in enumerate(OWNERS) if other != tenant]


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
