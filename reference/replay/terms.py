"""Classes, tenants, reservation policy, arrivals and synthetic streams of a replay's configuration.

[classes.interactive]      # without any class table: one class, which has everything
share = 0.8                # part of reserved tokens and of prefill while others wait; the shares add up to 1
queue_limit = 1024         # most requests of one tenant that wait; default: pool.queue_limit
queue_wait = 60_000_000    # microseconds; default: times.queue_wait
deadline = 600_000_000     # microseconds; default: times.deadline
first_token = 2_000_000    # objective, microseconds from arrival; default: none
token_gap = 250_000        # objective for the widest gap of a request, microseconds; default: none
tokens = 393_216           # most that each tenant of the class may hold; default: pool.tenant_tokens

[classes.bulk]
share = 0.2

[tenants.acme]             # the others belong to the first class, with weight 1
class = "bulk"
weight = 1
tokens = 131_072           # most that it may hold; default: that of its class
budget = 4_000_000         # tokens; default: none
requests_per_minute = 20   # in a sliding window that counts admitted requests; default: that of every tenant

[reservation]
policy = "full-maximum"    # or estimate, no-evict, watermark, peak-formula
max_output = 2048          # output tokens that a request is allowed; default: what it came to
percent = 50               # estimate: percentile of a tenant's past output lengths that is reserved
forecast = 60              # estimate: percentile of them by which admission looks ahead
watermark = 0.01           # watermark: part of the pool that stays free

[arrivals]
speed = 1.0                # the trace's clock runs so much faster
trace = true               # false: only the streams
requests_per_minute = 60   # of each tenant; default: no limit

[[streams]]                # synthetic requests beside the trace's
tenant = "batch"
at = 60_000_000            # microseconds
requests = 40
every = 0                  # microseconds between them
input_tokens = 16_384
output_tokens = 512
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import lcm

from attrs import Attribute, field, frozen

from kvescrow.reference.replay.fields import nonempty, optional_whole, share, whole
from kvescrow.spec.vocabulary import UserError

POLICIES = ("full-maximum", "estimate", "no-evict", "watermark", "peak-formula")


def _policy(_: object, attribute: "Attribute[str]", value: object) -> None:
    if value not in POLICIES:
        raise UserError(f"{attribute.name} is {value!r}: set it to one of {', '.join(POLICIES)}")


def _percent(instance: object, attribute: "Attribute[int]", value: object) -> None:
    whole(1)(instance, attribute, value)
    if isinstance(value, int) and value > 100:
        raise UserError(f"{attribute.name} is {value}: set it to an integer from 1 to 100")


def _speed(_: object, attribute: "Attribute[float]", value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.001 <= value <= 1000:
        raise UserError(f"{attribute.name} is {value!r}: set it to a number from 0.001 to 1000")


def _flag(_: object, attribute: "Attribute[bool]", value: object) -> None:
    if not isinstance(value, bool):
        raise UserError(f"{attribute.name} is {value!r}: set it to true or false")


def _patience(instance: object, attribute: "Attribute[int | None]", value: object) -> None:
    optional_whole(0)(instance, attribute, value)
    if value == 0:
        raise UserError(
            f"{attribute.name} is 0: while others wait, each request of the class is refused, so the class starves; "
            "give it a time (FAI-3)"
        )


def _part(instance: object, attribute: "Attribute[float]", value: object) -> None:
    share(instance, attribute, value)
    if value == 0:
        raise UserError(
            f"{attribute.name} is {value!r}: while another class waits, this one is never served; set it above 0 "
            "(FAI-3)"
        )


@frozen
class ClassConfig:
    """One class; None where a table of the whole run decides."""

    share: float = field(default=1.0, validator=_part)
    queue_limit: int | None = field(default=None, validator=optional_whole(1))
    queue_wait: int | None = field(default=None, validator=_patience)
    deadline: int | None = field(default=None, validator=optional_whole(1))
    first_token: int | None = field(default=None, validator=optional_whole(1))
    token_gap: int | None = field(default=None, validator=optional_whole(1))
    tokens: int | None = field(default=None, validator=optional_whole(1))


@frozen
class TenantSettings:
    """One tenant; None where its class or the whole run decides."""

    class_: str | None = field(default=None, validator=nonempty)
    weight: int = field(default=1, validator=whole(1))
    tokens: int | None = field(default=None, validator=optional_whole(1))
    budget: int | None = field(default=None, validator=optional_whole(0))
    requests_per_minute: int | None = field(default=None, validator=optional_whole(1))


@frozen
class ReservationConfig:
    """What a request reserves."""

    policy: str = field(default=POLICIES[0], validator=_policy)
    max_output: int | None = field(default=None, validator=optional_whole(1))
    percent: int = field(default=50, validator=_percent)
    forecast: int = field(default=60, validator=_percent)
    watermark: float = field(default=0.01, validator=share)


@frozen
class ArrivalsConfig:
    """What of the trace is offered, and how fast."""

    speed: float = field(default=1.0, validator=_speed)
    trace: bool = field(default=True, validator=_flag)
    requests_per_minute: int | None = field(default=None, validator=optional_whole(1))


MOST_REQUESTS = 1_000_000
"""Each request of a stream is held in memory."""


@frozen
class StreamConfig:
    """Synthetic requests of one size, at equal distances."""

    tenant: str = field(validator=nonempty)
    requests: int = field(validator=whole(1, MOST_REQUESTS))
    input_tokens: int = field(validator=whole(1))
    output_tokens: int = field(validator=whole(1))
    at: int = field(default=0, validator=whole(0))
    every: int = field(default=0, validator=whole(0))


ONE_CLASS = "all"
"""Name of the class where none is configured."""


def weights_of(classes: Mapping[str, ClassConfig], fail: Callable[[str], UserError]) -> dict[str, int]:
    """Return the shares as whole weights.

    Raises:
        UserError: The shares do not add up to 1.

    """
    parts = {name: Fraction(str(each.share)) for name, each in classes.items()}
    if sum(parts.values()) != 1:
        listed = ", ".join(f"{name} {each.share}" for name, each in classes.items())
        raise fail(f"the shares are {listed}: set them so that they add up to 1")
    common = lcm(*(part.denominator for part in parts.values()))
    return {name: int(part * common) for name, part in parts.items()}
