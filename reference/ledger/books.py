"""The books of one ledger: everything that decides, in memory, one event at a time.

A store adds atomicity and durability. It calls `handle` for one event after another, never for two at once.
"""

from collections.abc import Iterable, Mapping

from kvescrow.reference.ledger.decisions import ReservationEvent, decide
from kvescrow.reference.ledger.decisions.limits import LimitEvent, apply_limit, decide_limit
from kvescrow.reference.ledger.port import JournalEntry, LedgerConfig, LedgerReply, TenantConfig
from kvescrow.reference.ledger.queue import Queue
from kvescrow.reference.ledger.records import (
    Outcome,
    PoolAccount,
    Posting,
    Reservation,
    Situation,
    TenantAccount,
    refused,
)
from kvescrow.reference.ledger.retries import Retries
from kvescrow.reference.ledger.timetable import Timetable
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import (
    Decision,
    Extend,
    Fence,
    Finish,
    Forget,
    Key,
    LedgerEvent,
    LedgerSnapshot,
    Promote,
    Reason,
    ReservationSnapshot,
    ReservationState,
    Reserve,
    SetBudget,
    SetTenantLimit,
    Start,
    Sweep,
    TenantSnapshot,
    UserError,
)

_GRANTS = frozenset({Decision.ADMITTED, Decision.QUEUED, Decision.STARTED, Decision.EXTENDED})
"""Decisions that rest on what the accounts say is free, or on which key is."""

_UNTOLD = (None, 0, 0, 0)
"""State, life, generation and bound as they are told to who may not know them."""

_NOBODY = TenantAccount(limit=0, budget=0, queue_limit=0)
"""Stands for the account of a tenant that does not exist; nothing is ever posted to it."""


class Books:
    """Records, accounts, queue and clock, with the indexes that find what is due."""

    def __init__(self, pool_name: str, pool: PoolAccount, keyring: Keyring | None) -> None:
        self.pool_name = pool_name
        self.pool = pool
        self.tenants: dict[str, TenantAccount] = {}
        self.records: dict[Key, Reservation] = {}
        self.queue = Queue()
        self.recovering = False
        """Whether the last changes may be missing here: then nothing is granted, while stops and releases go on."""
        self.gives_hints = True
        """Whether a refusal says when to try again; books that only decide whether there is one need no indexes."""
        self._keyring = keyring
        self._forget_indexes()

    @classmethod
    def opened(cls, config: LedgerConfig, keyring: Keyring | None) -> "Books":
        """Return the empty books of `config`."""
        books = cls(config.pool, PoolAccount(limit=config.pool_limit, retention=config.retention), keyring)
        for name, tenant in config.tenants.items():
            books.tenants[name] = account_of(tenant)
        return books

    def restore(self, record: Reservation, place: int) -> None:
        """Put a durable record back; the accounts are restored apart, and queued records in order of `place`."""
        self.records[record.key] = record
        if record.state is ReservationState.QUEUED:
            self.queue.join(record.key, place)

    def absorb(self, later: "Books", keys: Iterable[Key]) -> None:
        """Take over what `later` books of the same ledger hold, and that those of `keys` are gone which they lack.

        For books that serve a part of a store: what `later` does not speak of has not changed.
        """
        self.pool, self.recovering, self.queue = later.pool, later.recovering, later.queue
        self.tenants.update(later.tenants)
        self.records.update(later.records)
        for key in keys:
            if key not in later.records:
                self.records.pop(key, None)
        self._forget_indexes()

    def shed_ended(self) -> None:
        """Let go of the records that only `forget` can still change; the accounts have what they left."""
        self.records = {key: record for key, record in self.records.items() if not record.is_terminal}
        self._forget_indexes()

    def advance(self, now: int) -> None:
        """Let the clock show `now`, unless it is later already (LEA-6)."""
        self.pool.clock = max(self.pool.clock, now)

    def handle(self, event: LedgerEvent) -> JournalEntry:
        """Decide `event` and apply what it changes. Where it raises, nothing was applied."""
        return self._handle_limit(event) if isinstance(event, LimitEvent) else self._handle_reservation(event)

    def _handle_reservation(self, event: ReservationEvent) -> JournalEntry:
        key, pool = event.key, self.pool
        situation = self._situation(event)
        outcome = decide(event, situation)
        if self.recovering and outcome.decision in _GRANTS:
            outcome = refused(Reason.RECOVERING)
        asked = _asked(event, situation.record)
        free_tenant, free_pool = _free(situation)
        retry_after = self._hint(outcome, situation, key.tenant, asked)
        if outcome.changes:
            self._apply(key, situation, outcome)
        after = self.records.get(key)
        stands = (after.state, after.life, after.generation) if after else (ReservationState.ABSENT, 0, 0)
        state, life, generation, bound = (*stands, after.bound if after else 0) if situation.vouched else _UNTOLD
        reply = LedgerReply(
            outcome.decision,
            outcome.reason,
            pool.seq,
            state,
            life,
            generation,
            bound,
            asked,
            free_tenant,
            free_pool,
            retry_after,
        )
        return JournalEntry(pool.clock, event, reply, situation.vouched, *stands)

    def _situation(self, event: ReservationEvent) -> Situation:
        key = event.key
        tenant = self.tenants.get(key.tenant)
        return Situation(
            self.records.get(key),
            tenant if tenant is not None else _NOBODY,
            self.pool,
            self._vouched(event, tenant is not None),
            lambda: self.queue.others_first(key, self.records, self.tenants, self.pool.clock),
        )

    def _vouched(self, event: ReservationEvent, configured: bool) -> bool:
        match event:
            case Promote() | Sweep() | Forget():
                return True
            case Finish():
                return self._keyring is not None and self._keyring.vouches_for_receipt(event.receipt, self.pool_name)
            case Fence():
                return self._keyring is not None and self._keyring.vouches_for_fence(event, self.pool_name)
            case Start() if not event.owner:
                raise UserError("Start.owner is empty: name the worker's incarnation, unique to its process start")
            case _:
                # Nobody is authorised for a tenant that does not exist.
                return event.authorised and configured

    def _handle_limit(self, event: LimitEvent) -> JournalEntry:
        tenant = self.tenants.get(event.tenant) if isinstance(event, SetTenantLimit | SetBudget) else None
        outcome = decide_limit(event, tenant, self.pool)
        free_tenant = tenant.limit - tenant.active if tenant else 0
        free_pool = self.pool.limit - self.pool.active
        if outcome.decision is Decision.NOTED:
            apply_limit(event, tenant, self.pool)
            self.pool.seq += 1
        reply = LedgerReply(
            decision=outcome.decision,
            reason=outcome.reason,
            seq=self.pool.seq,
            state=None,
            life=0,
            generation=0,
            bound=0,
            asked=0,
            free_tenant=free_tenant,
            free_pool=free_pool,
            retry_after=None,
        )
        return JournalEntry(
            now=self.pool.clock, event=event, reply=reply, vouched=True, state=None, life=0, generation=0
        )

    def _apply(self, key: Key, situation: Situation, outcome: Outcome) -> None:
        """Make the change of `outcome`: record, accounts, queue and indexes together."""
        before = situation.record
        after = outcome.record
        self._post(situation.tenant, outcome.posting)
        self.pool.seq += 1
        if after is None:
            del self.records[key]
        else:
            self.records[key] = after
            self.pool.next_life = max(self.pool.next_life, after.life + 1)
            self.pool.next_generation = max(self.pool.next_generation, after.generation + 1)
        waited = before is not None and before.state is ReservationState.QUEUED
        waits = after is not None and after.state is ReservationState.QUEUED
        if waited and not waits:
            self.queue.leave(key)
        if waits and not waited:
            self.queue.join(key, self.pool.seq)
        if self._is_indexed:
            self._index(before, after)

    def _post(self, tenant: TenantAccount, posting: Posting) -> None:
        self.pool.active += posting.charged
        tenant.active += posting.charged
        tenant.held += posting.charged
        tenant.spent += posting.spent
        tenant.overrun += posting.overrun
        tenant.queued += posting.queued

    def _index(self, before: Reservation | None, after: Reservation | None) -> None:
        record = after or before
        if record is not None:
            self._limits.set(record, after.due() if after else None)
            self._retries.note(before, after)

    def _forget_indexes(self) -> None:
        self._limits = Timetable()
        self._retries = Retries()
        # Made when first asked: books that serve a part of a store are seldom asked.
        self._is_indexed = False

    def _make_indexes(self) -> None:
        if not self._is_indexed:
            self._is_indexed = True
            for record in self.records.values():
                self._index(None, record)

    def _hint(self, outcome: Outcome, situation: Situation, name: str, asked: int) -> int | None:
        if outcome.decision is not Decision.REFUSED or not self.gives_hints:
            return None
        self._make_indexes()
        return self._retries.hint(outcome.reason, situation, name, asked)

    def due(self) -> list[LedgerEvent]:
        """Return the sweeps and forgettings that time has made due, soonest first."""
        self._make_indexes()
        return [
            Forget(key) if self.records[key].is_terminal else Sweep(key) for key in self._limits.due(self.pool.clock)
        ]

    def snapshot(self) -> LedgerSnapshot:
        """Return the projected state."""
        return LedgerSnapshot(
            clock=self.pool.clock,
            pool_active=self.pool.active,
            pool_limit=self.pool.limit,
            tenants={name: _tenant_snapshot(account) for name, account in self.tenants.items()},
            reservations={key: _reservation_snapshot(record) for key, record in self.records.items()},
            queue=tuple(self.queue),
        )

    def discrepancies(self) -> list[str]:
        """Return each account whose counter is not what its reservations add up to; empty where all agree (LIF-10)."""
        return discrepancies(self.pool, self.tenants, self.records)


def account_of(config: TenantConfig) -> TenantAccount:
    """Return the empty account of a configured tenant."""
    return TenantAccount(limit=config.limit, budget=config.budget, queue_limit=config.queue_limit)


def discrepancies(
    pool: PoolAccount, tenants: Mapping[str, TenantAccount], records: Mapping[Key, Reservation]
) -> list[str]:
    """Return a line for each counter that differs from the sum over `records`, naming the account."""
    found: list[str] = []

    def compare(account: str, counter: int, total: int) -> None:
        if counter != total:
            found.append(f"{account} is {counter}, but its reservations add up to {total}")

    charged = dict.fromkeys(tenants, 0)
    queued = dict.fromkeys(tenants, 0)
    for key, record in records.items():
        if key.tenant not in tenants:
            found.append(f"tenant {key.tenant!r} has a reservation {key.request!r} but no account")
            continue
        charged[key.tenant] += record.charged
        queued[key.tenant] += record.state is ReservationState.QUEUED
    compare("pool.active", pool.active, sum(charged.values()))
    for name, account in tenants.items():
        compare(f"tenant {name!r} active", account.active, charged[name])
        compare(f"tenant {name!r} held", account.held, charged[name])
        compare(f"tenant {name!r} queued", account.queued, queued[name])
    last_life = max((record.life for record in records.values()), default=0)
    last_generation = max((record.generation for record in records.values()), default=0)
    if pool.next_life <= last_life:
        found.append(f"pool.next_life is {pool.next_life}, but life {last_life} was drawn")
    if pool.next_generation <= last_generation:
        found.append(f"pool.next_generation is {pool.next_generation}, but {last_generation} was drawn")
    return found


def _free(situation: Situation) -> tuple[int, int]:
    """Return what is free in the tenant's limit and in the pool; nothing is told to who may not ask."""
    if not situation.vouched:
        return 0, 0
    return situation.tenant.limit - situation.tenant.active, situation.pool.limit - situation.pool.active


def _asked(event: ReservationEvent, record: Reservation | None) -> int:
    match event:
        case Reserve():
            return event.amount
        case Promote() if record is not None:
            return record.bound
        case Extend() if record is not None:
            return max(0, event.bound - record.bound)
        case _:
            return 0


def _tenant_snapshot(account: TenantAccount) -> TenantSnapshot:
    return TenantSnapshot(
        active=account.active,
        limit=account.limit,
        held=account.held,
        spent=account.spent,
        budget=account.budget,
        overrun=account.overrun,
        queued=account.queued,
    )


def _reservation_snapshot(record: Reservation) -> ReservationSnapshot:
    return ReservationSnapshot(
        state=record.state,
        amount=record.amount,
        bound=record.bound,
        used=record.used,
        overrun=record.overrun,
        life=record.life,
        generation=record.generation,
        owner=record.owner or "",
        lease=record.lease,
        expires=record.expires,
    )
