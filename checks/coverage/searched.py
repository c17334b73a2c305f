"""What the search has seen: goals that some reachable state of some small instance shows.

The packed search gives all states as integers. What a guard can see of a state is a few of its bits, so each move is
looked at once for each different value of those.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from kvescrow.checks.explore.instance import Address, Instance, Known, Move
from kvescrow.checks.explore.interpreter import Oracle
from kvescrow.checks.explore.lookup import States
from kvescrow.checks.explore.normal_form import NormalForm
from kvescrow.checks.explore.packed import Engine, levels
from kvescrow.checks.explore.packing import mask
from kvescrow.checks.fuzz.coverage import Coverage
from kvescrow.spec.language.expressions import Expression, reads
from kvescrow.spec.language.table import Table


def searched(instances: Iterable[Instance], tables: Sequence[Table]) -> Coverage:
    """Return what the reachable states of `instances` show of `tables`; later instances are asked for the rest only."""
    coverage = Coverage(tables)
    for instance in instances:
        if _wanted(coverage, instance.moves):
            _search(instance, coverage)
    return coverage


def _wanted(coverage: Coverage, moves: Iterable[Move]) -> list[Move]:
    left = {(goal.table.name, goal.row.event) for goal in coverage.holes()}
    return [move for move in moves if (move.table.name, move.event) in left]


def _search(instance: Instance, coverage: Coverage) -> None:
    engine, oracle = Engine(NormalForm(instance)), Oracle(instance)
    states = np.concatenate(list(levels(engine)))
    for move in _wanted(coverage, instance.moves):
        if _wanted(coverage, [move]):
            for state in _different(engine, states, _looked_at(instance, move)):
                values = tuple(
                    v.domain[code]
                    for v, code in zip(engine.form.views.variables, engine.packing.unpack(state), strict=True)
                )
                seen = oracle.before(oracle.records(values), move)
                if seen is not None:
                    coverage.watch(move.table.name, seen[0], move.event, seen[1])


def _different(engine: Engine, states: States, addresses: Iterable[Address]) -> Iterator[int]:
    """Return a state for each different value of the fields at `addresses`; their other bits are those of none."""
    spots = [engine.form.views.spots[address] for address in addresses]
    kept = np.int64(mask(engine.packing.of(spots)))
    return map(int, np.unique(states & kept))


def _looked_at(instance: Instance, move: Move) -> set[Address]:
    """Return the kept fields that `where`, parameters and guards of a move can read."""
    guards = [row.when for row in move.table.rows if row.event == move.event]
    found: set[Address] = set(_kept(instance, move, move.table.state.path))
    for expression in (move.where, *guards, *(known for known in move.parameters.values())):
        found |= {address for path in _paths(expression) for address in _kept(instance, move, path)}
    return found


def _paths(known: Known) -> Iterable[Address]:
    return reads(known) if isinstance(known, Expression) else ()


def _kept(instance: Instance, move: Move, path: Address) -> Iterator[Address]:
    """Yield the kept fields behind a field that is read: itself, or what the instance shows in its place."""
    entity, name = path
    if entity == "event":
        return
    if path in move.given:
        for inner in _paths(move.given[path]):
            yield from _kept(instance, move, inner)
        return
    place = instance.place_by_name[move.binds[entity]]
    if name in place.kept:
        yield place.name, name
        return
    for _, inner_name in _paths(place.unkept(name)):
        yield from _kept(instance, move, (entity, inner_name))
