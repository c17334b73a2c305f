"""What became of each mutant, and of all of them."""

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import Any

from attrs import frozen

from kvescrow.spec.tables.registry import digest


class Fate(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    """Some layer noticed it."""
    EQUIVALENT = "equivalent"
    """No layer noticed it, and it is proved to answer and to change the same in every view that can arise."""
    SURVIVOR = "survivor"
    """No layer noticed it, and a view shows that it behaves otherwise."""
    INCONCLUSIVE = "inconclusive"
    """No layer noticed it, and one of them, or the comparison with the original, gave up."""


class Layer(Enum):
    """What may notice a mutant, in the order in which a developer would meet it."""

    IMPORT = "import"
    """The table is refused when it is built."""
    PROVE = "prove"
    """An obligation of a changed row is refuted, or the row can never fire."""
    EXPLORE = "explore"
    """In the search of a small instance a law breaks, a row never fires, or the pinned counts are others. Asked only
    where the proofs do not notice it, instances that take about a second only where nothing else does, and never about
    a reply, which no state shows."""
    VECTORS = "vectors"
    """A hand-written scenario goes otherwise than it says."""
    FUZZ = "fuzz"
    """Beside the reference, a reply or a snapshot differs."""


@frozen
class Judged:
    """One mutant and what became of it."""

    name: str
    table: str
    operator: str
    change: str
    """What is different in the row, in the words of the table."""
    fate: Fate
    killers: Mapping[Layer, str]
    """Layer -> the error, obligation or scenario that noticed it."""
    behaviour: str
    """A view in which it behaves otherwise, and what both do there; empty where there is none to be had."""
    gave_up: tuple[str, ...]
    """What could not be decided."""
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain lists and dictionaries."""
        return {
            "name": self.name,
            "table": self.table,
            "operator": self.operator,
            "change": self.change,
            "fate": self.fate.value,
            "killed_by": {layer.value: evidence for layer, evidence in self.killers.items()},
            "behaviour": self.behaviour,
            **({"gave_up": list(self.gave_up)} if self.gave_up else {}),
            "seconds": round(self.seconds, 3),
        }


@frozen
class MutationReport:
    """All mutants, in the order of the tables and their rows."""

    judged: tuple[Judged, ...]
    not_run: Mapping[Layer, str]
    """Layers that could not be asked, each with the reason."""
    seconds: float

    def of(self, fate: Fate) -> tuple[Judged, ...]:
        """Return the mutants with that fate."""
        return tuple(one for one in self.judged if one.fate is fate)

    @property
    def verdict(self) -> str:
        """Return `passed` where every mutant was noticed or is equivalent; `not_run` where there was none."""
        if not self.judged:
            return "not_run"
        if self.of(Fate.SURVIVOR):
            return "failed"
        return "inconclusive" if self.of(Fate.INCONCLUSIVE) else "passed"

    def killed(self) -> Mapping[Layer, int]:
        """Return how many mutants each layer notices, whatever the other layers say."""
        counts = Counter(layer for one in self.judged for layer in one.killers)
        return {layer: counts[layer] for layer in Layer}

    def to_json(self) -> dict[str, Any]:
        """Return the whole report."""
        return {
            "verdict": self.verdict,
            "digest": digest(),
            "mutants": len(self.judged),
            "killed": {"any": len(self.of(Fate.KILLED)), **{layer.value: n for layer, n in self.killed().items()}},
            "equivalent": len(self.of(Fate.EQUIVALENT)),
            "survivors": len(self.of(Fate.SURVIVOR)),
            "inconclusive": len(self.of(Fate.INCONCLUSIVE)),
            "layers_not_run": {layer.value: why for layer, why in self.not_run.items()},
            "seconds": round(self.seconds, 1),
            "results": [one.to_json() for one in self.judged],
        }
