"""What to do next with a cache manager: moves that press where managers break, as calls of a judge.

A move is picked by a name and two small integers, of which 0 is the plainest. Everything else follows from the state:
prompts share prefixes, a reserve asks for as many pages as are free or one more, a step is cancelled as soon as it is
launched, and a prompt comes again while it is being computed or in another scope.
"""

from collections.abc import Callable, Mapping
from typing import Any

from attrs import evolve, fields

from kvescrow.checks.fuzz.laws import texts_of
from kvescrow.checks.fuzz.manager import Request
from kvescrow.checks.fuzz.moves import JudgedMoves
from kvescrow.checks.targets.protocols import ManagerSetup
from kvescrow.spec.vocabulary import PrefixScope

NAMES = ("r0", "r1", "r2", "r3")
HOME = PrefixScope("a")
PAGE_LENGTHS = (4, 2)
NEEDS = (6, 4, 9)
"""Pages that two or three requests of the prompts below need."""
LACKING = (1, 0, 2)
"""How many pages fewer there are: a pool that is just too small finds more than a large one."""
CROSSED = 4
"""Scopes that one move tries."""
SHAPES = len(PAGE_LENGTHS) * len(NEEDS) * len(LACKING)
WHO = len(NAMES)
TURNS = 12 * 9


def setup_of(shape: int) -> ManagerSetup:
    """Return the pool that `shape` picks."""
    page_length = PAGE_LENGTHS[shape % len(PAGE_LENGTHS)]
    shape //= len(PAGE_LENGTHS)
    pages = NEEDS[shape % len(NEEDS)] - LACKING[shape // len(NEEDS) % len(LACKING)]
    return ManagerSetup(pages, page_length)


def prompt_of(page_length: int, turn: int) -> tuple[int, ...]:
    """Return a prompt of one of two families, one to three pages long, that may leave its family after a page."""
    family, leaves, length = turn % 2, turn // 2 % 3 == 2, turn // 6
    count = page_length * (1 + length % 3) + (1, 0, -1)[length // 3 % 3]
    tokens = [1 + family * 8 + place % 5 for place in range(count)]
    return tuple(token + 20 if leaves and place >= page_length else token for place, token in enumerate(tokens))


class Moves(JudgedMoves):
    """Moves over the judge of a cache manager."""

    def _do(self, move: str, who: int, turn: int) -> None:
        MOVES[move](self, who, turn)

    # --- moves --------------------------------------------------------------------------------------------------------

    def arrive(self, who: int, turn: int) -> None:
        """Submit a new request."""
        name = self._idle(who)
        if name is not None:
            self._judge.call("submit", name, prompt_of(self._judge.page_length, turn), self._scope(turn // 5))

    def compute(self, who: int, turn: int) -> None:
        """Reserve and launch a step."""
        request = self._waiting(who)
        if request is not None:
            self._start(request, turn)

    def finish_step(self, who: int, turn: int) -> None:
        """End a step in flight, of a live request or of a cancelled one."""
        names = [name for name, request in self._judge.live.items() if request.step] + list(self._judge.stopping)
        if names:
            self._end(names[who % len(names)], turn)

    def leave(self, who: int, turn: int) -> None:
        """Release a request that is not in flight."""
        request = self._waiting(who)
        if request is not None:
            self._judge.call("release", request.name)

    def whole_life(self, who: int, turn: int) -> None:
        """Submit a request, compute its whole prompt and, half of the time, release it."""
        name = self._idle(who)
        if name is None:
            return
        self._judge.call("submit", name, prompt_of(self._judge.page_length, turn), self._scope(turn // 5))
        self._start(self._judge.live[name], 0)
        if self._judge.live[name].step:
            self._end(name, turn)
        if turn % 2 and not self._judge.live[name].step:
            self._judge.call("release", name)

    def plan_and_give_up(self, who: int, turn: int) -> None:
        """Reserve room for a step and release the request before the launch, as a victim of the same step."""
        request = self._waiting(who)
        if request is not None:
            self._judge.call("reserve", request.name, request.rest)
            prompt, scope = request.prompt, request.scope
            self._judge.call("release", request.name)
            if turn % 2:
                self._judge.call("submit", request.name, prompt, scope)

    def launch_and_cancel(self, who: int, turn: int) -> None:
        """Launch a step and cancel its request at once."""
        request = self._waiting(who)
        if request is None or not self._provokes("cancel"):
            return
        self._start(request, turn)
        self._judge.call("release", request.name)

    def grab_after_cancel(self, who: int, turn: int) -> None:
        """While a cancelled step is in flight, ask for as much as looks free."""
        if self._judge.stopping:
            self.whole_life(who, turn)

    def twin(self, who: int, turn: int) -> None:
        """Submit the prompt of a request in flight."""
        flying = [request for request in self._judge.live.values() if request.step]
        name = self._idle(who)
        if flying and name is not None:
            request = flying[turn % len(flying)]
            self._judge.call("submit", name, request.prompt, request.scope)

    def cross(self, who: int, turn: int) -> None:
        """Submit the prompt of a known request in scopes that differ from its own in one field; the last one stays."""
        known, name, scopes = list(self._judge.live.values()), self._idle(who), self._scopes()
        if not known or name is None or len(scopes) == 1:
            return
        request, others = known[turn % len(known)], scopes[1:]
        if request.scope != HOME:
            self._judge.call("submit", name, request.prompt, HOME)
            return
        for place in range(min(CROSSED, len(others))):
            if place:
                self._judge.call("release", name)
            self._judge.call("submit", name, request.prompt, others[(turn + place) % len(others)])

    def collide(self, who: int, turn: int) -> None:
        """Submit a prompt in two scopes that are equal only when two of their texts are written one after the other."""
        texts, name = texts_of(self._judge.declared), self._idle(who)
        if name is None or len(texts) < 2 or not self._provokes("scope.joined"):
            return
        first = turn % (len(texts) - 1)
        one, other = texts[first], texts[first + 1 + turn // 12 % (len(texts) - 1 - first)]
        split = _with(HOME, {one: "a", other: "b"})
        prompt = prompt_of(self._judge.page_length, 4)
        known = any(request.scope == split for request in self._judge.live.values())
        whole = _with(HOME, {one: "ab", other: getattr(PrefixScope(""), other)})
        self._judge.call("submit", name, prompt, whole if known else split)
        if not known:
            self._start(self._judge.live[name], 0)

    def repeat(self, who: int, turn: int) -> None:
        """Submit a live request again."""
        live = list(self._judge.live.values())
        if live and self._provokes("duplicate"):
            request = live[who % len(live)]
            self._judge.call("submit", request.name, request.prompt, request.scope)

    def release_again(self, who: int, turn: int) -> None:
        """Release a request that has been released."""
        over = sorted(self._judge.over | set(self._judge.stopping))
        if over and self._provokes("once"):
            self._judge.call("release", over[who % len(over)])

    def evict(self, who: int, turn: int) -> None:
        """Evict what is cached."""
        self._judge.call("evict")

    def drain(self, who: int, turn: int) -> None:
        """End every step and release every request."""
        for name in [*self._judge.stopping, *self._judge.live]:
            if name in self._judge.stopping or self._judge.live[name].step:
                self._end(name, turn)
        for name in list(self._judge.live):
            self._judge.call("release", name)

    # --- how ----------------------------------------------------------------------------------------------------------

    def _start(self, request: Request, turn: int) -> None:
        """Reserve room for the next step, evict once where that was denied, and launch."""
        page_length, free = self._judge.page_length, len(self._judge.view.pool.free)
        room = len(self._judge.view.table(request.name)) * page_length - request.computed
        wanted = (request.rest, room + free * page_length, room + (free + 1) * page_length, page_length, 1)[turn % 5]
        tokens = min(request.rest, max(1, wanted))
        self._judge.call("reserve", request.name, tokens)
        if request.computed + tokens > request.room and turn % 3 == 0:
            self._judge.call("evict")
            self._judge.call("reserve", request.name, tokens)
        self._judge.call("launch", request.name, tokens)

    def _end(self, name: str, turn: int) -> None:
        request = self._judge.live.get(name)
        ends_prompt = request is not None and request.step is not None and request.step.count == request.rest
        self._judge.call("complete", name, (2 + turn % 3,) if ends_prompt else ())

    def _idle(self, who: int) -> str | None:
        idle = [name for name in NAMES if name not in self._judge.live and name not in self._judge.stopping]
        return idle[who % len(idle)] if idle else None

    def _waiting(self, who: int) -> Request | None:
        waiting = [request for request in self._judge.live.values() if request.step is None]
        return waiting[who % len(waiting)] if waiting else None

    def _provokes(self, law: str) -> bool:
        return law in self._judge.laws and law not in self._listed

    def _scope(self, turn: int) -> PrefixScope:
        scopes = self._scopes()
        return scopes[turn % len(scopes)] if turn % 3 == 1 else HOME

    def _scopes(self) -> list[PrefixScope]:
        """Return one scope, then one for each field that the manager tells apart, other in that field alone."""
        varied = [one.name for one in fields(PrefixScope) if self._provokes(f"scope.{one.name}")]
        return [HOME, *(_with(HOME, {name: _other(getattr(HOME, name))}) for name in varied)]


def _with(scope: PrefixScope, values: Mapping[str, Any]) -> PrefixScope:
    """Return `scope` with other values in some fields."""
    return evolve(scope, **values)


def _other(value: Any) -> Any:
    """Return another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, tuple):
        return ("other",)
    return value + 1 if isinstance(value, int) else "other"


MOVES: Mapping[str, Callable[[Moves, int, int], None]] = {
    move.__name__: move
    for move in (
        Moves.arrive,
        Moves.compute,
        Moves.finish_step,
        Moves.leave,
        Moves.whole_life,
        Moves.plan_and_give_up,
        Moves.launch_and_cancel,
        Moves.grab_after_cancel,
        Moves.twin,
        Moves.cross,
        Moves.collide,
        Moves.repeat,
        Moves.release_again,
        Moves.evict,
        Moves.drain,
    )
}
