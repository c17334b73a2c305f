"""One worker as its owner specifies it: a TOML file with model, memory, pages, scheduler, objectives and classes.

name = "llama-8b on one device"

[model]
layers = 32
kv_heads = 8
head_size = 128
kv_dtype = "bfloat16"
parameters = 8_030_261_248
weight_dtype = "bfloat16"

[memory]                     # MiB
device_mib = 81_920          # what the driver says that the device has
reserved_mib = 2_048         # driver, context, other processes, fragmentation
activations_mib = 3_072      # the largest step's intermediate results and workspaces

[pages]
page_length = 16             # tokens
set_aside = 1                # pages that no request gets: the sink, and head-room

[scheduler]
sequences = 256              # most in the batch
largest_chunk = 8_192        # most prompt tokens in a step
granule = 64                 # chunks are multiples of it

[objectives]
attainment_percent = 99      # of the offered requests meet every objective of their class
confidence_percent = 95

[cost]                       # nanoseconds; left out: synthetic
measured = false             # whether these were measured
fixed = 5_000_000            # or, instead of all: calibration = "FILE.json", as `kvescrow calibrate --json` wrote it

[classes.interactive]
prompt = 4_000               # most tokens
output = 500
first_token_ms = 1_000
gap_ms = 20
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from attrs import NOTHING, Attribute, AttrsInstance, evolve, field, fields, frozen

from kvescrow.checks.experiments.coefficients import Coefficients, coefficients_of
from kvescrow.reference.toml_file import read_toml
from kvescrow.spec.vocabulary import UserError

MIB = 1 << 20
DTYPE_BYTES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2, "float8": 1, "int8": 1}
"""Bytes of one number."""

LARGEST = 10**15
MOST_SEQUENCES = 1_000_000
"""What is predicted for a batch takes time and memory for each of its sequences."""

Check = Callable[[object, "Attribute[Any]", object], None]


def _whole(least: int, most: int = LARGEST) -> Check:
    def check(_: object, attribute: "Attribute[int]", value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise UserError(f"{attribute.name} is {value!r}: set it to an integer from {least:,} to {most:,}")

    return check


def _dtype(_: object, attribute: "Attribute[str]", value: object) -> None:
    if not isinstance(value, str) or value not in DTYPE_BYTES:
        raise UserError(f"{attribute.name} is {value!r}: set it to one of {', '.join(DTYPE_BYTES)}")


@frozen
class Model:
    """The shape that memory depends on."""

    layers: int = field(validator=_whole(1))
    kv_heads: int = field(validator=_whole(1))
    head_size: int = field(validator=_whole(1))
    kv_dtype: str = field(validator=_dtype)
    parameters: int = field(validator=_whole(1))
    weight_dtype: str = field(validator=_dtype)


@frozen
class Memory:
    """The device's memory, in MiB."""

    device_mib: int = field(validator=_whole(1))
    reserved_mib: int = field(validator=_whole(0))
    activations_mib: int = field(validator=_whole(0))


@frozen
class Pages:
    """How the cache is cut."""

    page_length: int = field(validator=_whole(1))
    set_aside: int = field(validator=_whole(1))
    """Pages that no request gets; the sink is one of them."""


@frozen
class Scheduler:
    """The bounds of a step."""

    sequences: int = field(validator=_whole(1, MOST_SEQUENCES))
    largest_chunk: int = field(validator=_whole(1))
    granule: int = field(default=1, validator=_whole(1))


@frozen
class Objectives:
    """What a release is held to, over the offered requests."""

    attainment_percent: int = field(validator=_whole(1, 99))
    confidence_percent: int = field(validator=_whole(1, 99))


@frozen
class RequestClass:
    """One class of requests: the most tokens that they may have, and their objectives in milliseconds."""

    prompt: int = field(validator=_whole(1))
    output: int = field(validator=_whole(1))
    first_token_ms: int = field(validator=_whole(1))
    gap_ms: int = field(validator=_whole(1))


@frozen
class WorkerSpecification:
    """Everything that a design sheet is computed from."""

    name: str
    model: Model
    memory: Memory
    pages: Pages
    scheduler: Scheduler
    objectives: Objectives
    classes: Mapping[str, RequestClass]
    coefficients: Coefficients = field(factory=Coefficients)


KEYS = ("name", "model", "memory", "pages", "scheduler", "objectives", "cost", "classes")

T = TypeVar("T", bound=AttrsInstance)


def read_worker(path: Path) -> WorkerSpecification:
    """Read a worker's TOML file.

    Raises:
        UserError: The file cannot be read, is not TOML, lacks a key, has an unknown one, or a value outside its domain.

    """
    found = read_toml(path, "the TOML file of a worker")
    try:
        return _worker(found, path)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _worker(found: Mapping[str, object], path: Path) -> WorkerSpecification:
    unknown = [key for key in found if key not in KEYS]
    if unknown:
        raise UserError(f"{unknown[0]}: unknown; there are {', '.join(KEYS)}")
    classes = _table(found, "classes")
    if not classes:
        raise UserError("classes: there is none; add a table like [classes.interactive]")
    specification = WorkerSpecification(
        name=str(found.get("name", path.stem)),
        model=_section("model", Model, _table(found, "model")),
        memory=_section("memory", Memory, _table(found, "memory")),
        pages=_section("pages", Pages, _table(found, "pages")),
        scheduler=_section("scheduler", Scheduler, _table(found, "scheduler")),
        objectives=_section("objectives", Objectives, _table(found, "objectives")),
        classes={
            name: _section(f"classes.{name}", RequestClass, _table(classes, name, "classes.")) for name in classes
        },
    )
    if "cost" in found:
        return evolve(specification, coefficients=coefficients_of(_table(found, "cost"), path.parent))
    return specification


def _table(found: Mapping[str, object], name: str, before: str = "") -> Mapping[str, object]:
    table = found.get(name)
    if not isinstance(table, dict):
        problem = "missing" if table is None else f"{table!r}, not a table"
        raise UserError(f"{before}{name}: {problem}; write it as [{before}{name}]")
    return table


def _section(place: str, record: type[T], table: Mapping[str, object]) -> T:
    known = {each.name: each for each in fields(record)}
    for key in table:
        if key not in known:
            raise UserError(f"{place}.{key}: unknown; there are {', '.join(known)}")
    missing = [name for name, each in known.items() if name not in table and each.default is NOTHING]
    if missing:
        raise UserError(f"{place}.{missing[0]}: missing; set it")
    try:
        return record(**table)
    except UserError as error:
        raise UserError(f"{place}.{error}") from None
