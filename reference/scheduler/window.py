"""A limit on the requests of each tenant in a sliding window, which counts admitted requests only (ADM-9).

A refused request uses up nothing, so a caller that keeps trying is admitted as soon as its window has room. An
admitted request counts until the window's length has passed since it came, to the microsecond: being idle earns
nothing, and a clock that steps back neither frees nor charges (LEA-6).
"""

from collections import defaultdict, deque

from kvescrow.spec.vocabulary import MICROSECONDS_PER_SECOND, UserError

MINUTE = 60 * MICROSECONDS_PER_SECOND


class RequestWindow:
    """Counts the admitted requests of every tenant in the last `span` microseconds."""

    def __init__(self, limit: int, span: int = MINUTE) -> None:
        """Allow `limit` admitted requests a tenant in any `span`. Raises `UserError` where either is below 1."""
        if limit < 1 or span < 1:
            raise UserError(
                f"a window of {limit} requests in {span} microseconds admits nothing: set both to 1 or more"
            )
        self._limit, self._span = limit, span
        self._admitted: defaultdict[str, deque[int]] = defaultdict(deque)
        self._now = 0

    def wait(self, tenant: str, now: int) -> int:
        """Return the microseconds until `tenant` may have one more; 0 where it may now. Nothing changes (VIS-1)."""
        self._now = max(self._now, now)
        admitted = self._admitted[tenant]
        while admitted and admitted[0] + self._span <= self._now:
            admitted.popleft()
        return 0 if len(admitted) < self._limit else admitted[0] + self._span - self._now

    def admit(self, tenant: str, now: int) -> bool:
        """Count a request that comes at `now`, if the window has room; otherwise return False and count nothing."""
        if self.wait(tenant, now):
            return False
        self._admitted[tenant].append(self._now)
        return True
