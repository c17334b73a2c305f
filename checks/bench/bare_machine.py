"""A Hypothesis state machine on a ledger as one writes it by hand: a rule for each event, arguments drawn by chance.

It makes the comparison that the fuzzer makes after every step, so that what differs is how events are chosen: here
nothing knows the rows, there every step is aimed at one.
"""

from typing import cast

from attrs import define, field
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from kvescrow.checks.targets.protocols import LedgerSetup, LedgerTarget, TenantSetup
from kvescrow.checks.targets.subject import Subject
from kvescrow.spec.vocabulary import (
    Cancel,
    Finish,
    Forget,
    Key,
    LedgerEvent,
    Receipt,
    Reserve,
    Start,
    StopOutcome,
    Sweep,
    Tick,
)
from kvescrow.spec.world.ledger import LedgerWorld, TenantTerms

SETUP = LedgerSetup(8, {"a": TenantSetup(7, 1000, 2), "b": TenantSetup(6, 1000, 2)}, retention=5)
INVARIANTS_EVERY = 4
"""As the fuzzer does."""

_keys = st.sampled_from([Key(tenant, request) for tenant in ("a", "b") for request in ("r1", "r2", "r3")])
_small = st.integers(0, 9)


@define
class Tally:
    """What a run came to."""

    steps: int = 0
    rows: set[str] = field(factory=set)
    """Rows that fired."""


def run_bare_machine(subject: Subject, examples: int, steps: int, number: int) -> Tally:
    """Run `examples` runs of `steps` steps on `subject`, with `number` as the seed; raise where something differs."""
    tally = Tally()
    machine = _machine(subject, tally)
    seed(number)(machine)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=True,
            database=None,
            deadline=None,
            phases=(Phase.generate,),
            suppress_health_check=(HealthCheck.too_slow,),
        ),
    )
    return tally


def _machine(subject: Subject, tally: Tally) -> type[RuleBasedStateMachine]:
    class Machine(RuleBasedStateMachine):
        """World and target side by side."""

        def __init__(self) -> None:
            super().__init__()
            terms = {name: TenantTerms(t.limit, t.budget, t.queue_limit) for name, t in SETUP.tenants.items()}
            self.world = LedgerWorld(SETUP.pool_limit, terms, SETUP.retention)
            self.target: LedgerTarget = subject.open(SETUP)
            self.count = 0

        @rule(key=_keys, amount=_small, max_wait=_small, deadline=st.integers(0, 1000))
        def reserve(self, key: Key, amount: int, max_wait: int, deadline: int) -> None:
            self._do(Reserve(key, amount, "d", deadline, 1, max_wait, 5))

        @rule(key=_keys, life=_small)
        def start(self, key: Key, life: int) -> None:
            self._do(Start(key, life, "w", 5))

        @rule(key=_keys, life=_small)
        def cancel(self, key: Key, life: int) -> None:
            self._do(Cancel(key, life))

        @rule(key=_keys, generation=st.integers(1, 9), outcome=st.sampled_from(StopOutcome), used=_small)
        def finish(self, key: Key, generation: int, outcome: StopOutcome, used: int) -> None:
            receipt = Receipt(SETUP.pool, key, "w", generation, 0, outcome, used, "", b"")
            self._do(Finish(self.target.sign(receipt)))

        @rule(key=_keys)
        def sweep(self, key: Key) -> None:
            self._do(Sweep(key))

        @rule(key=_keys)
        def forget(self, key: Key) -> None:
            self._do(Forget(key))

        @rule(later=st.integers(1, 20))
        def tick(self, later: int) -> None:
            self._do(Tick(cast(int, self.world.pool["clock"]) + later))

        def _do(self, event: LedgerEvent) -> None:
            outcome = self.world.apply(event)
            tally.steps += 1
            tally.rows.add(outcome.row)
            reply = self.target.submit(event)
            assert (reply.decision, reply.reason) == (outcome.decision, outcome.reason)
            assert self.target.snapshot() == self.world.snapshot()
            self.count += 1
            if self.count % INVARIANTS_EVERY == 0:
                assert not self.world.violations()

        def teardown(self) -> None:
            self.target.close()

    return Machine
