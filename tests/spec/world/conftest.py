"""What the worlds' scenarios begin with. Mutation puts the same scenarios through changed tables."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvescrow.spec.world.chunks import ChunkWorld
from kvescrow.spec.world.executions import ExecutionWorld
from kvescrow.spec.world.ledger import LedgerWorld, TenantTerms
from kvescrow.spec.world.outcome import Outcome
from kvescrow.spec.world.pages import PageWorld
from kvescrow.spec.world.release import ReleaseWorld
from tests.field_reports.replies import Answer
from tests.spec.world.scope_question import ScopeQuestion

RETENTION = 10
LedgerWorldOf = Callable[[int, TenantTerms], LedgerWorld]
PageWorldOf = Callable[[int, int | None], PageWorld]
ExecutionsOf = Callable[[], ExecutionWorld]
QuestionOf = Callable[[], ScopeQuestion]
ChunksOf = Callable[[int, bool], ChunkWorld]
ReleaseOf = Callable[[int, int, int], ReleaseWorld]


def answer(outcome: Outcome) -> Answer:
    """The reply without the row."""
    return Answer(outcome.decision, outcome.reason)


@pytest.fixture
def ledger_world_of() -> LedgerWorldOf:
    """A ledger with this pool limit and one tenant, `a`."""
    return lambda pool_limit, terms: LedgerWorld(pool_limit, {"a": terms}, RETENTION)


@pytest.fixture
def page_world_of() -> PageWorldOf:
    """A pool of so many pages, the sink included, with this limit of published pages in each scope."""
    return PageWorld


@pytest.fixture
def executions_of() -> ExecutionsOf:
    """A worker without executions."""
    return ExecutionWorld


@pytest.fixture
def question_of() -> QuestionOf:
    """A question of scope reuse that nobody has answered."""
    return ScopeQuestion


@pytest.fixture
def chunks_of() -> ChunksOf:
    """A worker that lets so many chunks go before decodes that wait, in steps that carry the decodes too or do not."""
    return lambda bound, mixed: ChunkWorld(bound, mixed=mixed)


@pytest.fixture
def release_of() -> ReleaseOf:
    """A release with so many planned looks and this time limit, planned while this epoch is in force."""
    return ReleaseWorld
