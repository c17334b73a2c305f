"""What a run is graded by, fixed in a file before the run (REL-1, REL-4).

[confidence]
level = 0.95               # of every statement that a gate makes
looks = 1                  # planned looks; with more than one the bounds hold at all of them
block = 1                  # consecutive requests that may depend on each other; 1: none do

[run]                      # microseconds
late = 10_000              # that the generator may send a request after its intended arrival
late_share = 0.01          # share of the requests that may be later
drift = 50_000             # that clocks, and the arrivals of the two runs, may move against each other
warm_up = 0                # requests that are meant to arrive before are left out

[correctness]
wrong = 0.0                # share of the outputs looked at that may be wrong
looked_at = 1.0            # share of the completed requests whose output must have been looked at
same_output = false        # true: an output that differs from the baseline's is wrong

[fairness]
weights = { gold = 2 }     # of tenants; others have 1

[classes.interactive]      # microseconds; every class of the workload has such a table
attainment = 0.99          # least share of the offered requests that meet all objectives
first_token = 500_000      # from the intended arrival
token_gap = 100_000        # every gap between two arrivals of tokens
time_per_token = 50_000    # after the first
completion = 30_000_000    # from the intended arrival
own_refusals = ["TENANT_CAPACITY"]  # reasons that are the caller's own: neither good nor missed
least = 1                  # requests below which the class has no data

[classes.bulk]
no_objective = "nobody waits for it"   # instead of all of these

[non_inferiority]          # margins; those left out are not compared
good = 0.01                # share of requests that may be lost
first_token = 0.05         # relative, request by request
token_gap = 0.02
completion = 0.05

[waive]
safety = "vLLM writes no journal"      # a gate that has no data, and why that may be so
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from attrs import Attribute, AttrsInstance, field, fields, frozen

from kvescrow.reference.grading.statistics import ErrorRates
from kvescrow.reference.toml_file import read_toml
from kvescrow.spec.vocabulary import UserError

GATES = ("run", "safety", "correctness", "fairness", "attainment", "non_inferiority")
"""In the order in which they are asked."""
WAIVABLE = ("safety", "correctness", "fairness", "non_inferiority")

Check = Callable[[object, "Attribute[Any]", object], None]


def _number(least: float, most: float, *, open_ends: bool = False) -> Check:
    def check(_: object, attribute: "Attribute[Any]", value: object) -> None:
        numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
        inside = numeric and (least < value < most if open_ends else least <= value <= most)  # type: ignore[operator]
        if not inside:
            within = f"between {least:g} and {most:g}" if open_ends else f"from {least:g} to {most:g}"
            raise UserError(f"{attribute.name} is {value!r}: set it to a number {within}")

    return check


def _whole(least: int) -> Check:
    def check(_: object, attribute: "Attribute[Any]", value: object) -> None:
        if value is None and attribute.default is None:
            return
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UserError(f"{attribute.name} is {value!r}: set it to an integer of at least {least}")

    return check


def _flag(_: object, attribute: "Attribute[Any]", value: object) -> None:
    if not isinstance(value, bool):
        raise UserError(f"{attribute.name} is {value!r}: set it to true or false")


def _texts(_: object, attribute: "Attribute[Any]", value: object) -> None:
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) for each in value):
        raise UserError(f"{attribute.name} is {value!r}: set it to a list of reasons")


def _weights(_: object, attribute: "Attribute[Any]", value: object) -> None:
    whole = isinstance(value, dict) and all(type(each) is int and each > 0 for each in value.values())
    if not whole:
        raise UserError(f"{attribute.name} is {value!r}: set each to a positive integer")


@frozen
class Confidence:
    """How sure statements must be."""

    level: float = field(default=0.95, validator=_number(0.5, 1, open_ends=True))
    looks: int = field(default=1, validator=_whole(1))
    block: int = field(default=1, validator=_whole(1))

    @property
    def rates(self) -> ErrorRates:
        """The error rates of one grade."""
        return ErrorRates(1 - self.level, 1 - self.level, self.looks)


@frozen
class RunLimits:
    """What a measurement must keep to be believed. Times are microseconds."""

    late: int = field(default=10_000, validator=_whole(0))
    late_share: float = field(default=0.01, validator=_number(0, 1))
    drift: int = field(default=50_000, validator=_whole(0))
    warm_up: int = field(default=0, validator=_whole(0))


@frozen
class Correctness:
    """What outputs must be."""

    wrong: float = field(default=0.0, validator=_number(0, 1))
    looked_at: float = field(default=1.0, validator=_number(0, 1))
    same_output: bool = field(default=False, validator=_flag)


@frozen
class Fairness:
    """Shares of tenants."""

    weights: Mapping[str, int] = field(factory=dict, validator=_weights)


@frozen
class ClassObjectives:
    """What the requests of one class must meet. Times are microseconds."""

    attainment: float = field(default=0.99, validator=_number(0, 1, open_ends=True))
    first_token: int | None = field(default=None, validator=_whole(1))
    token_gap: int | None = field(default=None, validator=_whole(1))
    time_per_token: int | None = field(default=None, validator=_whole(1))
    completion: int | None = field(default=None, validator=_whole(1))
    own_refusals: tuple[str, ...] = field(default=(), validator=_texts)
    least: int = field(default=1, validator=_whole(1))
    no_objective: str | None = None
    """Why the class is not graded; None where it is."""

    def __attrs_post_init__(self) -> None:
        """Refuse a class that is not graded and has objectives, and one without any."""
        given = [name for name in ("first_token", "token_gap", "time_per_token", "completion") if getattr(self, name)]
        if self.no_objective is not None:
            if not isinstance(self.no_objective, str) or not self.no_objective.strip():
                raise UserError("no_objective: say in a few words why the class is not graded")
            if given:
                raise UserError(f"no_objective: the class has one, {given[0]}; leave one of the two out")
        elif not given:
            raise UserError("it has no objective; set first_token, token_gap or completion, or say no_objective = why")


@frozen
class Margins:
    """By how much a candidate may be worse; what is None is not compared."""

    good: float | None = field(default=None)
    first_token: float | None = field(default=None)
    token_gap: float | None = field(default=None)
    completion: float | None = field(default=None)

    def __attrs_post_init__(self) -> None:
        """Refuse a margin that is no share."""
        for each in fields(type(self)):
            value = getattr(self, each.name)
            if value is not None:
                _number(0, 1)(self, each, value)

    @property
    def given(self) -> Mapping[str, float]:
        """The margins that are set, by name."""
        found = {each.name: getattr(self, each.name) for each in fields(type(self))}
        return {name: value for name, value in found.items() if value is not None}


@frozen
class Objectives:
    """All of it."""

    confidence: Confidence = Confidence()
    run: RunLimits = RunLimits()
    correctness: Correctness = Correctness()
    fairness: Fairness = field(factory=Fairness)
    classes: Mapping[str, ClassObjectives] = field(factory=dict)
    non_inferiority: Margins = Margins()
    waive: Mapping[str, str] = field(factory=dict)
    """Gate -> why it may have no data."""


_TABLES: Mapping[str, type[AttrsInstance]] = {
    "confidence": Confidence,
    "run": RunLimits,
    "correctness": Correctness,
    "fairness": Fairness,
    "non_inferiority": Margins,
}
_STRUCTURES = ("classes", "waive")


def read_objectives(path: Path) -> Objectives:
    """Read a file of objectives; what it leaves out keeps its default.

    Raises:
        UserError: The file cannot be read, is not TOML, names no class, has an unknown table or key, or a value outside
            its domain. The message names file, table and key.

    """
    tables = read_toml(path, "a file of objectives")
    unknown = [name for name in tables if name not in (*_TABLES, *_STRUCTURES)]
    if unknown:
        raise UserError(f"{path}: {unknown[0]}: unknown table; there are {', '.join((*_TABLES, *_STRUCTURES))}")
    classes = _table(path, "classes", tables.get("classes", {}))
    if not classes:
        raise UserError(f"{path}: classes: name each class of the workload, [classes.NAME], with its objectives")
    return Objectives(
        **{name: _section(path, name, record, tables.get(name, {})) for name, record in _TABLES.items()},  # type: ignore[arg-type]
        classes={name: _section(path, f"classes.{name}", ClassObjectives, each) for name, each in classes.items()},
        waive=_waived(path, _table(path, "waive", tables.get("waive", {}))),
    )


def _table(path: Path, name: str, table: object) -> dict[str, object]:
    if not isinstance(table, dict):
        raise UserError(f"{path}: {name}: expected a table, [{name}]")
    return table


T = TypeVar("T", bound=AttrsInstance)


def _section(path: Path, name: str, record: type[T], table: object) -> T:
    known = [each.name for each in fields(record)]
    given = _table(path, name, table)
    for key in given:
        if key not in known:
            raise UserError(f"{path}: {name}.{key}: unknown key; there are {', '.join(known)}")
    try:
        return record(**given)
    except UserError as error:
        raise UserError(f"{path}: {name}: {error}") from None


def _waived(path: Path, table: dict[str, object]) -> Mapping[str, str]:
    for name, why in table.items():
        if name not in WAIVABLE:
            raise UserError(f"{path}: waive.{name}: cannot be waived; these can: {', '.join(WAIVABLE)}")
        if not isinstance(why, str) or not why.strip():
            raise UserError(f"{path}: waive.{name}: say in a few words why it may have no data")
    return {name: str(why) for name, why in table.items()}
