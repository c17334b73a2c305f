"""The project's page pool under whole requests, as a worker drives it."""

from collections.abc import Sequence

from kvescrow.checks.targets.measured import OtherWork
from kvescrow.reference.pages import Acquired, PagePool, PageUse, pack
from kvescrow.spec.vocabulary import PrefixScope


class PoolRequests:
    """A pool of `pages` usable pages, and requests of one scope that compute their prompt in one step."""

    def __init__(self, pages: int, page_length: int, scope: PrefixScope) -> None:
        self.pool = PagePool(pages + 1, page_length)
        self._scope = scope

    def admit(self, name: str, tokens: Sequence[int]) -> int:
        """Admit a request, run the step that computes what is not cached, and publish; return cached tokens.

        Raises OtherWork where there is no room.
        """
        prompt = pack(tokens)
        got = self.pool.acquire(name, self._scope, prompt, len(prompt))
        if not isinstance(got, Acquired):
            raise OtherWork(f"{name}: {got}")
        fresh = got.pages[got.cached_tokens // self.pool.page_length :]
        full = len(tokens) // self.pool.page_length - len(got.pages) + len(fresh)
        step = (PageUse(name, writes=fresh, filled=frozenset(fresh[:full])),)
        self.pool.launch(step)
        self.pool.finish(step, ok=True)
        self.pool.publish(name, prompt)
        return got.cached_tokens

    def release(self, name: str) -> None:
        """Give up the request's pages."""
        self.pool.release(name)
