"""Driving a ledger, a page pool and a worker's executions as they work together.

Requests are reserved, started, given pages, launched, cancelled, settled, certified and finished, in any order that
the rows allow and in some that they do not. Each event is compared with the worlds. Beside that, a law that no part
can see alone is checked after each step: while a step of an execution is in flight, its reservation is charged and
none of its pages is free (LIF-3, REC-2, PAG-4).
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast

from attrs import evolve, frozen

from kvescrow.checks.fuzz.calls import Call
from kvescrow.checks.fuzz.coverage import Coverage
from kvescrow.checks.fuzz.differences import Difference, Disagreement, shown
from kvescrow.checks.fuzz.driver import INVARIANTS_EVERY, Driver, Step
from kvescrow.checks.fuzz.goals import Goal
from kvescrow.checks.fuzz.guard import opened
from kvescrow.checks.targets.protocols import (
    ComposedSetup,
    ExecutionFacts,
    LedgerSetup,
    PoolSetup,
    StepShare,
    TenantSetup,
    holder_of,
)
from kvescrow.checks.targets.subject import Subject
from kvescrow.spec.language.interpreter import Record, View, fire
from kvescrow.spec.language.table import Table
from kvescrow.spec.tables.registry import TABLE_BY_NAME
from kvescrow.spec.vocabulary import (
    OWNED_STATES,
    Cancel,
    Decision,
    ExecutionState,
    Finish,
    Forget,
    Key,
    LedgerEvent,
    PageState,
    Preempt,
    PrefixScope,
    Promote,
    Reason,
    Receipt,
    ReservationState,
    Reserve,
    Start,
    StopOutcome,
    Tick,
)
from kvescrow.spec.world.executions import ExecutionWorld
from kvescrow.spec.world.ledger import LedgerWorld, TenantTerms
from kvescrow.spec.world.outcome import Outcome
from kvescrow.spec.world.pages import PageWorld

EXECUTION, TICKET, PAGE = (TABLE_BY_NAME[name] for name in ("execution", "ticket", "page"))

KEYS = (Key("a", "r1"), Key("b", "r1"), Key("a", "r2"))
SCOPES = {tenant: PrefixScope(tenant, page_length=4) for tenant in ("a", "b")}
CONTENTS = ((1, 1, 1, 1), (2, 2, 2, 2))
"""What the first and the second page of every prompt holds: equal in both tenants, which share nothing."""
RETENTION = 5
_IN_USE = (PageState.PRIVATE, PageState.SHARED, PageState.DRAINING)
_ALIVE = {*OWNED_STATES}


@frozen
class _Flight:
    """A launched step."""

    shares: tuple[StepShare, ...]
    over: bool = False


class ComposedDriver(Driver):
    """Three worlds beside one target that has all three parts."""

    tables = (EXECUTION, TICKET)
    setup: ComposedSetup

    def __init__(self, coverage: Coverage, subject: Subject) -> None:
        super().__init__(coverage, subject)
        self._flights: dict[int, _Flight] = {}

    def setup_of(self, shape: int) -> ComposedSetup:
        """Return a configuration in which three requests of four units contend for the ledger and for the pages."""
        shape, pages = divmod(shape, 3)
        tenants = {name: TenantSetup(limit=8, budget=10_000, queue_limit=2) for name in SCOPES}
        return ComposedSetup(
            LedgerSetup(pool_limit=8 + shape % 5, tenants=tenants, retention=RETENTION),
            PoolSetup(pages=4 + pages, page_length=4, scope_limit=None),
        )

    def open_with(self, setup: ComposedSetup) -> None:
        """Open the worlds and the target as `setup` says."""
        self.setup = setup
        self._flights = {}
        terms = {name: TenantTerms(t.limit, t.budget, t.queue_limit) for name, t in setup.ledger.tenants.items()}
        self.ledger = LedgerWorld(setup.ledger.pool_limit, terms, setup.ledger.retention)
        self.pages = PageWorld(setup.pages.pages, watch=self._look)
        self.worker = ExecutionWorld(self.watch)
        self.target = opened(self.subject, setup)
        self.told.append(Step(lambda: f"open {shown(setup)}"))

    def close(self) -> None:
        """Close the target."""
        if self.target is not None:
            self.target.ledger.close()

    def _look(self, table: str, view: View, event: str, parameters: Record) -> None:
        """Let pages be peeked at; their rows are covered by a machine of their own."""
        if self.is_peeking:
            self.watch(table, view, event, parameters)

    # --- choosing -----------------------------------------------------------------------------------------------------

    def act(self, goal: Goal, who: int, turn: int) -> None:
        """Do one event of the goal's kind for some request, after what it needs where that is missing."""
        key = KEYS[who % len(KEYS)]
        match goal.row.event:
            case "begin":
                self._begin(key, turn)
            case "launch":
                self._launch(key, turn)
            case "settle":
                self._settle(turn)
            case event:
                self.ask_worker(event, key)

    def approach(self, goal: Goal, who: int, turn: int) -> bool:
        """Do the goal's event; the tables are small enough for chance to find the rest."""
        self.act(goal, who, turn)
        return True

    def story(self, who: int, turn: int) -> None:
        """Take one request a little further on its way, or off it."""
        key = KEYS[who % len(KEYS)]
        record = self.ledger.reservations.get(key)
        choice = turn % 8
        if choice == 0:
            self.tell_ledger(Tick(cast(int, self.ledger.pool["clock"]) + 1 + turn % 4))
        elif choice == 1 and record is not None:
            self._stop(key, record, turn)
        elif choice in (2, 3):
            self._end(key, turn)
        elif choice == 4:
            if turn % 16 < 8 and self._state(key) is ExecutionState.OPEN:
                # The hard case on purpose: what is given up was launched a moment ago.
                self._launch(key, turn)
            self._give_up_pages(key)
        elif choice == 5:
            self._publish(key)
        else:
            self._begin(key, turn)

    def _begin(self, key: Key, turn: int) -> None:
        """Begin the execution; before that reserve and start it, where it is not."""
        record = self.ledger.reservations.get(key)
        if record is None:
            self.tell_ledger(Reserve(key, 4, "d", 1_000, max_wait=100))
            return
        state, life = record["state"], cast(int, record["life"])
        if state is ReservationState.QUEUED:
            self.tell_ledger(Promote(key))
        elif state is ReservationState.RESERVED:
            self.tell_ledger(Start(key, life, "w"))
        elif state in OWNED_STATES:
            # Only what the ledger started is begun; another generation is tried where this one is here already.
            stale = turn % 5 == 4 and self._state(key) is not ExecutionState.ABSENT
            self.ask_worker("begin", key, cast(int, record["generation"]) + stale)
        else:
            self.tell_ledger(Tick(cast(int, self.ledger.pool["clock"]) + RETENTION))
            self.tell_ledger(Forget(key))

    def _stop(self, key: Key, record: Record, turn: int) -> None:
        """Cancel or preempt, and tell the worker, which withholds the next launch only."""
        if turn % 16 < 8:
            self.tell_ledger(Cancel(key, cast(int, record["life"])))
        else:
            self.tell_ledger(Preempt(key, cast(int, record["generation"])))
        self.ask_worker("close", key)

    def _end(self, key: Key, turn: int) -> None:
        """Ask for the receipt and deliver it; now and then forge one instead."""
        if turn % 11 == 10:
            self._finish(key, authentic=False)
            return
        self.ask_worker("certify", key)
        if self._state(key) is ExecutionState.STOPPED:
            outcome = (StopOutcome.STOPPED, StopOutcome.COMPLETED, StopOutcome.FAILED)[turn % 3]
            self._finish(key, authentic=True, outcome=outcome)
            self.ask_worker("acknowledge", key)

    def _finish(self, key: Key, *, authentic: bool, outcome: StopOutcome = StopOutcome.STOPPED) -> None:
        execution = self.worker.executions.get(_name(key), {})
        receipt = Receipt(
            pool="pool",
            key=key,
            owner="w",
            generation=max(1, cast(int, execution.get("generation", 1))),
            last_ticket=cast(int, execution.get("last_ticket", 0)),
            outcome=outcome,
            used=2,
            key_id="",
            mac=b"",
        )
        self.tell_ledger(Finish(receipt), authentic)

    def _launch(self, key: Key, turn: int) -> None:
        """Launch a step for one execution or two; now and then with a stale generation, or one launched before."""
        number = 1 + max(self._flights, default=0)
        if self._flights and turn % 5 == 4:
            number = min(self._flights)
            self.launch(number, self._flights[number].shares)
            return
        others = [other for other in KEYS if other != key and self._state(other) is ExecutionState.OPEN]
        shares = [self._share(each, turn) for each in (key, *others[: turn % 2])]
        self.launch(number, tuple(shares))

    def _share(self, key: Key, turn: int) -> StepShare:
        generation = self._generation(key) + (turn % 7 == 6)
        holder = holder_of(key, generation)
        if self._state(key) is ExecutionState.OPEN and holder not in self.pages.holders:
            self._take_pages(holder, SCOPES[key.tenant])
        held = [n for n, holders in enumerate(self.pages.holders_of) if holder in holders]
        private = [n for n in held if self.pages.pages[n]["state"] is PageState.PRIVATE]
        return StepShare(key, generation, reads=tuple(held), writes=tuple(private), filled=tuple(private[: turn % 3]))

    def _take_pages(self, holder: str, scope: PrefixScope) -> None:
        """Admit, share what is published of the prompt, and draw the rest, as an engine does."""
        self.tell_pages(Call("admit", (holder, scope, 2)))
        parent: int | None = None
        for tokens in CONTENTS:
            found = self.pages.index.get((scope, self._chain(scope, parent, tokens)))
            if found is None:
                free = [n for n, page in enumerate(self.pages.pages) if page["state"] is PageState.FREE]
                if free:
                    self.tell_pages(Call("allocate", (holder, free[0])))
                continue
            self.tell_pages(Call("share", (holder, found, tokens, parent)))
            parent = found

    def _chain(self, scope: PrefixScope, parent: int | None, tokens: tuple[int, ...]) -> Any:
        before = "root" if parent is None else self.pages.pages[parent]["chain"]
        return (before, scope, tokens)

    def _publish(self, key: Key) -> None:
        """Publish the private pages of an execution in the order of its prompt; the rows say which may be."""
        holder = holder_of(key, self._generation(key))
        parent: int | None = None
        for number, tokens in zip(self._held(holder), CONTENTS, strict=False):
            if self.pages.pages[number]["state"] is PageState.PRIVATE:
                self.tell_pages(Call("seal", (holder, number, tokens, parent)))
            parent = number

    def _give_up_pages(self, key: Key) -> None:
        """Drop every page, last first, whatever is in flight, and close."""
        holder = holder_of(key, self._generation(key))
        for number in reversed(self._held(holder)):
            self.tell_pages(Call("drop", (holder, number)))
        self.tell_pages(Call("close", (holder,)))
        for number in self._idle():
            self.tell_pages(Call("park", (number,)))

    def _held(self, holder: str) -> list[int]:
        return [n for n, holders in enumerate(self.pages.holders_of) if holder in holders]

    def _idle(self) -> Iterator[int]:
        """Yield pages that drain for nothing, until there is none."""
        while idle := [n for n in range(len(self.pages.pages)) if self.pages.is_idle(n)]:
            yield idle[0]

    def _settle(self, turn: int) -> None:
        """End some step, now and then one that is over or was never launched."""
        flying = [number for number, flight in self._flights.items() if not flight.over]
        known = flying if flying and turn % 4 else list(self._flights)
        number = known[turn % len(known)] if known and turn % 9 != 8 else 1_000
        self.settle(number, turn % 3 != 2)

    def _state(self, key: Key) -> object:
        record = self.worker.executions.get(_name(key))
        return ExecutionState.ABSENT if record is None else record["state"]

    def _generation(self, key: Key) -> int:
        record = self.worker.executions.get(_name(key))
        return max(1, cast(int, record["generation"])) if record else 1

    # --- doing it to both ---------------------------------------------------------------------------------------------

    def tell_ledger(self, event: LedgerEvent, authentic: bool = True) -> None:
        """Send one event to the ledger."""
        self.done.append(("tell_ledger", (event, authentic)))
        specified = self.ledger.apply(event, authentic=authentic)
        sent = event
        if isinstance(event, Finish):
            signed = self.target.ledger.sign(event.receipt)
            sent = Finish(signed if authentic else evolve(signed, mac=bytes(32)))
        step = shown(event)
        reply = self.answer(step, specified, lambda: self.target.ledger.submit(sent))
        self._compare(step, specified, (reply.decision, reply.reason))

    def tell_pages(self, call: Call) -> None:
        """Send one event to the page pool."""
        self.done.append(("tell_pages", (call,)))
        specified = cast(Outcome, call.on(self.pages))
        reply = self.answer(str(call), specified, lambda: cast(Any, call.on(self.target.pages)))
        self._compare(str(call), specified, (reply.decision, reply.reason))

    def ask_worker(self, event: str, key: Key, *generation: int) -> None:
        """Send one event of an execution to the worker."""
        self.done.append(("ask_worker", (event, key, *generation)))
        step = f"{event} {shown(key)} {' '.join(map(str, generation))}".rstrip()
        specified = cast(Outcome, getattr(self.worker, event)(_name(key), *generation))
        reply: ExecutionFacts = self.answer(
            step, specified, lambda: getattr(self.target.worker, event)(key, *generation)
        )
        self._compare(step, specified, (reply.decision, reply.reason))

    def launch(self, number: int, shares: tuple[StepShare, ...]) -> None:
        """Hand one step to the device, for all its executions or for none."""
        self.done.append(("launch", (number, shares)))
        step = f"launch {number} {shown(shares)}"
        specified = self._launched(number, shares)
        reply = self.answer(step, specified, lambda: self.target.worker.launch(number, shares))
        self._compare(step, specified, (reply.decision, reply.reason))

    def _launched(self, number: int, shares: tuple[StepShare, ...]) -> Outcome:
        """Return what the worlds say to a step: the first refusal of a ticket or a page, or all of it launched."""
        if number in self._flights:
            first = shares[0]
            return self.worker.launch(_name(first.key), number, first.generation)
        for share in shares:
            would = self._would(TICKET, "launch", self.worker.launch, _name(share.key), number, share.generation)
            if would.decision is not Decision.LAUNCHED:
                return self.worker.launch(_name(share.key), number, share.generation)
        touches = [
            (holder_of(share.key, share.generation), page, write)
            for share in shares
            for write, pages in ((False, share.reads), (True, share.writes))
            for page in pages
        ]
        for holder, page, write in touches:
            would = self._would(PAGE, "touch", self.pages.touch, holder, page, write=write)
            if would.decision is not Decision.LAUNCHED:
                return would
        outcomes = [self.worker.launch(_name(share.key), number, share.generation) for share in shares]
        for holder, page, write in touches:
            self.pages.touch(holder, page, write=write)
        self._flights[number] = _Flight(shares)
        return outcomes[0]

    def _would(self, table: Table, event: str, call: object, *arguments: object, **named: object) -> Outcome:
        """Return what a row would answer, and change nothing."""
        seen = self.peek(call, *arguments, **named)
        row = fire(table, seen.view, event, seen.parameters).row
        return Outcome(row.id, row.reply.decision, row.reply.reason)

    def settle(self, number: int, ok: bool) -> None:
        """The device reports a step over."""
        self.done.append(("settle", (number, ok)))
        step = f"settle {number} ok={ok}"
        specified = self._settled(number, ok)
        reply = self.answer(step, specified, lambda: self.target.worker.settle(number, ok))
        self._compare(step, specified, (reply.decision, reply.reason))

    def _settled(self, number: int, ok: bool) -> Outcome:
        flight = self._flights.get(number)
        if flight is None:
            return self.worker.settle(_name(KEYS[0]), number, ok=ok)
        outcomes = [self.worker.settle(_name(share.key), number, ok=ok) for share in flight.shares]
        if not flight.over:
            for share in flight.shares:
                for page in share.reads:
                    self.pages.settle(page, write=False, ok=ok, filled=False)
                for page in share.writes:
                    self.pages.settle(page, write=True, ok=ok, filled=page in share.filled)
            for page in self._idle():
                self.pages.park(page)
            self._flights[number] = evolve(flight, over=True)
        return outcomes[0]

    def _compare(self, step: str, specified: Outcome, found: tuple[Decision, Reason]) -> None:
        self.told.append(Step(lambda: step, specified.row))
        wanted = (specified.decision, specified.reason)
        pairs: Sequence[tuple[str, object, object]] = (
            ("reply.decision", wanted[0], found[0]),
            ("reply.reason", wanted[1], found[1]),
            ("ledger", self.ledger.snapshot(), self.target.ledger.snapshot()),
            ("pages", self.pages.snapshot(), self.target.pages.snapshot()),
            *((f"execution[{shown(key)}]", self._state(key), self.target.worker.state(key)) for key in KEYS),
        )
        look = len(self.told) % INVARIANTS_EVERY == 0
        violations = [*self.ledger.violations(), *self.pages.violations()] if look else []
        self.check(step, pairs, violations)
        self._check_together(step)

    def _check_together(self, step: str) -> None:
        """Check what no part sees alone."""
        for number, flight in self._flights.items():
            for share in () if flight.over else flight.shares:
                record = self.ledger.reservations.get(share.key)
                charged = record is not None and record["state"] in _ALIVE and record["generation"] == share.generation
                state = "no record" if record is None else shown(record["state"])
                if not charged:
                    told = Difference(f"law in_flight_is_charged[step {number}]", "an owned state", state)
                    raise Disagreement(step, (told,))
                for page in {*share.reads, *share.writes}:
                    found = self.pages.pages[page]["state"]
                    if found not in _IN_USE:
                        told = Difference(f"law in_flight_is_not_reused[page {page}]", "in use", shown(found))
                        raise Disagreement(step, (told,))


def _name(key: Key) -> str:
    """Return the name of an execution in its world."""
    return f"{key.request} of {key.tenant}"
