"""The reference implementation as a subject: its ledgers, its page pool, its executions."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Protocol

from attrs import evolve

from kvescrow.reference.executions import Executions, Share, Step
from kvescrow.reference.ledger import Ledger as LedgerPort
from kvescrow.reference.ledger import LedgerConfig, MemoryLedger, TenantConfig
from kvescrow.reference.pages import PagePool, chain_digest, root_digest
from kvescrow.reference.receipts import Keyring
from kvescrow.spec.vocabulary import (
    Decision,
    ExecutionState,
    Fence,
    Finish,
    LedgerEvent,
    LedgerSnapshot,
    PoolSnapshot,
    PrefixScope,
    Reason,
)
from tests.field_reports.driver import Ticket, Worker
from tests.field_reports.ledger import POOL, RETENTION, Ledger, Terms, key
from tests.field_reports.pages import SINK, Pages
from tests.field_reports.replies import Answer

OpenStore = Callable[[LedgerConfig, Keyring], LedgerPort]
"""Opens an empty ledger of one store, whose time moves by `Tick` alone."""


def in_memory(config: LedgerConfig, keyring: Keyring) -> LedgerPort:
    """Open a ledger in memory."""
    return MemoryLedger(config, keyring=keyring)


class _Reply(Protocol):
    @property
    def decision(self) -> Decision: ...
    @property
    def reason(self) -> Reason: ...


def _answer(reply: _Reply) -> Answer:
    return Answer(reply.decision, reply.reason)


def _one_for_all(_parent: bytes, _tokens: bytes) -> bytes:
    return b"collision"


class ReferencePages(Pages):
    """A `PagePool`."""

    def __init__(self, pages: int, length: int, *, weak: bool) -> None:
        super().__init__(length)
        self._digest = _one_for_all if weak else chain_digest
        self.pool = PagePool(pages + 1, length, digest=self._digest)

    def snapshot(self) -> PoolSnapshot:
        return self.pool.snapshot()

    def broken(self) -> list[str]:
        self.pool.check()
        return []

    def _admit(self, holder: str, scope: PrefixScope, units: int) -> Answer:
        return _answer(self.pool.admit(holder, scope, units))

    def _grow(self, holder: str, units: int) -> Answer:
        return _answer(self.pool.grow(holder, units))

    def _close(self, holder: str) -> Answer:
        return _answer(self.pool.close(holder))

    def _allocate(self, holder: str, page: int) -> Answer:
        return _answer(self.pool.allocate(holder, page))

    def _seal(self, holder: str, page: int, tokens: tuple[int, ...], parent: int | None) -> Answer:
        return _answer(self.pool.seal(holder, page, tokens, parent))

    def _share(self, holder: str, page: int, path: tuple[int, ...], tokens: tuple[int, ...]) -> Answer:
        before = root_digest(self._scopes.get(holder, self.scope))
        for start in range(0, len(path), self.length):
            before = self._digest(before, _packed(path[start : start + self.length]))
        return _answer(self.pool.share(holder, page, tokens, before if path else None))

    def _drop(self, holder: str, page: int) -> Answer:
        return _answer(self.pool.drop(holder, page))

    def _evict(self, page: int) -> Answer:
        return _answer(self.pool.evict(page))

    def _touch(self, holder: str, page: int, write: bool) -> Answer:
        return _answer(self.pool.touch(holder, page, write))

    def _settle(self, page: int, write: bool, ok: bool, filled: bool) -> Answer:
        return _answer(self.pool.settle(page, write, ok, filled))

    def _park(self, page: int) -> Answer:
        return _answer(self.pool.park(page))

    def _retire(self, page: int, scope: PrefixScope) -> Answer:
        return _answer(self.pool.close_scope(scope) if page == SINK else self.pool.retire_page(scope, page))


def _packed(tokens: tuple[int, ...]) -> bytes:
    return array("i", tokens).tobytes()


class ReferenceLedger(Ledger):
    """A ledger of any store, with a keyring of its own."""

    def __init__(self, pool_limit: int, tenants: Mapping[str, Terms], store: OpenStore = in_memory) -> None:
        config = LedgerConfig(
            POOL,
            pool_limit,
            {name: TenantConfig(terms.limit, terms.budget, terms.queue_limit) for name, terms in tenants.items()},
            RETENTION,
        )
        self._ring = Keyring({"k1": b"a key of field reports"}, "k1")
        self.ledger = store(config, self._ring)

    def snapshot(self) -> LedgerSnapshot:
        return self.ledger.snapshot()

    def broken(self) -> list[str]:
        return []

    def _apply(self, event: LedgerEvent, authentic: bool) -> Answer:
        return _answer(self.ledger.submit(self._proved(event) if authentic else event))

    def _proved(self, event: LedgerEvent) -> LedgerEvent:
        match event:
            case Finish(receipt=receipt):
                return evolve(event, receipt=self._ring.sign(receipt))
            case Fence(key=of, owner=owner):
                return self._ring.fence(POOL, of, owner)
            case _:
                return event


class ReferenceWorker(Worker):
    """`Executions` over a `PagePool`."""

    def __init__(self, pages: ReferencePages, ledger: ReferenceLedger) -> None:
        super().__init__(pages, ledger)
        self._executions = Executions(pages.pool)

    def execution(self, name: str) -> ExecutionState:
        return self._executions.state(key(name))

    def begin(self, name: str, generation: int) -> Answer:
        return _answer(self._executions.begin(key(name), generation))

    def close(self, name: str) -> Answer:
        return _answer(self._executions.close(key(name)))

    def certify(self, name: str) -> Answer:
        return _answer(self._executions.certify(key(name)))

    def acknowledge(self, name: str) -> Answer:
        return _answer(self._executions.acknowledge(key(name)))

    def _launch(self, step: Ticket) -> Answer:
        filled = frozenset(step.writes if step.full else ())
        share = Share(key(step.name), step.generation, step.reads, step.writes, filled)
        return _answer(self._executions.launch(Step(step.number, (share,))))

    def _settle(self, number: int, ok: bool) -> Answer:
        return _answer(self._executions.settle(number, ok=ok))
