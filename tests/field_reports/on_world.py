"""The oracle as a subject: worlds that are moved by the rows of the tables alone."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import cast

from kvescrow.spec.language.table import Table
from kvescrow.spec.tables.registry import TABLE_BY_NAME
from kvescrow.spec.vocabulary import (
    ExecutionState,
    LedgerEvent,
    LedgerSnapshot,
    PoolSnapshot,
    PrefixScope,
)
from kvescrow.spec.world.executions import ExecutionWorld
from kvescrow.spec.world.ledger import LedgerWorld, TenantTerms, Watch
from kvescrow.spec.world.outcome import Outcome
from kvescrow.spec.world.pages import PageWorld, exact_chain
from tests.field_reports.driver import Ticket, Worker
from tests.field_reports.ledger import RETENTION, Ledger, Terms
from tests.field_reports.pages import Pages
from tests.field_reports.replies import LAUNCHED, MISS, SETTLED, Answer

Tables = Mapping[str, Table]
"""What moves the worlds."""


def _answer(outcome: Outcome) -> Answer:
    return Answer(outcome.decision, outcome.reason)


def _one_for_all(_parent: Hashable, _scope: PrefixScope, _tokens: tuple[int, ...]) -> Hashable:
    return "collision"


class WorldPages(Pages):
    """A `PageWorld`."""

    def __init__(
        self, pages: int, length: int, *, weak: bool, tables: Tables = TABLE_BY_NAME, watch: Watch | None = None
    ) -> None:
        super().__init__(length)
        self.world = PageWorld(pages + 1, digest=_one_for_all if weak else exact_chain, watch=watch, tables=tables)

    def snapshot(self) -> PoolSnapshot:
        return self.world.snapshot()

    def broken(self) -> list[str]:
        return self.world.violations()

    def _admit(self, holder: str, scope: PrefixScope, units: int) -> Answer:
        return _answer(self.world.admit(holder, scope, units))

    def _grow(self, holder: str, units: int) -> Answer:
        return _answer(self.world.grow(holder, units))

    def _close(self, holder: str) -> Answer:
        return _answer(self.world.close(holder))

    def _allocate(self, holder: str, page: int) -> Answer:
        return _answer(self.world.allocate(holder, page))

    def _seal(self, holder: str, page: int, tokens: tuple[int, ...], parent: int | None) -> Answer:
        return _answer(self.world.seal(holder, page, tokens, parent))

    def _share(self, holder: str, page: int, path: tuple[int, ...], tokens: tuple[int, ...]) -> Answer:
        # The world asks for the page before; where no page ends the path, this one cannot lie on it either.
        before = self._page_at(self._scopes.get(holder, self.scope), path)
        return MISS if path and before is None else _answer(self.world.share(holder, page, tokens, before))

    def _drop(self, holder: str, page: int) -> Answer:
        return _answer(self.world.drop(holder, page))

    def _evict(self, page: int) -> Answer:
        return _answer(self.world.evict(page))

    def _touch(self, holder: str, page: int, write: bool) -> Answer:
        return _answer(self.world.touch(holder, page, write=write))

    def _settle(self, page: int, write: bool, ok: bool, filled: bool) -> Answer:
        return _answer(self.world.settle(page, write=write, ok=ok, filled=filled))

    def _park(self, page: int) -> Answer:
        return _answer(self.world.park(page))

    def _retire(self, page: int, scope: PrefixScope) -> Answer:
        return _answer(self.world.retire_page(page, scope))

    def _page_at(self, scope: PrefixScope, path: tuple[int, ...]) -> int | None:
        above: int | None = None
        for start in range(0, len(path), self.length):
            piece = path[start : start + self.length]
            above = next(
                (
                    number
                    for number, page in enumerate(self.snapshot().pages)
                    if (page.scope, page.tokens, self.world.parents[number]) == (scope, piece, above)
                ),
                None,
            )
            if above is None:
                return None
        return above


class WorldLedger(Ledger):
    """A `LedgerWorld`."""

    def __init__(
        self,
        pool_limit: int,
        tenants: Mapping[str, Terms],
        tables: Tables = TABLE_BY_NAME,
        watch: Watch | None = None,
    ) -> None:
        self.world = LedgerWorld(
            pool_limit,
            {name: TenantTerms(terms.limit, terms.budget, terms.queue_limit) for name, terms in tenants.items()},
            RETENTION,
            watch,
            tables,
        )

    def snapshot(self) -> LedgerSnapshot:
        return self.world.snapshot()

    def broken(self) -> list[str]:
        return self.world.violations()

    def _apply(self, event: LedgerEvent, authentic: bool) -> Answer:
        return _answer(self.world.apply(event, authentic=authentic))


class WorldWorker(Worker):
    """An `ExecutionWorld` beside a `PageWorld`: a step is its ticket and a touch of every page that it lists."""

    def __init__(
        self,
        pages: WorldPages,
        ledger: WorldLedger,
        tables: Tables = TABLE_BY_NAME,
        watch: Watch | None = None,
    ) -> None:
        super().__init__(pages, ledger)
        self._pool = pages.world
        self._world = ExecutionWorld(watch, tables)
        self._steps: dict[int, Ticket] = {}

    def execution(self, name: str) -> ExecutionState:
        record = self._world.executions.get(name)
        return cast(ExecutionState, record["state"]) if record else ExecutionState.ABSENT

    def begin(self, name: str, generation: int) -> Answer:
        return _answer(self._world.begin(name, generation))

    def close(self, name: str) -> Answer:
        return _answer(self._world.close(name))

    def certify(self, name: str) -> Answer:
        return _answer(self._world.certify(name))

    def acknowledge(self, name: str) -> Answer:
        return _answer(self._world.acknowledge(name))

    def _launch(self, step: Ticket) -> Answer:
        answer = _answer(self._world.launch(step.name, step.number, step.generation))
        if answer == LAUNCHED:
            self._steps[step.number] = step
            for page, write in _touches(step):
                assert _answer(self._pool.touch(self.holder(step.name), page, write=write)) == LAUNCHED
        return answer

    def _settle(self, number: int, ok: bool) -> Answer:
        step = self._steps.get(number)
        if step is None:
            return _answer(self._world.settle("", number, ok=ok))
        answer = _answer(self._world.settle(step.name, number, ok=ok))
        if answer == SETTLED:
            for page, write in _touches(step):
                assert _answer(self._pool.settle(page, write=write, ok=ok, filled=step.full and write)) == SETTLED
        return answer


def _touches(step: Ticket) -> list[tuple[int, bool]]:
    return [*((page, False) for page in step.reads), *((page, True) for page in step.writes)]
