"""Finite systems in TLA+: an instance over the modules of its tables, or guarded commands on their own.

The first is what is agreed on: its steps are the tables' own events, and every step is held against the step rules. The
second is what is measured: nothing but the kept fields, so that a checker is as fast on it as it can be.
"""

from collections.abc import Iterable, Iterator, Mapping

from attrs import field, frozen

from kvescrow.checks.agreement.commands import (
    Commands,
    Flattener,
    Variable,
    identifier,
)
from kvescrow.checks.agreement.substitution import constant, substituted
from kvescrow.checks.explore.instance import Address, Instance, Known, Move
from kvescrow.spec.language.expressions import TRUE, Expression, Field, reads
from kvescrow.spec.language.table import effects_of
from kvescrow.spec.render import GHOSTS, HELPERS, NO_ROW, TlaPrinter, tla_module, tla_set

_FLAT = TlaPrinter(lambda read, _: read.name)
"""Prints expressions whose fields are variables."""
DOMAINS = "DomainsAndStepRules"
"""Invariant that no field has left its domain and that no step has broken a rule."""
BROKEN = "broken"
"""Variable with the step rule that the last step broke; empty in every state of a correct system."""


@frozen
class TlaModel:
    """Modules and a configuration for TLC."""

    name: str
    """Of the module that is checked."""
    modules: Mapping[str, str]
    """Module name -> text."""
    configuration: str
    laws: Mapping[str, str] = field(factory=dict)
    """Operator of an invariant -> the law that it is, with its table."""


def of_commands(system: Commands) -> TlaModel:
    """Return guarded commands as one module."""
    name = identifier(system.name)
    variables = [variable.name for variable in system.variables]
    lines = _head(name, system.variables)
    actions = []
    for number, command in enumerate(system.commands):
        actions.append(f"Step{number}")
        lines += ["", f"\\* {command.move}: {command.row}", f"Step{number} =="]
        # As a value, an alternative is one step; as an action, TLC would take a step for each part that holds.
        lines += [f"    /\\ TRUE = ({_FLAT.text(command.guard)})"] if command.guard is not TRUE else []
        lines += [f"    /\\ {target}' = {_FLAT.text(value)}" for target, value in command.assigned.items()]
        kept = [variable for variable in variables if variable not in command.assigned]
        lines += [f"    /\\ UNCHANGED <<{', '.join(kept)}>>"] if kept else []
    laws = {identifier(law, str(number)): (law, holds) for number, (law, holds) in enumerate(system.invariants)}
    for operator, (_, holds) in laws.items():
        lines += ["", f"{operator} ==", *_FLAT.lines(holds, "    ")]
    return _model(name, [*lines, *_next(actions)], {}, {operator: law for operator, (law, _) in laws.items()})


def of_instance(instance: Instance) -> TlaModel:
    """Return `instance` as a module that binds the events of its tables' modules to its variables."""
    return _Binder(instance).model()


class _Binder:
    """Prints the steps and laws of an instance."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._flat = Flattener(instance)
        self._tables = {table.name: table for table in (*instance.tables, *(o.table for o in instance.observed))}
        self._views: dict[str, str] = {}
        """Text of a view -> the operator that gives it."""

    def model(self) -> TlaModel:
        """Return the module, those of its tables, and the configuration."""
        name = identifier("system", self._instance.name)
        steps = [line for number, move in enumerate(self._instance.moves) for line in self._step(number, move)]
        laws = self._laws()
        lines = [
            *_head(name, tuple(self._flat.variable.values()), rules=True),
            "",
            *(f"{_module(table)} == INSTANCE {table}" for table in self._tables),
            "",
            *(f"{operator} == {text}" for text, operator in self._views.items()),
            *steps,
            *(line for operator, (_, text) in laws.items() for line in ("", f"{operator} == {text}")),
            *_next(f"Step{number}" for number in range(len(self._instance.moves))),
        ]
        modules = {table.name: tla_module(table) for table in self._tables.values()}
        return _model(name, lines, modules, {operator: law for operator, (law, _) in laws.items()})

    def _view(self, addresses: Iterable[Address], binds: Mapping[str, str], given: Mapping[Address, Known]) -> str:
        """Return the operator of the view with the fields at `addresses`."""
        entities: dict[str, list[str]] = {}
        for entity, name in sorted(addresses):
            value = _FLAT.text(self._flat.seen(Field(entity, name, None), binds, given))
            entities.setdefault(entity, []).append(f"{name} |-> {value}")
        records = ", ".join(f"{entity} |-> [{', '.join(parts)}]" for entity, parts in entities.items())
        text = f"[{records}]"
        return self._views.setdefault(text, f"View{len(self._views)}")

    def _step(self, number: int, move: Move) -> Iterator[str]:
        table = move.table
        view = self._view(self._touched(move), move.binds, move.given)
        parameters = [f"{name} |-> {self._text(known, move)}" for name, known in move.parameters.items()]
        yield ""
        yield f"\\* {move.name}"
        yield f"Step{number} =="
        yield f"    LET old == {view}"
        # TLA+ has no empty record; an event without parameters reads none.
        yield f"        e == [{', '.join(parameters)}]" if parameters else "        e == 0"
        yield f"        fired == {_module(table.name)}!{move.event}(old, e)"
        ghosts = any(ghost.target.entity in move.binds for ghost in table.ghosts)
        yield f"        v == {_module(table.name)}!{GHOSTS}(old, fired.view)" if ghosts else "        v == fired.view"
        yield "    IN"
        if move.where is not TRUE:
            yield f"        /\\ {_FLAT.text(self._over(move.where, move))}"
        yield f"        /\\ {BROKEN}' ="
        yield f'              IF fired.row = "{NO_ROW}" THEN "{table.name}.{NO_ROW}"'
        for rule in table.rules:
            if rule.events is None or move.event in rule.events:
                operator = f"{_module(table.name)}!{rule.name}"
                yield f'              ELSE IF ~{operator}(old, v, e) THEN "{table.name}.{rule.name}"'
        yield '              ELSE ""'
        yield from self._stored(move)

    def _stored(self, move: Move) -> Iterator[str]:
        written = self._written(move)
        kept = [variable.name for address, variable in self._flat.variable.items() if address not in written]
        for address, value in written.items():
            variable = self._flat.variable[address]
            yield f"        /\\ {variable.name}' = {value}"
            if address[1] in self._instance.place_by_name[address[0]].cut:
                yield f"        /\\ {BROKEN}' = \"\" => {variable.name}' \\in {tla_set(variable.domain)}"
        if kept:
            yield f"        /\\ UNCHANGED <<{', '.join(kept)}>>"

    def _written(self, move: Move) -> dict[Address, str]:
        """Return the kept fields that the event can write, each with its value after the step."""
        rows = [row for row in move.table.rows if row.event == move.event]
        targets = {row.id: {effect.target.path for effect in effects_of(move.table, row)} for row in rows}
        ghosts = {ghost.target.path for ghost in move.table.ghosts if ghost.target.entity in move.binds}
        written: dict[Address, str] = {}
        for entity, name in sorted(set().union(*targets.values(), ghosts)):
            address = (move.binds[entity], name)
            if address in self._flat.variable:
                if address in written:
                    raise ValueError(f"{move.name}: two entities write {'.'.join(address)}")
                written[address] = f"v.{entity}.{name}"
        for entity, place in move.binds.items():
            touching = [row for row, paths in targets.items() if any(path[0] == entity for path in paths)]
            names = ", ".join(f'"{row.removeprefix(f"{move.table.name}.")}"' for row in touching)
            for name, value in self._instance.place_by_name[place].rounded.items() if touching else ():
                rounded = TlaPrinter(lambda read, _: f"v.{entity}.{read.name}").text(value)  # noqa: B023
                old = written.get((place, name), self._flat.variable[place, name].name)
                written[place, name] = f"IF fired.row \\in {{{names}}} THEN {rounded} ELSE {old}"
        return written

    def _laws(self) -> dict[str, tuple[str, str]]:
        """Return operator -> (law, text) of all invariants."""
        found: dict[str, tuple[str, str]] = {}
        for name, holds in self._flat.invariants():
            found[identifier(name, str(len(found)))] = (name, _FLAT.text(holds))
        return found

    def _text(self, known: Known, move: Move) -> str:
        if isinstance(known, Expression):
            return _FLAT.text(self._over(known, move))
        return _FLAT.text(self._flat.known(known, move.binds))

    def _over(self, expression: Expression, move: Move) -> Expression:
        return substituted(expression, lambda read, _: self._flat.seen(read, move.binds, move.given))

    def _touched(self, move: Move) -> set[Address]:
        """Return every field that the event's rows and rules, the ghosts, and what is rounded read or write."""
        table = move.table
        found: set[Address] = {table.state.path}
        for row in table.rows:
            if row.event == move.event:
                found |= reads(row.when)
                for effect in effects_of(table, row):
                    found |= {effect.target.path} | reads(effect.value)
        for rule in table.rules:
            if rule.events is None or move.event in rule.events:
                found |= reads(rule.holds)
        for ghost in table.ghosts:
            if ghost.target.entity in move.binds:
                found |= {ghost.target.path} | reads(ghost.update)
        for entity, place in move.binds.items():
            for value in self._instance.place_by_name[place].rounded.values():
                found |= {(entity, name) for _, name in reads(value)}
        return {address for address in found if address[0] != "event"}


def _module(table: str) -> str:
    return f"of_{table}"


def _head(name: str, variables: tuple[Variable, ...], *, rules: bool = False) -> list[str]:
    names = [v.name for v in variables]
    first = [f"    /\\ {v.name} = {_FLAT.text(constant(v.first))}" for v in variables]
    domains = [f"    /\\ {v.name} \\in {tla_set(v.domain)}" for v in variables]
    if rules:
        names, first, domains = (
            [*names, BROKEN],
            [*first, f'    /\\ {BROKEN} = ""'],
            [*domains, f'    /\\ {BROKEN} = ""'],
        )
    return [
        f" MODULE {name} ".center(79, "-"),
        "EXTENDS Integers",
        "",
        *HELPERS,
        "",
        f"VARIABLES {', '.join(names)}",
        "",
        "Init ==",
        *first,
        "",
        f"{DOMAINS} ==",
        *domains,
    ]


def _next(actions: Iterable[str]) -> list[str]:
    return ["", "Next ==", *(f"    \\/ {action}" for action in actions), "", "=" * 79, ""]


def _model(name: str, lines: list[str], modules: Mapping[str, str], laws: Mapping[str, str]) -> TlaModel:
    configuration = "\n".join(
        ["INIT Init", "NEXT Next", f"INVARIANT {DOMAINS}", *(f"INVARIANT {operator}" for operator in laws), ""]
    )
    return TlaModel(name, {**modules, name: "\n".join(lines)}, configuration, laws)
