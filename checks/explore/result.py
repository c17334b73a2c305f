"""What an exploration found."""

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen


@frozen
class Firing:
    """One step of a scenario."""

    move: str
    row: str


@frozen
class Breach:
    """A reachable state, or a step from one, that breaks a law; with a shortest way to it."""

    law: str
    """Name of the invariant, the step rule or the field that leaves its domain, with its table or place."""
    what: str
    """`invariant`, `rule`, or `domain`."""
    scenario: tuple[Firing, ...]
    """The moves from the first state, in order; the last one breaks a rule or leads to the state that breaks."""
    state: Mapping[str, object] = field(factory=dict)
    """The last state before, field by field."""

    def to_json(self) -> dict[str, Any]:
        """Return the breach; `scenario` can be replayed."""
        return {
            "law": self.law,
            "what": self.what,
            "scenario": [{"move": step.move, "row": step.row} for step in self.scenario],
            "state": {name: str(getattr(value, "value", value)) for name, value in self.state.items()},
        }

    def __str__(self) -> str:
        lines = [f"{self.what} {self.law} is broken after {len(self.scenario)} steps:"]
        lines += [f"  {number}. {step.move} -> {step.row}" for number, step in enumerate(self.scenario, 1)]
        return "\n".join(lines)


@frozen
class Exploration:
    """The verdict on one instance by one engine."""

    instance: str
    engine: str
    why: str
    """Why this engine."""
    states: int
    transitions: int
    """Pairs of a reachable state and an event that some row decides, refusals and repetitions included."""
    moves: int | None
    """Those of them that change the state; None where the engine does not count them."""
    depth: int | None
    """Steps to the farthest state; None where the engine does not go step by step."""
    seconds: float
    memory: int
    """Peak resident bytes of the process."""
    kept: str = ""
    """How the engine kept the states that it had seen."""
    breach: Breach | None = None
    rows: frozenset[str] | None = None
    """Rows that fired; None where the engine does not tell."""
    unfired: tuple[str, ...] = ()
    """Rows of its tables that never fired here."""
    reached: frozenset[str] | None = None
    """Situations that were reached, as `table.name`."""
    cut: int = 0
    """Steps that were not taken since they leave the bounds of the search."""
    orbits: int | None = None
    """States up to the order of equal places, where the engine used it; `states` is the full count."""
    left_out: tuple[str, ...] = ()
    """Invariants that cannot be seen here, since fields that they read are not kept."""

    @property
    def verdict(self) -> str:
        """Return `passed` or `refuted`."""
        return "refuted" if self.breach else "passed"

    def to_json(self) -> dict[str, Any]:
        """Return the exploration as JSON."""
        return {
            "instance": self.instance,
            "engine": self.engine,
            "why": self.why,
            "kept": self.kept,
            "verdict": self.verdict,
            "states": self.states,
            "transitions": self.transitions,
            "moves": self.moves,
            "depth": self.depth,
            "orbits": self.orbits,
            "cut": self.cut,
            "seconds": round(self.seconds, 3),
            "states_per_second": round(self.states / self.seconds) if self.seconds > 0 else None,
            "memory": self.memory,
            "reached": None if self.reached is None else sorted(self.reached),
            "rows_fired": None if self.rows is None else len(self.rows),
            "rows": None if self.rows is None else sorted(self.rows),
            "unfired": list(self.unfired),
            "left_out": list(self.left_out),
            "breach": None if self.breach is None else self.breach.to_json(),
        }
