"""What a store's clock shows, told without asking it: from what it showed last, and the time since then (LEA-6)."""

from attrs import define

CERTAIN = 1_000_000 - 200
"""Millionths of a time on the gateway's timer that have certainly passed on the store's clock: quartz is ten times as
exact."""


@define
class Reckoning:
    """A lower bound of the store's clock.

    An answer shows what the clock was some time before it came, so each gives a bound, and the quickest answers give
    the best ones (Cristian, Probabilistic clock synchronization, 1989). All times are microseconds.
    """

    _clock: int | None = None
    """What the store's clock showed, at least, when the gateway's timer showed `_timer`; None: not known."""
    _timer: int = 0

    def saw(self, clock: int, timer: int) -> None:
        """Take in an answer of the store that came when the gateway's timer showed `timer`."""
        self._clock = max(clock, self.now(timer) or clock)
        self._timer = timer

    def now(self, timer: int) -> int | None:
        """Return the bound when the gateway's timer shows `timer`; None where the clock is not known."""
        if self._clock is None:
            return None
        return self._clock + (timer - self._timer) * CERTAIN // 1_000_000

    def forget(self) -> None:
        """Know nothing of the clock: it may have been set."""
        self._clock = None
