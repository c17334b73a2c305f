"""What was tried in which state, over all its variants."""

from collections.abc import Mapping

from kvescrow.checks.explore.conformance.explorer import Level
from kvescrow.checks.explore.conformance.graph import Graph


class Tally:
    """Sets of moves by state, a bit each."""

    def __init__(self) -> None:
        self._due: dict[int, int] = {}
        self._tried: dict[int, int] = {}
        self._impossible: dict[str, dict[int, int]] = {}
        self._cut_off: set[int] = set()
        self._tries = 0
        self.variants = 0

    def add(self, level: Level) -> None:
        """Take note of what the places of one level came to."""
        for visit in level.visits:
            self.variants += 1
            tried = visit.due & ~visit.before & ~visit.missed
            for why, moves in visit.impossible.items():
                tried &= ~moves
                states = self._impossible.setdefault(why, {})
                states[visit.state] = states.get(visit.state, 0) | moves
            self._due[visit.state] = visit.due
            self._tried[visit.state] = self._tried.get(visit.state, 0) | tried
            self._tries += tried.bit_count()
        for state, moves in level.late.items():
            self._tried[state] = self._tried.get(state, 0) | moves
            self._tries += moves.bit_count()
        self._cut_off |= level.cut_off

    def settled(self, state: int) -> int:
        """Return the moves that were tried in `state`, or can be brought about in no variant, a bit each."""
        settled = self._tried.get(state, 0)
        for states in self._impossible.values():
            settled |= states.get(state, 0)
        return settled

    @property
    def states(self) -> int:
        """Return how many states were visited."""
        return len(self._due)

    @property
    def transitions(self) -> int:
        """Return how many moves were tried, each once a state."""
        return sum(moves.bit_count() for state, moves in self._tried.items() if state in self._due)

    @property
    def repeated(self) -> int:
        """Return how many were tried once more in another variant of their state."""
        return self._tries - self.transitions

    def impossible(self) -> Mapping[str, int]:
        """Return why moves can be brought about in no variant -> how many, each once a state.

        Raises AssertionError where one of them was tried all the same: then the reason that was given is wrong.
        """
        found: dict[str, int] = {}
        for why, states in sorted(self._impossible.items()):
            wrong = [state for state, moves in states.items() if moves & self._tried[state]]
            assert not wrong, f"moves were tried that cannot be brought about, since {why}: in state {wrong[0]}"
            found[why] = sum(moves.bit_count() for moves in states.values())
        return found

    def unrealised(self) -> int:
        """Return how many moves were neither tried in any variant of their state nor are impossible there."""
        due = sum(moves.bit_count() for moves in self._due.values())
        return due - self.transitions - sum(self.impossible().values())

    def unreached(self, graph: Graph) -> int:
        """Return how many states of `graph` were never visited."""
        found = self._cut_off - self._due.keys()
        todo = list(found)
        while todo:
            state = todo.pop()
            fresh = {state + answer.delta for answer in graph.answers(state)} - self._due.keys() - found
            found |= fresh
            todo += fresh
        return len(found)
