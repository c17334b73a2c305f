"""What trying an instance on an implementation comes to."""

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from kvescrow.checks.explore.memory import peak_bytes
from kvescrow.checks.explore.result import Firing


@frozen
class Disagreement:
    """A step at which implementation and tables part."""

    scenario: tuple[Firing, ...]
    """A shortest way to the state, and the move that disagrees."""
    specified: str
    found: str

    def __str__(self) -> str:
        lines = [f"{n}. {step.move} -> {step.row}" for n, step in enumerate(self.scenario, 1)]
        return "\n".join((*lines, f"specified: {self.specified}", f"found:     {self.found}"))


@frozen
class Conformance:
    """What trying an instance on an implementation came to."""

    target: str
    instance: str
    states: int
    """States of the instance that the implementation was in."""
    unreached: int
    """States of the instance that it was never in."""
    variants: int
    """Ways in which it was in them, where that decides which moves can be brought about: orders of a queue."""
    transitions: int
    """Moves tried, each once a state."""
    repeated: int
    """Moves tried once more, in another variant of the state."""
    impossible: Mapping[str, int]
    """Why no implementation in a state can have the circumstances of a move -> how many moves that is, each once a
    state. An instance leaves out time, identities and the order of the queue, and so allows more than there is."""
    unrealised: int
    """Moves, each once a state, that were brought about in no variant, for no such reason."""
    seconds: float
    disagreement: Disagreement | None
    covering: bool
    """Whether only a covering set of transitions was tried: each move with each row that decides it, once."""

    @property
    def verdict(self) -> str:
        """Return `passed`, `failed` where something disagreed, or `incomplete` where something was not tried."""
        if self.disagreement:
            return "failed"
        return "incomplete" if self.unrealised or self.unreached else "passed"

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        found = self.disagreement
        return {
            "target": self.target,
            "instance": self.instance,
            "verdict": self.verdict,
            "states": self.states,
            "unreached": self.unreached,
            "variants": self.variants,
            "transitions": self.transitions,
            "repeated": self.repeated,
            "impossible": dict(self.impossible),
            "unrealised": self.unrealised,
            "covering": self.covering,
            "seconds": round(self.seconds, 1),
            "memory": peak_bytes(),
            "disagreement": None
            if found is None
            else {
                "scenario": [{"move": step.move, "row": step.row} for step in found.scenario],
                "specified": found.specified,
                "found": found.found,
            },
        }
