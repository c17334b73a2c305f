"""The rate limiters of `limits` in memory, one for each of its strategies.

They count what was taken of a key in a window and do not know who took it. The fixed window has a counter that its
storage can lower again; the other two give nothing back by hand. A request of several resources is several calls, of
which each may succeed alone.
"""

import importlib
from collections.abc import Sequence
from functools import partial
from importlib.metadata import distributions
from typing import Any

from kvescrow.checks.targets.capacity import Amounts, Answer, CapacitySetup
from kvescrow.checks.targets.harness_clock import HarnessClock
from kvescrow.checks.targets.subject import Capabilities, Expiry, Kind, ListedDeviation, Subject
from kvescrow.spec.vocabulary import UserError

VERSION = "5.8.0"
ENGINE = f"limits {VERSION}"


class LimitsLedger:
    """One released limiter over its storage in memory. Raises `UserError` where `limits` is not installed."""

    def __init__(self, strategy: str, setup: CapacitySetup) -> None:
        installed = next((found.version for found in distributions(name="limits")), None)
        if installed is None:
            raise UserError(f"{ENGINE} is not installed: install it with `pip install 'kvescrow[targets]'`")
        if installed != VERSION:
            raise UserError(f"limits {installed} is installed, but this target drives {VERSION}")
        limits: Any = importlib.import_module("limits")
        self._clock = HarnessClock()
        with self._clock:
            self._storage: Any = importlib.import_module("limits.storage").MemoryStorage()
            self._limiter = importlib.import_module("limits.strategies").STRATEGIES[strategy](self._storage)
        self._item = limits.RateLimitItemPerSecond(setup.limits[0], setup.window // 1_000_000)

    def acquire(self, key: str, grant: str, amounts: Amounts) -> Answer:
        """Hit the limit, at a cost."""
        with self._clock:
            return Answer.DONE if self._limiter.hit(self._item, key, cost=amounts[0]) else Answer.REFUSED

    def settle(self, key: str, grant: str, amounts: Amounts, used: Amounts) -> Answer:
        """Lower the counter by what was not used."""
        with self._clock:
            self._storage.decr(self._item.key_for(key), amounts[0] - used[0])
        return Answer.DONE

    def remaining(self, key: str) -> Amounts:
        """Return what the limiter says that remains in the window."""
        # The storage's thread that sweeps ten milliseconds after a hit is told to end: whether it still waits decides
        # which lines the next hit runs, and a history has to repeat itself. What is out of date is seen at each hit.
        sweeper = self._storage.timer
        sweeper.cancel()
        if sweeper.is_alive():
            sweeper.join()
        with self._clock:
            return (int(self._limiter.get_window_stats(self._item, key).remaining),)

    def tick(self, now: int) -> None:
        """Set the clock."""
        self._clock.set(now)

    def close(self) -> None:
        """Hold nothing open."""


def _claims(expiry: Expiry, *, gives_back: bool, exact: bool) -> Capabilities:
    return Capabilities(
        holds=False,  # What was used stays counted until its window is over.
        gives_back=gives_back,
        remembers_grants=False,
        duplicate_ids=False,
        expiry=expiry,
        exact=exact,
        joint=False,
        resizes=False,  # The limit is a part of the counter's key.
    )


def _subject(strategy: str, claims: Capabilities, deviations: Sequence[ListedDeviation] = ()) -> Subject:
    return Subject(Kind.CAPACITY, partial(LimitsLedger, strategy), claims, tuple(deviations), ENGINE)


_ONE, _OTHER = (("acquire", ("a", grant, (1,))) for grant in ("g0", "g1"))
_AT_ONCE = (("race", _ONE, _OTHER, None),)
_EIGHT = CapacitySetup((8,))
_SEEN = f"seen in {ENGINE}"
_COUNTED = ListedDeviation(
    "refused hits count",
    "refused",
    f"a hit is counted before it is compared with the limit, so a refused one takes what smaller ones needed; {_SEEN}",
    (("acquire", "a", "g0", (7,)), ("acquire", "a", "g1", (2,))),
    _EIGHT,
)
_FORGOTTEN = ListedDeviation(
    "hits are forgotten",
    "race",
    "a counter without a window is looked at outside the lock and then dropped, with what another thread has counted "
    f"meanwhile: two hits count as one, and more than the limit is granted; {_SEEN}",
    _AT_ONCE,
    _EIGHT,
)
_STARTED_TWICE = ListedDeviation(
    "sweeper started twice",
    "race",
    "two hits that both find no sweeper each make one, and start the second one twice: RuntimeError, threads can only "
    f"be started once; {_SEEN}",
    _AT_ONCE,
    _EIGHT,
)


def limits_fixed_subject() -> Subject:
    """Return the fixed window, whose counter can be lowered again."""
    return _subject("fixed-window", _claims(Expiry.WINDOW, gives_back=True, exact=False), (_COUNTED, _FORGOTTEN))


def limits_moving_subject() -> Subject:
    """Return the moving window, which claims to hold in every interval."""
    return _subject("moving-window", _claims(Expiry.WINDOW, gives_back=False, exact=True), (_STARTED_TWICE,))


def limits_sliding_subject() -> Subject:
    """Return the counter of a sliding window, which weighs the window before."""
    return _subject("sliding-window-counter", _claims(Expiry.GRADUAL, gives_back=False, exact=False), (_FORGOTTEN,))
