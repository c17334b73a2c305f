"""What a run is run with."""

from collections.abc import Callable

from attrs import Attribute, field, frozen

from kvescrow.gpu_harness.conform.workload import CANCEL_RATE, LONGEST_OUTPUT, LONGEST_PROMPT
from kvescrow.gpu_harness.pages import PAGE_LENGTH
from kvescrow.gpu_harness.smollm2 import NAME as SMOLLM2
from kvescrow.reference.scheduler import BatchLimits
from kvescrow.spec.vocabulary import UserError

POSITIONS = -(-(LONGEST_PROMPT + LONGEST_OUTPUT) // PAGE_LENGTH) * PAGE_LENGTH
"""Longest context of the decoder."""
USABLE_PAGES = 96
"""About what eight requests may need at most, so that cached pages are evicted and requests queue."""
TENANT_SHARE = (2, 3)
"""Part of the pool that one tenant may hold."""
LIMITS = BatchLimits(sequences=8, prefill_chunk=40)
"""The chunk is no multiple of a page, so that steps begin and end inside pages."""
STEPS_AHEAD = 2
"""Steps in flight on each stream: one that runs, and one that is launched behind it."""
ESTIMATED_PART = 2
"""With growth, one part in so many of the allowed output is reserved at first (GRO-1)."""

DEFAULT_REQUESTS = 100
DTYPES = ("float32", "bfloat16")
EXACT = "exact"
FAST = "fast"
MODES = (EXACT, FAST)
SEEDED = "seeded"
WEIGHTS = (SEEDED, SMOLLM2)
MOST_SEED = 2**62
"""Seeds are counted up from the first one, and must fit into 64 bits with a sign."""


def _is_seed(_: object, attribute: "Attribute[int]", value: int) -> None:
    if value < 0:
        raise UserError(f"{attribute.name}: {value} is negative; give 0 or more")
    if value > MOST_SEED:
        raise UserError(f"{attribute.name}: {value} is too large; give {MOST_SEED} or less")


def _one_of(*known: str) -> Callable[[object, "Attribute[str]", str], None]:
    def check(_: object, attribute: "Attribute[str]", value: str) -> None:
        if value not in known:
            raise UserError(f"{attribute.name}: {value!r} is not known; choose from {', '.join(known)}")

    return check


@frozen
class Settings:
    """One run. The workload is given beside it."""

    device: str = "cpu"
    """"cpu", "cuda" or "cuda:N"."""
    shape: str = "tiny"
    """Name of a model shape."""
    weights: str = field(default=SEEDED, validator=_one_of(*WEIGHTS))
    """SEEDED weights of the named shape, or a real model, which has a shape of its own."""
    mode: str = field(default=EXACT, validator=_one_of(*MODES))
    """EXACT: outputs and pages are compared bit for bit. FAST: the same code with the library's attention, compared
    with nothing, while memory is watched as ever.
    """
    dtype: str = field(default="float32", validator=_one_of(*DTYPES))
    requests: int = DEFAULT_REQUESTS
    """Requests of the trace, twins not counted."""
    seed: int = field(default=1, validator=_is_seed)
    """Of weights, tokens and cancels."""
    cancel_rate: float = CANCEL_RATE
    pages: int = USABLE_PAGES
    """Pages of the pool, the sink not counted."""
    growth: bool = False
    """Whether a part of the output is reserved at first, and the rest asked for when it is needed (GRO-1, GRO-2)."""
    epoch_after: int | None = None
    """The weights change when so many requests have started (SCO-5); None: never."""
    kills: tuple[int, ...] = ()
    """The worker is killed when so many requests have started, and another one takes its place (LEA-4)."""
    own_process: bool = False
    """Whether the worker's device, memory and decoder are in a process of its own, which is then what is killed."""
    fixed_order: bool = False
    """Whether steps are taken in at turns that the seed fixes (`order.FixedOrder`), so that the same settings give the
    same journal byte for byte; else as the device ends them.
    """
