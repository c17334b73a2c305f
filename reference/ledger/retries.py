"""When a refused caller may do better (VIS-1): a hint from the deadlines of live work, which decides nothing."""

from kvescrow.reference.ledger.records import Reservation, Situation
from kvescrow.reference.ledger.timetable import Timetable
from kvescrow.spec.vocabulary import Reason

LEAST_WAIT = 10_000
"""Ten milliseconds: asking again sooner costs more than it finds."""


class Retries:
    """Knows by when charged work must be over, for the pool and for each tenant."""

    def __init__(self) -> None:
        self._pool = Timetable()
        self._tenants: dict[str, Timetable] = {}

    def note(self, before: Reservation | None, after: Reservation | None) -> None:
        """Take in that a record changed; None where it is not there."""
        record = after or before
        was = before is not None and before.charged > 0
        deadline = after.deadline if after is not None and after.charged else None
        if record is None or was == (deadline is not None):
            return
        name = record.key.tenant
        if name not in self._tenants:
            self._tenants[name] = Timetable()
        for table in (self._pool, self._tenants[name]):
            table.set(record, deadline)

    def hint(self, reason: Reason, situation: Situation, name: str, asked: int) -> int | None:
        """Return the microseconds until tenant `name` may do better; None where waiting alone cures nothing."""
        record, tenant, clock = situation.record, situation.tenant, situation.pool.clock
        match reason:
            case Reason.RETAINED if record is not None:
                return record.retained - clock
            case Reason.POOL_CAPACITY | Reason.BEHIND_OTHERS | Reason.QUEUE_FULL:
                return _until(self._pool.earliest(), clock)
            case Reason.TENANT_CAPACITY:
                return _until(self._earliest_of(name), clock)
            case Reason.BUDGET if tenant.spent + asked <= tenant.budget:
                # Live work of the tenant holds back budget that it may not come to use.
                return _until(self._earliest_of(name), clock)
            case _:
                return None

    def _earliest_of(self, name: str) -> int | None:
        table = self._tenants.get(name)
        return table.earliest() if table is not None else None


def _until(moment: int | None, clock: int) -> int | None:
    return None if moment is None else max(LEAST_WAIT, moment - clock)
