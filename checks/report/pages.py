"""What the pages of tables and laws say, as records that templates lay out."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum

from attrs import frozen

from kvescrow.checks.report.diagram import edges_of, state_diagram
from kvescrow.checks.report.evidence import NOT_RUN, Evidence, MutantsOfRow, Proof, Seen
from kvescrow.spec.language.expressions import TRUE, Binary, Expression, Literal, reads, type_name
from kvescrow.spec.language.table import Assumption, Event, Row, Table
from kvescrow.spec.render.expressions import conjuncts, readable

NO_PROOF = Proof({})
NO_MUTANTS = MutantsOfRow({}, {}, ())


@frozen
class RowPage:
    """One row with everything that is known of it."""

    id: str
    event: str
    sources: tuple[str, ...]
    target: str
    """Empty where the state stays."""
    guard: tuple[str, ...]
    """Conjuncts; empty where it always fires."""
    effects: tuple[str, ...]
    reply: str
    refuses: bool
    cites: tuple[str, ...]
    note: str
    proof: Proof
    mutants: MutantsOfRow
    seen: tuple[Seen, ...]
    branches: Mapping[str, tuple[str, ...]]
    """Branch of the guard -> layers that saw it."""

    @property
    def seen_by(self) -> Mapping[str, tuple[str, ...]]:
        """Layer -> what made the row fire."""
        found: dict[str, list[str]] = {}
        for each in self.seen:
            found.setdefault(each.layer, []).append(each.by)
        return {layer: tuple(dict.fromkeys(by)) for layer, by in found.items()}


@frozen
class LawPage:
    """One invariant, rule, promise or assumption."""

    name: str
    kind: str
    holds: tuple[str, ...]
    events: str
    cites: tuple[str, ...]
    note: str
    proof: Proof
    assumed: tuple[str, ...]
    """Assumptions that speak of a field that this law speaks of."""


@frozen
class CellLine:
    """States with the same rows for every event."""

    states: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    """Ids of the rows, by event."""


@frozen
class EventPage:
    """One event and its rows."""

    name: str
    note: str
    parameters: tuple[str, ...]
    rows: tuple[RowPage, ...]


@frozen
class StatePage:
    """One state: what it means, what leaves it and what enters it."""

    name: str
    note: str
    to: tuple[tuple[str, tuple[str, ...]], ...]
    """(state, ids of the rows that lead there)."""


@frozen
class TablePage:
    """Everything about one table."""

    name: str
    note: str
    moves: str
    diagram: str
    initial: str
    states: tuple[StatePage, ...]
    event_names: tuple[str, ...]
    cells: tuple[CellLine, ...]
    events: tuple[EventPage, ...]
    laws: tuple[LawPage, ...]
    assumptions: tuple[LawPage, ...]
    sometimes: tuple[tuple[str, str, str], ...]
    entities: tuple[tuple[str, str, tuple[str, ...], str], ...]
    """(name, what it stands for, fields, read or written)."""
    proofs: Proof
    fates: Mapping[str, int]
    """What became of its mutants."""

    @property
    def rows(self) -> tuple[RowPage, ...]:
        """All rows, by event."""
        return tuple(row for event in self.events for row in event.rows)

    @property
    def seen_rows(self) -> int:
        """How many rows some check made fire."""
        return sum(bool(row.seen) for row in self.rows)


def table_page(table: Table, evidence: Evidence, state_notes: Mapping[str, str]) -> TablePage:
    """Return the page of `table`, with what `evidence` knows of each row and law."""
    events = tuple(_event(table, event, evidence) for event in table.events)
    rows = [row for event in events for row in event.rows]
    return TablePage(
        name=table.name,
        note=table.note,
        moves=table.moves.name,
        diagram=state_diagram(table, initial_states(table)),
        initial=readable(table.initial),
        states=_states(table, state_notes),
        event_names=tuple(event.name for event in table.events),
        cells=tuple(_cells(table)),
        events=events,
        laws=tuple(_laws(table, evidence)),
        assumptions=tuple(_assumptions(table, evidence)),
        sometimes=tuple((each.name, readable(each.reached), each.note) for each in table.sometimes),
        entities=tuple(
            (
                entity.name,
                entity.note,
                tuple(f"{name}: {type_name(kind)}" for name, kind in entity.fields.items()),
                "read only" if entity.settled else "read and written",
            )
            for entity in table.entities
        ),
        proofs=_together(evidence.proofs_of_law[place] for place in evidence.proofs_of_law if place[0] == table.name),
        fates=dict(sum((Counter(row.mutants.fates) for row in rows), Counter())),
    )


def initial_states(table: Table) -> tuple[Enum, ...]:
    """Return the states that `table.initial` names."""
    subject = readable(table.state)
    return tuple(
        part.right.value
        for part in conjuncts(table.initial)
        if isinstance(part, Binary) and part.operator == "==" and readable(part.left) == subject
        if isinstance(part.right, Literal) and isinstance(part.right.value, Enum)
    )


def _together(proofs: Iterable[Proof]) -> Proof:
    found: dict[str, tuple[str, ...]] = {}
    for proof in proofs:
        for verdict, names in proof.by_verdict.items():
            found[verdict] = (*found.get(verdict, ()), *names)
    return Proof(found)


def _states(table: Table, notes: Mapping[str, str]) -> tuple[StatePage, ...]:
    edges = edges_of(table)
    return tuple(
        StatePage(
            state.name,
            notes.get(f"{table.state_type.__name__}.{state.name}", ""),
            tuple(
                (target.name, tuple(row.id for row in rows))
                for (source, target), rows in edges.items()
                if source is state
            ),
        )
        for state in table.state_type
    )


def _cells(table: Table) -> Iterable[CellLine]:
    groups: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for state in table.state_type:
        cells = tuple(tuple(row.id for row in table.cells[state, event.name]) for event in table.events)
        groups.setdefault(cells, []).append(state.name)
    return [CellLine(tuple(states), cells) for cells, states in groups.items()]


def _event(table: Table, event: Event, evidence: Evidence) -> EventPage:
    return EventPage(
        event.name,
        event.note,
        tuple(f"{name}: {type_name(kind)}" for name, kind in event.parameters.items()),
        tuple(_row(row, evidence) for row in table.rows if row.event == event.name),
    )


def _row(row: Row, evidence: Evidence) -> RowPage:
    return RowPage(
        id=row.id,
        event=row.event,
        sources=tuple(state.name for state in row.sources),
        target=row.to.name if row.to else "",
        guard=() if row.when is TRUE else _parts(row.when),
        effects=tuple(f"{effect.target} := {readable(effect.value)}" for effect in row.do),
        reply=str(row.reply),
        refuses=row.changes_nothing,
        cites=row.cites,
        note=row.note,
        proof=evidence.proofs_of_row.get(row.id, NO_PROOF),
        mutants=evidence.mutants.get(row.id, NO_MUTANTS),
        seen=evidence.seen.get(row.id, ()),
        branches=evidence.branches.get(row.id, {}),
    )


def _parts(expression: Expression) -> tuple[str, ...]:
    return tuple(readable(part) for part in conjuncts(expression))


def _laws(table: Table, evidence: Evidence) -> Iterable[LawPage]:
    assumed = _assumed(table)
    proof = _proof_of(table, evidence)
    for each in table.invariants:
        of = assumed([each.holds])
        yield LawPage(each.name, "invariant", _parts(each.holds), "every", each.cites, each.note, proof(each.name), of)
    for rule in table.rules:
        events, of = _limited(rule.events), assumed([rule.holds])
        yield LawPage(rule.name, "step rule", _parts(rule.holds), events, rule.cites, rule.note, proof(rule.name), of)
    for promise in table.non_interference:
        listed = [*promise.same, *(part for _, parts in promise.same_when for part in parts)]
        holds = (f"two runs that agree on {', '.join(readable(part) for part in listed)} get the same answer",)
        yield LawPage(
            promise.name,
            "non-interference",
            holds,
            promise.event,
            promise.cites,
            promise.note,
            proof(promise.name),
            assumed(listed),
        )


def _assumptions(table: Table, evidence: Evidence) -> Iterable[LawPage]:
    proof = _proof_of(table, evidence)
    for each in table.assumptions:
        yield LawPage(
            each.name,
            "assumption",
            _parts(each.holds),
            _limited(each.events),
            (),
            each.note,
            proof(each.name),
            (),
        )


def _proof_of(table: Table, evidence: Evidence) -> Callable[[str], Proof]:
    return lambda name: evidence.proofs_of_law.get((table.name, name), NO_PROOF)


def _assumed(table: Table) -> Callable[[Sequence[Expression]], tuple[str, ...]]:
    """Return a function from a law's expressions to the assumptions that read one of their fields."""
    read: Mapping[str, frozenset[tuple[str, str]]] = {each.name: _fields(each) for each in table.assumptions}

    def of(expressions: Sequence[Expression]) -> tuple[str, ...]:
        fields = frozenset(path for expression in expressions for path in reads(expression))
        return tuple(name for name, others in read.items() if not fields.isdisjoint(others))

    return of


def _fields(assumption: Assumption) -> frozenset[tuple[str, str]]:
    return frozenset(path for path in reads(assumption.holds) if path[0] != "event")


def _limited(events: frozenset[str] | None) -> str:
    return "every" if events is None else ", ".join(sorted(events))


def badge(proof: Proof) -> str:
    """Return how a proof is told in few characters."""
    return NOT_RUN if proof.total == 0 else f"{proof.proved}/{proof.total} {proof.verdict}"
