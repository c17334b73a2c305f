"""The oracle: breadth-first search over plain dictionaries, through the interpreter of the table language.

It shares nothing with the fast engines but the instance, and it evaluates every law as it is written.
"""

import time
from collections.abc import Iterable, Mapping
from typing import cast

from kvescrow.checks.explore.instance import Instance, Known, Move, Place
from kvescrow.checks.explore.laws import OLD, Law, Sum, laws_of, two_state
from kvescrow.checks.explore.memory import Watcher, peak_bytes
from kvescrow.checks.explore.result import Breach, Exploration, Firing
from kvescrow.spec.language.compiler import function_of
from kvescrow.spec.language.expressions import Expression
from kvescrow.spec.language.interpreter import Record, Value, View, evaluate, fire

State = tuple[Value, ...]
Records = Mapping[str, Mapping[str, Value]]


class Oracle:
    """The moves and laws of an instance on plain records."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.laws = laws_of(instance)
        self.names = [(place, name) for place in instance.places for name in place.kept]
        # Rules and laws are many and are read in every step, so they are compiled; what a step does is interpreted.
        self._rules = {
            (table.name, event.name): [
                (f"{table.name}.{rule.name}", two_state(rule))
                for rule in table.rules
                if rule.events is None or event.name in rule.events
            ]
            for table in instance.tables
            for event in table.events
        }
        self._holds = {id(law): function_of(law.holds) for law in (*self.laws.invariants, *self.laws.situations)}
        self.first: State = tuple(place.start(name) for place, name in self.names)

    def records(self, state: State) -> Records:
        """Return every place with all its fields, as rows see them in `state`."""
        kept: dict[str, dict[str, Value]] = {place.name: {} for place in self.instance.places}
        for (place, name), value in zip(self.names, state, strict=True):
            kept[place.name][name] = value
        return {place.name: _whole(place, kept[place.name]) for place in self.instance.places}

    def before(self, records: Records, move: Move) -> tuple[dict[str, dict[str, Value]], Record] | None:
        """Return the view and the parameters of `move`; None where it does not exist."""
        view = _view(move.binds, move.given, records)
        if not evaluate(move.where, view):
            return None
        return view, {name: _value(known, view) for name, known in move.parameters.items()}

    def step(self, records: Records, move: Move) -> tuple[str, State | None, str]:
        """Return (row, next state, broken law) of `move`: no row where it does not exist, no state where it is cut."""
        seen = self.before(records, move)
        if seen is None:
            return "", None, ""
        before, parameters = seen
        fired = fire(move.table, before, move.event, parameters)
        written = {name: dict(record) for name, record in records.items()}
        for (entity, name), value in fired.changes.items():
            written[move.binds[entity]][name] = value
        now = _view(move.binds, move.given, written)
        for (entity, name), value in fired.changes.items():
            now[entity][name] = value
        touched = {move.binds[entity] for entity, _ in fired.changes}
        for ghost in move.table.ghosts:
            entity, name = ghost.target.path
            if entity in move.binds:
                written[move.binds[entity]][name] = now[entity][name] = evaluate(ghost.update, now, before)
        both: View = {**now, **{OLD + entity: record for entity, record in before.items()}}
        for rule, holds in self._rules[move.table.name, move.event]:
            if not holds(both, parameters):
                return fired.row.id, None, rule
        return fired.row.id, *self._stored(written, touched)

    def changes(self, records: Records, move: Move) -> Mapping[str, Value]:
        """Return what the row that fires on `move` writes, by `place.field`, whether or not a law forbids it."""
        before = _view(move.binds, move.given, records)
        parameters = {name: _value(known, before) for name, known in move.parameters.items()}
        fired = fire(move.table, before, move.event, parameters)
        return {f"{move.binds[entity]}.{name}": value for (entity, name), value in fired.changes.items()}

    def _stored(self, written: Records, touched: Iterable[str]) -> tuple[State | None, str]:
        records = dict(written)
        for place in (self.instance.place_by_name[name] for name in touched):
            view: View = {place.entity.name: written[place.name]}
            rounded = {name: evaluate(value, view) for name, value in place.rounded.items()}
            records[place.name] = {**written[place.name], **rounded}
        outside = [(p, name) for p, name in self.names if records[p.name][name] not in p.kept[name]]
        if any(name in place.cut for place, name in outside):
            return None, ""
        for place, name in outside:
            return None, f"{place.name}.{name} = {records[place.name][name]}"
        return tuple(records[place.name][name] for place, name in self.names), ""

    def broken(self, records: Records) -> str:
        """Return the first invariant that does not hold; empty where all do."""
        for law in self.laws.invariants:
            if not self.holds(law, records):
                return law.name
        for total in self.laws.sums:
            if records[total.place][total.field] != _sum(total, records):
                return total.name
        return ""

    def holds(self, law: Law, records: Records) -> bool:
        """Return whether `law` holds."""
        return bool(self._holds[id(law)](_view(law.binds, law.given, records), {}))


def search(instance: Instance, watcher: Watcher) -> Exploration:
    """Return every reachable state of `instance`, one at a time; a breach ends the search at its least depth."""
    started = time.perf_counter()
    oracle = Oracle(instance)
    origin: dict[State, tuple[State, Firing] | None] = {oracle.first: None}
    frontier = [oracle.first]
    rows: set[str] = set()
    reached: set[str] = set()
    transitions = moves = cut = depth = 0
    breach: Breach | None = None
    while frontier and breach is None:
        following: list[State] = []
        for state in frontier:
            records = oracle.records(state)
            broken = oracle.broken(records)
            if broken:
                breach = Breach(broken, "invariant", _way(origin, state), _named(oracle, state))
                break
            reached.update(
                law.name for law in oracle.laws.situations if law.name not in reached and oracle.holds(law, records)
            )
            for move in instance.moves:
                row, after, broken = oracle.step(records, move)
                if not row:
                    continue
                if broken:
                    what = "rule" if broken.startswith(f"{move.table.name}.") else "domain"
                    scenario = (*_way(origin, state), Firing(move.name, row))
                    breach = Breach(broken, what, scenario, _named(oracle, state))
                    break
                rows.add(row)
                if after is None:
                    cut += 1
                    continue
                transitions += 1
                moves += after != state
                if after not in origin:
                    origin[after] = (state, Firing(move.name, row))
                    following.append(after)
            if breach is not None:
                break
        watcher.level(depth, len(origin), len(following), (len(origin) + 2 * len(following)) * 400 * len(oracle.names))
        depth += bool(following)
        frontier = following
    return Exploration(
        instance=instance.name,
        engine="interpreter",
        why="",
        kept="a dictionary of records",
        states=len(origin),
        transitions=transitions,
        moves=moves,
        depth=depth,
        seconds=time.perf_counter() - started,
        memory=peak_bytes(),
        breach=breach,
        rows=frozenset(rows),
        reached=frozenset(reached),
        cut=cut,
        left_out=oracle.laws.left_out,
    )


def _whole(place: Place, kept: Mapping[str, Value]) -> dict[str, Value]:
    view: View = {place.entity.name: kept}
    return {name: kept[name] if name in kept else _value(place.unkept(name), view) for name in place.entity.fields}


def _value(known: Known, view: View) -> Value:
    return evaluate(known, view) if isinstance(known, Expression) else known


def _view(
    binds: Mapping[str, str], given: Mapping[tuple[str, str], Known], records: Records
) -> dict[str, dict[str, Value]]:
    view = {entity: dict(records[place]) for entity, place in binds.items()}
    plain: View = {entity: records[place] for entity, place in binds.items()}
    for (entity, name), known in given.items():
        view.setdefault(entity, {})[name] = _value(known, plain)
    return view


def _sum(total: Sum, records: Records) -> int:
    return sum(cast(int, evaluate(term.amount, _view(term.binds, {}, records))) for term in total.terms)


def _way(origin: Mapping[State, tuple[State, Firing] | None], state: State) -> tuple[Firing, ...]:
    steps: list[Firing] = []
    while (before := origin[state]) is not None:
        state, firing = before
        steps.append(firing)
    return tuple(reversed(steps))


def _named(oracle: Oracle, state: State) -> dict[str, object]:
    return {f"{place.name}.{name}": value for (place, name), value in zip(oracle.names, state, strict=True)}
