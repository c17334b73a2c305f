"""What the worlds' scenarios begin with. Mutation puts the same scenarios through changed tables."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvescrow.spec.world.executions import ExecutionWorld
from tests.spec.world.scope_question import ScopeQuestion

ExecutionsOf = Callable[[], ExecutionWorld]
QuestionOf = Callable[[], ScopeQuestion]


@pytest.fixture
def executions_of() -> ExecutionsOf:
    """A worker without executions."""
    return ExecutionWorld


@pytest.fixture
def question_of() -> QuestionOf:
    """A question of scope reuse that nobody has answered."""
    return ScopeQuestion
