"""Work that really ran, added up against the pool: what the ledger says of it is not asked.

An execution runs from the moment at which its owner was told that it may, until the owner stopped it or its process
was dead. If the ledger never gives away what running work holds, the sizes of all executions that run at one moment
fit the pool (LEA-3, LIF-3). A release without a stop shows here as soon as its capacity is given to another.
"""

from collections.abc import Mapping, Sequence

from attrs import frozen

from kvescrow.checks.torture.gateway import incarnation_of
from kvescrow.checks.torture.log import Work


@frozen
class Overcommitment:
    """A moment at which more ran than the pool has."""

    moment: int
    """On the monotonic clock, in nanoseconds."""
    running: Mapping[str, int]
    """Size of each execution, by `tenant/request, generation`."""

    def __str__(self) -> str:
        return f"{sum(self.running.values())} ran at once: " + ", ".join(f"{k}: {n}" for k, n in self.running.items())


def overcommitment(works: Sequence[Work], deaths: Mapping[str, int], pool_limit: int) -> Overcommitment | None:
    """Return the first moment at which the sizes of running executions exceed `pool_limit`; None where none is.

    `deaths` tells when each killed process was known to be dead.
    """
    moments: list[tuple[int, int, str, int]] = []
    for work in works:
        name = f"{work.key.tenant}/{work.key.request}, generation {work.generation}"
        moments += [(moment, 1, name, size) for moment, size in work.sizes]
        end = work.ended if work.ended is not None else deaths.get(incarnation_of(work.process))
        if end is not None:
            moments.append((end, 0, name, 0))
    running: dict[str, int] = {}
    for moment, _, name, size in sorted(moments):
        if size:
            running[name] = size
        else:
            running.pop(name, None)
        if sum(running.values()) > pool_limit:
            return Overcommitment(moment, dict(running))
    return None
