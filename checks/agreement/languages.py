"""Guarded commands in Promela and Murphi, which differ little: expressions, and assignments one after the other."""

from collections.abc import Iterator, Mapping
from enum import Enum

from attrs import frozen

from kvescrow.checks.agreement.commands import Command, Commands, Variable, read_by
from kvescrow.spec.language.expressions import Binary, Expression, Field, IfElse, Kind, Literal, Not


@frozen
class Notation:
    """How a language writes what expressions are made of."""

    conjunction: str
    disjunction: str
    negation: str
    equality: str
    conditional: str
    """With `{}` for condition, yes, and no."""
    true: str
    false: str


PROMELA = Notation("&&", "||", "!", "==", "({} -> {} : {})", "1", "0")
MURPHI = Notation("&", "|", "!", "=", "({} ? {} : {})", "true", "false")


def number_of(value: object) -> int:
    """Return the number that stands for a value: its place in its enum, or itself."""
    if isinstance(value, Enum):
        return list(type(value)).index(value)
    if isinstance(value, int):
        return int(value)
    raise ValueError(f"{value!r} is no value of a variable")


def written(expression: Expression, notation: Notation) -> str:
    """Return `expression` in `notation`, with parentheses around every operator."""
    match expression:
        case Literal(bool(value)):
            return notation.true if value else notation.false
        case Literal(value):
            return str(number_of(value))
        case Field():
            return expression.name
        case Not(operand):
            return f"{notation.negation}({written(operand, notation)})"
        case IfElse(condition, yes, no):
            return notation.conditional.format(*(written(part, notation) for part in (condition, yes, no)))
        case Binary(operator, left, right):
            signs = {"and": notation.conjunction, "or": notation.disjunction, "==": notation.equality}
            return f"({written(left, notation)} {signs.get(operator, operator)} {written(right, notation)})"
    raise ValueError(f"unknown node {expression!r}")


def in_turn(assigned: Mapping[str, Expression]) -> tuple[list[tuple[str, Expression]], list[str]]:
    """Return assignments in an order in which none reads what was overwritten, and those that must be read first.

    The second list is empty unless assignments read each other in a circle.
    """
    left = dict(assigned)
    ordered: list[tuple[str, Expression]] = []
    saved: list[str] = []
    while left:
        free = [
            name for name in left if not any(name in read_by(value) for other, value in left.items() if other != name)
        ]
        if not free:
            saved.append(next(name for name in left if name not in saved))
            blocked = saved[-1]
            left = {name: _renamed(value, blocked) if name != blocked else value for name, value in left.items()}
            continue
        ordered.append((free[0], left.pop(free[0])))
    return ordered, saved


def saved_name(variable: str) -> str:
    """Return what the value before the step is called while a step is taken."""
    return f"old_{variable}"


def _renamed(expression: Expression, name: str) -> Expression:
    match expression:
        case Field(entity, known, kind) if known == name:
            return Field(entity, saved_name(name), kind)
        case Not(operand):
            return Not(_renamed(operand, name))
        case IfElse(condition, yes, no):
            return IfElse(*(_renamed(part, name) for part in (condition, yes, no)))
        case Binary(operator, left, right):
            return Binary(operator, _renamed(left, name), _renamed(right, name))
        case _:
            return expression


def promela(system: Commands) -> str:
    """Return `system` as one Promela process that takes a step after the other.

    A broken invariant is an assertion that fails, tried once in each state. The state space is that of the instance.
    """
    saved = sorted({name for command in system.commands for name in in_turn(command.assigned)[1]})
    lines = [f"/* {system.name} */"]
    lines += [f"{_promela_type(v)} {v.name} = {number_of(v.first)};" for v in system.variables]
    lines += [f"hidden int {saved_name(name)};" for name in saved]
    lines += ["", "active proctype steps() {", "  do"]
    for command in system.commands:
        steps = " ".join(f"{step};" for step in _assignments(command, PROMELA, " = "))
        lines += [f"  /* {command.move}: {command.row} */"]
        lines += [f"  :: d_step {{ {written(command.guard, PROMELA)} -> {steps or 'skip;'} }}"]
    for name, holds in system.invariants:
        lines += [f"  /* {name} */", f"  :: !({written(holds, PROMELA)}) -> assert(0)"]
    return "\n".join([*lines, "  od", "}", ""])


def murphi(system: Commands) -> str:
    """Return `system` as a Murphi model with a rule for each command."""
    lines = [f"-- {system.name}", "var"]
    lines += [f"  {v.name}: {_murphi_type(v)};" for v in system.variables]
    lines += ["", "startstate begin"]
    lines += [f"  {v.name} := {_murphi_value(v)};" for v in system.variables]
    lines += ["end;"]
    kinds = {v.name: _murphi_type(v) for v in system.variables}
    for number, command in enumerate(system.commands):
        lines += ["", f'rule "{number} {command.move}: {command.row}"', f"  {written(command.guard, MURPHI)} ==>"]
        lines += [f"var {saved_name(name)}: {kinds[name]};" for name in in_turn(command.assigned)[1]]
        lines += ["begin", *(f"  {step};" for step in _assignments(command, MURPHI, " := ")), "end;"]
    for number, (name, holds) in enumerate(system.invariants):
        lines += ["", f'invariant "{number} {name}"', f"  {written(holds, MURPHI)};"]
    return "\n".join([*lines, ""])


def _assignments(command: Command, notation: Notation, sign: str) -> Iterator[str]:
    ordered, saved = in_turn(command.assigned)
    yield from (f"{saved_name(name)}{sign}{name}" for name in saved)
    for name, value in ordered:
        yield f"{name}{sign}{written(value, notation)}"


def _promela_type(variable: Variable) -> str:
    numbers = [number_of(value) for value in variable.domain]
    if variable.kind is Kind.BOOLEAN:
        return "bit"
    # One more than the domain has room, so that a step out of it is seen instead of wrapping round.
    return "byte" if min(numbers) >= 0 and max(numbers) < 255 else "int"


def _murphi_type(variable: Variable) -> str:
    numbers = [number_of(value) for value in variable.domain]
    return "boolean" if variable.kind is Kind.BOOLEAN else f"{min(numbers)}..{max(numbers)}"


def _murphi_value(variable: Variable) -> str:
    return written(Literal(variable.first), MURPHI)  # type: ignore[arg-type]  # names are integers here
