"""The reference's ledger, page pool and executions as one target."""

from attrs import frozen

from kvescrow.checks.targets.ledgers import ReferenceLedger, open_memory
from kvescrow.checks.targets.pools import ReferencePool, open_pool
from kvescrow.checks.targets.protocols import ComposedSetup, ExecutionFacts, StepShare
from kvescrow.checks.targets.subject import Kind, Subject
from kvescrow.reference.executions import ExecutionReply, Executions, Share, Step
from kvescrow.spec.vocabulary import ExecutionState, Key


class ReferenceWorker:
    """The reference's executions behind `WorkerTarget`."""

    def __init__(self, executions: Executions) -> None:
        self._executions = executions

    def begin(self, key: Key, generation: int) -> ExecutionFacts:
        """Open an execution."""
        return _facts(self._executions.begin(key, generation))

    def close(self, key: Key) -> ExecutionFacts:
        """Launch nothing more."""
        return _facts(self._executions.close(key))

    def certify(self, key: Key) -> ExecutionFacts:
        """Certify the stop."""
        return _facts(self._executions.certify(key))

    def acknowledge(self, key: Key) -> ExecutionFacts:
        """Forget the receipt."""
        return _facts(self._executions.acknowledge(key))

    def launch(self, number: int, shares: tuple[StepShare, ...]) -> ExecutionFacts:
        """Launch a step."""
        listed = (Share(s.key, s.generation, s.reads, s.writes, frozenset(s.filled)) for s in shares)
        return _facts(self._executions.launch(Step(number, tuple(listed))))

    def settle(self, number: int, ok: bool) -> ExecutionFacts:
        """End a step."""
        return _facts(self._executions.settle(number, ok=ok))

    def state(self, key: Key) -> ExecutionState:
        """Return where an execution is."""
        return self._executions.state(key)


@frozen
class ReferenceParts:
    """All three, over one page pool."""

    ledger: ReferenceLedger
    pages: ReferencePool
    worker: ReferenceWorker


def _facts(reply: ExecutionReply) -> ExecutionFacts:
    return ExecutionFacts(reply.decision, reply.reason)


def open_composed(setup: ComposedSetup) -> ReferenceParts:
    """Open the ledger in memory, a pool, and a worker over it."""
    pages = open_pool(setup.pages)
    return ReferenceParts(open_memory(setup.ledger), pages, ReferenceWorker(Executions(pages.pool)))


def composed_subject() -> Subject:
    """Return the reference's three parts together."""
    return Subject(Kind.COMPOSED, open_composed)
