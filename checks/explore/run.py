"""The front of the search: which engine, the search itself, and what several searches cover together."""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum

from attrs import evolve, frozen

from kvescrow.checks.explore import bdd, catalogue, dense, interpreter, packed, torch_search
from kvescrow.checks.explore.certified import NotCertified
from kvescrow.checks.explore.instance import Instance
from kvescrow.checks.explore.memory import Watcher, available_bytes
from kvescrow.checks.explore.result import Exploration
from kvescrow.spec.language.table import Table
from kvescrow.spec.vocabulary import UserError

Show = Callable[[str, int, int, int], None]
"""(instance, depth, states so far, states of the newest level)."""


class EngineName(Enum):
    """How an instance is searched."""

    AUTO = "auto"
    """Packed: it takes every instance and gives shortest counterexamples."""
    INTERPRETER = "interpreter"
    """Plain dictionaries through the interpreter of the table language: the oracle, for small instances."""
    PACKED = "packed"
    """Level by level over packed integers."""
    DENSE = "dense"
    """One bit a state, where the counters are shown to be functions of the slots; no depth and no scenario."""
    BDD = "bdd"
    """Decision diagrams through the package `dd`, for the same instances as dense."""


class EngineNotInstalled(Exception):
    """The engine needs a package or a device that is not here; the message says which."""


def explore(
    instance: Instance,
    engine: EngineName = EngineName.AUTO,
    *,
    symmetric: bool = False,
    device: str | None = None,
    memory: int | None = None,
    show: Show | None = None,
) -> Exploration:
    """Search every reachable state of `instance`.

    `symmetric` searches one state of each orbit of alike places, on the packed engine; `device`, cpu or cuda, has that
    engine's arrays in torch there, in numpy where it is None. `memory` is in bytes, what the system has where it is
    None. Raises `UserError` where the engine does not take the instance or memory would run
    out, and `EngineNotInstalled`.
    """
    name = EngineName.PACKED if engine is EngineName.AUTO else engine
    shown = None if show is None else (lambda depth, states, newest: show(instance.name, depth, states, newest))
    watcher = Watcher(instance.name, name.value, available_bytes() if memory is None else memory, shown)
    if symmetric and name is not EngineName.PACKED:
        raise UserError(f"`--symmetric` is of the packed engine, not of {name.value}")
    if device is not None and (symmetric or name is not EngineName.PACKED):
        raise UserError("`--device` is of the packed engine without `--symmetric`")
    if symmetric and not instance.alike:
        raise UserError(f"instance {instance.name} has no alike places: leave `--symmetric` out")
    try:
        found = _search(name, instance, watcher, symmetric, device)
    except NotCertified as error:
        raise UserError(
            f"instance {instance.name}: the {name.value} engine does not take it, since {error}; use `--engine packed`"
        ) from error
    why = "it takes every instance and gives shortest counterexamples" if engine is EngineName.AUTO else "as asked"
    unfired = tuple(
        row.id for table in instance.tables for row in table.rows if found.rows and row.id not in found.rows
    )
    return evolve(found, why=why, unfired=unfired)


def _search(name: EngineName, instance: Instance, watcher: Watcher, symmetric: bool, device: str | None) -> Exploration:
    match name:
        case EngineName.INTERPRETER:
            return interpreter.search(instance, watcher)
        case EngineName.DENSE:
            return dense.search(instance, watcher)
        case EngineName.BDD:
            if not bdd.installed():
                raise EngineNotInstalled("package dd is not installed: pip install 'kvescrow[explore]'")
            return bdd.search(instance, watcher)
        case _ if device is not None:
            why = torch_search.missing(device)
            if why:
                raise EngineNotInstalled(why)
            return torch_search.search(instance, watcher, device)
        case _:
            return packed.search(instance, watcher, symmetric=symmetric)


@frozen
class Coverage:
    """What searches cover together, of the tables that they are about."""

    unfired: tuple[str, ...]
    """Rows that never fired and are not listed."""
    unreached: tuple[str, ...]
    """Situations that were never reached and are not listed."""
    outlived: tuple[str, ...]
    """Listed rows and situations that were hit after all."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Return one line for each problem."""
        return (
            *(f"row {row} never fired: it is dead, or no instance has its event" for row in self.unfired),
            *(f"situation {name} was never reached" for name in self.unreached),
            *(f"{name} is listed as out of reach, but was hit: take it off the list" for name in self.outlived),
        )


def coverage(explorations: Sequence[Exploration], tables: Iterable[Table]) -> Coverage:
    """Return what `explorations` leave out of `tables`."""
    rows = {row for found in explorations for row in found.rows or ()}
    reached = {name for found in explorations for name in found.reached or ()}
    known = list(tables)
    all_rows = [row.id for table in known for row in table.rows]
    situations = [f"{table.name}.{situation.name}" for table in known for situation in table.sometimes]
    listed = {**catalogue.UNFIRED, **catalogue.UNREACHED}
    return Coverage(
        tuple(row for row in all_rows if row not in rows and row not in listed),
        tuple(name for name in situations if name not in reached and name not in listed),
        tuple(name for name in listed if name in rows or name in reached),
    )
