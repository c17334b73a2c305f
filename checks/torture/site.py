"""What a store offers to a campaign. `targets.torture` implements it for the stores of the reference."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from attrs import frozen

from kvescrow.checks.concurrency import Change, Terms
from kvescrow.checks.torture.clock import SteppedClock
from kvescrow.checks.torture.faults import FaultKind
from kvescrow.spec.vocabulary import (
    Decision,
    Fence,
    Key,
    LedgerEvent,
    LedgerSnapshot,
    Reason,
    Receipt,
    ReservationState,
)


class NotApplied(Exception):
    """The store said that it could not keep the event, and that nothing of it was applied."""


class Unreachable(Exception):
    """The connection broke: nobody knows what became of the event, if one was under way."""


class StoreDown(Exception):
    """The store cannot be opened. The message says why."""


class Reply(Protocol):
    """What of a reply is looked at."""

    @property
    def decision(self) -> Decision:
        """What was decided."""
        ...

    @property
    def reason(self) -> Reason:
        """Why."""
        ...

    @property
    def seq(self) -> int:
        """Commit number of this change, or of the last one."""
        ...

    @property
    def state(self) -> ReservationState | None:
        """State of the reservation after the event."""
        ...

    @property
    def life(self) -> int:
        """Life of the key."""
        ...

    @property
    def generation(self) -> int:
        """Execution generation."""
        ...

    @property
    def bound(self) -> int:
        """What is charged for it."""
        ...

    @property
    def free_tenant(self) -> int:
        """What was free in the tenant's limit before the event."""
        ...

    @property
    def free_pool(self) -> int:
        """What was free in the pool before the event."""
        ...


class Connection(Protocol):
    """One caller's way to the ledger. Its methods raise `NotApplied` and `Unreachable`."""

    def submit(self, event: LedgerEvent) -> Reply:
        """Decide one event."""
        ...

    def due(self) -> list[LedgerEvent]:
        """Return the events that time has made due."""
        ...

    def waiting(self) -> tuple[Key, ...]:
        """Return the queued keys, first come first."""
        ...

    def snapshot(self) -> LedgerSnapshot:
        """Return the whole projected state."""
        ...

    def close(self) -> None:
        """Hang up."""
        ...


class Front(Protocol):
    """The front of a ledger, which also does what becomes due."""

    def submit(self, event: LedgerEvent) -> Reply:
        """Decide `event`, do what follows from it, and return the reply to it."""
        ...

    def advance(self) -> None:
        """Do what the passing of time has made due."""
        ...


class Site(Protocol):
    """What a gateway process needs; it is passed to it by pickling."""

    @property
    def clock(self) -> SteppedClock:
        """The clock that the store reads."""
        ...

    @property
    def terms(self) -> Terms:
        """What the ledger began with."""
        ...

    @property
    def forgets_the_clock(self) -> bool:
        """Whether the clock that a refusal saw is forgotten when the store is opened again or asked by another."""
        ...

    def connect(self) -> Connection:
        """Return a new connection. Raises `Unreachable`."""
        ...

    def front(self, ledger: Connection, lease: int) -> Front:
        """Stand a front before `ledger`; what it promotes is kept for `lease` microseconds."""
        ...

    def sign(self, receipt: Receipt) -> Receipt:
        """Sign as the workers of the pool do; `receipt.pool` is filled in."""
        ...

    def fence(self, key: Key, owner: str) -> Fence:
        """Return the event with the supervisor's proof that `owner` is gone."""
        ...


@frozen
class Evidence:
    """What the store says at the end."""

    changes: Sequence[Change]
    lines: Sequence[Mapping[str, object]]
    """The same changes as lines of a journal."""
    config: Mapping[str, object]
    """The header's configuration of that journal."""
    final: LedgerSnapshot


class StoreUnderTorture(Protocol):
    """A store that a campaign may start, kill and squeeze. Methods for faults that it cannot suffer are not called."""

    @property
    def name(self) -> str:
        """By which results name it."""
        ...

    @property
    def faults(self) -> frozenset[FaultKind]:
        """The faults that it can suffer."""
        ...

    @property
    def site(self) -> Site:
        """What gateways need."""
        ...

    def start(self) -> None:
        """Start it, or start it again on the files that it had. Raises `StoreDown` where it does not open."""
        ...

    def kill(self) -> None:
        """kill -9 of every process of it."""
        ...

    def pause(self) -> None:
        """Stop its processes where they are."""
        ...

    def resume(self) -> None:
        """Let them go on."""
        ...

    def squeeze(self) -> None:
        """Leave no room for its files."""
        ...

    def relieve(self) -> None:
        """Give room again."""
        ...

    def evidence(self) -> Evidence:
        """Return its journal and its state; nobody submits meanwhile."""
        ...

    def close(self) -> None:
        """End its processes and remove its files."""
        ...
