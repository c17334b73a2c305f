"""The queue: first come, first served, except that no request waits behind one that could not run anyway (QUE-5)."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping

from kvescrow.reference.ledger.records import Reservation, TenantAccount
from kvescrow.spec.vocabulary import Key


class Queue:
    """Queued keys in the order in which they joined; one that is queued again joins at the back."""

    def __init__(self) -> None:
        # Linked, so that leaving at the front stays cheap however many have left before.
        self._places: OrderedDict[Key, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._places)

    def place(self, key: Key) -> int:
        """Return the commit number at which `key` joined; 0 where it does not wait."""
        return self._places.get(key, 0)

    def join(self, key: Key, seq: int) -> None:
        """Put `key` at the back; `seq`, the commit number, is its place."""
        self._places[key] = seq

    def leave(self, key: Key) -> None:
        """Take `key` out."""
        del self._places[key]

    def others_first(
        self,
        key: Key,
        records: Mapping[Key, Reservation],
        tenants: Mapping[str, TenantAccount],
        clock: int,
    ) -> bool:
        """Return whether someone before `key` lacks nothing but room in the pool; a key not in the queue is last."""
        for other in self._places:
            if other == key:
                return False
            if _lacks_only_the_pool(records[other], tenants[other.tenant], clock):
                return True
        return False


def _lacks_only_the_pool(record: Reservation, tenant: TenantAccount, clock: int) -> bool:
    return (
        not record.waited_out(clock)
        and not record.is_hopeless(clock)
        and tenant.covers(record.bound)
        and tenant.has_room(record.bound)
    )
