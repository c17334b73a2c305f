"""A ledger of any subject, as vectors drive it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from attrs import frozen

from kvescrow.spec.vocabulary import (
    MICROSECONDS_PER_SECOND as SECOND,
)
from kvescrow.spec.vocabulary import (
    Cancel,
    Extend,
    Fence,
    Finish,
    Forget,
    Key,
    LedgerEvent,
    LedgerSnapshot,
    Preempt,
    Promote,
    Receipt,
    Renew,
    ReportUsage,
    ReservationSnapshot,
    Reserve,
    Start,
    StopOutcome,
    Sweep,
    TenantSnapshot,
    Tick,
)
from tests.field_reports.laws import broken_ledger_laws
from tests.field_reports.pages import TENANT
from tests.field_reports.replies import Answer

POOL = "field"
"""The ledger's name, to which receipts are bound."""
RETENTION = 600 * SECOND
"""How long these ledgers keep a terminal record."""
DEADLINE = 10_000 * SECOND
"""Far enough that no report's deadline passes."""


@frozen
class Terms:
    """What a tenant of a vector has. Its limit and budget are out of the way unless the vector is about them."""

    limit: int = 1_000
    queue_limit: int = 8
    budget: int = 1_000_000


class Ledger(ABC):
    """A ledger of one subject. A request is named by itself, in the tenant `TENANT`, or by its `Key`.

    Where a vector gives no life, generation or owner, the event names those of the record as it is now.
    """

    @abstractmethod
    def snapshot(self) -> LedgerSnapshot:
        """The whole projected state."""

    @abstractmethod
    def broken(self) -> list[str]:
        """Each invariant that the subject itself finds broken."""

    @abstractmethod
    def _apply(self, event: LedgerEvent, authentic: bool) -> Answer:
        """Decide `event`; its proof, if it needs one, verifies or does not."""

    def submit(self, event: LedgerEvent, *, authentic: bool = True) -> Answer:
        """Decide one event."""
        before = self.snapshot()
        answer = self._apply(event, authentic)
        after = self.snapshot()
        assert not answer.decision.changes_nothing or before == after, f"{answer} changed something"
        assert (broken_ledger_laws(after), self.broken()) == ([], [])
        return answer

    # --- events -----------------------------------------------------------------------------------------------------

    def reserve(
        self, name: str | Key, amount: int, *, wait: int = 0, digest: str = "P", lease: int = 30 * SECOND
    ) -> Answer:
        """Ask for `amount`; `wait` is the longest time in the queue, `digest` names the parameters."""
        return self.submit(Reserve(key(name), amount, digest, DEADLINE, max_wait=wait, lease=lease))

    def promote(self, name: str | Key) -> Answer:
        """Try to admit a queued request."""
        return self.submit(Promote(key(name)))

    def start(self, name: str | Key, owner: str, *, life: int | None = None, lease: int = 10 * SECOND) -> Answer:
        """Take ownership."""
        return self.submit(Start(key(name), self._life(name, life), owner, lease=lease))

    def extend(self, name: str | Key, bound: int, *, owner: str | None = None, generation: int | None = None) -> Answer:
        """Ask for `bound` in all."""
        return self.submit(Extend(key(name), *self._execution(name, owner, generation), bound))

    def report(self, name: str | Key, used: int) -> Answer:
        """State what its execution has used so far."""
        return self.submit(ReportUsage(key(name), *self._execution(name, None, None), used))

    def cancel(self, name: str | Key, *, life: int | None = None) -> Answer:
        """Ask that the request ends; a disconnect does the same."""
        return self.submit(Cancel(key(name), self._life(name, life)))

    def preempt(self, name: str | Key, *, generation: int | None = None) -> Answer:
        """Ask that it stops and waits again."""
        return self.submit(Preempt(key(name), self._execution(name, None, generation)[1]))

    def finish(
        self,
        name: str | Key,
        outcome: StopOutcome,
        *,
        used: int = 0,
        owner: str | None = None,
        generation: int | None = None,
        authentic: bool = True,
    ) -> Answer:
        """Deliver the owner's stop receipt."""
        who, which = self._execution(name, owner, generation)
        receipt = Receipt(POOL, key(name), who, which, 0, outcome, used, "", b"")
        return self.submit(Finish(receipt), authentic=authentic)

    def renew(
        self,
        name: str | Key,
        *,
        life: int | None = None,
        owner: str | None = None,
        generation: int | None = None,
        lease: int = 10 * SECOND,
    ) -> Answer:
        """Renew the lease of the gateway or the owner."""
        return self.submit(
            Renew(key(name), self._life(name, life), *self._execution(name, owner, generation), lease=lease)
        )

    def sweep(self, name: str | Key) -> Answer:
        """Apply the time limits that have passed."""
        return self.submit(Sweep(key(name)))

    def fence(self, name: str | Key, owner: str, *, authentic: bool = True) -> Answer:
        """Deliver a supervisor's proof that this incarnation of the owner is gone."""
        return self.submit(Fence(key(name), owner, "", b""), authentic=authentic)

    def forget(self, name: str | Key) -> Answer:
        """Drop the terminal record after its retention."""
        return self.submit(Forget(key(name)))

    def passes(self, time: int) -> Answer:
        """Let `time` microseconds pass."""
        return self.submit(Tick(self.snapshot().clock + time))

    # --- what is seen -----------------------------------------------------------------------------------------------

    def record(self, name: str | Key) -> ReservationSnapshot:
        """The record of one request."""
        return self.snapshot().reservations[key(name)]

    def active(self) -> int:
        """Units charged to the pool now."""
        return self.snapshot().pool_active

    def tenant(self, name: str = TENANT) -> TenantSnapshot:
        """The accounts of one tenant."""
        return self.snapshot().tenants[name]

    def _life(self, name: str | Key, life: int | None) -> int:
        return self.record(name).life if life is None else life

    def _execution(self, name: str | Key, owner: str | None, generation: int | None) -> tuple[str, int]:
        if owner is not None and generation is not None:
            return owner, generation
        record = self.record(name)
        return record.owner if owner is None else owner, record.generation if generation is None else generation


def key(name: str | Key) -> Key:
    """Return the key of a request that is named by itself."""
    return name if isinstance(name, Key) else Key(TENANT, name)
