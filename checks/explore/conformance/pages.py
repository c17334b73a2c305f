"""Pages of an instance as events of a page pool: places as page numbers, holders and scopes by name."""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from kvescrow.checks.explore.conformance.checkpoint import Checkpoint
from kvescrow.checks.explore.conformance.clone import cloned
from kvescrow.checks.explore.conformance.graph import Answer, Graph, Said
from kvescrow.checks.explore.instance import Instance, Move
from kvescrow.checks.explore.instances.pages import FIRST, SINK
from kvescrow.checks.targets.protocols import PageFacts, PageTarget, PoolSetup
from kvescrow.checks.targets.subject import Subject as Target
from kvescrow.checks.targets.typed import misfit
from kvescrow.spec.vocabulary import HolderState, PageState, PoolSnapshot, PrefixScope

_TOKENS = {FIRST: (1,), FIRST + 1: (2,)}
_COLLIDING = (3,)
"""Tokens with the digest of the first page under a weak digest, which sees no more than whether a token is odd."""
_UNPUBLISHED = 0
"""The sink, which is never published: what comes after it has no place in any chain."""


def _number(place: str) -> int:
    return 0 if place == SINK else int(place.rsplit(maxsplit=1)[-1]) + 1


def _scope(place: str) -> PrefixScope:
    return PrefixScope(place)


class PageSubject:
    """A pool, driven by moves. What shows of a page is all but whether it is computed, which its replies tell."""

    def __init__(self, target: PageTarget, instance: Instance) -> None:
        self._target = target
        self._instance = instance
        self._doing = _DOING

    def do(self, answer: Answer) -> Said:
        """Do the event of the move."""
        move = self._instance.moves[answer.move]
        facts = self._doing[move.event](self._target, move, self._instance)
        return facts.decision, facts.reason

    def can(self, move: int) -> bool:
        """Return that every move can be brought about."""
        return True

    def shows(self) -> object:
        """Return pages and promises."""
        snapshot: PoolSnapshot = self._target.snapshot()
        pages = tuple(
            (p.state, p.holders, p.readers, p.writers, p.scope, bool(p.tokens) and p.tokens) for p in snapshot.pages[1:]
        )
        return pages, dict(snapshot.promised)

    def misfit(self) -> str:
        """Return what of the snapshot has not its declared type."""
        return misfit(self._target.snapshot(), PoolSnapshot)

    def variant(self) -> int:
        """Return 0: every move can be brought about in every state."""
        return 0

    def spoilt(self) -> bool:
        """Return that no move takes any possibility away."""
        return False

    def hold(self) -> Callable[[], None]:
        """Return what brings the pool back to where it is now."""
        return Checkpoint(self._target).restore

    def copy(self) -> "PageSubject":
        """Return a copy of the pool."""
        return PageSubject(cloned(self._target), self._instance)

    def close(self) -> None:
        """There is nothing to give up."""


def _by(move: Move) -> str:
    return move.binds["holder"]


def _at(move: Move) -> int:
    return _number(move.binds["page"])


def _admit(target: PageTarget, move: Move, instance: Instance) -> PageFacts:
    of_scope = instance.place_by_name[_by(move)].reads_as["scope"]
    return target.admit(_by(move), _scope(f"scope {of_scope}"), cast(int, move.parameters["units"]))


def _seal(target: PageTarget, move: Move, instance: Instance) -> PageFacts:
    chain = cast(int, move.parameters["chain"])
    return target.seal(_by(move), _at(move), _TOKENS[chain], _parent(target, move, chain))


def _parent(target: PageTarget, move: Move, chain: int) -> int | None:
    if chain == FIRST:
        return None
    place = move.binds["parent"]
    return _number(place) if place.startswith("page") else _UNPUBLISHED


def _share(target: PageTarget, move: Move, instance: Instance) -> PageFacts:
    chain = cast(int, move.parameters["chain"])
    tokens = _TOKENS[chain] if move.parameters["tokens_equal"] else _COLLIDING
    return target.share(_by(move), _at(move), tokens, _parent(target, move, chain))


def _settle(target: PageTarget, move: Move, instance: Instance) -> PageFacts:
    flags = {name: bool(value) for name, value in move.parameters.items()}
    return target.settle(_at(move), write=flags["write"], ok=flags["ok"], filled=flags["filled"])


def _retire(target: PageTarget, move: Move, instance: Instance) -> PageFacts:
    return target.retire_page(_at(move), _scope(move.binds["scope"]))


_DOING: Mapping[str, Callable[[PageTarget, Move, Instance], PageFacts]] = {
    "admit": _admit,
    "grow": lambda target, move, _: target.grow(_by(move), cast(int, move.parameters["units"])),
    "close": lambda target, move, _: target.close(_by(move)),
    "forget": lambda target, move, _: target.forget(_by(move)),
    "allocate": lambda target, move, _: target.allocate(_by(move), _at(move)),
    "seal": _seal,
    "share": _share,
    "drop": lambda target, move, _: target.drop(_by(move), _at(move)),
    "evict": lambda target, move, _: target.evict(_at(move)),
    "touch": lambda target, move, _: target.touch(_by(move), _at(move), write=bool(move.parameters["write"])),
    "settle": _settle,
    "park": lambda target, move, _: target.park(_at(move)),
    "retire_scope": _retire,
}


class PageDriver:
    """Opens pools for an instance of the page table."""

    varying = frozenset[int]()
    """Every move can be brought about in every state."""

    def __init__(self, instance: Instance, target: Target) -> None:
        self.graph = Graph(instance)
        self._target = target
        self._pages = sum(place.name.startswith("page ") for place in instance.places)
        limits = [cast(int, p.reads_as["limit"]) for p in instance.places if p.name.startswith("scope ")]
        self._setup = PoolSetup(self._pages + 1, page_length=1, scope_limit=limits[0], weak_digest=True)
        self._holders = [p.name for p in instance.places if p.name.startswith("holder ")]
        self._expected: dict[int, object] = {}

    def open(self) -> PageSubject:
        """Return a fresh pool."""
        return PageSubject(self._target.open(self._setup), self.graph.instance)

    def expected(self, state: int) -> object:
        """Return the pages and promises of `state`."""
        if state not in self._expected:
            self._expected[state] = self._shown(self.graph.form.views.named(self.graph.codes(state)))
        return self._expected[state]

    def _shown(self, named: Mapping[str, object]) -> object:
        pages = []
        for number in range(self._pages):
            of = f"page {number}"
            chain = cast(int, named[f"{of}.chain"])
            of_scope = named[f"{of}.scope"]
            pages.append(
                (
                    cast(PageState, named[f"{of}.state"]),
                    self._holding(named, number),
                    named[f"{of}.readers"],
                    named[f"{of}.writers"],
                    _scope(f"scope {of_scope}") if of_scope else None,
                    _TOKENS[chain] if chain else False,
                )
            )
        return tuple(pages), {
            name: named[f"{name}.promised"] for name in self._holders if named[f"{name}.state"] is HolderState.ADMITTED
        }

    def _holding(self, named: Mapping[str, object], number: int) -> frozenset[str]:
        holds: Sequence[str] = [
            name for n, name in enumerate(self._holders) if named[f"claim of {n} on page {number}.holds"]
        ]
        return frozenset(holds)
