"""Every transition of every reachable state, tried on a real implementation.

The graph says what each move answers and where it leads. The implementation is taken along, level by level: in each
state every refusal is tried on it as it is, and then every other move, after each of which it is brought back. Where a
move led to something new, a copy made there stands for that. Replies must agree; what shows of the state must agree
after each change, once after all refusals, and once more at the end.

An implementation may be in one state of the instance in several ways that decide which moves can be brought about
there, as the order of a queue does. Each of these variants is a place of its own.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from attrs import evolve

from kvescrow.checks.explore.conformance.explorer import Explorer, Level, Share, Step, Witness, serve
from kvescrow.checks.explore.conformance.graph import Answer, Place
from kvescrow.checks.explore.conformance.result import Conformance, Disagreement
from kvescrow.checks.explore.conformance.subject import Driver
from kvescrow.checks.explore.conformance.tally import Tally
from kvescrow.checks.explore.result import Firing
from kvescrow.checks.targets.registry import raised
from kvescrow.spec.vocabulary import UserError


class _Team:
    """Explorers, each in a process of its own, or the one explorer of this process."""

    def __init__(self, driver: Driver, jobs: int) -> None:
        self._own = Explorer(driver)
        self._own.start()
        self._pipes: list[Connection] = []
        self._processes: list[BaseProcess] = []
        context = get_context("fork")
        for _ in range(jobs if jobs > 1 else 0):
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(driver, theirs), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    @property
    def size(self) -> int:
        """Return how many explorers there are."""
        return max(1, len(self._pipes))

    def expand(self, known: Sequence[Place], left: Mapping[int, int], shares: Sequence[Share]) -> list[Level]:
        """Take every explorer one level further, each in its share."""
        if not self._pipes:
            return [self._own.expand(known, left, shares[0])]
        for pipe, share in zip(self._pipes, shares, strict=True):
            pipe.send((known, left, share))
        return [_received(pipe) for pipe in self._pipes]

    def end(self) -> None:
        """End the processes."""
        for pipe in self._pipes:
            with suppress(OSError):  # One that is gone needs no telling.
                pipe.send(None)
        for process in self._processes:
            process.join()

    def stop(self) -> None:
        """Stop the processes, whatever they are at."""
        for process in self._processes:
            process.terminate()


def _received(pipe: Connection) -> Level:
    """Return what an explorer came to; raise what made it give up."""
    try:
        answer = pipe.recv()
    except (EOFError, OSError) as error:
        raise UserError("the target has ended the process that drove it: let it raise an error instead") from error
    if isinstance(answer, UserError):
        raise answer
    assert isinstance(answer, Level), "an explorer answers with a level"
    return answer


_UNEVEN = 8
"""Places that one explorer may have above its part: to hand a place over, the whole way to it is done again."""


class _Walk:
    """A walk over the whole graph: what was seen, and a shortest way to every state."""

    def __init__(self, driver: Driver) -> None:
        self.graph = driver.graph
        self.origin: dict[Place, Step | None] = {driver.graph.first: None}
        self.witnesses: dict[Witness, Step] = {}
        self.tally = Tally()
        self.disagreement: Disagreement | None = None

    def run(self, team: _Team, show: Callable[[int, int], None] | None) -> None:
        """Go on until nothing is new, or something disagrees."""
        found = [[self.graph.first] if number == 0 else [] for number in range(team.size)]
        newest, left = found[0], dict[int, int]()
        depth = 0
        while newest and self.disagreement is None:
            levels = team.expand(newest, left, self._shares(found))
            newest, found, left = [], [], {}
            for level in levels:
                fresh = [place for place in level.found if place not in self.origin]
                self.origin.update((place, level.found[place]) for place in fresh)
                newest += fresh
                found.append(fresh)
                for state in {self.graph.state(place) for place in fresh}:
                    left[state] = left.get(state, level.left[state]) & level.left[state]
                self._note(level)
            depth += 1
            if show is not None:
                show(depth, self.tally.states)

    def _shares(self, found: Sequence[list[Place]]) -> list[Share]:
        """Return who tries what: each its own, but for what one has much more of than its part."""
        fair = -(-sum(len(places) for places in found) // len(found))
        spare = [place for places in found for place in places[fair + _UNEVEN :]]
        owned = [places[: fair + _UNEVEN] for places in found]
        taken = [[spare.pop() for _ in range(min(len(spare), max(0, fair - len(own))))] for own in owned]
        taken[-1] += spare
        return [self._share(own, given) for own, given in zip(owned, taken, strict=True)]

    def _share(self, own: Sequence[Place], given: Sequence[Place]) -> Share:
        settled = {state: self.tally.settled(state) for state in map(self.graph.state, (*own, *given))}
        before = {state: moves for state, moves in settled.items() if moves}
        return Share(own, {place: self.way(place) for place in given}, before)

    def _note(self, level: Level) -> None:
        self.tally.add(level)
        for witness, step in level.witnesses.items():
            self.witnesses.setdefault(witness, step)
        if level.parted is not None and self.disagreement is None:
            place, way, specified, found = level.parted
            self.disagreement = Disagreement(self.scenario(place, *way), specified, found)

    def way(self, place: Place) -> tuple[Answer, ...]:
        """Return the answers on a shortest way to `place`."""
        answers: list[Answer] = []
        while (before := self.origin[place]) is not None:
            place, answer = before
            answers.append(answer)
        return tuple(reversed(answers))

    def scenario(self, place: Place, *then: Answer) -> tuple[Firing, ...]:
        """Return the way to `place` and what comes then, for people."""
        return tuple(self.graph.named(answer) for answer in (*self.way(place), *then))


def exhaust(target: str, driver: Driver, jobs: int = 1, show: Callable[[int, int], None] | None = None) -> Conformance:
    """Try every transition of every reachable state, in `jobs` processes; the target must be one that can be copied.

    `show` is told depth and states after each level.
    """
    started = time.perf_counter()
    walk = _walked(driver, jobs, show)
    return _concluded(target, walk, started)


def _walked(driver: Driver, jobs: int, show: Callable[[int, int], None] | None) -> _Walk:
    team = _Team(driver, jobs)
    walk = _Walk(driver)
    try:
        walk.run(team, show)
    except BaseException:
        team.stop()
        raise
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
    for place, answer in walk.witnesses.values():
        if disagreement is not None:
            break
        transitions += len(walk.way(place)) + 1
        disagreement = _replayed(driver, walk, place, answer)
    return evolve(
        _concluded(target, walk, started),
        states=len({walk.graph.state(place) for place, _ in walk.witnesses.values()}),
        transitions=transitions,
        disagreement=disagreement,
        covering=True,
    )


def _replayed(driver: Driver, walk: _Walk, place: Place, answer: Answer) -> Disagreement | None:
    """Return how the target parts from a way of the walk, if it does."""
    subject, scenario = driver.open(), walk.scenario(place, answer)
    try:
        with closing(subject):
            here = driver.graph.first
            for step in (*walk.way(place), answer):
                said = subject.do(step)
                here += step.delta
                if said != step.said:
                    return Disagreement(scenario, str(step.reply), str(said))
                if subject.shows() != driver.expected(here):
                    return Disagreement(scenario, str(driver.expected(here)), str(subject.shows()))
            told = subject.misfit()
    except (KeyboardInterrupt, UserError):
        raise
    except BaseException as error:
        return Disagreement(scenario, str(answer.reply), f"raised {raised(error)}")
    return Disagreement(scenario, "a snapshot as its type says", told) if told else None


def _concluded(target: str, walk: _Walk, started: float) -> Conformance:
    tally, parted = walk.tally, walk.disagreement is not None
    return Conformance(
        target=target,
        instance=walk.graph.instance.name,
        states=tally.states,
        unreached=0 if parted else tally.unreached(walk.graph),
        variants=tally.variants,
        transitions=tally.transitions,
        repeated=tally.repeated,
        impossible=tally.impossible(),
        unrealised=0 if parted else tally.unrealised(),
        seconds=time.perf_counter() - started,
        disagreement=walk.disagreement,
        covering=False,
    )
