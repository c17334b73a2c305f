"""The admission queue: two levels of fair queueing, in reserved tokens (QUE, FAI).

The resource is the pool, the unit is a reserved token. Level one shares it between classes, level two between the
tenants of a class, each by weight. Every class and every tenant in it has a counter of normalised service, that is
tokens divided by weight, held exact as an integer by a common scale. The head to be asked next is that of the
waiting class with the least counter, and in it of the waiting tenant with the least counter; a tenant's own
requests go first come, first served.

    charge      at dispatch, the reserved amount, to the class and to the tenant
    refund      at reconciliation, what was reserved and not used (FAI-4)
    lift        whoever returns from idle, or from its own limit, starts at the least counter that waits: no credit
    own limit   a tenant whose head is blocked by its own limit is passed by all others, not by its own later
                requests (QUE-5)
    bypass      a head that the pool has no room for may be passed, but only by debt: nobody is dispatched to more
                than the largest request above the least counter that waits

So between two that wait all the time and are never blocked by a limit of their own, normalised service differs by at
most E/w_i + E/w_j, with E the largest request, while nothing is refunded; see `fairness`. A count of bypasses would
bound nothing.

Nothing here reads a clock or holds capacity (QUE-6): the ledger decides whether a head is admitted, by the answer of
the function that `dispatch` is given.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from math import lcm
from typing import Protocol

from attrs import define, field, frozen

from kvescrow.spec.vocabulary import Key, Reason, UserError


class Room(Enum):
    """What became of a head that was asked for."""

    ADMITTED = "admitted"
    """It is charged in the ledger and leaves the queue."""
    OWN_LIMIT = "own limit"
    """A limit or budget of its own tenant is in its way."""
    NO_ROOM = "no room"
    """The pool has no room for it now."""
    REFUSED = "refused"
    """It can be admitted never, and leaves the queue uncharged."""


@frozen
class Waiting:
    """One request that waits; it holds nothing."""

    key: Key
    amount: int
    """Tokens that it will reserve; at least 1."""
    expires: int
    """When it has waited its maximum wait, in microseconds (QUE-2)."""
    latest: int
    """Last moment at which its start is of use: deadline less least service (QUE-3)."""

    def overdue(self, now: int) -> Reason:
        """Return why it must not be admitted at `now`; NONE where it may."""
        if self.expires <= now:
            return Reason.QUEUE_TIMEOUT
        return Reason.TOO_LATE if now > self.latest else Reason.NONE

    @property
    def due(self) -> int:
        """The first moment at which it is overdue."""
        return min(self.expires, self.latest + 1)


@frozen
class ClassTerms:
    """One class. `weight` is its part of the sum over all classes while all wait."""

    weight: int
    queue_limit: int
    """Most requests of one tenant that wait at once in this class (QUE-1)."""


@frozen
class TenantTerms:
    """One tenant."""

    class_name: str
    weight: int = 1
    """Its part of the sum over the waiting tenants of its class."""


class Observer(Protocol):
    """Sees what fairness is judged by; `party` is (class,) or (class, tenant)."""

    def waits(self, party: tuple[str, ...]) -> None:
        """It has a request that is not blocked by its own limit, from now on."""

    def rests(self, party: tuple[str, ...]) -> None:
        """It has none any more."""

    def served(self, party: tuple[str, ...], amount: int) -> None:
        """It was charged `amount` tokens at dispatch."""

    def adjusted(self, party: tuple[str, ...], amount: int) -> None:
        """It was charged `amount` tokens for growth; refunded, where negative."""


class NoObserver:
    """Sees nothing."""

    def waits(self, party: tuple[str, ...]) -> None:
        """Ignore it."""

    def rests(self, party: tuple[str, ...]) -> None:
        """Ignore it."""

    def served(self, party: tuple[str, ...], amount: int) -> None:
        """Ignore it."""

    def adjusted(self, party: tuple[str, ...], amount: int) -> None:
        """Ignore it."""


@define(eq=False)
class _Party:
    """A counter of normalised service."""

    name: tuple[str, ...]
    scale: int
    """Units a token: the common scale of its level, divided by its weight."""
    counter: int = 0
    waits: bool = False


@define(eq=False)
class _Tenant(_Party):
    requests: OrderedDict[Key, Waiting] = field(factory=OrderedDict)
    blocked: bool = False
    """Its head was last refused for a limit of its own."""

    @property
    def head(self) -> Waiting:
        return next(iter(self.requests.values()))


@define(eq=False)
class _Level:
    """Parties that share by counters: all classes, or the tenants of one class."""

    active: dict[tuple[str, ...], _Party] = field(factory=dict)
    """Those that wait."""
    virtual: int = 0
    """Counter of the last that ceased to wait: where the next one starts if nobody waits."""

    def least(self) -> int:
        return min(party.counter for party in self.active.values())

    def enter(self, party: _Party) -> None:
        party.counter = max(party.counter, self.least() if self.active else self.virtual)
        party.waits = True
        self.active[party.name] = party

    def exit(self, party: _Party) -> None:
        party.waits = False
        del self.active[party.name]
        self.virtual = max(self.virtual, party.counter)

    def allows(self, party: _Party, amount: int, largest: int) -> bool:
        """Return whether the charge leaves `party` within the debt that a largest request may make."""
        return party.counter + amount * party.scale <= self.least() + largest * party.scale


@define(eq=False)
class _Class(_Party):
    queue_limit: int = 0
    tenant_scale: int = 1
    level: _Level = field(factory=_Level)
    tenants: dict[str, _Tenant] = field(factory=dict)


class FairQueue:
    """The queue of one pool. A tenant belongs to one class."""

    def __init__(
        self,
        classes: Mapping[str, ClassTerms],
        tenants: Mapping[str, TenantTerms],
        default: TenantTerms,
        observer: Observer | None = None,
    ) -> None:
        """Open an empty queue; tenants that are not listed have the terms of `default`.

        Raises:
            UserError: The terms would starve a class, or a tenant names a class that is not there (FAI-3).

        """
        check_terms(classes, tenants, default)
        self._terms, self._default = dict(tenants), default
        self._observer: Observer = observer or NoObserver()
        class_scale = lcm(*(terms.weight for terms in classes.values()))
        tenant_scale = lcm(default.weight, *(terms.weight for terms in tenants.values()))
        self._classes = {
            name: _Class((name,), class_scale // terms.weight, queue_limit=terms.queue_limit, tenant_scale=tenant_scale)
            for name, terms in classes.items()
        }
        self._level = _Level()
        self._places: dict[Key, int] = {}
        self._joined = 0
        self._due: list[tuple[int, int, Key]] = []
        self.largest = 0
        """The largest request that has joined: E of the bounds."""

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: Key) -> bool:
        return key in self._places

    def waiting(self) -> Iterator[Waiting]:
        """Yield every request that waits, by class and tenant, each tenant's in order."""
        for each in self._classes.values():
            for tenant in each.tenants.values():
                yield from tenant.requests.values()

    def class_of(self, tenant: str) -> str:
        """Return the class of `tenant`."""
        return self._terms.get(tenant, self._default).class_name

    # --- joining and leaving ----------------------------------------------------------------------------------------

    def join(self, request: Waiting) -> Reason:
        """Let `request` wait, and return NONE; or QUEUE_FULL, which changes nothing (QUE-1)."""
        if request.key in self._places:
            raise ValueError(f"{request.key} waits already")
        group, tenant = self._parties(request.key.tenant)
        if len(tenant.requests) >= group.queue_limit:
            return Reason.QUEUE_FULL
        self.largest = max(self.largest, request.amount)
        tenant.requests[request.key] = request
        self._joined += 1
        serial = self._places[request.key] = self._joined
        heapq.heappush(self._due, (request.due, serial, request.key))
        if len(tenant.requests) == 1:
            self._wake(group, tenant)
        return Reason.NONE

    def leave(self, key: Key) -> Waiting:
        """Take a request out: its caller cancelled it. Raises KeyError where it does not wait."""
        del self._places[key]
        group, tenant = self._parties(key.tenant)
        was_head = tenant.head.key == key
        request = tenant.requests.pop(key)
        if not tenant.requests:
            self._rest(group, tenant)
        elif was_head and tenant.blocked:
            # Its next request may fit where this one did not (QUE-4).
            self._wake(group, tenant)
        return request

    def expire(self, now: int) -> list[tuple[Waiting, Reason]]:
        """Take out, and return, every request that has waited its time or its useful life away (QUE-2, QUE-3)."""
        over: list[tuple[Waiting, Reason]] = []
        while self._due and self._due[0][0] <= now:
            _, serial, key = heapq.heappop(self._due)
            if self._places.get(key) == serial:
                request = self.leave(key)
                over.append((request, request.overdue(now)))
        return over

    # --- dispatch ---------------------------------------------------------------------------------------------------

    def dispatch(self, now: int, ask: Callable[[Waiting], Room]) -> list[Waiting]:
        """Ask for heads in fair order until none can be admitted; return the admitted, in order.

        Call `expire` before: nobody overdue may be asked for. Afterwards no head that could be admitted waits, but
        those that would pass beyond their debt (work conservation).
        """
        for group in self._classes.values():
            for tenant in group.tenants.values():
                if tenant.blocked:
                    self._wake(group, tenant)
        admitted: list[Waiting] = []
        full: set[tuple[str, ...]] = set()
        while (found := self._next(full)) is not None:
            group, tenant = found
            request = tenant.head
            if request.overdue(now) is not Reason.NONE:
                raise ValueError(f"{request.key} is overdue at {now}: expire the queue first")
            match ask(request):
                case Room.ADMITTED:
                    self._charge(group, tenant, request.amount)
                    admitted.append(self.leave(request.key))
                case Room.OWN_LIMIT:
                    self._block(group, tenant)
                case Room.NO_ROOM:
                    full.add(tenant.name)
                case Room.REFUSED:
                    self.leave(request.key)
        return admitted

    def adjust(self, tenant: str, amount: int) -> None:
        """Move the counters of `tenant` and its class: back by what was reserved and not used, on by growth (FAI-4)."""
        for party in self._parties(tenant):
            party.counter += amount * party.scale
            self._observer.adjusted(party.name, amount)

    def _next(self, full: set[tuple[str, ...]]) -> tuple[_Class, _Tenant] | None:
        for group in sorted(self._level.active.values(), key=_counter):
            assert isinstance(group, _Class)
            for tenant in sorted(group.level.active.values(), key=_counter):
                assert isinstance(tenant, _Tenant)
                if tenant.name not in full and self._may_pass(group, tenant):
                    return group, tenant
        return None

    def _may_pass(self, group: _Class, tenant: _Tenant) -> bool:
        """Return whether nobody who waits is passed beyond the debt of one largest request, at either level."""
        amount = tenant.head.amount
        return self._level.allows(group, amount, self.largest) and group.level.allows(tenant, amount, self.largest)

    def _charge(self, group: _Class, tenant: _Tenant, amount: int) -> None:
        for party in (group, tenant):
            party.counter += amount * party.scale
            self._observer.served(party.name, amount)

    # --- who waits --------------------------------------------------------------------------------------------------

    def _parties(self, name: str) -> tuple[_Class, _Tenant]:
        terms = self._terms.get(name, self._default)
        group = self._classes[terms.class_name]
        tenant = group.tenants.get(name)
        if tenant is None:
            tenant = group.tenants[name] = _Tenant((terms.class_name, name), group.tenant_scale // terms.weight)
        return group, tenant

    def _wake(self, group: _Class, tenant: _Tenant) -> None:
        tenant.blocked = False
        group.level.enter(tenant)
        self._observer.waits(tenant.name)
        if not group.waits:
            self._level.enter(group)
            self._observer.waits(group.name)

    def _block(self, group: _Class, tenant: _Tenant) -> None:
        self._rest(group, tenant)
        tenant.blocked = True

    def _rest(self, group: _Class, tenant: _Tenant) -> None:
        tenant.blocked = False
        if not tenant.waits:
            return
        group.level.exit(tenant)
        self._observer.rests(tenant.name)
        if not group.level.active:
            self._level.exit(group)
            self._observer.rests(group.name)


def _counter(party: _Party) -> tuple[int, tuple[str, ...]]:
    return party.counter, party.name


def check_terms(classes: Mapping[str, ClassTerms], tenants: Mapping[str, TenantTerms], default: TenantTerms) -> None:
    """Raise `UserError` for terms under which a class or a tenant would get nothing, with the reason (FAI-3)."""
    if not classes:
        raise UserError("classes: there is none; name at least one")
    for name, terms in classes.items():
        if terms.weight < 1:
            raise UserError(
                f"classes.{name}: its share is 0: while others wait it is never served; give it a share above 0"
            )
        if terms.queue_limit < 1:
            raise UserError(
                f"classes.{name}: its queue has no place: while others wait each of its requests is refused; give it "
                "a queue_limit of at least 1"
            )
    for tenant, given in (*tenants.items(), ("", default)):
        where = f"tenants.{tenant}" if tenant else "the default tenant"
        if given.class_name not in classes:
            raise UserError(f"{where}: there is no class {given.class_name!r}; there are {', '.join(classes)}")
        if given.weight < 1:
            raise UserError(f"{where}: its weight is {given.weight}: it would never be served; set it to at least 1")
