"""Queues to compare the fair queue with: first come, first served, and strict priority.

Both are one line by (rank, arrival), whose head keeps everyone behind it back while the pool has no room for it; a
head that a limit of its own blocks is passed by other tenants (QUE-5). Under strict priority the lower class waits as
long as the higher one does, so it may starve: FAI-3 allows it for comparison only.
"""

from bisect import insort
from collections.abc import Callable, Iterator, Mapping

from kvescrow.reference.scheduler.fair import ClassTerms, Observer, Room, TenantTerms, Waiting
from kvescrow.spec.vocabulary import Key, Reason


class LineQueue:
    """One line. Classes are served in the order of `ranks`, equal ranks by arrival."""

    def __init__(
        self,
        classes: Mapping[str, ClassTerms],
        tenants: Mapping[str, TenantTerms],
        default: TenantTerms,
        ranks: Mapping[str, int],
        observer: Observer,
    ) -> None:
        """Open an empty line."""
        self._classes, self._tenants, self._default, self._ranks = classes, tenants, default, ranks
        self._observer = observer
        self._line: list[tuple[int, int, Waiting]] = []
        self._places: dict[Key, tuple[int, int]] = {}
        self._queued: dict[str, int] = {}
        """Requests of each tenant that wait."""
        self._blocked: set[str] = set()
        """Tenants whose first request a limit of their own keeps back."""
        self._classes_waiting: dict[str, int] = {}
        self._joined = 0
        self.largest = 0

    def __len__(self) -> int:
        return len(self._line)

    def __contains__(self, key: Key) -> bool:
        return key in self._places

    def class_of(self, tenant: str) -> str:
        """Return the class of `tenant`."""
        return self._tenants.get(tenant, self._default).class_name

    def join(self, request: Waiting) -> Reason:
        """Let `request` wait, and return NONE; or QUEUE_FULL, which changes nothing (QUE-1)."""
        tenant, group = request.key.tenant, self.class_of(request.key.tenant)
        if self._queued.get(tenant, 0) >= self._classes[group].queue_limit:
            return Reason.QUEUE_FULL
        self.largest = max(self.largest, request.amount)
        self._joined += 1
        place = self._places[request.key] = (self._ranks[group], self._joined)
        insort(self._line, (*place, request))
        self._queued[tenant] = self._queued.get(tenant, 0) + 1
        if self._queued[tenant] == 1:
            self._wake(tenant)
        return Reason.NONE

    def leave(self, key: Key) -> Waiting:
        """Take a request out. Raises KeyError where it does not wait."""
        place = self._places.pop(key)
        index = next(index for index, each in enumerate(self._line) if each[:2] == place)
        request = self._line.pop(index)[2]
        self._queued[key.tenant] -= 1
        if not self._queued[key.tenant]:
            self._rest(key.tenant)
        return request

    def expire(self, now: int) -> list[tuple[Waiting, Reason]]:
        """Take out, and return, whatever has waited its time or its useful life away (QUE-2, QUE-3)."""
        over = [request for _, _, request in self._line if request.overdue(now) is not Reason.NONE]
        return [(self.leave(request.key), request.overdue(now)) for request in over]

    def dispatch(self, now: int, ask: Callable[[Waiting], Room]) -> list[Waiting]:
        """Ask along the line until the pool has no room for a head; return the admitted, in order."""
        for tenant in sorted(self._blocked):
            self._wake(tenant)
        admitted: list[Waiting] = []
        for request in [each for _, _, each in self._line]:
            tenant = request.key.tenant
            if tenant in self._blocked:
                continue
            match ask(request):
                case Room.ADMITTED:
                    for party in ((self.class_of(tenant),), (self.class_of(tenant), tenant)):
                        self._observer.served(party, request.amount)
                    admitted.append(self.leave(request.key))
                case Room.OWN_LIMIT:
                    self._rest(tenant)
                    self._blocked.add(tenant)
                case Room.NO_ROOM:
                    break
                case Room.REFUSED:
                    self.leave(request.key)
        return admitted

    def adjust(self, tenant: str, amount: int) -> None:
        """Follow what was used or granted after dispatch: what was served moves, the order does not."""
        group = self.class_of(tenant)
        for party in ((group,), (group, tenant)):
            self._observer.adjusted(party, amount)

    def waiting(self) -> Iterator[Waiting]:
        """Yield every request that waits, in order."""
        return (request for _, _, request in self._line)

    def _wake(self, tenant: str) -> None:
        self._blocked.discard(tenant)
        group = self.class_of(tenant)
        self._observer.waits((group, tenant))
        self._classes_waiting[group] = self._classes_waiting.get(group, 0) + 1
        if self._classes_waiting[group] == 1:
            self._observer.waits((group,))

    def _rest(self, tenant: str) -> None:
        if tenant in self._blocked:
            self._blocked.discard(tenant)
            return
        group = self.class_of(tenant)
        self._observer.rests((group, tenant))
        self._classes_waiting[group] -= 1
        if not self._classes_waiting[group]:
            self._observer.rests((group,))
