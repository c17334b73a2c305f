"""What a replay is run with: defaults, or a TOML file with some of them replaced.

[pool]
tokens = 524_288           # usable pool; rounded down to pages
page_length = 512          # default: the trace's block length, or 64 where the trace has no block ids
tenant_tokens = 524_288    # most that one tenant may hold; default: no limit of its own
queue_limit = 1024         # most requests of one tenant that wait at once

[times]                    # microseconds
queue_wait = 60_000_000    # longest wait for admission
deadline = 600_000_000     # from arrival to the end, as admission judges it
lease = 30_000_000         # of gateway and worker; renewed three times as often

[scheduler]
order = "first-come"
sequences = 128            # most in the batch
prefill_chunk = 2048       # most prompt tokens a step

[cost]                     # nanoseconds of one step; synthetic
fixed = 5_000_000
per_prefill_token = 10_000
per_decode_sequence = 50_000
per_context_token = 10

[cancellations]            # injected
rate = 0.0                 # share of the requests
seed = 1
within = 10_000_000        # microseconds from arrival
"""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from attrs import Attribute, AttrsInstance, evolve, field, fields, frozen

from kvescrow.reference.scheduler import BatchLimits, StepCost
from kvescrow.spec.vocabulary import MICROSECONDS_PER_SECOND, UserError

DEFAULT_PAGE_LENGTH = 64
"""Tokens a page where the trace has no block ids; engines use 16 to 128."""
FIRST_COME = "first-come"
STRICT_PRIORITY = "strict-priority"
DEFAULTS = "defaults"
"""Stands for the file's name where there is no file."""

LARGEST = 10**15
"""Largest amount or time: thirty years in microseconds."""

Check = Callable[[object, "Attribute[int]", object], None]


def _whole(least: int) -> Check:
    def check(_: object, attribute: "Attribute[int]", value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            raise UserError(f"{attribute.name} is {value!r}: set it to an integer from {least} to {LARGEST}")

    return check


def _whole_or_none(instance: object, attribute: "Attribute[int]", value: object) -> None:
    if value is not None:
        _whole(1)(instance, attribute, value)


def _share(_: object, attribute: "Attribute[float]", value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise UserError(f"{attribute.name} is {value!r}: set it to a share from 0.0 to 1.0")


def _order(_: object, attribute: "Attribute[str]", value: object) -> None:
    if value == STRICT_PRIORITY:
        raise UserError(
            f"{attribute.name} is {value!r}: while the higher class keeps coming, the lower one never runs, and its "
            f"bounded wait ends in QUEUE_TIMEOUT for all of it (FAI-3); set it to {FIRST_COME!r}"
        )
    if value != FIRST_COME:
        raise UserError(f"{attribute.name} is {value!r}: the one order there is, is {FIRST_COME!r}")


@frozen
class PoolConfig:
    """Capacity, in tokens."""

    tokens: int = field(default=524_288, validator=_whole(1))
    page_length: int | None = field(default=None, validator=_whole_or_none)
    tenant_tokens: int | None = field(default=None, validator=_whole_or_none)
    queue_limit: int = field(default=1024, validator=_whole(0))


@frozen
class TimesConfig:
    """Limits, in microseconds."""

    queue_wait: int = field(default=60 * MICROSECONDS_PER_SECOND, validator=_whole(0))
    deadline: int = field(default=600 * MICROSECONDS_PER_SECOND, validator=_whole(1))
    lease: int = field(default=30 * MICROSECONDS_PER_SECOND, validator=_whole(MICROSECONDS_PER_SECOND))


@frozen
class SchedulerConfig:
    """The batch of the worker."""

    order: str = field(default=FIRST_COME, validator=_order)
    sequences: int = field(default=128, validator=_whole(1))
    prefill_chunk: int = field(default=2048, validator=_whole(1))

    @property
    def limits(self) -> BatchLimits:
        """The bounds that the scheduler's decisions take."""
        return BatchLimits(self.sequences, self.prefill_chunk)


@frozen
class CostConfig:
    """Nanoseconds of one step; synthetic."""

    fixed: int = field(default=StepCost().fixed, validator=_whole(1))
    per_prefill_token: int = field(default=StepCost().per_prefill_token, validator=_whole(0))
    per_decode_sequence: int = field(default=StepCost().per_decode_sequence, validator=_whole(0))
    per_context_token: int = field(default=StepCost().per_context_token, validator=_whole(0))

    @property
    def model(self) -> StepCost:
        """The cost model with these coefficients."""
        return StepCost(self.fixed, self.per_prefill_token, self.per_decode_sequence, self.per_context_token)


@frozen
class CancellationConfig:
    """Injected cancellations: each request is chosen with probability `rate`, at a time drawn evenly."""

    rate: float = field(default=0.0, validator=_share)
    seed: int = field(default=1, validator=_whole(0))
    within: int = field(default=10 * MICROSECONDS_PER_SECOND, validator=_whole(1))


@frozen
class ReplayConfig:
    """Everything that a replay depends on besides the trace."""

    pool: PoolConfig = PoolConfig()
    times: TimesConfig = TimesConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    cost: CostConfig = CostConfig()
    cancellations: CancellationConfig = CancellationConfig()
    source: str = DEFAULTS
    """File that it was read from; messages name it."""


TABLES: dict[str, type[AttrsInstance]] = {
    "pool": PoolConfig,
    "times": TimesConfig,
    "scheduler": SchedulerConfig,
    "cost": CostConfig,
    "cancellations": CancellationConfig,
}
"""The tables of a file, and the record that each is read into."""


def keys_of(table: str) -> list[str]:
    """Return the keys of a table."""
    return [each.name for each in fields(TABLES[table])]


T = TypeVar("T", bound=AttrsInstance)


def read_config(path: str | Path) -> ReplayConfig:
    """Read a TOML file; what it leaves out keeps its default.

    Raises:
        UserError: The file cannot be read, is not TOML, has an unknown table or key, or a value outside its domain.

    """
    path = Path(path)
    tables: dict[str, Any] = {}
    for name, table in _document(path).items():
        if name not in TABLES:
            raise UserError(f"{path}: {name}: unknown table; there are {', '.join(TABLES)}")
        if not isinstance(table, dict):
            raise UserError(f"{path}: {name}: expected a table, [{name}]")
        tables[name] = _section(path, name, TABLES[name], table)
    return evolve(ReplayConfig(source=str(path)), **tables)


def _document(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; give the path of a replay configuration") from None
    except IsADirectoryError:
        raise UserError(f"{path}: a directory; give one file in it") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{path}: not valid TOML: {error}") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None


def _section(path: Path, name: str, record: type[T], table: dict[str, object]) -> T:
    known = keys_of(name)
    for key in table:
        if key not in known:
            raise UserError(f"{path}: {name}.{key}: unknown key; there are {', '.join(known)}")
    try:
        return record(**table)
    except UserError as error:
        raise UserError(f"{path}: {name}.{error}") from None
