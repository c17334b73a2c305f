"""What a run does on a GPU, done once before it counts.

There the first launch of a kernel loads it, and the second step of a size is captured. Either may wait for the whole
device, streams that are held back included: a window in which something is done for the first time could close before
anything was done in it.
"""

from collections.abc import Sequence

from kvescrow.gpu_harness.conform.settings import LIMITS
from kvescrow.gpu_harness.decoder import PagedDecoder
from kvescrow.gpu_harness.pages import PAGE_LENGTH, PageClaim
from kvescrow.gpu_harness.plan import Segment, StepBatch
from kvescrow.gpu_harness.streams import Stream

TIMES = 3
"""A step as it is, its capture with the first replay, and a replay."""


def rehearse(decoder: PagedDecoder, prefill: Stream, decode: Stream, scrub: Stream) -> None:
    """Run steps of every size on their streams, and everything that is done to pages; leave all pages as they were.

    What these steps find is nobody's evidence: the pages are looked at again when they are granted. Raises
    StreamFailed, DeviceTimeout.
    """
    long = -(-LIMITS.prefill_chunk // PAGE_LENGTH)
    pages = list(range(1, 1 + long + LIMITS.sequences))
    claims = [
        decoder.memory.grant(prefill, [page], owner=_owner(place, long), scope=0, first_index=min(place, long) % long)
        for place, page in enumerate(pages)
    ]
    prefill.synchronize()
    play = _Play(decoder, [grant.claims[0] for grant in claims[:long]], [grant.claims[0] for grant in claims[long:]])
    play.on(prefill, [play.chunk(LIMITS.prefill_chunk)])
    for _ in range(TIMES):
        play.on(prefill, [play.token(0, is_fed=False)])
    for power in range((LIMITS.sequences - 1).bit_length() + 1):
        rows = min(1 << power, LIMITS.sequences)
        for _ in range(TIMES):
            play.on(decode, [play.token(place, is_fed=True) for place in range(rows)])
    decoder.memory.publish(scrub, pages)
    decoder.memory.fingerprint(scrub, pages)
    decoder.memory.reclaim(scrub, pages)
    decoder.memory.audit_free(scrub, pages)
    scrub.synchronize()


def _owner(place: int, long: int) -> int:
    """The request of a page: the first ones are one prompt's, each of the others is one request's."""
    return max(0, place - long + 1)


class _Play:
    """Request 0 has a prompt of several pages, the others decode in a page each."""

    def __init__(self, decoder: PagedDecoder, prompt: Sequence[PageClaim], single: Sequence[PageClaim]) -> None:
        self._decoder, self._prompt, self._single = decoder, tuple(prompt), single
        self._ends = [0] * len(single)
        self._ticket = 0

    def on(self, stream: Stream, segments: Sequence[Segment]) -> None:
        self._ticket += 1
        self._decoder.launch(stream, StepBatch(self._ticket, segments)).wait()

    def chunk(self, length: int) -> Segment:
        return Segment(0, 0, 0, 0, (0,) * length, self._prompt)

    def token(self, place: int, *, is_fed: bool) -> Segment:
        self._ends[place] += 1
        tokens = None if is_fed else (0,)
        return Segment(1 + place, 0, place, self._ends[place] - 1, tokens, (self._single[place],))
