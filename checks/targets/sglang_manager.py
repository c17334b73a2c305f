"""The radix cache and the paged allocator of SGLang 0.5.23 as a `CacheManager`: released code, driven by its own calls.

Its scheduler makes the same calls in the same order: match the prefix and lock it, admit by what is available and
evictable, allocate pages, and insert into the tree when the step's result is processed. A cancelled request is freed
when the result of its last step is processed. Requests are SGLang's own records, so the key of a scope is SGLang's too:
the tenant is its `extra_key`, the adapter its `lora_id`, the salt its `cache_salt`.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from kvescrow.checks.targets import protocols, subject
from kvescrow.checks.targets.sglang_release import SGLANG, request_of
from kvescrow.spec.vocabulary import PrefixScope

_CACHE = "sglang.srt.mem_cache"
_LONGEST, _ROWS = 256, 64


class SglangManager:
    """One released `RadixCache` over a `PagedTokenToKVPoolAllocator`; page 0 is its padding."""

    def __init__(self, setup: protocols.ManagerSetup) -> None:
        cache = SGLANG.module(f"{_CACHE}.radix_cache")
        allocator = SGLANG.module(f"{_CACHE}.allocator.paged").PagedTokenToKVPoolAllocator
        params = SGLANG.module(f"{_CACHE}.cache_init_params").CacheInitParams
        import torch

        self._setup = setup
        size = setup.pages * setup.page_length
        self._allocator = allocator(size, setup.page_length, torch.float32, "cpu", None, False)
        self._rows = torch.zeros((_ROWS, _LONGEST), dtype=torch.int64)
        rows = SimpleNamespace(req_to_token=self._rows, write=self._rows.__setitem__)
        self._tree = cache.RadixCache(params(False, rows, self._allocator, setup.page_length))
        self._requests: dict[str, Any] = {}
        self._launched: dict[str, int] = {}

    def submit(self, request: str, prompt: Sequence[int], scope: PrefixScope) -> protocols.Granted:
        """Match all but the last token, and lock what was matched."""
        base, keys = SGLANG.module(f"{_CACHE}.base_prefix_cache"), SGLANG.module(f"{_CACHE}.radix_cache")
        asked = request_of(request, prompt, scope)
        key = keys.RadixKey(
            asked.full_untruncated_fill_ids, asked.extra_key, limit=len(prompt) - 1, cache_salt=asked.cache_salt
        )
        match = self._tree.match_prefix(base.MatchPrefixParams(key=key))
        cached = match.device_prefix_len
        asked.last_node, asked.lock = match.last_device_node, self._tree.lock(match.last_device_node)
        taken = {other.kv.req_pool_idx for other in self._requests.values()}
        asked.kv.req_pool_idx = min(set(range(_ROWS)) - taken)
        asked.kv.cache_protected_len = asked.kv.kv_committed_len = asked.kv.kv_allocated_len = cached
        self._rows[asked.kv.req_pool_idx, :cached] = self._tree.path_device_indices(match.last_device_node)
        self._requests[request] = asked
        return protocols.Granted(cached)

    def reserve(self, request: str, tokens: int) -> protocols.Granted | protocols.Denied:
        """Admit by what is available and evictable, evict the shortfall, and allocate pages."""
        kv, length = self._requests[request].kv, self._setup.page_length
        needed = -(-(kv.kv_committed_len + tokens) // length) * length - kv.kv_allocated_len
        if needed > self._allocator.available_size() + self._tree.evictable_size():
            return protocols.Denied()
        self._evict(needed - self._allocator.available_size())
        if needed > 0:
            end = kv.kv_allocated_len + needed
            self._rows[kv.req_pool_idx, kv.kv_allocated_len : end] = self._allocator.alloc(needed)
            kv.kv_allocated_len = end
        return protocols.Granted()

    def launch(self, request: str, tokens: int) -> None:
        """Remember how far the step goes."""
        self._launched[request] = tokens

    def complete(self, request: str, sampled: Sequence[int]) -> None:
        """Process the result: free a request that was aborted, insert another's pages into the tree."""
        tokens, asked = self._launched.pop(request), self._requests[request]
        if asked.to_finish is not None:
            self._free(request)
            return
        asked.kv.kv_committed_len += tokens
        self._tree.checkpoint(asked, up_to=asked.kv.kv_committed_len)
        asked.output_ids.extend(sampled)
        asked.refresh_fill_ids()

    def release(self, request: str) -> None:
        """Free a request, or mark it as aborted while its step is in flight."""
        if request in self._launched:
            self._requests[request].to_finish = "abort"
        elif request in self._requests:
            self._free(request)

    def _free(self, request: str) -> None:
        asked = self._requests.pop(request)
        start, end = asked.kv.cache_protected_len, asked.kv.kv_allocated_len
        self._allocator.free_segment(self._rows[asked.kv.req_pool_idx, start:end], start_pos=start)
        self._tree.unlock(asked.lock)

    def pages_of(self, request: str) -> tuple[int, ...]:
        """Return the pages of the request's row."""
        if request not in self._requests:
            return ()
        kv, length = self._requests[request].kv, self._setup.page_length
        slots = self._rows[kv.req_pool_idx, : kv.kv_allocated_len : length]
        return tuple((slots // length).tolist())

    def evict(self) -> None:
        """Evict everything that is not locked."""
        self._evict(self._tree.evictable_size())

    def _evict(self, tokens: int) -> None:
        if tokens > 0:
            params = SGLANG.module(f"{_CACHE}.base_prefix_cache").EvictParams
            self._tree.evict(params(num_tokens=tokens))

    def pool(self) -> protocols.ManagerPool:
        """Return where every page is: the tree counts locks, and what it does not have is free or one request's."""
        length, nodes = self._setup.page_length, list(self._tree.root_node.children.values())
        locks: dict[int, int] = {}
        while nodes:
            node = nodes.pop()
            nodes += node.children.values()
            locks |= dict.fromkeys((node.value[::length] // length).tolist(), node.lock_ref)
        free = frozenset(self._allocator.get_all_free_pages().tolist())
        own = {page: 1 for name in self._requests for page in self.pages_of(name) if page not in locks}
        held = own | {page: count for page, count in locks.items() if count}
        return protocols.ManagerPool(self._setup.pages, free, frozenset(locks) - frozenset(held), held)

    def close(self) -> None:
        """Hold nothing open."""


def sglang_subject() -> subject.Subject:
    """Return the cache with what it declares and what is known of it."""
    return subject.Subject(subject.Kind.MANAGER, SglangManager, DECLARED, DEVIATIONS, str(SGLANG))


DECLARED = subject.Capabilities(
    scope_fields=frozenset({"tenant", "adapter", "salt"}),
    stable_tables=False,  # Pages that the tree has already take the place of equal ones.
    reserves_output=False,
    duplicate_ids=False,  # The tokenizer manager refuses them.
    chooses_digest=False,  # Tokens are compared themselves.
)
_JOINED = (
    "the extra key and the LoRA id are concatenated, so (extra key `a`, LoRA `b`) is (extra key `ab`, no LoRA), and a "
    "request for the base model hits an adapter's pages; seen in SGLang 0.5.23, see sgl-project/sglang#24638"
)
_RUN = (("submit", "r0", (1, 2, 3, 4, 5), PrefixScope("a", adapter="b")), ("reserve", "r0", 5), ("launch", "r0", 5))
_HIT = (("complete", "r0", ()), ("submit", "r1", (1, 2, 3, 4, 5), PrefixScope("ab")))
DEVIATIONS = (subject.ListedDeviation("joined scopes", "scope.joined", _JOINED, (*_RUN, *_HIT)),)
