"""Counterexamples as files that anyone can run again: an instance, its moves in order, and the law that breaks."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import frozen

from kvescrow.checks.explore.instance import Instance
from kvescrow.checks.explore.interpreter import Oracle, State
from kvescrow.checks.explore.result import Breach
from kvescrow.spec.vocabulary import UserError

VERSION = 1


@frozen
class Replay:
    """What a scenario shows when it is run again."""

    violated: bool
    """Whether the law is broken again."""
    why: str
    """What the interpreter did."""


def write_scenario(instance: Instance, breach: Breach, path: Path) -> None:
    """Write `breach` as JSON that `replay_scenario` reads, with the states on its way for those who only look."""
    written = {
        "kvescrow_search": VERSION,
        "instance": instance.name,
        **breach.to_json(),
        "states": list(_states(instance, breach)),
    }
    path.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")


def _states(instance: Instance, breach: Breach) -> Iterator[dict[str, str]]:
    """Yield the state before the first step and after each later one; of a step that breaks a rule, what it wrote."""
    oracle = Oracle(instance)
    moves = {move.name: move for move in instance.moves}
    state = oracle.first
    yield _told(oracle, state)
    for step in breach.scenario:
        records, move = oracle.records(state), moves[step.move]
        _, after, _ = oracle.step(records, move)
        if after is None:
            written, told = oracle.changes(records, move), _told(oracle, state)
            yield told | {name: _as_text(value) for name, value in written.items() if name in told}
            return
        state = after
        yield _told(oracle, state)


def _told(oracle: Oracle, state: State) -> dict[str, str]:
    return {f"{place.name}.{name}": _as_text(value) for (place, name), value in zip(oracle.names, state, strict=True)}


def _as_text(value: object) -> str:
    return str(getattr(value, "value", value))


def named_in(path: Path) -> str:
    """Return the name of the instance of a scenario; raise `UserError` where the file is none."""
    return str(_read(path)["instance"])


def replay_scenario(path: Path, instance: Instance) -> Replay:
    """Run the scenario at `path` through the interpreter and say whether its law breaks again.

    Raises `UserError` where the file is not a scenario of `instance`.
    """
    found = _read(path)
    moves = {move.name: move for move in instance.moves}
    oracle = Oracle(instance)
    state = oracle.first
    for number, step in enumerate(found["scenario"], 1):
        name = step.get("move") if isinstance(step, dict) else None
        if name not in moves:
            raise UserError(f"{path}: `scenario` step {number}: instance {instance.name} has no move {name!r}")
        row, after, law = oracle.step(oracle.records(state), moves[name])
        if law:
            return Replay(law == found["law"], f"step {number}, row {row}, breaks {law}")
        if after is None:
            return Replay(False, f"step {number} is not possible any more")
        state = after
    law = oracle.broken(oracle.records(state))
    why = f"{law} does not hold after {len(found['scenario'])} steps" if law else "nothing breaks"
    return Replay(law == found["law"], why)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a readable JSON file ({error})") from error
    wanted = ("kvescrow_search", "instance", "law", "scenario")
    missing = [name for name in wanted if not isinstance(found, dict) or name not in found]
    if not isinstance(found, dict) or missing or not isinstance(found["scenario"], list):
        problem = f"`{missing[0]}` is missing" if missing else "`scenario` is not a list"
        raise UserError(f"{path}: {problem}; write the scenario again with `kvescrow explore`")
    if found["kvescrow_search"] != VERSION or type(found["kvescrow_search"]) is not int:
        raise UserError(f"{path}: `kvescrow_search` is {found['kvescrow_search']!r}; this version reads {VERSION}")
    return found
