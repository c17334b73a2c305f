"""Random histories of a serving engine's whole scheduler, judged from outside by laws (TGT-1).

The engine decides what runs; the judge stands for the executor. It notes which positions each step writes and looks, at
each step, whether what the step takes as computed was computed before it or is computed by it. So a page that was made
matchable for a step that never ran is found at its first read, whichever way the engine came to it.
"""

from typing import Any

from kvescrow.checks.fuzz.differences import shown
from kvescrow.checks.fuzz.manager import ManagerJudge, Request, Step, View
from kvescrow.checks.fuzz.oracle import Oracle
from kvescrow.checks.targets.protocols import Scheduled
from kvescrow.checks.targets.subject import Publish
from kvescrow.spec.vocabulary import PrefixScope


class SchedulerJudge(ManagerJudge):
    """A fresh scheduler, its requests, and every law after every call."""

    def open_with(self, setup: Any) -> None:
        """Open the scheduler. Raises `UserError` where the target says that it cannot be opened here."""
        self.setup = setup
        self.page_length = setup.page_length
        self.oracle = Oracle(setup.page_length, self.declared.scope_fields)
        self.target = self._opened(setup)
        self.flight: tuple[Scheduled, ...] = ()
        self.view = self._look(None)
        self._conserved(self.view.pool.total)

    # --- which calls a client may make --------------------------------------------------------------------------------

    def _may_submit(self, name: str, prompt: Any, scope: PrefixScope, priority: int = 0) -> bool:
        return bool(prompt) and name not in self.live and name not in self.stopping

    def _may_step(self, token: int) -> bool:
        return True

    def _may_cancel(self, name: str) -> bool:
        return name in self.live

    def _tried(self, method: str, arguments: tuple[Any, ...]) -> str:
        return "answers"

    def _make(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """A step samples a token for each sequence that it computes to the end."""
        if method != "step":
            return super()._make(method, arguments)
        live = [self.live[share.request] for share in self.flight if share.request in self.live]
        return self.target.step({request.name: arguments[0] for request in live if request.rest == 0})

    # --- what each call must come to ----------------------------------------------------------------------------------

    def _after_submit(  # type: ignore[override]  # a scheduler answers nothing
        self, before: View, reply: None, name: str, prompt: Any, scope: PrefixScope, priority: int = 0
    ) -> None:
        self.live[name] = Request(name, tuple(prompt), scope, list(prompt))
        self.over.discard(name)

    def _after_step(self, before: View, reply: tuple[Scheduled, ...], token: int) -> None:
        self._ends(token)
        self.flight = reply
        self._launched += 1
        written: set[int] = set()
        for share in reply:
            written |= self._plans(share, written)
        for share in reply:
            request, table = self.live[share.request], self.view.table(share.request)
            if share.start > request.computed:
                self.exercised.add("backed")
            found = self.oracle.misread(table, request.sequence, share.start, request.scope, launched=True)
            self._require("backed", found is None, f"{request.name} takes {share.start} positions as computed: {found}")
            request.computed = share.end
        for name, request in self.live.items():
            if not self.view.table(name):
                request.computed = 0

    def _plans(self, share: Scheduled, taken: set[int]) -> set[int]:
        """Note what the step writes for one request and look whether it may; return the pages.

        Where pages match at schedule, requests of one step may share what one of them computes in it; then pages that
        another request of the step writes, which are `taken`, are the only ones that may not be written.
        """
        known = share.request in self.live
        request = self.live[share.request] if known else None
        fits = request is not None and 0 <= share.start < share.end <= len(request.sequence)
        self._require("answers", fits, f"scheduled {shown(share)}, which is no live request's next positions")
        assert request is not None, "the law in force has said so"
        table, others = self.view.table(share.request), set(taken)
        enough = len(table) >= self._pages(share.end) and len(set(table)) == len(table)
        self._require("room", enough, f"{share.request} is to compute up to {share.end} in pages {table}")
        self.exercised.add("room")
        if self.declared.publish is Publish.AT_COMMIT:
            others |= {page for name, pages in self.view.tables.items() if name != share.request for page in pages}
        written = set(table[share.start // self.page_length : self._pages(share.end)])
        self._require("private", not written & others, f"pages {sorted(written & others)} are in another's table")
        if others:
            self.exercised.add("private")
        positions = range(share.start, share.end)
        self.oracle.write(self._launched, table, request.sequence, positions, request.scope)
        request.step = Step(self._launched, len(positions), frozenset(table[: self._pages(share.end)]))
        return written

    def _ends(self, token: int) -> None:
        """Note that the step in flight has ended."""
        self.oracle.settle(self._launched)
        for share in self.flight:
            request = self.live.get(share.request)
            if request is not None:
                request.step = None
                request.sequence += [token] if request.rest == 0 else []
        for name in list(self.stopping):
            del self.stopping[name]
            self._gone(name)

    def _after_cancel(self, before: View, reply: None, name: str) -> None:
        request = self.live.pop(name)
        if request.step is not None:
            self.stopping[name] = request.step
        else:
            self._gone(name)

    def _gone(self, name: str) -> None:
        self.over.add(name)
        table = self.view.table(name)
        self._require("released", not table, f"{name} still has pages {table}")
        self.exercised.add("released")

    def _general(self, before: View, acting: str | None) -> None:
        self._conserved(before.pool.total)
        self._counted()
        if self.over and not self.live and not self.stopping:
            pool = self.view.pool
            all_back = not pool.holders and len(pool.free) + len(pool.cached) == pool.total
            self._require("drained", all_back, f"{len(pool.free)} free and {len(pool.cached)} cached of {pool.total}")
            self.exercised.add("drained")
