"""The protocol of a ledger that grants capacity by rules of its own, such as a rate limiter or a quota service (TGT-1).

It has keys, each with a limit for every resource: requests, tokens. It is judged from outside, by what it answers and
by what it says that remains. The harness owns time and names every grant.
"""

from enum import Enum
from typing import Protocol

from attrs import frozen

Amounts = tuple[int, ...]
"""One for each resource."""

WINDOW = 64_000_000
"""Microseconds. A power of two of seconds: ledgers that count with floating point then divide it without a rest."""


@frozen
class CapacitySetup:
    """How a ledger is opened for one run."""

    limits: Amounts
    """Of every key, one for each resource."""
    window: int = WINDOW
    """Microseconds after which a grant comes back by time alone, where the ledger declares that it does."""


class Answer(Enum):
    """What a ledger answers to a request or to a settlement."""

    DONE = "done"
    """It was done, now or by the same call before."""
    REFUSED = "refused"
    """Nothing was changed."""


class CapacityLedger(Protocol):
    """A ledger of capacity under test: eight methods. It starts with nothing granted."""

    def acquire(self, key: str, grant: str, amounts: Amounts) -> Answer:
        """Take `amounts` of the limits of `key` under the name `grant`, at once and as a whole, or refuse."""

    def settle(self, key: str, grant: str, amounts: Amounts, used: Amounts) -> Answer:
        """The work of `grant` is over; of its `amounts` it used `used`. The rest is free again, or all of it."""

    def remaining(self, key: str) -> Amounts:
        """Return what could be acquired of `key` now, in whole units."""

    def set_limits(self, key: str, limits: Amounts) -> None:
        """Change the limits of `key`; called only where `resizes` is declared."""

    def tick(self, now: int) -> None:
        """Set the clock, in microseconds since the opening; it stands still between two calls."""

    def restart(self) -> None:
        """Close and open again, as after the end of the process; called only where `durable` is declared."""

    def held(self, key: str) -> int:
        """Return how many grants of `key` are not settled; called only where `remembers_grants` is declared."""

    def close(self) -> None:
        """Give up everything that is held open."""
