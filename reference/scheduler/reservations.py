"""How much a request reserves, when one more may join, and how it grows: policies over one ledger (GRO-1).

Two are ours. `FullMaximum` reserves the worst case. `EstimateWithGrowth` reserves what requests of its tenant usually
come to, lets work ask for more before it crosses its bound, and admits or grows only where all that run could still
end one after the other with their maximum; so nobody admitted is ever stopped for memory, and nobody waits for a
growth that cannot come. Three are baselines, by the published rules of engines: `NoEvict`, `Watermark`,
`PeakFormula`. The last two overcommit and stop work when the pool is full.

A policy decides over what it is shown and holds no capacity: the ledger decides whether a reservation or a growth is
granted. All amounts are tokens; reservations are rounded up to pages (ADM-4).
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Sequence
from typing import ClassVar, Protocol

from attrs import define, field, frozen

HISTORY = 256
"""Past requests of a tenant that an estimate looks at: enough for a 90th percentile, few enough to follow a change."""
LEARNED = 8
"""Past requests from which on an estimate is trusted; before, the worst case is reserved."""
JUDGED = 16
"""Last estimates of a tenant by which it is judged to reserve too little."""
MARGIN = 35
"""Percentage points by which it may outgrow them more often than a percentile says: chance alone seldom does."""


class Claim(Protocol):
    """A request, or what is left of one."""

    @property
    def tenant(self) -> str:
        """Whose it is."""

    @property
    def tokens(self) -> int:
        """Tokens that it has: prompt, and output so far."""

    @property
    def generated(self) -> int:
        """Output so far."""

    @property
    def left(self) -> int:
        """Output tokens that it may still generate."""


class Holding(Claim, Protocol):
    """An admitted request."""

    @property
    def bound(self) -> int:
        """Tokens reserved."""


class ReservationPolicy(Protocol):
    """One policy. It sees every request that is admitted and not over as `holdings`, in order of admission."""

    @property
    def name(self) -> str:
        """Name in configurations and reports."""

    @property
    def preempts(self) -> bool:
        """Whether work is stopped for memory; otherwise a denied growth waits (GRO-3)."""

    def reserve(self, claim: Claim) -> int:
        """Return what `claim` reserves at admission."""

    def admits(self, claim: Claim, bound: int, holdings: Sequence[Holding], free: int) -> bool:
        """Return whether it may join and reserve `bound`, where `free` tokens of the pool are not reserved."""

    def grown(self, holding: Holding, holdings: Sequence[Holding], free: int) -> int:
        """Return the bound that one of `holdings` may ask for, which needs more; its present one where it must wait."""

    def ended(self, holding: Holding, reserved: int) -> None:
        """Learn from a request that ran to its end; `reserved` is what it reserved at admission."""


@frozen
class Pages:
    """The pool, in whole pages."""

    page_length: int
    tokens: int

    def rounded(self, tokens: int) -> int:
        """Return `tokens` rounded up to whole pages."""
        return -(-tokens // self.page_length) * self.page_length

    def maximum(self, claim: Claim) -> int:
        """Return the worst case of `claim` (ADM-4)."""
        return self.rounded(claim.tokens + claim.left)

    def next_page(self, holding: Holding) -> int:
        """Return the bound with one page more, but never above the worst case."""
        return min(holding.bound + self.page_length, max(self.maximum(holding), holding.bound))


@frozen
class FullMaximum:
    """Reserves prompt and whole allowed output; whoever is admitted needs nothing more (ADM-4)."""

    pages: Pages
    name: ClassVar[str] = "full-maximum"
    preempts: ClassVar[bool] = False

    def reserve(self, claim: Claim) -> int:
        """Return the worst case."""
        return self.pages.maximum(claim)

    def admits(self, claim: Claim, bound: int, holdings: Sequence[Holding], free: int) -> bool:
        """Leave it to the ledger."""
        return True

    def grown(self, holding: Holding, holdings: Sequence[Holding], free: int) -> int:
        """Return its bound: it holds its worst case."""
        return holding.bound

    def ended(self, holding: Holding, reserved: int) -> None:
        """Learn nothing."""


@define
class _Past:
    """Output lengths of one tenant, and how often its estimate was too low."""

    recent: deque[int] = field(factory=lambda: deque(maxlen=HISTORY))
    ordered: list[int] = field(factory=list)
    outgrown: deque[bool] = field(factory=lambda: deque(maxlen=JUDGED))

    def add(self, output: int, outgrown: bool) -> None:
        if len(self.recent) == HISTORY:
            del self.ordered[bisect_left(self.ordered, self.recent[0])]
        self.recent.append(output)
        insort(self.ordered, output)
        self.outgrown.append(outgrown)

    def quantile(self, percent: int) -> int:
        return self.ordered[-(-percent * len(self.ordered) // 100) - 1]


@define
class EstimateWithGrowth:
    """Reserves the tenant's past `percent`-th percentile of output lengths, and grows by pages (GRO-1, GRO-2).

    Admission and growth keep the pool in a state from which everyone could end with its maximum, one after the other:
    that is Dijkstra's banker for one resource, so a growth that must wait will be granted and no one is preempted.
    Growth should seldom wait, so one more joins only if the reservations to come, by the `forecast`-th percentile of
    those past outputs that came to more than each has, stay within the pool too.

    A tenant that has outgrown its last estimates much more often than a percentile of past lengths explains, reserves
    the most that it used, until its estimates are right again (GRO-5).
    """

    pages: Pages
    percent: int = 50
    forecast: int = 60
    name: ClassVar[str] = "estimate"
    preempts: ClassVar[bool] = False
    under_reserving: set[str] = field(factory=set)
    """Tenants that were found to reserve too little, at any time."""
    _past: dict[str, _Past] = field(factory=dict)

    def reserve(self, claim: Claim) -> int:
        """Return what it has, and what its tenant's requests usually come to beyond it."""
        past = self._past.get(claim.tenant)
        if past is None or len(past.recent) < LEARNED:
            return self.pages.maximum(claim)
        output = past.ordered[-1] if self._under_reserves(past) else past.quantile(self.percent)
        return self.pages.rounded(claim.tokens + min(claim.left, max(1, output - claim.generated)))

    def admits(self, claim: Claim, bound: int, holdings: Sequence[Holding], free: int) -> bool:
        """Return whether all could still end after it joined, and most likely none would have to wait for growth."""
        if not self._all_can_end(holdings, free, claim, bound):
            return False
        everyone = [*((each, each.bound) for each in holdings), (claim, bound)]
        peak_to_come = reserved_peak((self._expected(each), each.tokens, held) for each, held in everyone)
        # One of them has to find room for its worst case at any time, or growth would wait although there is room.
        spare = min(max(0, self.pages.maximum(each) - held) for each, held in everyone)
        return peak_to_come + spare <= self.pages.tokens

    def grown(self, holding: Holding, holdings: Sequence[Holding], free: int) -> int:
        """Return its bound with a page more, where all could still end."""
        wanted = self.pages.next_page(holding)
        others = [each for each in holdings if each is not holding]
        free += holding.bound
        return wanted if self._all_can_end(others, free, holding, wanted) else holding.bound

    def ended(self, holding: Holding, reserved: int) -> None:
        """Remember its output, and whether it had outgrown what it reserved."""
        past = self._past.setdefault(holding.tenant, _Past())
        past.add(holding.generated, holding.bound > reserved)
        if self._under_reserves(past):
            self.under_reserving.add(holding.tenant)

    def _expected(self, claim: Claim) -> int:
        """Return the output that is still to come, as a percentile of those past ones that came to more than it has."""
        past = self._past.get(claim.tenant)
        if past is None or len(past.recent) < LEARNED:
            return claim.left
        longer = bisect_right(past.ordered, claim.generated)
        if longer == len(past.ordered):
            return claim.left
        rank = longer - (-self.forecast * (len(past.ordered) - longer) // 100) - 1
        return min(claim.left, past.ordered[rank] - claim.generated)

    def _under_reserves(self, past: _Past) -> bool:
        return sum(past.outgrown) * 100 > (100 - self.percent + MARGIN) * JUDGED

    def _all_can_end(self, others: Iterable[Holding], free: int, one: Claim, bound: int) -> bool:
        """Return whether, with `bound` given to `one` out of `free`, all can end one after the other."""
        if bound > free:
            return False
        pages = self.pages
        needs = [(max(0, pages.maximum(each) - each.bound), each.bound) for each in others]
        return can_all_end([*needs, (max(0, pages.maximum(one) - bound), bound)], free - bound)


def can_all_end(needs: Iterable[tuple[int, int]], free: int) -> bool:
    """Return whether whoever needs (more, holding) can be given it, one after the other, each giving all back."""
    for more, held in sorted(needs):
        if more > free:
            return False
        free += held
    return True


@frozen
class NoEvict:
    """TensorRT-LLM's capacity scheduler policy GUARANTEED_NO_EVICT: pages are taken as they are needed, but a request
    starts only if the pages that all started ones may still need, and its own, fit.
    """

    pages: Pages
    name: ClassVar[str] = "no-evict"
    preempts: ClassVar[bool] = False

    def reserve(self, claim: Claim) -> int:
        """Return what it has, and one token."""
        return self.pages.rounded(claim.tokens + 1)

    def admits(self, claim: Claim, bound: int, holdings: Sequence[Holding], free: int) -> bool:
        """Return whether everyone's worst case fits."""
        promised = sum(max(0, self.pages.maximum(each) - each.bound) for each in holdings)
        return promised + self.pages.maximum(claim) <= free

    def grown(self, holding: Holding, holdings: Sequence[Holding], free: int) -> int:
        """Return its bound with a page more: it was counted at admission."""
        return self.pages.next_page(holding)

    def ended(self, holding: Holding, reserved: int) -> None:
        """Learn nothing."""


@frozen
class Watermark:
    """vLLM's scheduler: a request starts if its tokens so far fit and a watermark of the pool stays free; when the pool
    is full, the last to start is preempted and computed anew.
    """

    pages: Pages
    permille: int = 10
    """The watermark: vLLM's long-standing 0.01."""
    name: ClassVar[str] = "watermark"
    preempts: ClassVar[bool] = True

    def reserve(self, claim: Claim) -> int:
        """Return what it has, and one token."""
        return self.pages.rounded(claim.tokens + 1)

    def admits(self, claim: Claim, bound: int, holdings: Sequence[Holding], free: int) -> bool:
        """Return whether the watermark stays free; it is waived where nothing runs."""
        return not holdings or (free - bound) * 1000 >= self.permille * self.pages.tokens

    def grown(self, holding: Holding, holdings: Sequence[Holding], free: int) -> int:
        """Return its bound with a page more."""
        return self.pages.next_page(holding)

    def ended(self, holding: Holding, reserved: int) -> None:
        """Learn nothing."""


@frozen
class PeakFormula:
    """LightLLM's router: a request starts if the greatest use that is still to come stays within the pool, where each
    request has `expected` output tokens left unless it is allowed fewer; when the pool is full, the last is paused.

    peak = max over i of (left_i * i + tokens of the first i), sorted by what is left, most first.
    """

    pages: Pages
    expected: int = 1024
    """LightLLM's default of `router_max_new_token_len`."""
    name: ClassVar[str] = "peak-formula"
    preempts: ClassVar[bool] = True

    def reserve(self, claim: Claim) -> int:
        """Return what it has, and one token."""
        return self.pages.rounded(claim.tokens + 1)

    def admits(self, claim: Claim, bound: int, holdings: Sequence[Holding], free: int) -> bool:
        """Return whether the peak stays within the pool."""
        held = [(self._left(each), each.bound) for each in holdings]
        return peak([*held, (self._left(claim), bound)]) <= self.pages.tokens

    def grown(self, holding: Holding, holdings: Sequence[Holding], free: int) -> int:
        """Return its bound with a page more."""
        return self.pages.next_page(holding)

    def ended(self, holding: Holding, reserved: int) -> None:
        """Learn nothing."""

    def _left(self, claim: Claim) -> int:
        return min(claim.left, max(claim.generated * 11 // 10, self.expected)) + 6


def peak(requests: Iterable[tuple[int, int]]) -> int:
    """Return the greatest use to come of requests with (tokens left, tokens held) that end as they run out."""
    greatest, held_so_far = 0, 0
    for number, (left, held) in enumerate(sorted(requests, reverse=True), start=1):
        held_so_far += held
        greatest = max(greatest, left * number + held_so_far)
    return greatest


def reserved_peak(requests: Iterable[tuple[int, int, int]]) -> int:
    """Return the most that will be reserved by requests with (tokens to come, tokens, bound) that all run on.

    Each reserves its bound until it grows beyond it, and ends when its tokens have come.
    """
    ordered = sorted(requests, reverse=True)
    return max(
        sum(max(bound, tokens + left) for _, tokens, bound in ordered[:number])
        for number, (left, _, _) in enumerate(ordered, start=1)
    )
