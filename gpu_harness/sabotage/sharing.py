"""Mistakes about who may share a prefix, and when: scopes, matches, publication, eviction, weights."""

from collections.abc import Sequence

from attrs import evolve

from kvescrow.gpu_harness.conform.conduct import Conduct, LaunchedStep
from kvescrow.gpu_harness.conform.loop import Loop
from kvescrow.gpu_harness.conform.serving import Serving
from kvescrow.gpu_harness.pages import PAGE_LENGTH, PageClaim
from kvescrow.gpu_harness.sabotage.memory import within_reach
from kvescrow.gpu_harness.streams import Stream
from kvescrow.spec.vocabulary import PrefixScope


class ScopeWithoutTenant(Conduct):
    """Prefixes are looked up by model and tokens alone, whoever they belong to."""

    def scope(self, number: int) -> PrefixScope:
        """The scope record without tenant and adapter."""
        return evolve(super().scope(number), tenant="anyone", adapter=None)


class ScopeWithoutAdapter(Conduct):
    """A tenant's prefixes are looked up without regard to the adapter."""

    def scope(self, number: int) -> PrefixScope:
        """The scope record without adapter."""
        return evolve(super().scope(number), adapter=None)


class ScopeWithoutEpoch(Conduct):
    """Prefixes are looked up without regard to the weights that they were computed with."""

    def scope(self, number: int) -> PrefixScope:
        """The scope record without weight epoch."""
        return evolve(super().scope(number), weight_epoch=0)


class WeightsChangedUnderWork(Conduct):
    """Weights are changed while requests run on the old ones."""

    def drains_before(self, epoch: int) -> bool:
        """No."""
        return False


class HashOnlyMatch(Conduct):
    """A prefix is matched by a hash alone, and all prefixes of one length have the same one."""

    def known_as(self, tokens: Sequence[int]) -> Sequence[int]:
        """What has this hash, in place of the tokens."""
        return (0,) * len(tokens)


class _Inexact(Conduct):
    """Remembers every request's prompt and pages, to match in them what the page pool would not."""

    def __init__(self) -> None:
        self._seen: list[Serving] = []

    def _candidate(self, serving: Serving, place: int) -> PageClaim | None:
        """The published page at `place` of a request of the scope whose prompt begins with the whole of this one."""
        prompt = serving.planned.prompt
        for other in self._seen:
            same = other.scope == serving.scope and other.planned.prompt[: len(prompt)] == prompt
            if same and other.published > place:
                return other.claims[place]
        return None

    def _last_page(self, serving: Serving, claims: Sequence[PageClaim], cached: int) -> tuple[list[PageClaim], int]:
        """The pages with a shared one in the last place, so that one token remains to be computed in it."""
        self._seen.append(serving)
        last = (len(serving.planned.prompt) - 1) // PAGE_LENGTH
        found = self._candidate(serving, last) if cached == last * PAGE_LENGTH else None
        if found is None:
            return list(claims), cached
        return [*claims[:last], found, *claims[last + 1 :]], len(serving.planned.prompt) - 1


class PartialPageMatched(_Inexact):
    """A page is matched by its first tokens, and the request goes on inside it."""

    def hits(self, serving: Serving, claims: Sequence[PageClaim], cached: int) -> tuple[list[PageClaim], int]:
        """A prompt that ends inside a shared page has that page too."""
        if len(serving.planned.prompt) % PAGE_LENGTH:
            return self._last_page(serving, claims, cached)
        self._seen.append(serving)
        return super().hits(serving, claims, cached)


class SharedPageWritten(_Inexact):
    """A prompt that is cached as a whole has its last token computed in the shared page instead of a private one."""

    def hits(self, serving: Serving, claims: Sequence[PageClaim], cached: int) -> tuple[list[PageClaim], int]:
        """A prompt that ends with a shared page has that page too."""
        if len(serving.planned.prompt) % PAGE_LENGTH == 0:
            return self._last_page(serving, claims, cached)
        self._seen.append(serving)
        return super().hits(serving, claims, cached)


class PublishBeforeCompute(Conduct):
    """A chunk's pages are published when its step is launched, not when it is done."""

    def holds(self, loop: Loop, stream: Stream, members: Sequence[Serving]) -> bool:
        """Every step that computes a prompt."""
        return stream is loop.worker.machine.prefill

    def meanwhile(self, loop: Loop, step: LaunchedStep) -> None:
        """Publish what the step is to compute."""
        loop.worker.settle(step)
        for serving in step.members:
            if not serving.is_stopping:
                loop.worker.publish(serving, serving.position)


class EvictInFlight(Conduct):
    """A shared page is taken for eviction while a launched step reads it."""

    def holds(self, loop: Loop, stream: Stream, members: Sequence[Serving]) -> bool:
        """A step of a request that reads a shared page."""
        return any(serving.published for serving in members)

    def meanwhile(self, loop: Loop, step: LaunchedStep) -> None:
        """Poison the first shared page, as if it were free."""
        victim = next(serving for serving in step.members if serving.published)
        within_reach(loop).frames.reclaim(victim.pages[:1])
