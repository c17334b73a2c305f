"""The course of a run: who comes when, what is launched next, and what interrupts the worker.

The prefill stream computes chunks of prompts, the decode stream one token of every other request; they are not ordered
with each other. A cancel of running work comes under a gate: the step that serves the request is launched and held
back, the cancel is sent, the rest of the worker goes on, and only then the step may run. So that the step was in
flight is certain, and whatever was wrongly given away under it has been used by then (CON-2). A worker is killed in the
same way.
"""

from collections.abc import Sequence

from attrs import define

from kvescrow.gpu_harness.conform.apart import ApartMachine, WorkerDied
from kvescrow.gpu_harness.conform.arrivals import Arrivals, Progress
from kvescrow.gpu_harness.conform.client import Clients
from kvescrow.gpu_harness.conform.conduct import Conduct, LaunchedStep
from kvescrow.gpu_harness.conform.control import LEASE, ConformFault, Control
from kvescrow.gpu_harness.conform.machine import HereMachine, Machine
from kvescrow.gpu_harness.conform.order import AsTheyEnd, FixedOrder, Order
from kvescrow.gpu_harness.conform.platform import Platform
from kvescrow.gpu_harness.conform.serving import Serving
from kvescrow.gpu_harness.conform.settings import LIMITS, Settings
from kvescrow.gpu_harness.conform.tally import Tally
from kvescrow.gpu_harness.conform.worker import Work, Worker
from kvescrow.gpu_harness.conform.workload import OWNERS, Planned, scope_number
from kvescrow.gpu_harness.evidence import NOTHING, Evidence
from kvescrow.gpu_harness.streams import Gate, Stream
from kvescrow.reference.scheduler import Chunk, next_step
from kvescrow.spec.vocabulary import Decision

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
        self._epoch = self._started = 0
        self._kills = list(settings.kills)
        self._under_a_gate = False
        self._order: Order = FixedOrder(settings.seed) if settings.fixed_order else AsTheyEnd()
        self._of_the_dead = NOTHING
        """Evidence of workers that are gone."""
        self.served: list[Serving] = []
        """Every request that was started."""
        self.worker = self._new_worker()

    def _new_worker(self) -> Worker:
        machine: Machine
        if self._settings.own_process:
            machine = ApartMachine(self._settings, self._platform.probe, self._epoch)
        else:
            machine = HereMachine(self._platform, self.conduct, self._settings.pages, self._epoch)
        return Worker(machine, self.control, self.conduct, self.clients, self.tally, self._order, self.arrivals.ended)

    @property
    def evidence(self) -> Evidence:
        """Of the steps that were taken in, and of workers that are gone; `run` adds the rest."""
        return self._of_the_dead + self.worker.evidence

    def run(self) -> Evidence:
        """Serve everything, wait for the device, and return what steps, grants, audits and clients showed.

        A worker whose process is gone, whoever ended it, is replaced while there is work left; raises WorkerDied where
        its memory can no longer be looked at in the end.
        """
        while self.arrivals.left:
            try:
                if not self._turn():
                    self._wait()
            except WorkerDied:
                self._replace_worker()
        worker, pages = self.worker, self.worker.machine.pages
        while worker.machine.in_flight:
            self._order.see_through(worker.machine.in_flight[0])
            worker.collect()
        worker.scrub_free()
        pages.collect()
        self.tally.scrubbed_pages += pages.scrubs
        return self.evidence + pages.audit(self.control.free_pages()) + self.clients.evidence

    def _wait(self) -> None:
        """Wait for a step, else for the next arrival; raises ConformFault where neither can come."""
        in_flight = self.worker.machine.in_flight
        if in_flight:
            self._order.wait(in_flight[0])
        elif (arrival := self.arrivals.next_arrival) is not None and arrival > self._clock.now:
            self._clock.now = arrival
        elif not self.worker.stop_one_that_waits():
            raise ConformFault(f"{self.arrivals.left} request(s) cannot go on")

    def close(self) -> None:
        """Let go of the device."""
        self.worker.machine.close()

    def _turn(self) -> bool:
        """Do what can be done now without waiting; whether anything was."""
        self._order.begin_turn()
        self.arrivals.offer(self._clock.now)
        self._start()
        if self._kills and self._started >= self._kills[0] and not self._under_a_gate:
            self._kill_the_worker()
            return True
        launched = self._launch_next()
        return self.worker.collect() or launched

    # --- joining the batch ------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Let the first of the admitted join the batch."""
        while self.worker.has_place and (first := self.arrivals.first_admitted()):
            if not self._weights_are_current():
                return
            planned, admitted = first
            self.served.append(self.worker.join(planned, admitted, self._epoch, self.arrivals.bound(planned)))
            self._started += 1

    def _weights_are_current(self) -> bool:
        """Change the weights when it is time and nothing runs on the old ones; whether a request may start (SCO-5)."""
        if self._epoch or self._settings.epoch_after is None or self._started < self._settings.epoch_after:
            return True
        if self.worker.batch and self.conduct.drains_before(self._epoch + 1):
            return False
        old = [scope_number(owner, self._epoch) for owner in range(len(OWNERS))]
        self._epoch += 1
        self.tally.epochs += 1
        self.worker.machine.load(self._epoch)
        new = [self.conduct.scope(scope_number(owner, self._epoch)) for owner in range(len(OWNERS))]
        for scope in map(self.conduct.scope, old):
            if scope not in new:
                self.control.retire(scope)
        return True

    # --- launching --------------------------------------------------------------------------------------------------

    def _launch_next(self) -> bool:
        worker = self.worker
        choice = next_step([each for each in worker.batch.values() if worker.can_launch(each)], LIMITS)
        if choice is None:
            return False
        if choice.chunk is not None:
            self._launch_chunk(choice.chunk)
        # Launching the chunk may have held a window, in which the batch changed.
        decodes = [each for each in choice.decodes if not each.is_stopping and worker.can_launch(each)]
        if decodes:
            self._launch(worker.machine.decode, [(each, 1) for each in decodes])
        return True

    def _launch_chunk(self, chunk: Chunk[Serving]) -> None:
        serving = chunk.sequence
        if not serving.has_pages:
            self.worker.take_pages(serving)
        self._launch(self.worker.machine.prefill, [(serving, min(serving.prompt_left, LIMITS.prefill_chunk))])

    def _launch(self, stream: Stream, work: Work) -> None:
        """Launch a step that computes so many tokens of each; under a gate where a client is about to cancel."""
        due = [] if self._under_a_gate else [serving for serving, _ in work if serving.cancel_is_due]
        members = [serving for serving, _ in work]
        held = bool(due) or (not self._under_a_gate and self.conduct.holds(self, stream, members))
        if held:
            self.worker.drain(stream)
        self._clock.now += MICROSECONDS_PER_STEP
        batch = self.worker.prepare(stream, work)
        gate = self._hold(stream) if held else None
        launched = self.worker.launch(stream, batch, work)
        if gate is not None:
            self._under(gate, launched, due)

    def _hold(self, stream: Stream) -> Gate:
        self._order.hold(stream)
        return self.worker.machine.hold(stream)

    # --- cancels ----------------------------------------------------------------------------------------------------

    def _under(self, gate: Gate, step: LaunchedStep, due: Sequence[Serving]) -> None:
        """While `step` is held back, send the cancels and go on without it; then let it run."""
        self._under_a_gate = True
        for serving in due:
            self._cancel(serving)
        if due:
            self.go_on(step, TURNS_UNDER_A_GATE)
        self.conduct.meanwhile(self, step)
        self.worker.scrub_free()
        self.worker.machine.pages.finish_scrubs()
        if gate.holding() and not step.pending.done():
            self.tally.cancelled_in_flight += len(due)
        gate.open()
        self._order.let_go()
        self._under_a_gate = False

    def go_on(self, held: LaunchedStep, turns: int) -> None:
        """Take so many turns while `held` waits, and see the other stream's steps through."""
        for _ in range(turns):
            self._turn()
            for other in self.worker.machine.in_flight:
                if other.stream is not held.stream:
                    self._order.see_through(other)

    def _cancel(self, serving: Serving) -> None:
        """A client cancels a running request: the next launch is withheld, and nothing else can be (LIF-3)."""
        reply = self.control.cancel(serving.key, serving.life)
        if reply.decision is not Decision.ACCEPTED:
            raise ConformFault(f"{serving.key}: it runs, but its cancel was answered {reply.decision.value}")
        self.clients.cancel_accepted(serving.key)
        self.tally.cancelled_running += 1
        serving.cancel_sent = True
        if self.conduct.obeys(serving):
            self.worker.stop(serving)

    # --- the worker's death -----------------------------------------------------------------------------------------

    def _kill_the_worker(self) -> None:
        """Kill the worker with steps launched and held back; another one takes its place with an empty device."""
        self._kills.pop(0)
        worker = self.worker
        worker.collect()
        # What the pages have shown so far is asked for: a process that is gone tells nothing.
        worker.machine.pages.collect()
        for stream in (worker.machine.prefill, worker.machine.decode):
            worker.machine.hold(stream)
        self._under_a_gate = True
        self._launch_next()
        self._cancel_under_the_kill()
        self._replace_worker()

    def _cancel_under_the_kill(self) -> None:
        """A client cancels a request that the dying worker has in flight: nobody is left to confirm that it stopped.

        Another one stays as it is, so that both ends of a lost execution come.
        """
        worker = self.worker
        flying = [(step, serving) for step in worker.machine.in_flight for serving in step.members]
        for step, serving in flying:
            is_running = worker.batch.get(serving.key) is serving and not serving.cancel_sent
            if is_running and serving.planned.cancel_at and len(worker.batch) > 1:
                self._cancel(serving)
                self.tally.cancelled_in_flight += not step.pending.done()
                return

    def _replace_worker(self) -> None:
        """The worker is dead, or is killed here: fence it off when nothing of it runs any more, and start anew (LEA-4).

        The ledger hears nothing of it at first. The leases run out, which makes its executions suspect and releases
        nothing (LEA-3); the proof of the fence does. A request whose cancel was accepted has then ended as cancelled;
        the others have failed, and their clients ask again.
        """
        self._under_a_gate = False
        self._order.let_go()
        worker = self.worker
        worker.machine.kill()
        self.tally.workers_killed += 1
        self.tally.processes_killed += self._settings.own_process
        flying = {serving.key for step in worker.machine.in_flight for serving in step.members}
        self.tally.lost_in_flight += len(flying & worker.batch.keys())
        self.tally.scrubbed_pages += worker.machine.pages.scrubs
        self._of_the_dead += worker.evidence + worker.machine.pages.found
        lost = list(worker.batch.values())
        self._clock.now += LEASE
        self.tally.suspected += self.control.suspect(lost)
        self.control.replace_worker(lost)
        for _ in lost:
            self.arrivals.ended()
        self.arrivals.ask_again([each.planned for each in lost if not each.cancel_sent], self._clock.now)
        self.worker = self._new_worker()
