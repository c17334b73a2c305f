"""The paged cache manager of `transformers` continuous batching, driven by its own public calls.

Its scheduler calls the same methods in the same order: match the prefix, make room, count the pages that the step
will complete, and after the step publish them. Cached pages are given up all at once when room runs out.
"""

from collections.abc import Sequence
from importlib.metadata import distributions
from types import SimpleNamespace
from typing import Any

from kvescrow.spec.vocabulary import UserError


def installed() -> str:
    """Return the name and version of the installed release; the name alone where there is none."""
    found = next(iter(distributions(name="transformers")), None)
    return f"transformers {found.version}" if found else "transformers"


class TransformersCache:
    """One `PagedAttentionCache` on the CPU with a model so small that its tensors cost nothing.

    `pages` and `page_length` are in pages and tokens. Raises UserError where transformers is not installed.
    """

    def __init__(self, pages: int, page_length: int) -> None:
        try:
            from transformers import LlamaConfig
            from transformers.generation.configuration_utils import ContinuousBatchingConfig
            from transformers.generation.continuous_batching.cache import PagedAttentionCache
            from transformers.generation.continuous_batching.requests import RequestState
        except ImportError as error:
            raise UserError(f"transformers: {error}; install it with `pip install 'kvescrow[targets]'`") from error
        self._state: Any = RequestState
        model = LlamaConfig(
            hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=32
        )
        settings = ContinuousBatchingConfig(
            num_blocks=pages, page_size=page_length, max_batch_tokens=256, max_memory_percent=0.5
        )
        # The manager asks the helper for the degree of tensor parallelism and nothing else.
        self.cache: Any = PagedAttentionCache(model, settings, "cpu", SimpleNamespace(tp_size=1))  # type: ignore[arg-type]

    def request(self, name: str, tokens: Sequence[int]) -> Any:
        """Return the engine's record of a request with the prompt `tokens`."""
        return self._state(request_id=name, initial_tokens=list(tokens))

    def match(self, request: Any) -> int:
        """Claim what is cached of the prompt; return how many tokens."""
        cached: int = self.cache.search_prefix_match(request.request_id, request.initial_tokens)
        request.position_offset = cached
        return cached

    def reserve(self, request: Any, tokens: int) -> bool:
        """Make room for the next `tokens` positions, if need be by giving up every cached page."""
        if self.cache.can_store_request_tokens(request, tokens):
            return True
        return bool(self.cache.evict_cached_blocks()) and bool(self.cache.can_store_request_tokens(request, tokens))

    def launch(self, request: Any, tokens: int) -> dict[str, int]:
        """Count the pages that a step over the next `tokens` positions will complete."""
        completes: dict[str, int] = self.cache.count_new_complete_blocks(request, tokens)
        return completes

    def complete(self, request: Any, tokens: int, completes: dict[str, int]) -> None:
        """That step has ended: publish the pages that it completed."""
        request.position_offset += tokens
        self.cache.mark_complete_blocks(request, completes)

    def release(self, request: Any) -> None:
        """Free the request's pages."""
        self.cache.free_blocks(request.request_id)
