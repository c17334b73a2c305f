"""Every first-order mutant of a table, in the order of its rows."""

from collections.abc import Iterator, Sequence
from enum import Enum

from attrs import evolve

from kvescrow.checks.mutate.mutant import Mutant, Operator
from kvescrow.spec.language.expressions import (
    TRUE,
    Binary,
    Effect,
    Entity,
    Expression,
    Field,
    Kind,
    Literal,
    Not,
    all_of,
    type_of,
)
from kvescrow.spec.language.table import Reply, Row, Table, guards_of
from kvescrow.spec.render import readable
from kvescrow.spec.vocabulary import Reason

Change = tuple[Operator, str, Row]
"""An operator, what it changes in words, and the changed row."""


def mutants_of(table: Table) -> tuple[Mutant, ...]:
    """Return every first-order mutant of the rows of `table`. The same table gives the same mutants in one order."""
    found: list[Mutant] = []
    counts: dict[tuple[str, Operator], int] = {}
    for row in table.rows:
        for operator, change, rows in _changes(table, row):
            number = counts[row.id, operator] = counts.get((row.id, operator), 0) + 1
            found.append(Mutant(table, operator, row, change, rows, number))
    return tuple(found)


def _changes(table: Table, row: Row) -> Iterator[tuple[Operator, str, tuple[Row, ...]]]:
    for operator, change, mutated in (
        *_guards(row),
        *_effects(table, row),
        *_targets(table, row),
        *_sources(row),
        *_replies(table, row),
    ):
        yield operator, change, _replaced(table, row, [mutated])
    yield Operator.ROW_DROPPED, "the row is gone", _replaced(table, row, [])
    follower = _follower(table, row)
    if follower is not None:
        yield Operator.ROWS_SWAPPED, f"read after {follower.id}", _swapped(table, row, follower)


def _replaced(table: Table, row: Row, by: Sequence[Row]) -> tuple[Row, ...]:
    place = table.rows.index(row)
    return (*table.rows[:place], *by, *table.rows[place + 1 :])


# --- guards -----------------------------------------------------------------------------------------------------------


def _guards(row: Row) -> Iterator[Change]:
    parts = guards_of(row)
    for place, part in enumerate(parts):
        rest = [*parts[:place], *parts[place + 1 :]]
        yield (
            Operator.CONJUNCT_DROPPED,
            f"without `{readable(part)}`",
            evolve(row, when=all_of(*rest) if rest else TRUE),
        )
        yield _with_part(row, place, Operator.CONJUNCT_NEGATED, Not(part))
        for operator, changed in _inside(part):
            yield _with_part(row, place, operator, changed)


def _with_part(row: Row, place: int, operator: Operator, changed: Expression) -> Change:
    parts = guards_of(row)
    when = all_of(*parts[:place], changed, *parts[place + 1 :])
    return operator, f"`{readable(changed)}` instead of `{readable(parts[place])}`", evolve(row, when=when)


def _inside(expression: Expression) -> Iterator[tuple[Operator, Expression]]:
    """Yield the changes of one comparison or one alternative anywhere in `expression`."""
    match expression:
        case Not(operand):
            yield from ((operator, Not(changed)) for operator, changed in _inside(operand))
        case Binary("and" | "or" as operator, left, right):
            if operator == "or":
                yield Operator.ALTERNATIVE_DROPPED, left
                yield Operator.ALTERNATIVE_DROPPED, right
            yield from ((each, Binary(operator, changed, right)) for each, changed in _inside(left))
            yield from ((each, Binary(operator, left, changed)) for each, changed in _inside(right))
        case Binary("<" | "<=" | "==", left, _) if type_of(left) is Kind.INTEGER:
            yield from _boundaries(expression)


def _boundaries(comparison: Binary) -> Iterator[tuple[Operator, Expression]]:
    left, right = comparison.left, comparison.right
    yield Operator.COMPARISON_WEAKENED, Binary({"<": "<=", "<=": "<", "==": "<="}[comparison.operator], left, right)
    # One step up of `<` is `<=`, and one step down of `<=` is `<`: those are there already.
    shifts = {"<": (-1,), "<=": (1,), "==": (1, -1)}[comparison.operator]
    for shift in shifts:
        yield Operator.COMPARISON_SHIFTED, Binary(comparison.operator, left, _shifted(right, shift))


def _shifted(value: Expression, by: int) -> Expression:
    if isinstance(value, Literal):
        assert isinstance(value.value, int), "only integers are shifted"
        return Literal(value.value + by)
    return value + by if by > 0 else value - -by


# --- effects ----------------------------------------------------------------------------------------------------------


def _effects(table: Table, row: Row) -> Iterator[Change]:
    for effect in row.do:
        for operator, changed in _of_effect(table, effect):
            do = tuple(new for each in row.do for new in (changed if each is effect else (each,)))
            now = "; ".join(map(_told, changed)) or "nothing"
            yield operator, f"`{now}` instead of `{_told(effect)}`", evolve(row, do=do)


def _told(effect: Effect) -> str:
    return f"{effect.target} := {readable(effect.value)}"


def _of_effect(table: Table, effect: Effect) -> Iterator[tuple[Operator, tuple[Effect, ...]]]:
    yield Operator.EFFECT_DROPPED, ()
    kind = type_of(effect.target)
    if kind is Kind.INTEGER:
        for by in (1, -1):
            yield Operator.EFFECT_SHIFTED, (Effect(effect.target, _shifted(effect.value, by)),)
    elif kind is Kind.BOOLEAN:
        yield Operator.EFFECT_SHIFTED, (Effect(effect.target, _negated(effect.value)),)
    added = _added(effect)
    if added is not None:
        operator, amount = added
        yield Operator.EFFECT_DOUBLED, (Effect(effect.target, Binary(operator, effect.value, amount)),)
    for other in _accounts_beside(table, effect.target):
        value = effect.value if added is None else Binary(added[0], other, added[1])
        yield Operator.EFFECT_REDIRECTED, (Effect(other, value),)


def _negated(value: Expression) -> Expression:
    if isinstance(value, Literal):
        return Literal(not value.value)
    return Not(value)


def _added(effect: Effect) -> tuple[str, Expression] | None:
    """Return (`+` or `-`, amount) where the effect adds to its target or takes from it."""
    match effect.value:
        case Binary("+" | "-" as operator, Field() as field, amount) if field.path == effect.target.path:
            return operator, amount
    return None


def _accounts_beside(table: Table, target: Field) -> Iterator[Field]:
    """Yield the field of the same name and type of every other entity, and the next one of that type of its own."""
    ghosts = {ghost.target.entity for ghost in table.ghosts}
    for entity in table.entities:
        written = not entity.settled and entity.name not in ghosts
        if written and entity.name != target.entity and entity.fields.get(target.name) is target.type:
            yield _field(entity, target.name)
    own = table.schema[target.entity]
    alike = [name for name, kind in own.fields.items() if kind is target.type]
    following = alike[(alike.index(target.name) + 1) % len(alike)]
    if following != target.name:
        yield _field(own, following)


def _field(entity: Entity, name: str) -> Field:
    return Field(entity.name, name, entity.fields[name])


# --- states, replies, order -------------------------------------------------------------------------------------------


def _targets(table: Table, row: Row) -> Iterator[Change]:
    if row.changes_nothing:
        return
    trivially = row.sources[0] if len(row.sources) == 1 else None
    for state in (*table.state_type, None):
        # To stay in the only source state and to lead into it are the same.
        if state is not row.to and {state, row.to} != {trivially, None}:
            yield Operator.TARGET_CHANGED, f"to {_named(state)} instead of {_named(row.to)}", evolve(row, to=state)


def _named(state: Enum | None) -> str:
    return "the same state" if state is None else state.name


def _sources(row: Row) -> Iterator[Change]:
    if len(row.sources) > 1:
        for state in row.sources:
            rest = tuple(source for source in row.sources if source is not state)
            yield Operator.SOURCE_DROPPED, f"not in {state.name}", evolve(row, sources=rest)


def _replies(table: Table, row: Row) -> Iterator[Change]:
    given = [other.reply for other in table.rows if other.event == row.event]
    now = row.reply
    for decision in dict.fromkeys(reply.decision for reply in given):
        if decision is not now.decision:
            yield _answering(row, Operator.DECISION_CHANGED, Reply(decision, now.reason))
    for reason in dict.fromkeys((Reason.NONE, *(reply.reason for reply in given))):
        if reason is not now.reason:
            yield _answering(row, Operator.REASON_CHANGED, Reply(now.decision, reason))


def _answering(row: Row, operator: Operator, reply: Reply) -> Change:
    return operator, f"{reply} instead of {row.reply}", evolve(row, reply=reply)


def _follower(table: Table, row: Row) -> Row | None:
    """Return the next row of the event that shares a state with `row`."""
    following = table.rows[table.rows.index(row) + 1 :]
    shared = (other for other in following if other.event == row.event and set(other.sources) & set(row.sources))
    return next(shared, None)


def _swapped(table: Table, row: Row, follower: Row) -> tuple[Row, ...]:
    """Return the rows with `row` right behind `follower`; those between share no state with it and see no change."""
    rest = [each for each in table.rows if each is not row]
    place = rest.index(follower) + 1
    return (*rest[:place], row, *rest[place:])
