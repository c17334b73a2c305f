"""Admit and release a 1,000-token request: the page pool beside the paged cache manager of `transformers`.

Both do the same work a request: find the cached prefix, draw the pages of the rest, publish what the step computed,
and give everything back. Ours does it with more care: a full scope record, a SHA-256 chain, tokens compared on every
hit, a promise for the whole request, and a ticket on every page that the step writes. The peer's chain is 64 bits
of BLAKE2b, unchecked, and its cached pages go all at once. Prompts, and the peer's request records, are made
outside the clock.
"""

import random
from collections.abc import Callable

from kvescrow.checks.bench.report import BenchReport, BenchRow, interleaved_rates, machine
from kvescrow.checks.targets.measured import OtherWork
from kvescrow.checks.targets.own_pool import PoolRequests
from kvescrow.checks.targets.transformers_cache import TransformersCache
from kvescrow.spec.vocabulary import PrefixScope

PAGES = 4_096
PAGE_LENGTH = 16
PROMPT = 1_000
CACHEABLE = (PROMPT - 1) // PAGE_LENGTH * PAGE_LENGTH
"""Tokens of a known prompt that need no computing: 992."""
REQUESTS = 100
"""A round's requests: more than fill the pool, so that eviction is part of every round of misses."""
PEER = "transformers PagedAttentionCache"

SCOPE = PrefixScope(
    tenant="tenant",
    model="model",
    weight_epoch=1,
    adapter="adapter",
    adapter_generation=1,
    tokenizer="tokenizer",
    position_scheme="rope 10000",
    kv_dtype="bfloat16",
    page_length=PAGE_LENGTH,
    salt="salt",
    media=(),
)

Prompt = list[int]


def measure(rounds: int = 15, requests: int = REQUESTS) -> BenchReport:
    """Run all rows; each is the median of `rounds` rounds of `requests` requests.

    Raises UserError where transformers is not installed, or for fewer than three rounds.
    """
    chance = random.Random(0)
    known = _prompt(chance)
    fresh = [[_prompt(chance) for _ in range(requests)] for _ in range(rounds + 1)]
    same = [[known] * requests] * (rounds + 1)
    return BenchReport(
        machine(),
        (
            _row("miss", fresh, None, 0, rounds),
            _row(f"hit on {CACHEABLE} evictable tokens", same, known, CACHEABLE, rounds),
            _row(f"hit on {CACHEABLE} tokens beside a live sharer", same, known, CACHEABLE, rounds, sharer=True),
        ),
    )


def _prompt(chance: random.Random) -> Prompt:
    return [chance.randrange(32_000) for _ in range(PROMPT)]


def _row(
    name: str, prompts: list[list[Prompt]], known: Prompt | None, cached: int, rounds: int, *, sharer: bool = False
) -> BenchRow:
    pool = PoolRequests(PAGES, PAGE_LENGTH, SCOPE)
    cache = TransformersCache(PAGES, PAGE_LENGTH)
    if known is not None:
        pool.admit("first", known)
        first = cache.request("first", known)
        _admit_to_peer(cache, first)
        if not sharer:
            pool.release("first")
            cache.release(first)
    subjects = (_ours(pool, prompts, cached), _peers(cache, prompts, cached))
    for subject in subjects:  # A warm-up round each, which also fills the pool.
        subject(len(prompts) - 1)
    ours, peer = interleaved_rates(subjects, rounds)
    return BenchRow(name, ours, peer, PEER, "requests/s")


def _ours(pool: PoolRequests, prompts: list[list[Prompt]], cached: int) -> Callable[[int], int]:
    def run(number: int) -> int:
        for index, tokens in enumerate(prompts[number]):
            name = f"{number}/{index}#1"
            _expect(pool.admit(name, tokens), cached)
            pool.release(name)
        return len(prompts[number])

    return run


def _peers(cache: TransformersCache, prompts: list[list[Prompt]], cached: int) -> Callable[[int], int]:
    requests = [
        [cache.request(f"{number}/{index}#1", tokens) for index, tokens in enumerate(of_round)]
        for number, of_round in enumerate(prompts)
    ]

    def run(number: int) -> int:
        for request in requests[number]:
            _expect(_admit_to_peer(cache, request), cached)
            cache.release(request)
        return len(requests[number])

    return run


def _admit_to_peer(cache: TransformersCache, request: object) -> int:
    cached = cache.match(request)
    rest = PROMPT - cached
    if not cache.reserve(request, rest):
        raise OtherWork("transformers: no room for a request in an empty pool")
    cache.complete(request, rest, cache.launch(request, rest))
    return cached


def _expect(found: int, cached: int) -> None:
    """Stop the run where a subject did other work than the row says."""
    if found != cached:
        raise OtherWork(f"{found} tokens were cached, not {cached}: this is not the work to be measured")
