"""One process of a walk: it holds subjects in the places that were found last, and tries everything there."""

import gc
import signal
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import TypeVar

from attrs import define, field, frozen

from kvescrow.checks.explore.conformance.graph import Answer, Place, Said
from kvescrow.checks.explore.conformance.subject import Driver, Subject
from kvescrow.checks.targets.registry import raised
from kvescrow.spec.vocabulary import UserError

T = TypeVar("T")
Step = tuple[Place, Answer]
"""(place, answer there)."""
Witness = tuple[int, str]
"""(move, row)."""


@define
class Visit:
    """What the moves of one place came to: sets of moves, a bit each."""

    state: int
    due: int
    before: int = 0
    """Refusals that were tried in another variant of the state, and are not tried again."""
    missed: int = 0
    """Those that could not be brought about here, though another variant of the state may allow them."""
    impossible: dict[str, int] = field(factory=dict)
    """Why -> those that can be brought about in no variant."""


@frozen
class Share:
    """The places that one explorer tries next."""

    own: Sequence[Place]
    """Places that it has a subject in."""
    given: Mapping[Place, Sequence[Answer]]
    """Places that another explorer found, with the way to each."""
    before: Mapping[int, int]
    """State of some of these places -> moves that need not be tried there again, a bit each."""


@define
class Level:
    """What the places of one level came to."""

    visits: list[Visit] = field(factory=list)
    cut_off: set[int] = field(factory=set)
    """States to which moves lead that could not be brought about."""
    late: dict[int, int] = field(factory=dict)
    """State -> moves that were tried by another who came to the state, a bit each."""
    left: dict[int, int] = field(factory=dict)
    """New state -> moves that those who found it could not try, a bit each."""
    found: dict[Place, Step] = field(factory=dict)
    """New place -> the step that led to it."""
    witnesses: dict[Witness, Step] = field(factory=dict)
    """(move, row) -> the first step that showed it."""
    parted: tuple[Place, tuple[Answer, ...], str, str] | None = None
    """A place, what was done from there until something disagreed, what was specified, and what was found."""


class Explorer:
    """Holds subjects in some places of the newest level, and takes them one level further."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._graph = driver.graph
        self._known: set[Place] = set()
        self._next: dict[Place, Subject] = {}
        self._before: dict[int, int] = {}
        """State -> moves that were tried there or can be tried in no variant, a bit each."""
        self._left: dict[int, list[Answer]] = {}
        """State -> refusals that no one who came there could try."""
        self._level = Level()

    def start(self) -> None:
        """Stand in the first state."""
        self._next = {self._graph.first: self._driver.open()}

    def expand(self, known: Sequence[Place], left: Mapping[int, int], share: Share) -> Level:
        """Try everything in the places of `share`.

        `known` are all places that were new in the last level; `left` has, by state, the moves that could not be tried
        by those who found it.
        """
        self._known.update(known)
        for state, moves in left.items():
            if state not in self._left:
                self._left[state] = [a for a in self._varying(state) if moves >> a.move & 1] if moves else []
        for state, moves in share.before.items():
            self._before[state] = self._before.get(state, 0) | moves
        here = {place: self._next.pop(place) for place in share.own}
        level = self._level = Level()
        for place, way in share.given.items():
            try:
                here[place] = self._brought(way)
            except BaseException as error:
                self._raised(self._graph.first, tuple(way), error)
                return level
        for place, subject in self._next.items():
            # Another explorer goes on from there, with its own subject.
            state = self._graph.state(place)
            self._left[state] = self._varying(state)
            try:
                self._caught_up(state, place, (), subject)
            except BaseException as error:
                self._raised(place, (), error)
        self._next = {}
        for place in (*share.own, *share.given):
            if level.parted is not None:
                break
            try:
                self._visit(place, here.pop(place))
            except BaseException as error:
                self._raised(place, (), error)
        return level

    def _brought(self, way: Sequence[Answer]) -> Subject:
        """Return a fresh subject taken along `way`."""
        subject = self._driver.open()
        for answer in way:
            subject.do(answer)
        return subject

    def _visit(self, place: Place, subject: Subject) -> None:
        state, level = self._graph.state(place), self._level
        parts = self._graph.parts(state)
        refusals = sum(part.refused for part in parts)
        visit = Visit(state, sum(part.due for part in parts), self._before.get(state, 0) & refusals)
        level.visits.append(visit)
        for part in parts:
            if not self._refused(place, subject, part.refusals, visit):
                return
        self._before[state] = visit.before | refusals & ~visit.missed
        if subject.shows() != self._driver.expected(state):
            culprit = self._culprit(state, subject)
            self._part(place, (culprit,), str(self._driver.expected(state)), str(subject.shows()))
            return
        if told := subject.misfit():
            self._part(place, (), "a snapshot as its type says", told)
            return
        changes = [answer for part in parts for answer in part.changes]
        if changes and self._changed(place, subject, changes, visit):
            self._check_brought_back(state, subject)

    def _refused(self, place: Place, subject: Subject, refusals: Sequence[Answer], visit: Visit) -> bool:
        """Try what keeps the state as it is; return whether all replies agree."""
        do, witnesses = subject.do, self._level.witnesses
        if visit.before:
            refusals = [answer for answer in refusals if not visit.before >> answer.move & 1]
        try:
            for answer in refusals:
                said = do(answer)
                if said != answer.said:
                    if not self._is_excused(place, (answer,), said, visit):
                        return False
                elif answer.witness not in witnesses:
                    witnesses[answer.witness] = place, answer
        except BaseException as error:
            self._raised(place, (answer,), error)
            return False
        return True

    def _changed(self, place: Place, subject: Subject, changes: Sequence[Answer], visit: Visit) -> bool:
        """Try what changes the state, from the same place each time; return whether all agrees."""
        level, graph, expected = self._level, self._graph, self._driver.expected
        bring_back = _kept(subject.hold)
        for answer in changes:
            after = visit.state + answer.delta
            try:
                said = subject.do(answer)
                shows = subject.shows() if said == answer.said else None
            except BaseException as error:
                self._raised(place, (answer,), error)
                return False
            if said != answer.said:
                if not self._is_excused(place, (answer,), said, visit):
                    return False
                level.cut_off.add(after)
            else:
                level.witnesses.setdefault(answer.witness, (place, answer))
                if shows != expected(after):
                    self._part(place, (answer,), str(expected(after)), str(shows))
                    return False
                there = graph.place(after, subject.variant())
                if not subject.spoilt() and there not in self._known and there not in self._next:
                    self._settle(there, _kept(subject.copy))
                    level.found[there] = place, answer
                elif not self._caught_up(after, place, (answer,), subject):
                    return False
            bring_back()
        return True

    def _settle(self, place: Place, subject: Subject) -> None:
        """Let `subject` stand in a new place, from which it will be taken further."""
        self._next[place] = subject
        state = self._graph.state(place)
        left = self._left.get(state)
        if left is None:
            left = self._varying(state)
        self._left[state] = left = [answer for answer in left if not subject.can(answer.move)]
        self._level.left[state] = sum(1 << answer.move for answer in left)

    def _varying(self, state: int) -> list[Answer]:
        varying = self._driver.varying
        return [a for part in self._graph.parts(state) for a in part.refusals if a.move in varying] if varying else []

    def _caught_up(self, state: int, place: Place, way: tuple[Answer, ...], subject: Subject) -> bool:
        """Try the refusals of `state` that no one who came there before could; return whether all replies agree.

        Only the first one to come to a place goes on from there, so this is when the others can be asked. They came
        from `place` by `way`.
        """
        left = self._left.get(state)
        if left is None:
            left = self._left[state] = self._varying(state)
        for answer in [answer for answer in left if subject.can(answer.move)]:
            left.remove(answer)
            try:
                said = subject.do(answer)
            except BaseException as error:
                self._raised(place, (*way, answer), error)
                return False
            if said != answer.said:
                return self._is_excused(place, (*way, answer), said, Visit(state, 0))
            self._level.late[state] = self._level.late.get(state, 0) | 1 << answer.move
        return True

    def _is_excused(self, place: Place, way: tuple[Answer, ...], said: Said | str | None, visit: Visit) -> bool:
        """Return whether the last move of `way` was not brought about; a reply that disagrees is no excuse."""
        move = way[-1].move
        if said is None:
            visit.missed |= 1 << move
        elif isinstance(said, str):
            visit.impossible[said] = visit.impossible.get(said, 0) | 1 << move
        else:
            self._part(place, way, str(way[-1].reply), f"{said[0].value} {said[1].value}")
            return False
        return True

    def _part(self, place: Place, way: tuple[Answer, ...], specified: str, found: str) -> None:
        self._level.parted = place, way, specified, found

    def _raised(self, place: Place, way: tuple[Answer, ...], error: BaseException) -> None:
        """Tell of what the target raised, an exit of Python included; pass on what is none of its doing."""
        if isinstance(error, KeyboardInterrupt | UserError):
            raise error
        self._part(place, way, str(way[-1].reply) if way else "a snapshot", f"raised {raised(error)}")

    def _culprit(self, state: int, subject: Subject) -> Answer:
        """Return a refusal after which what shows is not what it was; where there is none by itself, the first one."""
        refusals = [answer for part in self._graph.parts(state) for answer in part.refusals]
        for answer in refusals:
            copy = subject.copy()
            before = copy.shows()
            copy.do(answer)
            if copy.shows() != before:
                return answer
        return refusals[0]

    def _check_brought_back(self, state: int, subject: Subject) -> None:
        if subject.shows() != self._driver.expected(state):
            raise UserError(
                "the target keeps some of its state where it cannot be brought back, in a closure or a global: keep it "
                "in attributes, or declare the target durable, so that it is tried on a covering set"
            )


def _kept(keep: Callable[[], T]) -> T:
    """Return a copy of a target, or what brings it back; raise `UserError` where it is one that cannot be copied."""
    try:
        return keep()
    except Exception as error:
        raise UserError(
            f"the target cannot be copied ({error}): keep its state in attributes, or declare the target durable, so "
            "that it is tried on a covering set"
        ) from error


def serve(driver: Driver, pipe: Connection) -> None:
    """Expand levels in a process of its own, as its parent says."""
    # An interrupt is the parent's to tell; here it ends the process without a word.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Thousands of copies stand at once, and a collector of cycles would go through all of them again and again.
    gc.disable()
    explorer = Explorer(driver)
    started = False
    while (asked := pipe.recv()) is not None:
        try:
            if not started:
                explorer.start()
                started = True
            pipe.send(explorer.expand(*asked))
        except UserError as error:
            pipe.send(error)
