"""The lines of a ledger, replayed in a ledger world."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast

from kvescrow.checks.monitor.answer import UNCHANGED, Answer
from kvescrow.checks.monitor.lines import Entry, LedgerConfig, integer, key_of, parameters_of
from kvescrow.checks.monitor.order import Order
from kvescrow.spec.language.expressions import reads
from kvescrow.spec.language.interpreter import Record, View
from kvescrow.spec.tables.reservation import RESERVATION
from kvescrow.spec.tables.reservation.view import other as other_entity
from kvescrow.spec.tables.reservation.view import reservation as reservation_entity
from kvescrow.spec.vocabulary import CHARGED_STATES, Decision, Key, ReservationState, UserError
from kvescrow.spec.world.ledger import LedgerWorld, TenantTerms, Watch
from kvescrow.spec.world.outcome import MutableRecord, blank, violated

_OF_A_TENANT = frozenset({"set_tenant_limit", "set_budget"})
_CHECKED = tuple(
    invariant
    for invariant in RESERVATION.invariants
    if not any(entity == "ghost" for entity, _ in reads(invariant.holds))
)
"""Ghost fields exist for the proof alone, so their invariant cannot be looked at here."""
_NOTHING = blank(reservation_entity, state=ReservationState.ABSENT)


class _World(LedgerWorld):
    """A ledger world that walks its queue no further than its rows ask.

    Rows ask whether anyone is ahead, not how many are, so the search ends at the first one found.
    """

    def _ahead(self, key: Key) -> int:
        record = self.reservations.get(key)
        waits = record is not None and record["state"] is ReservationState.QUEUED
        for waiting in self.queue:
            if waits and waiting == key:
                return 0
            if self._lacks_only_room(waiting):
                return 1
        return 0


class _Share(NamedTuple):
    """What one reservation contributes to the counters, and the identities that it uses."""

    charge: int
    queued: int
    life: int
    generation: int


_NO_SHARE = _Share(0, 0, 0, 0)


class LedgerSide:
    """One ledger's world, and running sums beside it, so that its counters are checked after every event."""

    def __init__(self, config: LedgerConfig, watch: Watch | None = None) -> None:
        terms = {name: TenantTerms(*each) for name, each in config.tenants.items()}
        self._world = _World(config.pool_limit, terms, config.retention, watch)
        self._order = Order()
        self._charged: dict[str, int] = dict.fromkeys(terms, 0)
        self._queued: dict[str, int] = dict.fromkeys(terms, 0)
        self._pool = 0
        self._lives: dict[int, Key] = {}
        self._generations: dict[int, Key] = {}

    def __len__(self) -> int:
        return len(self._world.reservations)

    def answer(self, table: str, entry: Entry, decision: Decision) -> Answer:
        """Return what the tables answer to `entry`, which says `decision`. Raises `UserError` where it is malformed."""
        event, key = cast(str, entry["event"]), key_of(entry)
        parameters = parameters_of(entry)
        seq, now = integer(entry, "seq", least=0), integer(entry, "now", least=0)
        self._order.expect(seq)
        self._read_clock(event, parameters, now, decision)
        answer = (
            self._account(event, key, parameters) if table == "account" else self._reservation(event, key, parameters)
        )
        if answer.decision is decision:
            self._order.follow(seq, changed=decision not in UNCHANGED)
        else:
            self._order.take(seq)
        return answer

    def _read_clock(self, event: str, parameters: Record, now: int, decision: Decision) -> None:
        """Let the world's clock show what the store's showed at the event.

        A store reads its clock without an event of its own. A `tick` moves the clock itself, unless it is answered
        as one that the clock was ahead of.
        """
        clock = cast(int, self._world.pool["clock"])
        if now < clock:
            raise UserError(f"now {now} comes after {clock}: time goes back; restore the journal")
        if event == "tick" and decision is not Decision.RECORDED and now <= max(clock, cast(int, parameters["now"])):
            return
        self._world.pool["clock"] = now

    def _account(self, event: str, key: Key | None, parameters: Record) -> Answer:
        if (key is not None) != (event in _OF_A_TENANT) or (key is not None and key.request):
            wanted = '[tenant, ""]' if event in _OF_A_TENANT else "null"
            raise UserError(f"key of `{event}` must be {wanted}")
        outcome = self._world.apply_named(event, key, parameters)
        return Answer.of(outcome, {"now": self._world.pool["clock"], "state": None, "life": 0, "generation": 0})

    def _reservation(self, event: str, key: Key | None, parameters: Record) -> Answer:
        if key is None:
            raise UserError(f"key of `{event}` must be [tenant, request]")
        before = self._share(key)
        outcome = self._world.apply_named(event, key, parameters)
        record = self._world.reservations.get(key, _NOTHING)
        facts = {
            "now": self._world.pool["clock"],
            "state": cast(ReservationState, record["state"]).value,
            "life": record["life"],
            "generation": record["generation"],
        }
        if outcome.decision in UNCHANGED:
            return Answer.of(outcome, facts)
        self._count(key, before, self._share(key))
        return Answer.of(outcome, facts, self._broken(key, record))

    def _share(self, key: Key) -> _Share:
        record = self._world.reservations.get(key)
        if record is None:
            return _NO_SHARE
        state = record["state"]
        return _Share(
            cast(int, record["bound"]) if state in CHARGED_STATES else 0,
            state is ReservationState.QUEUED,
            cast(int, record["life"]),
            cast(int, record["generation"]),
        )

    def _count(self, key: Key, before: _Share, after: _Share) -> None:
        self._pool += after.charge - before.charge
        self._charged[key.tenant] += after.charge - before.charge
        self._queued[key.tenant] += after.queued - before.queued
        for taken, was, now in (
            (self._lives, before.life, after.life),
            (self._generations, before.generation, after.generation),
        ):
            if was != now and taken.get(was) == key:
                del taken[was]
            if now:
                taken.setdefault(now, key)

    def broken(self) -> Iterator[str]:
        """Yield every invariant that does not hold now, all sums counted anew."""
        self._recount()
        for tenant in self._world.tenants:
            yield from self._broken(Key(tenant, ""), _NOTHING)
        for key, record in self._world.reservations.items():
            yield from self._broken(key, record)

    def _recount(self) -> None:
        self._pool = 0
        self._charged = dict.fromkeys(self._charged, 0)
        self._queued = dict.fromkeys(self._queued, 0)
        self._lives, self._generations = {}, {}
        for key in self._world.reservations:
            self._count(key, _NO_SHARE, self._share(key))

    def _broken(self, key: Key, record: MutableRecord) -> list[str]:
        return [
            f"{name} of {key.tenant}/{key.request}" for name in violated(RESERVATION, self._view(key, record), _CHECKED)
        ]

    def _view(self, key: Key, record: MutableRecord) -> View:
        share = self._share(key)
        in_tenant = self._charged[key.tenant] - share.charge
        rest: Mapping[str, int] = {
            "pool_active": self._pool - share.charge,
            "tenant_active": in_tenant,
            "tenant_held": in_tenant,
            "tenant_queued": self._queued[key.tenant] - share.queued,
        }
        return {
            "reservation": record,
            "tenant": self._world.tenants[key.tenant],
            "pool": self._world.pool,
            "queue": {"ahead": 0},
            "other": self._twin(key, share),
            "rest": rest,
        }

    def _twin(self, key: Key, share: _Share) -> Record:
        """Return a reservation that has an identity of `key`, or one that has none."""
        for taken, identity in ((self._generations, share.generation), (self._lives, share.life)):
            owner = taken.get(identity)
            if owner is not None and owner != key:
                return self._world.reservations[owner]
        return _NO_OTHER


_NO_OTHER = blank(other_entity)
