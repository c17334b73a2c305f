"""The rate limiter of `token-throttle`: token buckets in memory, filled by time, with a refund for what was not used.

A request takes several metrics at once. A reservation is refunded once, by the limiter that issued it.
"""

import importlib
import logging
import sys
from importlib.metadata import distributions
from math import floor
from typing import Any

from kvescrow.checks.targets.capacity import Amounts, Answer, CapacitySetup
from kvescrow.checks.targets.harness_clock import HarnessClock
from kvescrow.checks.targets.subject import Capabilities, Expiry, Kind, ListedDeviation, Subject
from kvescrow.spec.vocabulary import UserError

VERSION = "14.0.0"
ENGINE = f"token-throttle {VERSION}"
OLDEST_PYTHON = (3, 12)


def _library() -> Any:
    running = ".".join(map(str, sys.version_info[:2]))
    if sys.version_info[:2] < OLDEST_PYTHON:
        raise UserError(f"{ENGINE} needs Python 3.12 or newer, and this is {running}: make venv PYTHON=python3.12")
    installed = next((found.version for found in distributions(name="token-throttle")), None)
    if installed is None:
        raise UserError(f"{ENGINE} is not installed: install it with `pip install 'kvescrow[targets]'`")
    if installed != VERSION:
        raise UserError(f"token-throttle {installed} is installed, but this target drives {VERSION}")
    # It warns of each reservation that is live when a history ends.
    logging.getLogger("token_throttle").addHandler(logging.NullHandler())
    return importlib.import_module("token_throttle")


class TokenThrottleLedger:
    """One released limiter over its memory backend; a key is a model of its own.

    `lifetime` is the limiter's own setting: seconds after which a reservation cannot be refunded any more. Raises
    `UserError` where token-throttle is not installed or this Python is too old for it.
    """

    def __init__(self, setup: CapacitySetup, lifetime: float | None = None) -> None:
        library = self._library = _library()
        self._metrics = [f"m{place}" for place in range(len(setup.limits))]
        quotas = [
            library.Quota(metric=metric, limit=limit, per_seconds=setup.window // 1_000_000)
            for metric, limit in zip(self._metrics, setup.limits, strict=True)
        ]

        def config(model: str) -> Any:
            return library.PerModelConfig(quotas=library.UsageQuotas(quotas), model_family=model)

        self._limits = setup.limits
        self._clock = HarnessClock()
        self._reservations: dict[str, Any] = {}
        self._limiter = library.SyncRateLimiter(
            config, backend=library.SyncMemoryBackendBuilder(), max_reservation_lifetime_seconds=lifetime
        )

    def acquire(self, key: str, grant: str, amounts: Amounts) -> Answer:
        """Acquire without waiting."""
        with self._clock:
            try:
                self._reservations[grant] = self._limiter.acquire_capacity(self._usage(amounts), key, timeout=0)
            except TimeoutError:
                return Answer.REFUSED
            except ValueError as error:
                return _refused(error, "exceeds bucket max capacity")
        return Answer.DONE

    def settle(self, key: str, grant: str, amounts: Amounts, used: Amounts) -> Answer:
        """Refund with the actual usage."""
        with self._clock:
            try:
                self._limiter.refund_capacity(self._usage(used), self._reservations[grant])
            except self._library.DuplicateRefundError:
                return Answer.REFUSED
            except ValueError as error:
                return _refused(error, "lifetime exceeded")
        return Answer.DONE

    def remaining(self, key: str) -> Amounts:
        """Return the whole units in the buckets; those of a model that was never asked for are full."""
        with self._clock:
            buckets = self._limiter.diagnose().buckets
        full = dict(zip(self._metrics, self._limits, strict=True))
        found = {bucket.metric: floor(bucket.current_capacity) for bucket in buckets if bucket.model_family == key}
        return tuple((full | found).values())

    def held(self, key: str) -> int:
        """Return how many reservations of the model the limiter calls in flight."""
        with self._clock:
            groups = self._limiter.diagnose().reservations.groups
        mine = [group for group in groups if (group.model_family, group.metric) == (key, self._metrics[0])]
        return sum(group.outstanding_count for group in mine if group.state == "in_flight")

    def _usage(self, amounts: Amounts) -> dict[str, int]:
        return dict(zip(self._metrics, amounts, strict=True))

    def tick(self, now: int) -> None:
        """Set the clock."""
        self._clock.set(now)

    def close(self) -> None:
        """Close the limiter."""
        self._limiter.close()


def _refused(error: ValueError, reason: str) -> Answer:
    """A refusal is raised as a `ValueError` like any other; only its text tells it apart."""
    if reason not in str(error):
        raise error
    return Answer.REFUSED


def token_throttle_subject() -> Subject:
    """Return the limiter as it comes."""
    return Subject(Kind.CAPACITY, TokenThrottleLedger, CLAIMS, (_LATE, _POURED), ENGINE)


def token_throttle_bounded_subject() -> Subject:
    """Return the limiter with its own bound: no reservation is refunded after a window."""
    return Subject(
        Kind.CAPACITY, lambda setup: TokenThrottleLedger(setup, setup.window / 1_000_000), CLAIMS, (_POURED,), ENGINE
    )


CLAIMS = Capabilities(
    holds=False,  # What was used stays spent until the buckets have filled again.
    duplicate_ids=False,  # The limiter names its reservations itself.
    expiry=Expiry.GRADUAL,
    exact=False,  # A full bucket and what flows into it in a window are two limits.
    resizes=False,  # Another limit has other buckets, or counts from what is in them.
)
_LATE = ListedDeviation(
    "late refunds count twice",
    "settled.late",
    "a bucket that has filled again since is filled once more by a refund, so two limits are granted at one moment; "
    "`max_reservation_lifetime_seconds`, which is not set by itself, bounds how late a refund may come; "
    f"seen in {ENGINE}",
    (
        ("acquire", "a", "g0", (8,)),
        ("tick", 130_000_000),
        ("acquire", "a", "g1", (8,)),
        ("settle", "a", "g0", (8,), (0,)),
    ),
    CapacitySetup((8,)),
)
_POURED = ListedDeviation(
    "refunds on top of the flow",
    "flow",
    "a refund is poured on top of what time has filled in for it, even where another has taken that: just inside the "
    "window, 15 of 8 are granted at one moment, with and without a bound on a reservation's lifetime; "
    f"seen in {ENGINE}",
    (
        ("acquire", "a", "g0", (8,)),
        ("tick", 63_000_000),
        ("acquire", "a", "g1", (7,)),
        ("settle", "a", "g0", (8,), (0,)),
        ("acquire", "a", "g2", (8,)),
    ),
    CapacitySetup((8,)),
)
