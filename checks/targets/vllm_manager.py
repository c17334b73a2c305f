"""The KV cache manager and block pool of vLLM 0.33 as a `CacheManager`: released code, driven by its own calls.

Its scheduler makes the same calls in the same order: look for computed blocks, allocate slots, and free. Slots are
hashed, and so matchable, when they are allocated. `delay_cache_blocks` and `cache_blocks` are vLLM's own calls for
hashing them later; `vllm-at-return` uses them, and otherwise is the same.
"""

from collections.abc import Sequence
from typing import Any

from kvescrow.checks.targets import protocols, subject
from kvescrow.checks.targets.vllm_release import LONGEST, VLLM, cache_config, hasher, pool_of, request_of
from kvescrow.spec.vocabulary import PrefixScope


class VllmManager:
    """One released `KVCacheManager` with full attention and prefix caching; block 0 is its null block."""

    def __init__(self, setup: protocols.ManagerSetup, *, delay: bool = False) -> None:
        """Open a manager; `delay`: blocks are hashed when their step has ended."""
        self._delay = delay
        self._hasher = hasher(setup.page_length)
        manager = VLLM.module("vllm.v1.core.kv_cache_manager").KVCacheManager
        config = cache_config(setup.pages + 1, setup.page_length)
        self._manager = manager(config, LONGEST, setup.page_length, setup.page_length)
        self._requests: dict[str, Any] = {}
        self._launched: dict[str, int] = {}

    def submit(self, request: str, prompt: Sequence[int], scope: PrefixScope) -> protocols.Granted:
        """Look for computed blocks, and adopt them."""
        asked = self._requests[request] = request_of(request, prompt, scope, self._hasher)
        blocks, cached, _ = self._manager.get_computed_blocks(asked)
        if cached:
            self._manager.allocate_slots(asked, 0, cached, blocks)
            asked.num_computed_tokens = cached
        return protocols.Granted(cached)

    def reserve(self, request: str, tokens: int) -> protocols.Granted | protocols.Denied:
        """Allocate slots for the next `tokens` positions."""
        slots = self._manager.allocate_slots(self._requests[request], tokens, delay_cache_blocks=self._delay)
        return protocols.Denied() if slots is None else protocols.Granted()

    def launch(self, request: str, tokens: int) -> None:
        """Remember how far the step goes; the manager is not told."""
        self._launched[request] = tokens

    def complete(self, request: str, sampled: Sequence[int]) -> None:
        """Count the step's tokens, unless its request was cancelled."""
        tokens, ended = self._launched.pop(request), self._requests.get(request)
        if ended is None:
            return
        ended.num_computed_tokens += tokens
        if self._delay:
            self._manager.cache_blocks(ended, ended.num_computed_tokens)
        ended.append_output_token_ids(list(sampled))

    def release(self, request: str) -> None:
        """Free the request's blocks."""
        over = self._requests.pop(request, None)
        if over is not None:
            self._manager.free(over)

    def pages_of(self, request: str) -> tuple[int, ...]:
        """Return the request's blocks."""
        return tuple(self._manager.get_block_ids(request)[0])

    def evict(self) -> None:
        """Take all blocks without a holder out of the prefix cache."""
        self._manager.evict_blocks(set(self.pool().cached))

    def pool(self) -> protocols.ManagerPool:
        """Return where every block is by the manager's own records."""
        return pool_of(self._manager)

    def close(self) -> None:
        """Hold nothing open."""


def vllm_subject() -> subject.Subject:
    """Return the manager as its scheduler uses it."""
    known = declared(subject.Publish.AT_SCHEDULE)
    return subject.Subject(subject.Kind.MANAGER, VllmManager, known, DEVIATIONS, str(VLLM))


def vllm_at_return_subject() -> subject.Subject:
    """Return the manager with blocks hashed when their step has ended."""
    known = declared(subject.Publish.AT_COMMIT)
    return subject.Subject(subject.Kind.MANAGER, lambda setup: VllmManager(setup, delay=True), known, engine=str(VLLM))


def declared(publish: subject.Publish) -> subject.Capabilities:
    """Return what vLLM claims."""
    return subject.Capabilities(
        publish=publish,
        release=subject.Release.ORDERED,  # Blocks are free at once: steps run in order on one stream.
        scope_fields=frozenset({"adapter", "salt"}),
        reserves_output=False,
        duplicate_ids=False,  # The scheduler refuses them, and the front end renames.
        chooses_digest=False,
    )


_PROMPT = (1, 2, 3, 4, 5)
_GIVEN_UP = (
    "blocks are hashed when slots are allocated, and stay in the prefix cache when the request is freed before its "
    "step runs, as by a preemption in the same step; seen in vLLM 0.33.0, see vllm-project/vllm#57580 and #43569"
)
_STEPS = (("submit", "r0", _PROMPT, PrefixScope("a")), ("reserve", "r0", 5), ("release", "r0"))
_HIT = ("submit", "r1", _PROMPT, PrefixScope("a"))
DEVIATIONS = (subject.ListedDeviation("publish before compute", "withdrawn", _GIVEN_UP, (*_STEPS, _HIT)),)
