"""A whole ledger, moved by the reservation and account tables."""

from collections.abc import Callable, Iterator, Mapping
from typing import cast

from attrs import asdict, frozen

from kvescrow.spec.language.compiler import compiled
from kvescrow.spec.language.expressions import reads
from kvescrow.spec.language.interpreter import Record, View
from kvescrow.spec.language.table import Table
from kvescrow.spec.tables.account import ACCOUNT
from kvescrow.spec.tables.account import account as account_entity
from kvescrow.spec.tables.registry import TABLE_BY_NAME
from kvescrow.spec.tables.reservation import RESERVATION
from kvescrow.spec.tables.reservation.view import other as other_entity
from kvescrow.spec.tables.reservation.view import pool as pool_entity
from kvescrow.spec.tables.reservation.view import reservation as reservation_entity
from kvescrow.spec.tables.reservation.view import tenant as tenant_entity
from kvescrow.spec.vocabulary import (
    CHARGED_STATES,
    AccountState,
    Key,
    LedgerEvent,
    LedgerEventKind,
    LedgerSnapshot,
    ReservationSnapshot,
    ReservationState,
    TenantSnapshot,
    event_name,
)
from kvescrow.spec.world.outcome import MutableRecord, Outcome, apply_row, blank, violated

Watch = Callable[[str, View, str, Record], None]

ACCOUNT_EVENTS = frozenset(event.name for event in ACCOUNT.events)
_ASKS_THE_QUEUE = frozenset(row.event for row in RESERVATION.rows if ("queue", "ahead") in reads(row.when))
"""Events that look at the queue; the others are spared its count."""
_NOT_GHOSTLY = tuple(
    invariant
    for invariant in RESERVATION.invariants
    if not any(entity == "ghost" for entity, _ in reads(invariant.holds))
)


@frozen
class TenantTerms:
    """What an operator grants one tenant, in the pool's unit; `queue_limit` counts requests."""

    limit: int
    budget: int
    queue_limit: int


def parameters_of(event: LedgerEvent, *, authentic: bool = True) -> Record:
    """Return the parameters of `event` as the tables name them. `authentic` says whether its proof verifies."""
    kind = event_name(event)
    values = asdict(event, recurse=False)
    values.pop("key", None)
    values.pop("tenant", None)
    if kind is LedgerEventKind.FINISH:
        receipt = values.pop("receipt")
        values = {name: getattr(receipt, name) for name in ("owner", "generation", "outcome", "used")}
    wanted = next(e for t in (RESERVATION, ACCOUNT) for e in t.events if e.name == kind.value).parameters
    if "authentic" in wanted:
        values["authentic"] = authentic
    return {name: values[name] for name in wanted}


class LedgerWorld:
    """The oracle of a ledger: every answer is a row's."""

    def __init__(
        self,
        pool_limit: int,
        tenants: Mapping[str, TenantTerms],
        retention: int,
        watch: Watch | None = None,
        tables: Mapping[str, Table] = TABLE_BY_NAME,
    ) -> None:
        """Start empty. `retention` is in microseconds; `watch` sees every view before a row of `tables` fires."""
        self._watch = watch
        self._reservation = compiled(tables["reservation"])
        self._account = compiled(tables["account"])
        self.pool = blank(pool_entity, limit=pool_limit, retention=retention, next_life=1, next_generation=1)
        self.tenants = {
            name: blank(tenant_entity, limit=terms.limit, budget=terms.budget, queue_limit=terms.queue_limit)
            for name, terms in tenants.items()
        }
        self.reservations: dict[Key, MutableRecord] = {}
        self.queue: list[Key] = []

    def apply(self, event: LedgerEvent, *, authentic: bool = True) -> Outcome:
        """Return the answer to `event`, and take its effects. `authentic` says whether its proof verifies."""
        tenant = getattr(event, "tenant", None)
        return self.apply_named(
            event_name(event).value,
            getattr(event, "key", None) if tenant is None else Key(tenant, ""),
            parameters_of(event, authentic=authentic),
        )

    def apply_named(self, event: str, key: Key | None, parameters: Record) -> Outcome:
        """Return the answer to the event called `event`, with the parameters that its table names.

        `key` is None for events of the pool; for events of a tenant its request is empty.
        """
        if event in ACCOUNT_EVENTS:
            return self._apply_account(event, key, parameters)
        if key is None:
            raise ValueError(f"`{event}` needs a key")
        return self._apply_reservation(event, key, parameters)

    def view(self, event: str, key: Key | None) -> Mapping[str, MutableRecord]:
        """Return what a row of `event` sees now: the world's own records, and blank ones for what there is not."""
        tenant = self.tenants.get(key.tenant) if key else None
        if event in ACCOUNT_EVENTS:
            seen = {**(tenant if tenant is not None else blank(tenant_entity)), "configured": tenant is not None}
            return {"account": blank(account_entity, state=AccountState.OPEN), "pool": self.pool, "tenant": seen}
        if key is None:
            raise ValueError(f"`{event}` needs a key")
        return {
            "reservation": self.reservations.get(key) or blank(reservation_entity, state=ReservationState.ABSENT),
            "tenant": tenant if tenant is not None else blank(tenant_entity),
            "pool": self.pool,
            "queue": {"ahead": self._ahead(key) if event in _ASKS_THE_QUEUE else 0},
        }

    def _apply_account(self, event: str, key: Key | None, parameters: Record) -> Outcome:
        view = self.view(event, key)
        outcome = apply_row(self._account, view, event, parameters, self._watch)
        if key is not None and key.tenant in self.tenants:
            tenant = self.tenants[key.tenant]
            tenant.update((name, view["tenant"][name]) for name in tenant)
        return outcome

    def _apply_reservation(self, event: str, key: Key, parameters: Record) -> Outcome:
        if key.tenant not in self.tenants and "authorised" in parameters:
            parameters = {**parameters, "authorised": False}
        view = self.view(event, key)
        record = view["reservation"]
        was = record["state"]
        outcome = apply_row(self._reservation, view, event, parameters, self._watch)
        self._file(key, record, was)
        return outcome

    def _file(self, key: Key, record: MutableRecord, was: object) -> None:
        now = record["state"]
        if now is ReservationState.ABSENT:
            self.reservations.pop(key, None)
        elif was is ReservationState.ABSENT:
            self.reservations[key] = record
        if now is not was:
            if was is ReservationState.QUEUED:
                self.queue.remove(key)
            if now is ReservationState.QUEUED:
                self.queue.append(key)

    def _ahead(self, key: Key) -> int:
        """Count the queued requests before `key` that lack nothing but room in the pool (QUE-5)."""
        earlier = self.queue[: self.queue.index(key)] if key in self.queue else self.queue
        return sum(self._lacks_only_room(waiting) for waiting in earlier)

    def _lacks_only_room(self, key: Key) -> bool:
        r = cast(dict[str, int], self.reservations[key])
        t = cast(dict[str, int], self.tenants[key.tenant])
        clock = cast(int, self.pool["clock"])
        return (
            r["expires"] > clock
            and clock + r["least_service"] <= r["deadline"]
            and t["spent"] + t["held"] + r["bound"] <= t["budget"]
            and t["active"] + r["bound"] <= t["limit"]
        )

    def snapshot(self) -> LedgerSnapshot:
        """Return the projection that implementations are compared by."""
        return LedgerSnapshot(
            clock=cast(int, self.pool["clock"]),
            pool_active=cast(int, self.pool["active"]),
            pool_limit=cast(int, self.pool["limit"]),
            tenants={
                name: TenantSnapshot(
                    **{
                        field: cast(int, record[field])
                        for field in ("active", "limit", "held", "spent", "budget", "overrun", "queued")
                    }
                )
                for name, record in self.tenants.items()
            },
            reservations={key: _reservation_snapshot(record) for key, record in self.reservations.items()},
            queue=tuple(self.queue),
        )

    def violations(self) -> list[str]:
        """Return the invariants that do not hold now, each with the key it fails for."""
        return [f"{name} of {key}" for key, view in self._views() for name in violated(RESERVATION, view, _NOT_GHOSTLY)]

    def _views(self) -> Iterator[tuple[Key, View]]:
        charges = {
            key: cast(int, record["bound"]) if record["state"] in CHARGED_STATES else 0
            for key, record in self.reservations.items()
        }
        for key, record in self.reservations.items():
            same = [other for other in self.reservations if other.tenant == key.tenant and other != key]
            in_tenant = sum(charges[other] for other in same)
            rest: Record = {
                "pool_active": sum(charges.values()) - charges[key],
                "tenant_active": in_tenant,
                "tenant_held": in_tenant,
                "tenant_queued": sum(other in self.queue for other in same),
            }
            for other in [o for o in self.reservations.values() if o is not record] or [blank(other_entity)]:
                yield (
                    key,
                    {
                        "reservation": record,
                        "tenant": self.tenants[key.tenant],
                        "pool": self.pool,
                        "queue": {"ahead": self._ahead(key)},
                        "other": other,
                        "rest": rest,
                    },
                )


def _reservation_snapshot(record: Record) -> ReservationSnapshot:
    names = ("state", "amount", "bound", "used", "overrun", "life", "generation", "lease", "expires")
    owner = record["owner"]
    return ReservationSnapshot(
        owner=owner if isinstance(owner, str) else "",
        **{name: record[name] for name in names},  # type: ignore[arg-type]  # the table's types are the snapshot's
    )
