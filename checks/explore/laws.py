"""Which laws of the tables an instance can see, and on which places each of them looks.

A law that counts ("the pool's counter is the charge of this one plus the rest") becomes one sum over all places. A law
about any other entity becomes one law a pair. A law that reads what is not kept anywhere is listed as left out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from attrs import frozen

from kvescrow.checks.explore.instance import Instance, Known, Observation
from kvescrow.spec.language.compiler import function_of
from kvescrow.spec.language.expressions import Before, Binary, Expression, Field, IfElse, Not, reads
from kvescrow.spec.language.interpreter import Record, Value, View
from kvescrow.spec.language.table import Invariant, Sometimes, StepRule, Table

REST, OTHER = "rest", "other"
OLD = "before "
"""What an entity's name starts with where it is read as it was before the step."""


@frozen(eq=False)
class Law:
    """A boolean over bound places: an invariant that must hold, or a situation that must be reached somewhere."""

    name: str
    holds: Expression
    binds: Mapping[str, str]
    given: Mapping[tuple[str, str], Known]


@frozen(eq=False)
class Term:
    """What one binding contributes to a sum."""

    amount: Expression
    binds: Mapping[str, str]


@frozen(eq=False)
class Sum:
    """An invariant `counter == amount of this one + rest`, over all bindings: the counter is the sum of the terms."""

    name: str
    place: str
    field: str
    terms: tuple[Term, ...]


@frozen(eq=False)
class Laws:
    """All that is looked at in every state of an instance."""

    invariants: tuple[Law, ...]
    sums: tuple[Sum, ...]
    situations: tuple[Law, ...]
    left_out: tuple[str, ...]


@frozen
class Share:
    """The parts of an invariant of the form `counter == amount + rest.field`."""

    counter: Field
    amount: Expression


def share_of(invariant: Invariant) -> Share | None:
    """Return the parts of a counting invariant; None for any other."""
    holds = invariant.holds
    if not (isinstance(holds, Binary) and holds.operator == "==" and isinstance(holds.left, Field)):
        return None
    right = holds.right
    if not (isinstance(right, Binary) and right.operator == "+"):
        return None
    if isinstance(right.right, Field) and right.right.entity == REST and not _entities(right.left) & {REST}:
        return Share(holds.left, right.left)
    return None


def laws_of(instance: Instance) -> Laws:
    """Return the laws that `instance` can see."""
    invariants: dict[object, Law] = {}
    situations: dict[object, Law] = {}
    sums: dict[object, Sum] = {}
    left_out: list[str] = []
    for table in _tables(instance):
        seen = [observation for observation in instance.observed if observation.table is table]
        for invariant in table.invariants:
            share = share_of(invariant)
            if share is not None and all(_entities(share.amount) <= set(o.binds) for o in seen):
                totals = list(_sums(table, invariant, share, seen, instance))
                sums.update({(total.name, total.place): total for total in totals})
                if not totals:
                    left_out.append(f"{table.name}.{invariant.name}")
                continue
            found = list(_laws(table, invariant, invariant.holds, seen))
            invariants.update(found)
            if not found:
                left_out.append(f"{table.name}.{invariant.name}")
        for situation in table.sometimes:
            situations.update(_laws(table, situation, situation.reached, seen))
    for claim in instance.claims:
        invariants[claim.name, tuple(claim.binds.values())] = Law(
            f"{instance.name}.{claim.name}", claim.holds, claim.binds, {}
        )
    return Laws(tuple(invariants.values()), tuple(sums.values()), tuple(situations.values()), tuple(left_out))


def _tables(instance: Instance) -> list[Table]:
    return list({observation.table.name: observation.table for observation in instance.observed}.values())


def _entities(expression: Expression) -> set[str]:
    return {entity for entity, _ in reads(expression)}


def _places(expression: Expression, binds: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((entity, binds[entity]) for entity in sorted(_entities(expression)) if entity in binds)


def _sums(
    table: Table, invariant: Invariant, share: Share, seen: list[Observation], instance: Instance
) -> Iterator[Sum]:
    if not all(share.counter.entity in observation.binds for observation in seen):
        return
    by_counter: dict[str, dict[object, Term]] = {}
    for observation in seen:
        counter = observation.binds[share.counter.entity]
        term = Term(share.amount, observation.binds)
        by_counter.setdefault(counter, {}).setdefault(_places(share.amount, observation.binds), term)
    for place, terms in by_counter.items():
        if share.counter.name in instance.place_by_name[place].kept:
            yield Sum(f"{table.name}.{invariant.name}", place, share.counter.name, tuple(terms.values()))


def _laws(
    table: Table, item: Invariant | Sometimes, holds: Expression, seen: Sequence[Observation]
) -> Iterator[tuple[object, Law]]:
    needed = _entities(holds)
    for observation in seen:
        others = observation.others if OTHER in needed else (None,)
        for other in others:
            binds = {**observation.binds, **({OTHER: other} if other else {})}
            shown = {*binds, *(entity for entity, _ in observation.given)}
            if needed <= shown:
                key = (table.name, item.name, _places(holds, binds))
                yield key, Law(f"{table.name}.{item.name}", holds, binds, observation.given)


def two_state(rule: StepRule) -> Callable[[View, Record], Value]:
    """Return a step rule as a function of a view that has each entity twice: as it is, and under its old name."""
    return function_of(_renamed(rule.holds))


def _renamed(expression: Expression) -> Expression:
    match expression:
        case Before(Field() as inner):
            return Field(OLD + inner.entity, inner.name, inner.type)
        case Binary(operator, left, right):
            return Binary(operator, _renamed(left), _renamed(right))
        case Not(operand):
            return Not(_renamed(operand))
        case IfElse(condition, yes, no):
            return IfElse(_renamed(condition), _renamed(yes), _renamed(no))
        case _:
            return expression
