"""The reference as one worker and its gateway use it: ledger, page pool, executions, receipts.

Each method is one step of a request's life. What the reference may not answer there is a ConformFault: the run is then
no evidence about memory, since its two halves contradict each other.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Sequence

from attrs import frozen

from kvescrow.gpu_harness.conform.journal import RunJournal
from kvescrow.gpu_harness.conform.serving import Serving
from kvescrow.gpu_harness.conform.workload import Planned
from kvescrow.reference.executions import Executions, Step, holder_name
from kvescrow.reference.ledger import Admission, LedgerConfig, LedgerReply, MemoryLedger
from kvescrow.reference.pages import Acquired, BrokenInvariant, PagePool
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import (
    Cancel,
    Decision,
    ExecutionState,
    Extend,
    Finish,
    Key,
    LedgerEvent,
    PageState,
    PrefixScope,
    Promote,
    Reason,
    Receipt,
    Reserve,
    Start,
    StopOutcome,
    Sweep,
)

POOL = "conform"
LEASE = 2_000_000
"""Microseconds of virtual time that an execution's lease holds: 2,000 launches, more than any request takes."""
FAR = 1 << 50
"""A time, or a span of it, that no run reaches: this harness looks at memory, and limits of time have other tests."""
_KEYRING_SEED = b"a run of the harness signs for itself alone."


class ConformFault(Exception):
    """Ledger, page pool and worker contradict each other."""


@frozen
class Admitted:
    """A reservation that may start."""

    key: Key
    life: int


class Control:
    """One ledger, one page pool, one worker's executions, all written to `journal`."""

    def __init__(
        self, config: LedgerConfig, pages: int, page_length: int, journal: RunJournal, clock: Callable[[], int]
    ) -> None:
        """Open them empty; `pages` counts the sink."""
        self._journal = journal
        self._keyring = Keyring({"run": hashlib.sha256(_KEYRING_SEED).digest()}, "run")
        self._ledger = MemoryLedger(config, keyring=self._keyring, clock=clock, recorder=journal.ledger)
        self._admission = Admission(self._ledger, lease=FAR)
        self._sizes = pages, page_length
        self._incarnation = 0
        self._begin_worker()
        self.admitted: deque[Admitted] = deque()
        """Reservations that wait for their start, first come first."""

    def _begin_worker(self) -> None:
        self._incarnation += 1
        self._owner = f"decoder/incarnation-{self._incarnation}"
        self.pool = PagePool(*self._sizes, recorder=self._journal.page)
        self._executions = Executions(self.pool)
        self._steps: dict[int, Step] = {}

    # --- the ledger -------------------------------------------------------------------------------------------------

    def reserve(self, planned: Planned, amount: int) -> LedgerReply:
        """Reserve `amount` tokens, the worst case (ADM-4)."""
        digest = hashlib.sha256(repr((planned.prompt, planned.output)).encode()).hexdigest()
        return self._submit(Reserve(planned.key, amount, digest, deadline=FAR, max_wait=FAR, lease=FAR))

    def cancel(self, key: Key, life: int) -> LedgerReply:
        """Ask that this life of `key` ends."""
        return self._submit(Cancel(key, life))

    def start(self, admitted: Admitted) -> int:
        """Start a reservation and return its generation; nothing is launched before (LIF-2)."""
        reply = self._submit(Start(admitted.key, admitted.life, self._owner, lease=LEASE))
        _expect(Decision.STARTED, reply.decision, admitted.key)
        begun = self._executions.begin(admitted.key, reply.generation)
        _expect(Decision.STARTED, begun.decision, admitted.key)
        self._journal.execution("begin", admitted.key, begun, {"generation": reply.generation})
        return reply.generation

    def extend(self, serving: Serving, bound: int) -> bool:
        """Ask for `bound` tokens in all, in the ledger and then in pages; whether it has them now (GRO-2, GRO-3)."""
        reply = self._submit(Extend(serving.key, self._owner, serving.generation, bound))
        if reply.decision not in (Decision.EXTENDED, Decision.RECORDED):
            return False
        grown = self.pool.grow(serving.holder, (bound - serving.bound) // self.pool.page_length)
        return grown.decision is Decision.EXTENDED

    def _submit(self, event: LedgerEvent) -> LedgerReply:
        served = self._admission.submit(event)
        self._take(event, served.reply)
        for each in served.follow_ups:
            self._take(each.event, each.reply)
        return served.reply

    def _take(self, event: LedgerEvent, reply: LedgerReply) -> None:
        match event, reply.decision:
            case ((Reserve() | Promote()), Decision.ADMITTED):
                self.admitted.append(Admitted(event.key, reply.life))
            case Cancel(), Decision.RELEASED:
                self.admitted = deque(each for each in self.admitted if each.key != event.key)
            case _, (Decision.EXPIRED | Decision.SUSPECTED):
                raise ConformFault(f"{event}: {reply.decision.value}, although no limit of time can pass")

    # --- pages ------------------------------------------------------------------------------------------------------

    def acquire(self, holder: str, scope: PrefixScope, prompt: Sequence[int], bound: int) -> Acquired:
        """Promise the pages of `bound` tokens, and take those of the prompt. The charge covers them (PAG-1)."""
        acquired = self.pool.acquire(holder, scope, prompt, bound)
        if not isinstance(acquired, Acquired):
            raise ConformFault(f"{holder}: reserved by the ledger, refused by the pool: {acquired.reason.value}")
        return acquired

    def draw(self, holder: str) -> int:
        """Draw one promised page."""
        reply = self.pool.allocate(holder)
        if reply.page is None:
            raise ConformFault(f"{holder}: a promised page was refused: {reply.reason.value}")
        return reply.page

    def retire(self, scope: PrefixScope) -> None:
        """The weights or the adapter of `scope` have changed: nothing of it is matched again (SCO-5)."""
        self.pool.retire_scope(scope)

    def free_pages(self) -> list[int]:
        """The pages that nobody holds, no step touches and nothing can match."""
        pages = self.pool.snapshot().pages
        return [number for number, page in enumerate(pages) if page.state is PageState.FREE]

    # --- executions -------------------------------------------------------------------------------------------------

    def launch(self, step: Step) -> None:
        """Ask for the launch of `step`; from here on it may touch its pages."""
        reply = self._executions.launch(step)
        _expect(Decision.LAUNCHED, reply.decision, f"step {step.number}: {reply.reason.value}")
        self._steps[step.number] = step
        self._journal.ticket("launch", step, Decision.LAUNCHED, {})

    def settle(self, number: int) -> None:
        """A step is over."""
        _expect(Decision.SETTLED, self._executions.settle(number).decision, f"step {number}")
        self._journal.ticket("settle", self._steps.pop(number), Decision.SETTLED, {"ok": True})

    def close(self, serving: Serving) -> None:
        """Launch nothing more for it, and give its pages up; those that a step may touch drain first (PAG-4)."""
        reply = self._executions.close(serving.key)
        _expect(Decision.ACCEPTED, reply.decision, serving.key)
        self._journal.execution("close", serving.key, reply, {})
        if serving.has_pages:
            _expect(Decision.RELEASED, self.pool.release(serving.holder).decision, serving.key)

    def is_idle(self, key: Key) -> bool:
        """Whether no step that lists `key` is in flight."""
        return not self._executions.in_flight(key)

    def confirm(self, serving: Serving, outcome: StopOutcome) -> None:
        """Certify the stop, deliver the signed receipt, forget the execution (REC-1, REC-2, REC-3)."""
        certified = self._executions.certify(serving.key)
        _expect(Decision.CERTIFIED, certified.decision, f"{serving.key}: {certified.reason.value}")
        self._journal.execution("certify", serving.key, certified, {})
        reply = self._submit(self._receipt(serving, outcome, certified.last_ticket))
        _expect(Decision.RELEASED, reply.decision, f"{serving.key}: {reply.reason.value}")
        acknowledged = self._executions.acknowledge(serving.key)
        _expect(Decision.FORGOTTEN, acknowledged.decision, serving.key)
        self._journal.execution("acknowledge", serving.key, acknowledged, {})
        self.pool.forget(holder_name(serving.key, serving.generation))

    def _receipt(self, serving: Serving, outcome: StopOutcome, last_ticket: int) -> Finish:
        receipt = Receipt(
            pool=POOL,
            key=serving.key,
            owner=self._owner,
            generation=serving.generation,
            last_ticket=last_ticket,
            outcome=outcome,
            used=serving.used,
            key_id=self._keyring.current,
            mac=b"",
        )
        return Finish(self._keyring.sign(receipt))

    # --- the worker's death -----------------------------------------------------------------------------------------

    def suspect(self, lost: Sequence[Serving]) -> int:
        """The leases of a dead worker's executions `lost` have run out: how many are suspect now (LEA-3).

        All of them are but those whose cancel was accepted, and each stays charged: time proves no stop.
        """
        before = self._ledger.snapshot().pool_active
        swept = [(each.event, each.reply) for each in self._admission.advance()]
        suspected = {
            event.key for event, reply in swept if isinstance(event, Sweep) and reply.decision is Decision.SUSPECTED
        }
        if suspected != {serving.key for serving in lost if not serving.cancel_sent}:
            raise ConformFault(f"of the dead worker's executions, these became suspect: {sorted(map(str, suspected))}")
        if self._ledger.snapshot().pool_active != before:
            raise ConformFault("an execution was released since its lease ran out")
        return len(suspected)

    def replace_worker(self, lost: Sequence[Serving]) -> None:
        """The worker is gone, and its device context with it: fence it off, then let another one begin empty (LEA-4).

        `lost` are its executions. Until its own fence each stays charged; a receipt that comes after it releases
        nothing (LIF-5).
        """
        another = f"decoder/incarnation-{self._incarnation + 1}"
        for serving in lost:
            foreign = self._submit(self._keyring.fence(POOL, serving.key, another))
            _expect(Reason.NOT_OWNER, foreign.reason, serving.key)
            reply = self._submit(self._keyring.fence(POOL, serving.key, self._owner))
            _expect(Decision.RELEASED, reply.decision, f"{serving.key}: {reply.reason.value}")
            _expect(Reason.OWNER_FENCED, reply.reason, serving.key)
            before = self._ledger.snapshot().pool_active
            late = self._submit(self._receipt(serving, StopOutcome.STOPPED, serving.launches))
            if late.decision is Decision.RELEASED or self._ledger.snapshot().pool_active != before:
                raise ConformFault(f"{serving.key}: a receipt of the fenced worker released something")
        self._journal.next_worker()
        self._begin_worker()

    # --- the end ----------------------------------------------------------------------------------------------------

    def not_conserved(self, keys: Sequence[Key]) -> list[str]:
        """Say what is still charged, held or under way when all work is over (LIF-10, PAG-2)."""
        ledger, counts = self._ledger.snapshot(), self.pool.counts()
        wrong = {
            "the ledger's pool is charged": ledger.pool_active,
            "tenants are charged": sum(each.active + each.held + each.queued for each in ledger.tenants.values()),
            "requests are queued": len(ledger.queue),
            "pages are promised": counts.promised,
            "pages are neither free nor cached": counts.total - counts.free - counts.cached,
            "executions are not forgotten": sum(
                self._executions.state(key) is not ExecutionState.ABSENT for key in keys
            ),
        }
        found = [f"at the end {what}: {amount}" for what, amount in wrong.items() if amount]
        try:
            self.pool.check()
        except BrokenInvariant as broken:
            found.append(f"at the end of the run the page pool breaks {broken.name}")
        return found


def _expect(wanted: Decision | Reason, found: Decision | Reason, about: object) -> None:
    if found is not wanted:
        raise ConformFault(f"{about}: expected {wanted.value}, found {found.value}")
