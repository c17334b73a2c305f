"""What is searched: places with finite fields, the events that may happen to them, and what is left out.

An instance holds no transition rules. It says which records there are, which of their fields are kept, and with which
parameters the events of the tables come; what an event does is the table's to say.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cached_property

from attrs import evolve, frozen

from kvescrow.spec.language.expressions import TRUE, Entity, Expression, Kind, reads
from kvescrow.spec.language.interpreter import Value
from kvescrow.spec.language.table import Table

Known = Value | Expression
"""A value, or an expression that gives it."""
Address = tuple[str, str]
"""(entity or place, field)."""


@frozen(eq=False)
class Place:
    """One record of the searched system.

    A field is kept, with its finite domain, or it is not: then readers see `reads_as` and writes are forgotten. This
    is how fields that only grow become finite, and each instance's docstring says which.
    """

    name: str
    entity: Entity
    kept: Mapping[str, tuple[Value, ...]]
    reads_as: Mapping[str, Known] = {}
    """What readers see in a field that is not kept: a value, or an expression over the kept fields of this place."""
    rounded: Mapping[str, Expression] = {}
    """Kept field -> the value that is stored after a row has written this place, over its fields then."""
    initial: Mapping[str, Value] = {}
    """Kept fields that do not start unset."""
    cut: frozenset[str] = frozenset()
    """Kept fields whose domain bounds the search: a step that would leave it is not taken. Elsewhere leaving the
    domain is an error."""

    def start(self, name: str) -> Value:
        """Return the first value of a kept field."""
        if name in self.initial:
            return self.initial[name]
        kind = self.entity.fields[name]
        return (
            {Kind.INTEGER: 0, Kind.BOOLEAN: False, Kind.NAME: 0}[kind] if isinstance(kind, Kind) else next(iter(kind))
        )

    def unkept(self, name: str) -> Known:
        """Return what readers see in a field that is not kept."""
        return self.reads_as.get(name, 0)


@frozen(eq=False)
class Move:
    """One event with its parameters, bound to places. Every event of a table is always possible; rows decide."""

    name: str
    table: Table
    event: str
    binds: Mapping[str, str]
    """Entity of the view, or a further name that expressions use -> place."""
    parameters: Mapping[str, Known] = {}
    given: Mapping[Address, Known] = {}
    """What the rest of the world shows: (entity, field) -> a value, or an expression over the bound places."""
    where: Expression = TRUE
    """When this binding exists at all; elsewhere the event is another move's."""


@frozen(eq=False)
class Observation:
    """A view in which the invariants and the situations of `table` are evaluated in every state."""

    table: Table
    binds: Mapping[str, str]
    given: Mapping[Address, Known] = {}
    others: tuple[str, ...] = ()
    """Places that laws about any other entity are about, one pair each."""


@frozen(eq=False)
class Claim:
    """An invariant of the instance itself, over places of several tables."""

    name: str
    holds: Expression
    binds: Mapping[str, str]


@frozen(eq=False)
class Instance:
    """A named finite system."""

    name: str
    places: tuple[Place, ...]
    moves: tuple[Move, ...]
    observed: tuple[Observation, ...]
    alike: tuple[tuple[str, ...], ...] = ()
    """Groups of places that the moves treat alike, so that states that differ by their order are equivalent."""
    claims: tuple[Claim, ...] = ()
    """Invariants beside those of the tables."""
    note: str = ""

    def __attrs_post_init__(self) -> None:
        """Refuse what contradicts itself."""
        problems = [*_bad_places(self.places), *_bad_moves(self), *_empty(self)]
        if problems:
            raise ValueError(f"instance {self.name}: {problems[0]}")

    @cached_property
    def place_by_name(self) -> Mapping[str, Place]:
        """Return the places by name."""
        return {place.name: place for place in self.places}

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """Return the tables whose events it has."""
        return tuple({move.table.name: move.table for move in self.moves}.values())

    def with_table(self, table: Table) -> "Instance":
        """Return this instance over `table` instead of the table with that name: how planted errors are searched."""

        def swapped(known: Table) -> Table:
            return table if known.name == table.name else known

        return evolve(
            self,
            moves=tuple(evolve(move, table=swapped(move.table)) for move in self.moves),
            observed=tuple(evolve(seen, table=swapped(seen.table)) for seen in self.observed),
        )


def integers(first: int, last: int) -> tuple[Value, ...]:
    """Return the domain from `first` to `last`, both in it."""
    return tuple(range(first, last + 1))


def members(kind: type[Enum]) -> tuple[Value, ...]:
    """Return all members of `kind` as a domain."""
    return tuple(kind)


BOTH: tuple[Value, ...] = (False, True)


def _bad_places(places: tuple[Place, ...]) -> Iterable[str]:
    names = [place.name for place in places]
    yield from (f"two places are called {name}" for name in set(names) if names.count(name) > 1)
    for place in places:
        known = set(place.entity.fields)
        for part in (place.kept, place.reads_as, place.rounded, place.initial):
            yield from (f"{place.name} has no field {name}" for name in sorted(set(part) - known))
        of_kept = {*place.rounded, *place.initial, *place.cut}
        yield from (f"{place.name}.{name} is not kept" for name in sorted(of_kept - set(place.kept)))
        for name in sorted(set(place.kept) & set(place.reads_as)):
            yield f"{place.name}.{name} is kept and read as something else"
        for name, domain in place.kept.items():
            if place.start(name) not in domain:
                yield f"{place.name}.{name} starts outside its domain"


def _bad_moves(instance: Instance) -> Iterable[str]:
    places = {place.name for place in instance.places}
    for move in instance.moves:
        yield from (f"{move.name}: no place is called {name}" for name in set(move.binds.values()) - places)
        events = {event.name: event for event in move.table.events}
        if move.event not in events:
            yield f"{move.name}: table {move.table.name} has no event {move.event}"
        elif set(move.parameters) != set(events[move.event].parameters):
            yield f"{move.name}: its parameters are not those of {move.event}"
        shown = {*move.binds, *(entity for entity, _ in move.given)}
        unbound = {entity for entity, _ in reads(move.where)} - shown
        yield from (f"{move.name}: `where` reads {entity}, which is not bound" for entity in unbound)


def _empty(instance: Instance) -> Iterable[str]:
    if not instance.moves:
        yield "nothing can happen in it"
    if not instance.observed:
        yield "nothing is observed in it"
    if not any(place.kept for place in instance.places):
        yield "it keeps no field"
