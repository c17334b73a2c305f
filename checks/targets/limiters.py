"""Rate limiters that are published for Python, as far as they take and give back an amount on one key in memory.

They count, and do not remember who was granted what: no identity, no retry, no life of a grant.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from kvescrow.checks.targets.measured import OtherWork
from kvescrow.checks.targets.own_ledgers import AMOUNT

Limiter = Callable[[int], int]
"""Does so many operations and returns how many it did."""

_PLENTY = 10**12


def installed_limiters() -> dict[str, Limiter]:
    """Return the limiters that are installed, by name."""
    found: dict[str, Limiter] = {}
    for name, make in _LIMITERS.items():
        try:
            found[name] = make()
        except ImportError:
            continue
    return found


def _limits() -> Limiter:
    limits: Any = importlib.import_module("limits")
    storage = importlib.import_module("limits.storage").MemoryStorage()
    limiter = importlib.import_module("limits.strategies").FixedWindowRateLimiter(storage)
    item = limits.RateLimitItemPerDay(_PLENTY)

    def run(operations: int) -> int:
        for _ in range(operations // 2):
            _expect(limiter.hit(item, "tenant", cost=AMOUNT))
            storage.decr(item.key_for("tenant"), AMOUNT)
        return operations // 2 * 2

    return run


def _pyrate_limiter() -> Limiter:
    library: Any = importlib.import_module("pyrate_limiter")
    limiter = library.Limiter(library.Rate(_PLENTY, library.Duration.DAY))

    def run(operations: int) -> int:
        for _ in range(operations):
            _expect(limiter.try_acquire("tenant", AMOUNT, blocking=False))
        return operations

    return run


_LIMITERS: Mapping[str, Callable[[], Limiter]] = {
    "limits, take and give back": _limits,
    "pyrate-limiter, take only": _pyrate_limiter,
}


def _expect(granted: object) -> None:
    if not granted:
        raise OtherWork("a limiter refused: this is not the work to be measured")
