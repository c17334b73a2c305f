"""What a replay is run with: defaults, or a TOML file with some of them replaced.

`terms` shows the tables for classes, tenants, reservations, arrivals and streams. Defaults:

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
order = "first-come"       # or fair; strict-priority as a baseline only
baseline = false           # true: allow an order that may starve a class, to compare with
sequences = 128            # most in the batch
prefill_chunk = 2048       # most prompt tokens a step
gap_budget = 100_000       # longest step beside decodes that the chunk rule allows, microseconds; default: no rule

[cost]                     # nanoseconds of one step; synthetic
fixed = 5_000_000
per_prefill_token = 10_000
per_decode_sequence = 50_000
per_context_token = 10
per_attended_pair = 0      # femtoseconds

[cancellations]            # injected
rate = 0.0                 # share of the requests
seed = 1
within = 10_000_000        # microseconds from arrival
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from attrs import NOTHING, Attribute, AttrsInstance, field, fields, frozen

from kvescrow.reference.replay.fields import key_of, optional_whole, share, whole
from kvescrow.reference.replay.terms import (
    ONE_CLASS,
    ArrivalsConfig,
    ClassConfig,
    ReservationConfig,
    StreamConfig,
    TenantSettings,
    weights_of,
)
from kvescrow.reference.scheduler import BatchLimits, ChunkRule, CostModel, GapBudget, StepCost
from kvescrow.reference.toml_file import read_toml
from kvescrow.spec.vocabulary import MICROSECONDS_PER_SECOND, UserError

DEFAULT_PAGE_LENGTH = 64
"""Tokens a page where the trace has no block ids; engines use 16 to 128."""
FIRST_COME = "first-come"
FAIR = "fair"
STRICT_PRIORITY = "strict-priority"
ORDERS = (FIRST_COME, FAIR, STRICT_PRIORITY)
DEFAULTS = "defaults"
"""Stands for the file's name where there is no file."""


def _order(_: object, attribute: "Attribute[str]", value: object) -> None:
    if value not in ORDERS:
        raise UserError(f"{attribute.name} is {value!r}: set it to one of {', '.join(ORDERS)}")


def _baseline(instance: "SchedulerConfig", attribute: "Attribute[bool]", value: object) -> None:
    if not isinstance(value, bool):
        raise UserError(f"{attribute.name} is {value!r}: set it to true or false")
    if instance.order == STRICT_PRIORITY and not value:
        raise UserError(
            f"order is {STRICT_PRIORITY!r}: while the higher class keeps coming, the lower one never runs, and its "
            f"bounded wait ends in QUEUE_TIMEOUT for all of it (FAI-3); set it to {FAIR!r}, or baseline to true to "
            "compare with it"
        )


@frozen
class PoolConfig:
    """Capacity, in tokens."""

    tokens: int = field(default=524_288, validator=whole(1))
    page_length: int | None = field(default=None, validator=optional_whole(1))
    tenant_tokens: int | None = field(default=None, validator=optional_whole(1))
    queue_limit: int = field(default=1024, validator=whole(0))


@frozen
class TimesConfig:
    """Limits, in microseconds."""

    queue_wait: int = field(default=60 * MICROSECONDS_PER_SECOND, validator=whole(0))
    deadline: int = field(default=600 * MICROSECONDS_PER_SECOND, validator=whole(1))
    lease: int = field(default=30 * MICROSECONDS_PER_SECOND, validator=whole(MICROSECONDS_PER_SECOND))


@frozen
class SchedulerConfig:
    """The batch of the worker."""

    order: str = field(default=FIRST_COME, validator=_order)
    baseline: bool = field(default=False, validator=_baseline)
    sequences: int = field(default=128, validator=whole(1))
    prefill_chunk: int = field(default=2048, validator=whole(1))
    gap_budget: int | None = field(default=None, validator=optional_whole(1))

    @property
    def limits(self) -> BatchLimits:
        """The bounds that the scheduler's decisions take."""
        return BatchLimits(self.sequences, self.prefill_chunk)

    def rule(self, cost: StepCost) -> ChunkRule | None:
        """The chunk rule, where there is a token-gap budget."""
        if self.gap_budget is None:
            return None
        return ChunkRule(CostModel(cost), GapBudget(self.gap_budget, largest=self.prefill_chunk))


@frozen
class CostConfig:
    """Nanoseconds of one step, of an attended pair femtoseconds; synthetic."""

    fixed: int = field(default=StepCost().fixed, validator=whole(1))
    per_prefill_token: int = field(default=StepCost().per_prefill_token, validator=whole(0))
    per_decode_sequence: int = field(default=StepCost().per_decode_sequence, validator=whole(0))
    per_context_token: int = field(default=StepCost().per_context_token, validator=whole(0))
    per_attended_pair: int = field(default=StepCost().per_attended_pair, validator=whole(0))

    @property
    def model(self) -> StepCost:
        """The cost model with these coefficients."""
        return StepCost(
            self.fixed,
            self.per_prefill_token,
            self.per_decode_sequence,
            self.per_context_token,
            self.per_attended_pair,
        )


@frozen
class CancellationConfig:
    """Injected cancellations: each request is chosen with probability `rate`, at a time drawn evenly."""

    rate: float = field(default=0.0, validator=share)
    seed: int = field(default=1, validator=whole(0))
    within: int = field(default=10 * MICROSECONDS_PER_SECOND, validator=whole(1))


@frozen
class ReplayConfig:
    """Everything that a replay depends on besides the trace."""

    pool: PoolConfig = PoolConfig()
    times: TimesConfig = TimesConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    cost: CostConfig = CostConfig()
    cancellations: CancellationConfig = CancellationConfig()
    reservation: ReservationConfig = field(factory=ReservationConfig)
    arrivals: ArrivalsConfig = field(factory=ArrivalsConfig)
    classes: Mapping[str, ClassConfig] = field(factory=lambda: {ONE_CLASS: ClassConfig()})
    """By name, the first being that of tenants that name none."""
    tenants: Mapping[str, TenantSettings] = field(factory=dict)
    streams: tuple[StreamConfig, ...] = ()
    source: str = DEFAULTS
    """File that it was read from; messages name it."""

    def __attrs_post_init__(self) -> None:
        """Refuse shares that are no shares, and a tenant of a class that is not there."""
        weights_of(self.classes, lambda message: UserError(f"{self.source}: classes: {message}"))
        for name, tenant in self.tenants.items():
            if tenant.class_ is not None and tenant.class_ not in self.classes:
                raise UserError(
                    f"{self.source}: tenants.{name}.class is {tenant.class_!r}: set it to one of "
                    f"{', '.join(self.classes)}"
                )

    @property
    def weights(self) -> dict[str, int]:
        """The shares of the classes as whole weights."""
        return weights_of(self.classes, UserError)

    def tokens_of(self, tenant: str) -> int | None:
        """Return the most that a tenant may hold; None where only the pool bounds it."""
        settings = self.tenants.get(tenant)
        own = settings.tokens if settings else None
        return own or self.classes[self.class_of(tenant)].tokens or self.pool.tenant_tokens

    def budget_of(self, tenant: str) -> int | None:
        """Return a tenant's budget; None where it has none."""
        settings = self.tenants.get(tenant)
        return settings.budget if settings else None

    def class_of(self, tenant: str) -> str:
        """Return the class of a tenant."""
        settings = self.tenants.get(tenant)
        return settings.class_ if settings and settings.class_ else next(iter(self.classes))


TABLES: dict[str, type[AttrsInstance]] = {
    "pool": PoolConfig,
    "times": TimesConfig,
    "scheduler": SchedulerConfig,
    "cost": CostConfig,
    "cancellations": CancellationConfig,
    "reservation": ReservationConfig,
    "arrivals": ArrivalsConfig,
}
"""The tables of a file, and the record that each is read into."""
NAMED: dict[str, type[AttrsInstance]] = {"classes": ClassConfig, "tenants": TenantSettings}
"""Tables of tables, by name."""
STREAMS = "streams"
"""The one list of tables."""


def keys_of(record: type[AttrsInstance]) -> list[str]:
    """Return the keys of the table that is read into `record`."""
    return [key_of(each) for each in fields(record)]


T = TypeVar("T", bound=AttrsInstance)


def read_config(path: str | Path) -> ReplayConfig:
    """Read a TOML file; what it leaves out keeps its default.

    Raises:
        UserError: The file cannot be read, is not TOML, has an unknown table or key, or a value outside its domain.

    """
    path = Path(path)
    tables: dict[str, Any] = {}
    for name, table in read_toml(path, "the path of a replay configuration").items():
        if name in TABLES:
            tables[name] = _section(path, name, TABLES[name], table)
        elif name in NAMED:
            members = _table(path, name, table)
            tables[name] = {each: _section(path, f"{name}.{each}", NAMED[name], members[each]) for each in members}
        elif name == STREAMS:
            if not isinstance(table, list):
                raise UserError(f"{path}: {name}: expected a list of tables, [[{name}]]")
            tables[name] = tuple(
                _section(path, f"{name}[{index}]", StreamConfig, each) for index, each in enumerate(table)
            )
        else:
            raise UserError(f"{path}: {name}: unknown table; there are {', '.join((*TABLES, *NAMED, STREAMS))}")
    if not tables.get("classes", True):
        raise UserError(f"{path}: classes: there is none; name at least one, or leave the table out")
    return ReplayConfig(source=str(path), **tables)


def _table(path: Path, name: str, table: object) -> dict[str, object]:
    if not isinstance(table, dict):
        raise UserError(f"{path}: {name}: expected a table, [{name}]")
    return table


def _section(path: Path, name: str, record: type[T], table: object) -> T:
    known = {key_of(each): each for each in fields(record)}
    given = _table(path, name, table)
    for key in given:
        if key not in known:
            raise UserError(f"{path}: {name}.{key}: unknown key; there are {', '.join(known)}")
    for key, attribute in known.items():
        if attribute.default is NOTHING and key not in given:
            raise UserError(f"{path}: {name}.{key}: missing; each of {name.partition('[')[0]} needs it")
    try:
        return record(**{known[key].name: value for key, value in given.items()})
    except UserError as error:
        raise UserError(f"{path}: {name}.{error}") from None
