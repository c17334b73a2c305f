"""Hand-written scenarios of the tables as mutation takes them: the same tests, in worlds of any tables.

Scenarios are tests of the field reports and of the worlds. One is taken where all that it asks for is a builder of a
world, so that it can be built of other tables.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path

from kvescrow.checks.mutate import Scenario
from kvescrow.spec.world.chunks import ChunkWorld
from kvescrow.spec.world.executions import ExecutionWorld
from kvescrow.spec.world.ledger import LedgerWorld, TenantTerms, Watch
from kvescrow.spec.world.pages import PageWorld
from kvescrow.spec.world.release import ReleaseWorld
from tests.field_reports.conftest import DEFAULT_TENANTS
from tests.field_reports.ledger import Terms
from tests.field_reports.on_world import Tables, WorldLedger, WorldPages, WorldWorker
from tests.field_reports.pages import PAGE_LENGTH
from tests.spec.world.conftest import RETENTION
from tests.spec.world.scope_question import ScopeQuestion

HERE = Path(__file__).parent
FILES = ("field_reports/test_?_*.py", "spec/world/test_*.py")
BUILDERS = {
    "pages_of",
    "ledger_of",
    "worker_of",
    "ledger_world_of",
    "page_world_of",
    "executions_of",
    "question_of",
    "chunks_of",
    "release_of",
}

Arguments = Mapping[str, object]


def vectors() -> Iterator[Scenario]:
    """Yield every scenario, once for each of its parameters."""
    for path in sorted(path for pattern in FILES for path in HERE.glob(pattern)):
        module = importlib.import_module(".".join(("tests", *path.relative_to(HERE).with_suffix("").parts)))
        for name, test in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("test_") and test.__module__ == module.__name__:
                yield from _scenarios(name, test)


def _scenarios(name: str, test: Callable[..., None]) -> Iterator[Scenario]:
    wanted = BUILDERS & set(inspect.signature(test).parameters)
    if wanted:
        for number, arguments in enumerate(_parameters(test)):
            yield Scenario(f"{name}[{number}]" if arguments else name, partial(_run, test, wanted, arguments))


def _run(
    test: Callable[..., None], wanted: set[str], arguments: Arguments, tables: Tables, watch: Watch | None
) -> None:
    builders = _builders(tables, watch)
    test(**{name: builders[name] for name in wanted}, **arguments)


def _parameters(test: Callable[..., None]) -> list[Arguments]:
    """Return the arguments of each case that the test's marks make."""
    choices: list[list[Arguments]] = []
    for mark in getattr(test, "pytestmark", ()):
        names, cases = mark.args
        listed = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
        choices.append([dict(zip(listed, case if len(listed) > 1 else (case,), strict=True)) for case in cases])
    return [{name: value for part in parts for name, value in part.items()} for parts in product(*choices)]


def _builders(tables: Tables, watch: Watch | None) -> Mapping[str, object]:
    def pages_of(pages: int, length: int = PAGE_LENGTH, *, weak: bool = False) -> WorldPages:
        return WorldPages(pages, length, weak=weak, tables=tables, watch=watch)

    def ledger_of(pool_limit: int, tenants: Mapping[str, Terms] = DEFAULT_TENANTS) -> WorldLedger:
        return WorldLedger(pool_limit, tenants, tables, watch)

    def worker_of(pages: int) -> WorldWorker:
        return WorldWorker(pages_of(pages), ledger_of(pages), tables, watch)

    def ledger_world_of(pool_limit: int, terms: TenantTerms) -> LedgerWorld:
        return LedgerWorld(pool_limit, {"a": terms}, RETENTION, watch, tables)

    return {
        "pages_of": pages_of,
        "ledger_of": ledger_of,
        "worker_of": worker_of,
        "ledger_world_of": ledger_world_of,
        "page_world_of": lambda pages, scope_limit: PageWorld(pages, scope_limit, watch=watch, tables=tables),
        "executions_of": lambda: ExecutionWorld(watch, tables),
        "question_of": lambda: ScopeQuestion(tables, watch),
        "chunks_of": lambda bound, mixed: ChunkWorld(bound, mixed=mixed, watch=watch, tables=tables),
        "release_of": lambda looks, limit, epoch: ReleaseWorld(looks, limit, epoch, watch, tables),
    }
