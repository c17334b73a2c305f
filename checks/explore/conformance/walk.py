"""Every transition of every reachable state, tried on a real implementation.

The graph says what each move answers and where it leads. The implementation is taken along, level by level: in each
state every refusal is tried on it as it is, and every other move on a copy, which then stands for the state that it
led to. Replies must agree; what shows of the state must agree after each change, and once after all refusals.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

from attrs import frozen

from kvescrow.checks.explore.conformance.graph import Answer, Graph
from kvescrow.checks.explore.memory import peak_bytes
from kvescrow.checks.explore.result import Firing
from kvescrow.spec.vocabulary import Decision, Reason

Said = tuple[Decision, Reason]
"""Decision and reason of a reply."""


class Subject(Protocol):
    """An implementation in some state, driven by the moves of an instance."""

    def do(self, answer: Answer) -> Said | None:
        """Do the move of `answer`; None where its circumstances cannot be brought about in this state."""

    def shows(self) -> object:
        """Return what shows of the state, in the form of `expected`."""

    def copy(self) -> "Subject":
        """Return an independent subject in the same state."""

    def close(self) -> None:
        """Give up what it holds open."""


class Driver(Protocol):
    """Opens subjects, and says what shows of a state of the instance."""

    graph: Graph

    def open(self) -> Subject:
        """Return a fresh subject in the first state."""

    def expected(self, state: int) -> object:
        """Return what must show in `state`."""


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
    transitions: int
    """Moves tried."""
    unrealised: int
    """Moves whose circumstances could not be brought about in the state in which they were due."""
    seconds: float
    disagreement: Disagreement | None
    covering: bool
    """Whether only a covering set of transitions was tried: each move with each row that decides it, once."""

    @property
    def verdict(self) -> str:
        """Return `passed` or `failed`."""
        return "failed" if self.disagreement else "passed"

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON."""
        found = self.disagreement
        return {
            "target": self.target,
            "instance": self.instance,
            "verdict": self.verdict,
            "states": self.states,
            "transitions": self.transitions,
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


Step = tuple[int, Answer]
"""(state, answer there)."""
Witness = tuple[int, str]
"""(move, row)."""


class _Level:
    """What the states of one level came to."""

    def __init__(self) -> None:
        self.states = self.transitions = self.unrealised = 0
        self.found: dict[int, Step] = {}
        """New state -> the step that led to it."""
        self.witnesses: dict[Witness, Step] = {}
        """(move, row) -> the first step that showed it."""
        self.parted: tuple[Step, str, str] | None = None
        """A step that disagrees, what was specified, and what was found."""


class _Explorer:
    """Holds subjects in some states of the newest level, and takes them one level further."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._graph = driver.graph
        self._known: set[int] = set()
        self._here: dict[int, Subject] = {}
        self._next: dict[int, Subject] = {}
        self._level = _Level()

    def start(self) -> None:
        """Stand in the first state."""
        self._next = {self._graph.first: self._driver.open()}

    def expand(self, known: Sequence[int], own: Sequence[int], given: Mapping[int, Sequence[Answer]]) -> _Level:
        """Try everything in the states `own` and `given`, the latter with the way to each.

        `known` are all states that were new in the last level.
        """
        self._known.update(known)
        self._here = {state: self._next[state] for state in own}
        self._here.update({state: self._brought(way) for state, way in given.items()})
        self._next = {}
        level = self._level = _Level()
        for state in (*own, *given):
            self._visit(state, self._here.pop(state))
            if level.parted is not None:
                break
        return level

    def _brought(self, way: Sequence[Answer]) -> Subject:
        """Return a fresh subject taken along `way`."""
        subject = self._driver.open()
        for answer in way:
            subject.do(answer)
        return subject

    def _visit(self, state: int, subject: Subject) -> None:
        level, expected = self._level, self._driver.expected
        level.states += 1
        changing: list[Answer] = []
        for answer in self._graph.answers(state):
            if not answer.keeps:
                changing.append(answer)
            elif self._agrees(state, answer, subject.do(answer)) is False:
                return
        if subject.shows() != expected(state):
            culprit = self._culprit(state, subject)
            level.parted = ((state, culprit), str(expected(state)), str(subject.shows()))
            return
        for left, answer in zip(range(len(changing), 0, -1), changing, strict=True):
            # Nothing asks for this state again after the last move, so that one needs no copy.
            copy = subject.copy() if left > 1 else subject
            agreed = self._agrees(state, answer, copy.do(answer))
            if agreed is None:
                continue
            after = state + answer.delta
            if agreed and copy.shows() != expected(after):
                level.parted = ((state, answer), str(expected(after)), str(copy.shows()))
            if level.parted is not None:
                return
            if after not in self._known and after not in self._next:
                self._next[after] = copy
                level.found[after] = (state, answer)

    def _agrees(self, state: int, answer: Answer, said: Said | None) -> bool | None:
        level = self._level
        if said is None:
            level.unrealised += 1
            return None
        level.transitions += 1
        level.witnesses.setdefault((answer.move, answer.row), (state, answer))
        if said == (answer.reply.decision, answer.reply.reason):
            return True
        level.parted = ((state, answer), str(answer.reply), f"{said[0].value} {said[1].value}")
        return False

    def _culprit(self, state: int, subject: Subject) -> Answer:
        """Return a refusal after which what shows is not what it was; where there is none by itself, the first one."""
        refusals = [answer for answer in self._graph.answers(state) if answer.keeps]
        for answer in refusals:
            copy = subject.copy()
            before = copy.shows()
            copy.do(answer)
            if copy.shows() != before:
                return answer
        return refusals[0]


def _serve(driver: Driver, pipe: Connection) -> None:
    """Expand levels in a process of its own, as its parent says."""
    explorer = _Explorer(driver)
    explorer.start()
    while (asked := pipe.recv()) is not None:
        pipe.send(explorer.expand(*asked))


class _Team:
    """Explorers, each in a process of its own, or the one explorer of this process."""

    def __init__(self, driver: Driver, jobs: int) -> None:
        self._own = _Explorer(driver)
        self._own.start()
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        context = get_context("fork")
        for _ in range(jobs if jobs > 1 else 0):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(driver, theirs), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    @property
    def size(self) -> int:
        """Return how many explorers there are."""
        return max(1, len(self._pipes))

    def expand(self, known: Sequence[int], shares: Sequence["_Share"]) -> list[_Level]:
        """Take every explorer one level further, each in its share."""
        if not self._pipes:
            return [self._own.expand(known, shares[0].own, shares[0].given)]
        for pipe, share in zip(self._pipes, shares, strict=True):
            pipe.send((known, share.own, share.given))
        return [pipe.recv() for pipe in self._pipes]

    def end(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join()


@frozen
class _Share:
    """The states that one explorer tries next."""

    own: Sequence[int]
    """States that it has a subject in."""
    given: Mapping[int, Sequence[Answer]]
    """States that another explorer found, with the way to each."""


_UNEVEN = 8
"""States that one explorer may have above its part: to hand a state over, the whole way to it is done again."""


class _Walk:
    """A walk over the whole graph: what was seen, and a shortest way to every state."""

    def __init__(self, driver: Driver) -> None:
        self.graph = driver.graph
        self.origin: dict[int, Step | None] = {driver.graph.first: None}
        self.witnesses: dict[Witness, Step] = {}
        self.states = self.transitions = self.unrealised = 0
        self.disagreement: Disagreement | None = None

    def run(self, team: _Team, show: Callable[[int, int], None] | None) -> None:
        """Go on until nothing is new, or something disagrees."""
        found = [[self.graph.first] if number == 0 else [] for number in range(team.size)]
        newest = found[0]
        depth = 0
        while newest and self.disagreement is None:
            levels = team.expand(newest, self._shares(found))
            newest, found = [], []
            for level in levels:
                fresh = [state for state in level.found if state not in self.origin]
                self.origin.update((state, level.found[state]) for state in fresh)
                newest += fresh
                found.append(fresh)
                self._note(level)
            depth += 1
            if show is not None:
                show(depth, self.states)

    def _shares(self, found: Sequence[list[int]]) -> list[_Share]:
        """Return who tries what: each its own, but for what one has much more of than its part."""
        fair = -(-sum(len(states) for states in found) // len(found))
        spare = [state for states in found for state in states[fair + _UNEVEN :]]
        shares = []
        for states in found:
            own = states[: fair + _UNEVEN]
            taken = [spare.pop() for _ in range(min(len(spare), max(0, fair - len(own))))]
            shares.append(_Share(own, {state: self.way(state) for state in taken}))
        if spare:
            last = shares[-1]
            shares[-1] = _Share(last.own, {**last.given, **{state: self.way(state) for state in spare}})
        return shares

    def _note(self, level: _Level) -> None:
        self.states += level.states
        self.transitions += level.transitions
        self.unrealised += level.unrealised
        for witness, step in level.witnesses.items():
            self.witnesses.setdefault(witness, step)
        if level.parted is not None and self.disagreement is None:
            step, specified, found = level.parted
            self.disagreement = Disagreement(self.scenario(step), specified, found)

    def way(self, state: int) -> tuple[Answer, ...]:
        """Return the answers on a shortest way to `state`."""
        answers: list[Answer] = []
        while (before := self.origin[state]) is not None:
            state, answer = before
            answers.append(answer)
        return tuple(reversed(answers))

    def scenario(self, step: Step) -> tuple[Firing, ...]:
        """Return a step with the way to it, for people."""
        return tuple(self.graph.named(answer) for answer in (*self.way(step[0]), step[1]))


def exhaust(target: str, driver: Driver, jobs: int = 1, show: Callable[[int, int], None] | None = None) -> Conformance:
    """Try every transition of every reachable state, in `jobs` processes; the target must be one that can be copied.

    `show` is told depth and states after each level.
    """
    started = time.perf_counter()
    walk = _walked(driver, jobs, show)
    return _concluded(target, walk, walk.states, walk.transitions, walk.disagreement, started, covering=False)


def _walked(driver: Driver, jobs: int, show: Callable[[int, int], None] | None) -> _Walk:
    team = _Team(driver, jobs)
    walk = _Walk(driver)
    try:
        walk.run(team, show)
    finally:
        team.end()
    return walk


def cover(target: str, driver: Driver, guide: Driver, jobs: int = 1) -> Conformance:
    """Try each move with each row that decides it, once, after a shortest way from a fresh target.

    `guide` is a target that can be copied: it is walked exhaustively to find those ways.
    """
    started = time.perf_counter()
    walk = _walked(guide, jobs, None)
    transitions = 0
    disagreement = walk.disagreement
    for state, answer in walk.witnesses.values():
        if disagreement is not None:
            break
        way = (*walk.way(state), answer)
        transitions += len(way)
        disagreement = _replayed(driver, walk, state, answer)
    states = len({state for state, _ in walk.witnesses.values()})
    return _concluded(target, walk, states, transitions, disagreement, started, covering=True)


def _replayed(driver: Driver, walk: _Walk, state: int, answer: Answer) -> Disagreement | None:
    subject = driver.open()
    try:
        here = driver.graph.first
        for step in (*walk.way(state), answer):
            said = subject.do(step)
            here += step.delta
            specified = (step.reply.decision, step.reply.reason)
            scenario = walk.scenario((state, answer))
            if said != specified:
                return Disagreement(scenario, str(step.reply), str(said))
            if subject.shows() != driver.expected(here):
                return Disagreement(scenario, str(driver.expected(here)), str(subject.shows()))
        return None
    finally:
        subject.close()


def _concluded(
    target: str,
    walk: _Walk,
    states: int,
    transitions: int,
    disagreement: Disagreement | None,
    started: float,
    *,
    covering: bool,
) -> Conformance:
    return Conformance(
        target=target,
        instance=walk.graph.instance.name,
        states=states,
        transitions=transitions,
        unrealised=walk.unrealised,
        seconds=time.perf_counter() - started,
        disagreement=disagreement,
        covering=covering,
    )
