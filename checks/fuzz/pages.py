"""Driving a page pool: every event of the promise and page tables, for a few holders on a few pages."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import cast

from attrs import evolve, frozen

from kvescrow.checks.fuzz.aiming import Aim, Blocked
from kvescrow.checks.fuzz.calls import Call
from kvescrow.checks.fuzz.compiled import Address, Asked
from kvescrow.checks.fuzz.coverage import Coverage
from kvescrow.checks.fuzz.differences import shown
from kvescrow.checks.fuzz.driver import INVARIANTS_EVERY, Driver, Step, next_goals, rotated
from kvescrow.checks.fuzz.goals import Goal, goals_of
from kvescrow.checks.fuzz.guard import opened
from kvescrow.checks.fuzz.stories import STORIES, pick_holder
from kvescrow.checks.targets.protocols import PageFacts, PoolSetup
from kvescrow.checks.targets.subject import Subject
from kvescrow.spec.language.compiler import function_of
from kvescrow.spec.language.expressions import reads
from kvescrow.spec.language.interpreter import View
from kvescrow.spec.language.table import effects_of
from kvescrow.spec.tables.registry import TABLE_BY_NAME
from kvescrow.spec.vocabulary import HolderState, PrefixScope
from kvescrow.spec.world.outcome import Outcome
from kvescrow.spec.world.pages import PROMISE_EVENTS, PageWorld, exact_chain

PROMISE, PAGE = TABLE_BY_NAME["promise"], TABLE_BY_NAME["page"]
PAGE_LENGTH = 2
TOKENS: tuple[tuple[int, ...], ...] = ((0, 7), (1, 7), (2, 7))
"""Under a weak digest the first and the last collide."""
HOLDERS = ("h1", "h2", "h3", "h4", "h5", "h6")

OWN = PrefixScope("a", model="m", page_length=PAGE_LENGTH)
SCOPES = (
    OWN,
    evolve(OWN, tenant="b"),
    evolve(OWN, group=True),
    evolve(OWN, model="n"),
    evolve(OWN, weight_epoch=1),
    evolve(OWN, adapter="x"),
    evolve(OWN, adapter_generation=1),
    evolve(OWN, tokenizer="t"),
    evolve(OWN, position_scheme="p"),
    evolve(OWN, kv_dtype="fp8"),
    evolve(OWN, page_length=PAGE_LENGTH + 1),
    evolve(OWN, salt="s"),
    evolve(OWN, media=("i",)),
)
"""The first, and for each field one that differs from it in that field alone; a test compares the fields."""

MOST_TRIED = 60
"""Calls that are looked at before a goal is given up for this step."""
MOST_WAYS = 3
DEEPEST = 3
"""How many rows, and how far back, are looked at to clear the way to a goal."""


def setup_of(shape: int) -> PoolSetup:
    """Return a small pool, of sizes about what two or three holders need."""
    shape, size = divmod(shape, 5)
    shape, weak = divmod(shape, 3)
    shape, limit = divmod(shape, 3)
    return PoolSetup(
        pages=(5, 4, 3, 6, 7)[size],
        page_length=PAGE_LENGTH,
        scope_limit=(None, None, 1)[limit],
        weak_digest=weak == 2,
    )


def weak_chain(parent: Hashable, scope: PrefixScope, tokens: tuple[int, ...]) -> Hashable:
    """Return a chain that sees no more of a prefix than whether the page's first token is odd."""
    return ("weak", tokens[0] % 2)


class PageDriver(Driver):
    """A page world beside a page target."""

    tables = (PROMISE, PAGE)

    def __init__(self, coverage: Coverage, subject: Subject) -> None:
        super().__init__(coverage, subject)
        self._enabled: Goal | None = None
        self._recent_page = 1
        self._parent: int | None = None
        """The page that wants a page after it."""
        self._recent_holder = HOLDERS[0]

    def setup_of(self, shape: int) -> PoolSetup:
        """Return a small pool; its digests are weak only where the target's can be."""
        setup = setup_of(shape)
        return evolve(setup, weak_digest=setup.weak_digest and self.subject.capabilities.chooses_digest)

    def open_with(self, setup: PoolSetup) -> None:
        """Open world and target as `setup` says."""
        digest = weak_chain if setup.weak_digest else exact_chain
        self.world = PageWorld(setup.pages, setup.scope_limit, digest, self.watch)
        self.target = opened(self.subject, setup)
        self.told.append(Step(lambda: f"open {shown(setup)}"))

    def close(self) -> None:
        """Nothing is held open: a pool lives in memory."""

    # --- choosing an event --------------------------------------------------------------------------------------------

    def act(self, goal: Goal, who: int, turn: int) -> None:
        """Do one event of the goal's kind."""
        call, _ = self._reaching(goal, who, turn)
        if call is None:
            call = next(self._calls(goal.row.event, None, who, turn))
        self.perform(call)

    def approach(self, goal: Goal, who: int, turn: int) -> bool:
        """Take the next row of a shortest way to the goal, or a row that clears the way."""
        states = self._states(goal)
        for state in dict.fromkeys(rotated(states, who)):
            for step in next_goals(goal, state, turn):
                call = self._enabling(step, who, turn, DEEPEST)
                if call is not None:
                    reached = step is goal and self._enabled is goal
                    self.perform(call)
                    return reached
        self.act(_BUSY[turn % len(_BUSY)], who, turn)
        return False

    def _enabling(self, goal: Goal, who: int, turn: int, depth: int) -> Call | None:
        """Return a call that reaches `goal`, or a row whose effect takes away what stands before it, and so on back."""
        self._enabled = goal
        call, nearest = self._reaching(goal, who, turn)
        if call is not None or nearest is None or depth == 0:
            return call
        self._focus(nearest)
        for writer in rotated(_clearing(nearest), turn)[:MOST_WAYS]:
            call = self._enabling(writer.goal, 0, turn, depth - 1)
            if call is not None:
                return call
        return None

    def _focus(self, near: "Near") -> None:
        """Let the next choice start from the page and the holder that something stands before."""
        call = near.call
        self._recent_holder = call.holder or self._recent_holder
        if call.page is None:
            return
        self._recent_page = call.page
        if any(entity == "parent" for entity, _ in near.obstacle.fields):
            # What must change is the page before it.
            up = call.arguments[3] if call.method == "seal" else self.world.parents[call.page]
            self._recent_page = cast(int, up) or self._recent_page
        elif near.obstacle.fields & set(_OF_CHILDREN):
            self._parent = call.page

    def story(self, who: int, turn: int) -> None:
        """Do events that belong together, one after the other."""
        turn, kind = divmod(turn, len(STORIES))
        turn, length = divmod(turn, 3)
        contents = tuple(TOKENS[(turn // 2 + place) % len(TOKENS)] for place in range(1 + length))
        holder = pick_holder(self.world, STORIES[kind], self._holders(who))
        for call in STORIES[kind](self.world, holder, self._scope(turn), contents):
            self.perform(call)

    def _states(self, goal: Goal) -> list[object]:
        if goal.table is PAGE:
            return [record["state"] for record in self.world.pages]
        return [self._holder_state(holder) for holder in HOLDERS]

    def _holder_state(self, holder: str) -> object:
        record = self.world.holders.get(holder)
        return HolderState.ABSENT if record is None else record["state"]

    def _reaching(self, goal: Goal, who: int, turn: int) -> tuple[Call | None, "Near | None"]:
        """Return a call that reaches `goal`; else what stands before the one that comes nearest."""
        if goal.table is PROMISE:
            return self._reaching_promise(goal, who, turn)
        nearest: Near | None = None
        for call in islice(self._calls(goal.row.event, goal, who, turn), MOST_TRIED):
            seen = self.peek(call.on, self.world)
            obstacle = _PAGE_AIM.obstacle(goal, seen.view, seen.parameters)
            if obstacle is None:
                return call, None
            if nearest is None or len(obstacle.requirements) > len(nearest.obstacle.requirements):
                nearest = Near(obstacle, seen.view, call)
        return None, nearest

    def _reaching_promise(self, goal: Goal, who: int, turn: int) -> tuple[Call | None, "Near | None"]:
        event = goal.row.event
        nearest: Near | None = None
        for holder in self._holders(who):
            if self._holder_state(holder) in goal.row.sources:
                seen = self.peek(self._promise(event, holder, 1 + turn % 3, turn).on, self.world)
                solved = _PROMISE_AIM.solve(goal, seen.view, seen.parameters, _no_names, turn)
                if not isinstance(solved, Blocked):
                    return self._promise(event, holder, cast(int, solved.get("units", 0)), turn), None
                nearest = nearest or Near(solved, seen.view, Call(event, (holder,)))
        return None, nearest

    def _promise(self, event: str, holder: str, units: int, turn: int) -> Call:
        match event:
            case "admit":
                return Call(event, (holder, self._scope(turn), units))
            case "grow":
                return Call(event, (holder, units))
            case _:
                return Call(event, (holder,))

    def _scope(self, turn: int) -> PrefixScope:
        """Return the base scope two times in three, so that prefixes meet; else one that differs in one field."""
        turn, differs = divmod(turn, 3)
        return SCOPES[1 + turn % (len(SCOPES) - 1)] if differs == 2 else OWN

    def _holders(self, who: int) -> list[str]:
        others = [holder for holder in HOLDERS if holder != self._recent_holder]
        return rotated([self._recent_holder, *others], who)

    def _pages(self, goal: Goal | None, who: int) -> list[int]:
        numbers = [self._recent_page, *(n for n in range(len(self.world.pages)) if n != self._recent_page)]
        wanted = [n for n in numbers if goal is None or self.world.pages[n]["state"] in goal.row.sources]
        return rotated(wanted, who)

    def _calls(self, event: str, goal: Goal | None, who: int, turn: int) -> Iterator[Call]:
        """Yield calls of `event` on pages in a source state of `goal`, or on any page where it is None."""
        pages, holders = self._pages(goal, who), self._holders(turn % 7)
        flags = (True, False)
        if turn % 2:
            flags = (False, True)
        match event:
            case _ if event in PROMISE_EVENTS:
                yield from (self._promise(event, holder, 1 + turn % 3, turn) for holder in holders)
            case "allocate" | "drop":
                yield from (Call(event, (holder, page)) for page, holder in product(pages, holders))
            case "evict" | "park":
                yield from (Call(event, (page,)) for page in pages)
            case "touch":
                for page, write, holder in product(pages, flags, holders):
                    yield Call(event, (holder, page), (("write", write),))
            case "settle":
                # Well and to the end comes first: that is how a page gets computed.
                for page, write, ok, filled in product(pages, flags, flags, flags):
                    yield Call(event, (page,), (("write", write), ("ok", ok), ("filled", filled)))
            case "retire_scope":
                for page in pages:
                    scope = self.world.pages[page]["scope"]
                    yield from (
                        Call("retire_page", (page, one))
                        for one in ([scope] if isinstance(scope, PrefixScope) else [self._scope(turn), OWN])
                    )
            case _:
                yield from self._lookups(event, pages, holders, turn)

    def _lookups(self, event: str, pages: Sequence[int], holders: Sequence[str], turn: int) -> Iterator[Call]:
        """Yield seals and shares: what the page holds or another content, after its own parent or another page."""
        numbers = list(range(1, len(self.world.pages)))
        for page, holder in product(pages, holders):
            contents: list[tuple[int, ...]] = rotated(TOKENS, turn // 2)
            parents: list[int | None] = [None, *rotated(numbers, turn // 6)[:2]]
            if event == "share" and self.world.tokens[page]:
                contents = [self.world.tokens[page], *contents]
                parents = [self.world.parents[page], *parents]
            elif event == "seal":
                parents = [*self._chain_ends(page, turn), *parents]
            for tokens, parent in product(contents[:3], parents[:3]):
                yield Call(event, (holder, page, tokens, parent))

    def _chain_ends(self, page: int, turn: int) -> list[int | None]:
        """Return a published page to go on after: the one that wants a child, or the last one, or none."""
        scope = self.world.pages[page]["scope"]
        published = [n for n, record in enumerate(self.world.pages) if record["matchable"] and record["scope"] == scope]
        if self._parent in published:
            return [self._parent]
        return list(published[-1:]) if turn % 3 else [None]

    # --- doing it -----------------------------------------------------------------------------------------------------

    def perform(self, call: Call) -> Outcome:
        """Do one event on both sides and compare reply and the whole snapshot."""
        step = Step(lambda: str(call))
        self.told.append(step)
        self.done.append(("perform", (call,)))
        outcome = cast(Outcome, call.on(self.world))
        specified = PageFacts(outcome.decision, outcome.reason)
        step.row = outcome.row
        reply = self.answer(step, specified, lambda: call.on(self.target))
        self.check(
            step,
            (("reply", specified, reply), ("snapshot", self.world.snapshot(), self.target.snapshot())),
            self.world.violations() if len(self.told) % INVARIANTS_EVERY == 0 else (),
        )
        self._recent_page = call.page or self._recent_page
        self._recent_holder = call.holder or self._recent_holder
        return outcome


def _no_names(parameter: str) -> Sequence[object]:
    raise AssertionError(f"the promise table has no parameter `{parameter}` that is a name")


@frozen(eq=False)
class Near:
    """The call that comes nearest to a goal, and what stands before it."""

    obstacle: Blocked
    view: View
    call: Call


_OF_CHILDREN: Mapping[Address, Address] = {
    ("page", "busy"): ("parent", "busy"),
    ("page", "children"): ("parent", "children"),
}
"""A field of a page that only rows of the pages after it write."""
_OF_PARENT: Mapping[Address, Address] = {
    ("parent", "cached"): ("pool", "cached"),
    ("parent", "matchable"): ("page", "matchable"),
}
"""A field of the page before it that rows of that page write, and what they write."""


@frozen(eq=False)
class Writer:
    """A row that changes something, seen as a means to the fields that it writes."""

    goal: Goal
    effects: tuple[tuple[Address, frozenset[Address], Asked], ...]
    """Field, what its new value reads, and its new value."""

    @property
    def writes(self) -> frozenset[Address]:
        """Return the fields that it writes."""
        return frozenset(address for address, _, _ in self.effects)

    def after(self, view: View) -> View:
        """Return `view` with the effects that read and write nothing outside it."""
        changed = {entity: dict(record) for entity, record in view.items()}
        for address, read, value in self.effects:
            if all(name in view.get(entity, ()) for entity, name in (address, *read)):
                changed[address[0]][address[1]] = value(view, {})
        return changed


def _writer(goal: Goal) -> Writer:
    return Writer(
        goal,
        tuple(
            (effect.target.path, reads(effect.value), function_of(effect.value))
            for effect in effects_of(goal.table, goal.row)
        ),
    )


def _clearing(near: Near) -> list[Writer]:
    """Return the rows that take away what stands before the goal, as far as can be told."""
    fields, elsewhere = near.obstacle.fields, {**_OF_CHILDREN, **_OF_PARENT}
    moved = {elsewhere[field] for field in fields if field in elsewhere}
    if moved:
        return [writer for writer in _WRITERS if writer.writes & moved]
    return [w for w in _WRITERS if w.writes & fields and near.obstacle.is_cured_by(w.after(near.view))]


_PAGE_AIM, _PROMISE_AIM = Aim(PAGE), Aim(PROMISE)
_BUSY = [goal for table in (PROMISE, PAGE) for goal in goals_of(table) if goal.is_row and not goal.row.changes_nothing]
"""What to do where nothing brings a goal nearer: anything that changes something."""
_WRITERS = [_writer(goal) for goal in _BUSY]
