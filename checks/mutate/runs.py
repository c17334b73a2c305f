"""Runs of the fuzzer beside the reference, kept, so that mutants can be set beside the reference many times over.

A run is driven as the fuzzer drives it, and reference and tables must agree in it. Then its events alone are
repeated: in a world of the tables as they are, which stands for the reference, and beside it in the mutant's.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from random import Random
from typing import cast

from attrs import frozen

from kvescrow.checks.fuzz.calls import Call
from kvescrow.checks.fuzz.coverage import Coverage
from kvescrow.checks.fuzz.differences import Disagreement
from kvescrow.checks.fuzz.driver import Driver, rotated
from kvescrow.checks.fuzz.goals import Goal
from kvescrow.checks.fuzz.ledger import LedgerDriver
from kvescrow.checks.fuzz.machine import SHAPES, TURNS, WHO
from kvescrow.checks.fuzz.pages import PageDriver, weak_chain
from kvescrow.checks.mutate.scenarios import Scenario, Tables
from kvescrow.checks.targets.protocols import LedgerSetup, PoolSetup
from kvescrow.checks.targets.registry import subject_called
from kvescrow.spec.language.compiler import CompiledTable
from kvescrow.spec.language.interpreter import Record, View
from kvescrow.spec.language.table import Table
from kvescrow.spec.tables.registry import TABLE_BY_NAME
from kvescrow.spec.vocabulary import Key, UserError
from kvescrow.spec.world.ledger import LedgerWorld, TenantTerms, Watch
from kvescrow.spec.world.outcome import Outcome
from kvescrow.spec.world.pages import PageWorld, exact_chain

STEPS = 40
"""Events in one run, as in the fuzzer's short profile."""
ERRANDS = 0.15
"""Share of the choices that set out to see a row fire in a state where it was not seen before."""
PURSUING = 0.45
"""With those, share of the choices that are after something, which is what the fuzzer's machine does too."""
PURSUING_THE_REST = 0.9
"""The same, once nearly everything was seen: what is left takes many steps that fit together."""
NEARLY = 0.95


class Difference(Exception):
    """A mutant's world and the reference differ."""


@frozen
class Run:
    """One run, as it can be repeated in any process: how its world was opened, and every event."""

    name: str
    setup: LedgerSetup | PoolSetup
    events: tuple[Call, ...]

    def scenario(self) -> Scenario:
        """Return the run as a scenario."""
        return Scenario(self.name, self.repeat)

    def repeat(self, tables: Tables, watch: Watch | None) -> None:
        """Repeat the run beside the tables as they are; raise `Difference` at the first that there is."""
        reference, mutant = _world(self.setup, TABLE_BY_NAME, None), _world(self.setup, tables, watch)
        for event in self.events:
            expected, found = cast(Outcome, event.on(reference)), cast(Outcome, event.on(mutant))
            if (expected.decision, expected.reason) != (found.decision, found.reason):
                raise Difference(f"{expected} and {found}")
            if reference.snapshot() != mutant.snapshot():
                raise Difference(f"after {expected}")


def _world(setup: LedgerSetup | PoolSetup, tables: Tables, watch: Watch | None) -> LedgerWorld | PageWorld:
    if isinstance(setup, PoolSetup):
        digest = weak_chain if setup.weak_digest else exact_chain
        return PageWorld(setup.pages, setup.scope_limit, digest, watch, tables)
    terms = {name: TenantTerms(t.limit, t.budget, t.queue_limit) for name, t in setup.tenants.items()}
    return LedgerWorld(setup.pool_limit, terms, setup.retention, watch, tables)


class Kept(Driver):
    """A driver that keeps what it does."""

    opened_as: LedgerSetup | PoolSetup
    events: list[Call]


class KeptLedger(LedgerDriver, Kept):
    """Keeps what it does to a ledger."""

    def open_with(self, setup: LedgerSetup) -> None:
        """Open world and target as `setup` says."""
        super().open_with(setup)
        self.opened_as = setup
        terms = {name: TenantTerms(t.limit, t.budget, t.queue_limit) for name, t in setup.tenants.items()}
        self.world = _KeptWorld(setup.pool_limit, terms, setup.retention, self.watch)
        self.events = self.world.events


class _KeptWorld(LedgerWorld):
    """A ledger's world that keeps every event that it has applied."""

    def __init__(self, pool_limit: int, tenants: Mapping[str, TenantTerms], retention: int, watch: Watch) -> None:
        super().__init__(pool_limit, tenants, retention, watch)
        self.events: list[Call] = []

    def apply_named(self, event: str, key: Key | None, parameters: Record) -> Outcome:
        # Where a driver only looks, the watch raises, and nothing is kept.
        outcome = super().apply_named(event, key, parameters)
        self.events.append(Call("apply_named", (event, key, parameters)))
        return outcome


class KeptPages(PageDriver, Kept):
    """Keeps what it does to a page pool."""

    def open_with(self, setup: PoolSetup) -> None:
        """Open world and target as `setup` says."""
        super().open_with(setup)
        self.opened_as = setup
        self.events = []

    def perform(self, call: Call) -> Outcome:
        """Do one event on both sides."""
        outcome = super().perform(call)
        self.events.append(call)
        return outcome


DRIVERS: tuple[tuple[str, type[Kept]], ...] = (("ledger-memory", KeptLedger), ("pages", KeptPages))
"""Targets of the reference, and what drives them."""


def fuzzed_runs(count: int, seed: int) -> Iterator[Run]:
    """Yield `count` runs of each kind; the same `seed` gives the same runs.

    Raises `UserError` where the reference itself differs from the tables.
    """
    for target, driver in DRIVERS:
        subject = subject_called(target)
        seen = Seen(driver.tables)
        for number in range(count):
            name = f"{target} run {number} of seed {seed}"
            try:
                yield _driven(driver(seen, subject), seen, name)
            except Disagreement as found:
                raise UserError(
                    f"the reference differs from the tables ({found}); mend that first: kvescrow fuzz --target {target}"
                ) from found


class Seen(Coverage):
    """Coverage, and in which states each row has fired: a mutant may change a row in one of its states only."""

    def __init__(self, tables: Sequence[Table]) -> None:
        super().__init__(tables)
        self._compiled = {table.name: CompiledTable(table) for table in tables}
        self._unseen = {
            (row.id, state): (table, row) for table in tables for row in table.rows for state in row.sources
        }

    def watch(self, table: str, view: View, event: str, parameters: Record) -> None:
        """Take note of one event."""
        super().watch(table, view, event, parameters)
        compiled = self._compiled[table]
        state = cast(Enum, view[compiled.table.moves.name]["state"])
        self._unseen.pop((compiled.fire(view, event, parameters).row.id, state), None)

    def errands(self) -> list[tuple[Goal, Goal]]:
        """Return what is still to be seen: a row that leads into a state, and one that was never seen fire there."""
        return [
            (Goal(table, entering), Goal(table, row))
            for (_, state), (table, row) in self._unseen.items()
            for entering in table.rows
            if entering.to is state
        ]


def _driven(one: Kept, seen: Seen, name: str) -> Run:
    random = Random(name)
    one.open(random.randrange(SHAPES))
    holes = seen.holes()
    wanted = holes or seen.goals
    pursuing = PURSUING_THE_REST if 0 < len(holes) < (1 - NEARLY) * len(seen.goals) else PURSUING
    one.wanted = rotated(wanted, random.randrange(len(wanted)))
    by_event = _by_event(seen)
    errand = None
    for _ in range(STEPS):
        who, turn = random.randrange(WHO), random.randrange(TURNS)
        kind = random.random()
        if errand is not None:
            # Whatever was moved last comes first, so that the second row meets what the first has brought there.
            if one.approach(errand[0], who, turn):
                one.act(errand[1], 0, turn)
                errand = None
        elif kind < ERRANDS and (errands := seen.errands()):
            errand = random.choice(errands)
        elif kind < pursuing:
            one.pursue(who, turn)
        else:
            one.act(random.choice(random.choice(by_event)), who, turn)
    one.close()
    return Run(name, one.opened_as, tuple(one.events))


def _by_event(seen: Seen) -> list[list[Goal]]:
    found: dict[str, list[Goal]] = {}
    for goal in seen.goals:
        found.setdefault(goal.row.event, []).append(goal)
    return list(found.values())
