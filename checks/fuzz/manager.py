"""Random histories of a cache manager, judged from outside by laws (TGT-1).

A manager hands out pages by its own rules, so nothing is compared with a table step by step. Every law is a statement
about what an observer can see: where the pages are, what each request was told, and which tokens were written where.
`ManagerJudge` makes one call at a time and looks at every law after it; what to call next is chosen elsewhere.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, frozen

from kvescrow.checks.fuzz.judge import Judge
from kvescrow.checks.fuzz.oracle import Fault, Misread, Oracle
from kvescrow.checks.targets.protocols import Denied, Granted, ManagerPool
from kvescrow.checks.targets.subject import Publish, Subject
from kvescrow.spec.vocabulary import PrefixScope


@define(eq=False)
class Step:
    """A launched step that has not ended."""

    number: int
    count: int
    pages: frozenset[int]
    """Every page that it reads or writes."""


@define(eq=False)
class Request:
    """A live request, as its client knows it."""

    name: str
    prompt: tuple[int, ...]
    scope: PrefixScope
    sequence: list[int]
    computed: int = 0
    """Positions that need no computing any more."""
    room: int = 0
    """Positions for which room was granted."""
    step: Step | None = None

    @property
    def rest(self) -> int:
        """Return how many known positions have still to be computed."""
        return len(self.sequence) - self.computed


@frozen
class View:
    """All that can be seen of a manager at one moment."""

    pool: ManagerPool
    tables: Mapping[str, tuple[int, ...]]
    """Request -> its pages by position, where it has any."""

    def table(self, name: str) -> tuple[int, ...]:
        """Return the pages of a request."""
        return self.tables.get(name, ())


class ManagerJudge(Judge):
    """A fresh manager, its requests, and every law after every call."""

    view: View

    def __init__(self, subject: Subject, exercised: set[str] | None = None) -> None:
        """Judge `subject`, and add to `exercised` the name of each law that has been put to the test."""
        super().__init__(subject, exercised)
        self.live: dict[str, Request] = {}
        self.stopping: dict[str, Step] = {}
        """Steps whose request was released while they were in flight."""
        self.over: set[str] = set()
        self._launched = 0
        self._cancels = "cancel" in self.laws - {deviation.law for deviation in subject.deviations}

    def open_with(self, setup: Any) -> None:
        """Open the manager. Raises `UserError` where the target says that it cannot be opened here."""
        self.setup = setup
        self.page_length: int = setup.page_length
        self.oracle = Oracle(setup.page_length, self.declared.scope_fields)
        self.target = self._opened(setup)
        self.view = self._look(None)
        self._conserved(self.view.pool.total)

    # --- which calls a client may make --------------------------------------------------------------------------------

    def _may_submit(self, name: str, prompt: Sequence[int], scope: PrefixScope) -> bool:
        known = self.live.get(name)
        if known is not None:
            return self.declared.duplicate_ids and known.prompt == tuple(prompt) and known.scope == scope
        return bool(prompt) and name not in self.stopping

    def _may_reserve(self, name: str, tokens: int) -> bool:
        request = self.live.get(name)
        return request is not None and request.step is None and 0 < tokens <= request.rest

    def _may_launch(self, name: str, tokens: int) -> bool:
        request = self.live.get(name)
        if request is None or not self._may_reserve(name, tokens) or request.computed + tokens > request.room:
            return False
        # What was matched at schedule is computed by a step that is launched before, or together.
        return not self.oracle.awaits(name, self.view.table(name), request.computed)

    def _may_complete(self, name: str, sampled: Sequence[int]) -> bool:
        request = self.live.get(name)
        if request is None:
            return name in self.stopping and not sampled
        return request.step is not None and (not sampled or request.step.count == request.rest)

    def _may_release(self, name: str) -> bool:
        request = self.live.get(name)
        if request is None:
            return name in self.over or name in self.stopping
        adopted = any(
            self.oracle.awaits(other, self.view.table(other), one.computed)
            for other, one in self.live.items()
            if other != name
        )
        return not adopted and (request.step is None or self.declared.cancels_in_flight)

    def _may_evict(self) -> bool:
        return True

    def _tried(self, method: str, arguments: tuple[Any, ...]) -> str:
        """Return the law that is broken where this call is not answered."""
        name = arguments[0] if arguments else None
        if method == "submit" and name in self.live:
            return "duplicate"
        if method == "release" and name not in self.live:
            return "once"
        if method == "complete" and name in self.stopping:
            return "cancel"
        return "cancel" if method == "release" and self.live[str(name)].step else "answers"

    # --- what each call must come to ----------------------------------------------------------------------------------

    def _after_submit(self, before: View, reply: Granted, name: str, prompt: Sequence[int], scope: PrefixScope) -> None:
        if name in self.live:
            self._unchanged("duplicate", before)
            return
        request = Request(name, tuple(prompt), scope, list(prompt), reply.cached_tokens, reply.cached_tokens)
        self._put_to_the_test(before, request)
        self.live[name] = request
        self.over.discard(name)
        self._covers(request)
        self._reads(request, hit=True)

    def _could_match(self, published: PrefixScope, asked: PrefixScope, *, ended: bool) -> None:
        differs = self.oracle.differing(published, asked)
        if not differs and not ended:
            self.exercised.add("computed")
        if len(differs) == 1 and ended:
            self.exercised.add(f"scope.{differs[0]}")
        if len(differs) > 1 and ended and joined(published, differs) == joined(asked, differs):
            self.exercised.add("scope.joined")

    def _put_to_the_test(self, before: View, request: Request) -> None:
        """Take note of what could have been matched and must not be."""
        first = request.prompt[: self.page_length]
        if len(request.prompt) > self.page_length:
            for scope, ended in self.oracle.scopes_of(first, before.pool.free).items():
                self._could_match(scope, request.scope, ended=ended)
            if self.oracle.is_given_up(first, request.scope):
                self.exercised.add("withdrawn")
        if request.computed:
            self.exercised.add("content")

    def _after_reserve(self, before: View, reply: Granted | Denied, name: str, tokens: int) -> None:
        request = self.live[name]
        lacking = max(0, self._pages(request.computed + tokens) - len(before.table(name)))
        if isinstance(reply, Denied):
            self._unchanged("denied", before)
            free = len(before.pool.free)
            self._require("fits", lacking > free, f"{lacking} pages were needed and {free} were free")
            return
        end = request.computed + tokens
        request.room = max(request.room, end)
        self._covers(request)
        self.oracle.plan(name, self.view.table(name), request.sequence, range(request.computed, end), request.scope)
        if lacking and lacking == len(before.pool.free):
            self.exercised.add("fits")
        if lacking:
            self._handed_out(before, name, set(self.view.table(name)) - set(before.table(name)))

    def _handed_out(self, before: View, name: str, fresh: set[int]) -> None:
        held = {page for other, table in before.tables.items() if other != name for page in table}
        self._require("unheld", not fresh & held, f"pages {_listed(fresh & held)} were held")
        self.exercised.add("unheld")
        steps = [*self.stopping.values(), *(one.step for one in self.live.values() if one.step)]
        touched = {page for step in steps for page in step.pages}
        self._require("in_flight", not fresh & touched, f"pages {_listed(fresh & touched)} are being read or written")
        if self.stopping if self._cancels else steps:
            self.exercised.add("in_flight")

    def _after_launch(self, before: View, reply: None, name: str, tokens: int) -> None:
        request, table = self.live[name], self.view.table(name)
        self._covers(request)
        self._reads(request)
        end = request.computed + tokens
        written = set(table[request.computed // self.page_length : self._pages(end)])
        others = {page for other in self.view.tables if other != name for page in self._own(other)}
        if others:
            self.exercised.add("private")
        self._require("private", not written & others, f"pages {_listed(written & others)} are in another's table")
        self._launched += 1
        request.step = Step(self._launched, tokens, frozenset(table[: self._pages(end)]))
        self.oracle.write(self._launched, table, request.sequence, range(request.computed, end), request.scope)

    def _own(self, name: str) -> tuple[int, ...]:
        """Return the pages that no other may write: where pages match at schedule, not those that were matched."""
        table, request = self.view.table(name), self.live.get(name)
        if self.declared.publish is Publish.AT_COMMIT or request is None:
            return table
        return table[request.computed // self.page_length :]

    def _after_complete(self, before: View, reply: None, name: str, sampled: Sequence[int]) -> None:
        request = self.live.get(name)
        if request is None:
            self.oracle.settle(self.stopping.pop(name).number)
            self.over.add(name)
            self._require("cancel", not self.view.table(name), f"{name} still has pages after its step has ended")
            self.exercised.add("cancel")
            return
        assert request.step is not None, "only a step in flight completes"
        self.oracle.settle(request.step.number)
        request.computed += request.step.count
        request.sequence += sampled
        request.step = None
        self._covers(request)
        self._reads(request)

    def _after_release(self, before: View, reply: None, name: str) -> None:
        request = self.live.pop(name, None)
        self.oracle.give_up(name)
        if request is None:
            self._unchanged("once", before)
        elif request.step is not None:
            self.stopping[name] = request.step
        else:
            self.over.add(name)
            table = self.view.table(name)
            self._require("released", not table, f"{name} still has pages {_listed(table)}")
            self.exercised.add("released")

    def _after_evict(self, before: View, reply: None) -> None:
        pool, was = self.view.pool, before.pool
        kept = self.view.tables == before.tables and dict(pool.holders) == dict(was.holders)
        self._require("evicts", kept and was.free <= pool.free, "tables, holders or free pages were taken away")
        if was.cached and was.holders:
            self.exercised.add("evicts")

    # --- what must hold after every call ------------------------------------------------------------------------------

    def _general(self, before: View, acting: str | None) -> None:
        self._conserved(before.pool.total)
        self._counted()
        others = [name for name in (*self.live, *self.stopping) if name != acting]
        moved = [name for name in others if before.table(name) != self.view.table(name)]
        self._require("others", not moved, f"the table of {', '.join(moved)} changed")
        if acting and others:
            self.exercised.add("others")
        if acting in self.live and acting in before.tables:
            was, now = before.table(acting), self.view.table(acting)
            self._require("stable", now[: len(was)] == was, f"the table of {acting} was {was} and is {now}")
            if was:
                self.exercised.add("stable")
        if self.over and not self.live and not self.stopping:
            pool = self.view.pool
            all_back = not pool.holders and len(pool.free) + len(pool.cached) == pool.total
            self._require("drained", all_back, f"{len(pool.free)} free and {len(pool.cached)} cached of {pool.total}")
            self.exercised.add("drained")

    def _conserved(self, total: int) -> None:
        pool = self.view.pool
        kinds = (set(pool.free), set(pool.cached), set(pool.holders))
        several = [page for page, count in Counter(page for kind in kinds for page in kind).items() if count > 1]
        self._require("conservation", not several, f"pages {_listed(several)} are in two places")
        free, cached, held = map(len, kinds)
        adds_up = free + cached + held == pool.total == total
        self._require("conservation", adds_up, f"{free} free, {cached} cached and {held} held of {pool.total}")
        if free and cached and held:
            self.exercised.add("conservation")

    def _counted(self) -> None:
        listed = Counter(page for table in self.view.tables.values() for page in table)
        # A request cancelled in flight may count as a holder until its step has ended, with or without a table.
        unlisted = Counter(
            page for name, step in self.stopping.items() for page in step.pages - set(self.view.table(name))
        )
        for page in sorted({*listed, *self.view.pool.holders}):
            count = self.view.pool.holders.get(page, 0)
            agrees = listed[page] <= count <= listed[page] + unlisted[page]
            self._require("holders", agrees, f"page {page} counts {count} holders and is in {listed[page]} tables")
        if any(count > 1 for count in listed.values()):
            self.exercised.add("holders")

    def _covers(self, request: Request) -> None:
        table = self.view.table(request.name)
        enough = len(table) >= self._pages(max(request.room, request.computed)) and len(set(table)) == len(table)
        known = 0 <= request.computed <= len(request.sequence)
        self._require("room", enough and known, f"{request.name} has {request.room} positions in pages {table}")
        self.exercised.add("room")

    def _reads(self, request: Request, *, hit: bool = False) -> None:
        """Look whether the pages of a request hold what it takes them for; `hit`: since the cache says so."""
        launched = self.declared.publish is Publish.AT_SCHEDULE
        table = self.view.table(request.name)
        found = self.oracle.misread(table, request.sequence, request.computed, request.scope, launched=launched)
        if found is not None:
            self._require(_law_of(found, hit), False, f"{request.name}: {found}")

    # --- how ----------------------------------------------------------------------------------------------------------

    def _unchanged(self, law: str, before: View) -> None:
        pool, was = self.view.pool, before.pool
        if self.view.tables != before.tables:
            self._require(law, False, f"tables were {dict(before.tables)} and are {dict(self.view.tables)}")
        same = (pool.free, pool.cached, dict(pool.holders)) == (was.free, was.cached, dict(was.holders))
        self._require(law, same, f"the pool was {_summary(was)} and is {_summary(pool)}")
        self.exercised.add(law)

    def _look(self, acting: str | None) -> View:
        names = dict.fromkeys([*self.live, *self.stopping, *([acting] if acting else [])])
        tables = self._asked("answers", lambda: {name: tuple(self.target.pages_of(name)) for name in names})
        pool = self._asked("answers", self.target.pool)
        return View(pool, {name: table for name, table in tables.items() if table})

    def _pages(self, positions: int) -> int:
        return -(-positions // self.page_length)


def _law_of(found: Misread, hit: bool) -> str:
    if found.fault is Fault.OTHER_SCOPE:
        return f"scope.{found.fields[0]}" if len(found.fields) == 1 else "scope.joined"
    if found.fault is Fault.GIVEN_UP:
        return "withdrawn"
    if found.fault is Fault.NOT_COMPUTED or (found.fault is Fault.EMPTY and hit):
        return "computed"
    return "content"


def joined(scope: PrefixScope, names: Sequence[str]) -> str:
    """Return the texts in the fields `names`, one after the other, as a careless key has them."""
    return "".join(str(getattr(scope, name) or "") for name in names)


def _listed(pages: Any) -> str:
    return ", ".join(str(page) for page in sorted(pages)) or "none"


def _summary(pool: ManagerPool) -> str:
    held = ", ".join(f"{page}x{count}" for page, count in sorted(pool.holders.items()))
    return f"(free {_listed(pool.free)}; cached {_listed(pool.cached)}; held {held or 'none'})"
