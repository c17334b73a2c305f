"""Ledgers with one planted error each: what a campaign must catch, or its silence says nothing.

Each is an error that such ledgers have had. A right ledger is changed in one place; everything else is the
reference's.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from kvescrow.reference.ledger import JournalEntry, Ledger, LedgerConfig, LedgerReply, MemoryLedger, SqliteLedger, books
from kvescrow.reference.ledger.books import Books
from kvescrow.reference.ledger.records import Outcome, PoolAccount, Posting, Situation, TenantAccount
from kvescrow.reference.ledger.sqlite.file import LedgerFile
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import (
    Decision,
    Finish,
    LedgerEvent,
    Reason,
    ReservationState,
    Reserve,
    Start,
    Sweep,
    UserError,
)

Clock = Callable[[], int]
_LONG = 10**15
_WRITTEN_TOGETHER = 20
_SWEEPER_IS_LATE = 5_000_000
"""Microseconds."""


@frozen
class Planted:
    """One planted error."""

    plant: Callable[[], None]
    """Plants it in this process, before the ledger opens."""
    cause: str
    """The name by which it must be found."""
    meaning: str
    store: str | None = None
    """The store that can have it; None where both can that live in one process."""


Decide = Callable[[Any, Situation], Outcome]
Handle = Callable[[Books, Any], JournalEntry]


def _in_decisions(change: Callable[[Decide, Any, Situation], Outcome]) -> Callable[[], None]:
    def plant() -> None:
        right: Decide = vars(books)["decide"]
        vars(books)["decide"] = lambda event, situation: change(right, event, situation)

    return plant


def _in_handle(change: Callable[[Handle, Books, Any], JournalEntry]) -> Callable[[], None]:
    def plant() -> None:
        right = Books.handle
        Books.handle = lambda self, event: change(right, self, event)  # type: ignore[method-assign]

    return plant


def _check_then_increment() -> None:
    """Look at the counters, then take the lock and charge, as a limiter does that reads and writes apart."""
    submit = MemoryLedger.submit
    tenant_has_room, pool_has_room = TenantAccount.has_room, PoolAccount.has_room
    looked = threading.local()

    def submit_in_two_steps(self: MemoryLedger, event: LedgerEvent) -> LedgerReply:
        if isinstance(event, Reserve):
            seen = self.snapshot()
            tenant = seen.tenants.get(event.key.tenant)
            looked.fits = (
                tenant is not None
                and tenant.active + event.amount <= tenant.limit
                and seen.pool_active + event.amount <= seen.pool_limit
            )
            time.sleep(0.01)
        try:
            return submit(self, event)
        finally:
            looked.fits = False

    def fits() -> bool:
        return getattr(looked, "fits", False)

    MemoryLedger.submit = submit_in_two_steps  # type: ignore[method-assign]  # this is the error
    TenantAccount.has_room = lambda self, amount: fits() or tenant_has_room(self, amount)  # type: ignore[method-assign]
    PoolAccount.has_room = lambda self, amount: fits() or pool_has_room(self, amount)  # type: ignore[method-assign]


def _half_of_a_change(right: Handle, kept: Books, event: Any) -> JournalEntry:
    """Now and then the record is made, and the pool's counter is left out."""
    entry = right(kept, event)
    if entry.reply.decision is Decision.ADMITTED and entry.seq % 10 == 0:
        kept.pool.active -= entry.reply.bound
    return entry


def _release_on_expiry(right: Decide, event: Any, situation: Situation) -> Outcome:
    """A lease that runs out releases the work, as a time-to-live would."""
    record, outcome = situation.record, right(event, situation)
    if record is not None and outcome.decision is Decision.SUSPECTED:
        ended = evolve(record, state=ReservationState.EXPIRED, retained=situation.pool.clock + situation.pool.retention)
        return Outcome(Decision.EXPIRED, Reason.LEASE_EXPIRED, ended, Posting(charged=-record.bound))
    return outcome


def _sweeper_only_expiry(right: Decide, event: Any, situation: Situation) -> Outcome:
    """A lease that has run out counts only once a sweeper came by, and it comes late."""
    record = situation.record
    if record is None or record.state is not ReservationState.RESERVED:
        return right(event, situation)
    if isinstance(event, Start):
        return right(event, situation._replace(record=evolve(record, lease=_LONG)))
    if isinstance(event, Sweep) and record.lease + _SWEEPER_IS_LATE > situation.pool.clock:
        return Outcome(Decision.NOTHING_DUE)
    return right(event, situation)


def _late_stop_accepted(right: Decide, event: Any, situation: Situation) -> Outcome:
    """A receipt stops whatever runs under its key now, of whatever execution it speaks."""
    record = situation.record
    if isinstance(event, Finish) and record is not None:
        event = Finish(evolve(event.receipt, generation=record.generation))
    return right(event, situation)


def _refused_but_charged(right: Handle, kept: Books, event: Any) -> JournalEntry:
    """A refusal for want of room leaves its charge behind now and then."""
    entry = right(kept, event)
    if entry.reply.reason is Reason.TENANT_CAPACITY and kept.pool.clock % 3 == 0:
        kept.pool.active += 1
    return entry


def _retry_charges_again(right: Decide, event: Any, situation: Situation) -> Outcome:
    """A retry of an admitted request is charged once more."""
    record, outcome = situation.record, right(event, situation)
    is_retry = isinstance(event, Reserve) and outcome.decision is Decision.RECORDED
    if is_retry and record is not None and record.state is ReservationState.RESERVED:
        return Outcome(Decision.ADMITTED, Reason.NONE, record, Posting(charged=record.bound))
    return outcome


def _acknowledged_before_it_is_kept() -> None:
    """Answer first, and write when enough has come together."""
    save = LedgerFile.save
    held: list[JournalEntry] = []

    def save_later(self: LedgerFile, changes: Sequence[JournalEntry], now: Books) -> None:
        held.extend(changes)
        if len(held) >= _WRITTEN_TOGETHER:
            try:
                save(self, held, now)
            finally:
                held.clear()

    LedgerFile.save = save_later  # type: ignore[method-assign, assignment]


SABOTAGES: Mapping[str, Planted] = {
    "check-then-increment": Planted(
        _check_then_increment, "over_granted", "counters are read, then charged in a second step", store="memory"
    ),
    "half-of-a-change": Planted(
        _in_handle(_half_of_a_change), "work_without_charge", "a record without its charge on the pool"
    ),
    "release-on-expiry": Planted(
        _in_decisions(_release_on_expiry), "released_without_stop", "a lease that runs out releases running work"
    ),
    "sweeper-only-expiry": Planted(
        _in_decisions(_sweeper_only_expiry), "expiry_ignored", "a lease counts as run out only after a sweep"
    ),
    "late-stop-accepted": Planted(
        _in_decisions(_late_stop_accepted), "stale_accepted", "a receipt of an earlier execution stops this one"
    ),
    "refused-but-charged": Planted(
        _in_handle(_refused_but_charged), "charged_without_work", "a refusal leaves a charge behind"
    ),
    "retry-charges-again": Planted(_in_decisions(_retry_charges_again), "doubled", "a retry is charged once more"),
    "acknowledged-before-kept": Planted(
        _acknowledged_before_it_is_kept, "lost", "the answer comes before the write", store="sqlite"
    ),
}
"""By name."""


def check_sabotage(sabotage: str, store: str) -> None:
    """Raise `UserError` where there is no such error, or `store` cannot have it."""
    if sabotage not in SABOTAGES:
        raise UserError(f"sabotage {sabotage!r}: choose one of {', '.join(SABOTAGES)}")
    planted = SABOTAGES[sabotage].store
    if store not in (("memory", "sqlite") if planted is None else (planted,)):
        raise UserError(
            f"sabotage {sabotage!r} is an error of the store {planted or 'memory or sqlite'}: name that store"
        )


def open_planted(
    sabotage: str | None, store: str, path: Path, config: LedgerConfig, keyring: Keyring, clock: Clock
) -> Ledger:
    """Open the ledger of `store`, after planting `sabotage`, if any, in this process for good."""
    if sabotage is not None:
        SABOTAGES[sabotage].plant()
    if store == "memory":
        return MemoryLedger(config, keyring=keyring, clock=clock)
    return SqliteLedger(path, config, keyring=keyring, clock=clock)
