"""What gateways do: requests taken through whole lives, with everything that clients, workers and schedulers do."""

import random
import time
from enum import Enum

from attrs import evolve, frozen

from kvescrow.checks.torture.caller import Caller
from kvescrow.checks.torture.log import Log
from kvescrow.checks.torture.site import Front, Reply, Site
from kvescrow.spec.vocabulary import (
    OWNED_STATES,
    Cancel,
    Decision,
    Extend,
    Finish,
    Key,
    LedgerEvent,
    Preempt,
    Reason,
    Receipt,
    Renew,
    ReportUsage,
    ReservationState,
    Reserve,
    SetBudget,
    SetPoolLimit,
    SetTenantLimit,
    Start,
    StopOutcome,
)

S = ReservationState

GATEWAY_LEASE = 250_000
OWNER_LEASE = 300_000
"""Microseconds; short, so that leases run out within a run of seconds."""
FAR = 10**13
_NAMES = 600
"""Request names; they come again after the retention of their records, under a new life."""
_NAMES_A_SECOND = 120

_MAY_RUN = (Decision.STARTED, Decision.RECORDED, Decision.RENEWED)


class Move(Enum):
    """What a client does besides the plain course, by the name that results use.

    Each client makes each move at the first opportunity, and then by chance, so that a short campaign on a busy
    machine has all of them too.
    """

    OPERATOR = "operator"
    """A limit or a budget is changed, as an operator does."""
    RETRY = "retry"
    """An admitted request is submitted once more (IDN-3)."""
    OTHER_DIGEST = "other_digest"
    """The same key comes with other parameters (IDN-2)."""
    GATEWAY_RENEWAL = "gateway_renewal"
    """The gateway's lease is renewed (LEA-1)."""
    CANCEL_BEFORE_START = "cancel_before_start"
    """The client gives up between admission and start."""
    ABANDONED = "abandoned"
    """Nothing more comes after the admission."""
    START_NEAR_EXPIRY = "start_near_expiry"
    """The start comes at about the moment when the lease runs out."""
    START_AFTER_EXPIRY = "start_after_expiry"
    """The start comes when the lease has run out (LEA-2)."""
    FORGED_PROOF = "forged_proof"
    """A receipt that nobody signed, and a fence for another owner (REC-1)."""
    LATE_RECEIPT = "late_receipt"
    """The receipt comes when the owner's lease has run out (LEA-3)."""
    REPEATED_RECEIPT = "repeated_receipt"
    """A receipt is delivered twice (REC-3)."""
    OLD_RECEIPT = "old_receipt"
    """A preempted request runs again, and the receipt of the execution before is delivered (IDN-5)."""


@frozen
class _Execution:
    key: Key
    generation: int
    bound: int


class Lives:
    """One client thread of a gateway."""

    def __init__(self, site: Site, caller: Caller, front: Front, log: Log, owner: str, dice: random.Random) -> None:
        """Take requests through `front`; `owner` is the incarnation that starts their work."""
        self._site = site
        self._caller = caller
        self._front = front
        self._log = log
        self._owner = owner
        self._dice = dice
        self._to_make = set(Move)

    @property
    def has_made_every_move(self) -> bool:
        """Whether there was an opportunity for each."""
        return not self._to_make

    def live(self) -> None:
        """Take one request to its end, or leave it on the way."""
        if self._makes(Move.OPERATOR, 0.04):
            self._misbehave()
        event = self._request()
        reply = self._front.submit(event)
        if self._makes(Move.OTHER_DIGEST, 0.05):
            self._front.submit(evolve(event, digest="another"))
        reply = self._wait(event, reply)
        if reply.state is not S.RESERVED:
            return
        if self._makes(Move.RETRY, 0.05):
            self._front.submit(event)
        if self._makes(Move.GATEWAY_RENEWAL, 0.06):
            self._front.submit(Renew(event.key, reply.life, lease=GATEWAY_LEASE))
        if self._makes(Move.START_AFTER_EXPIRY, 0.03):
            self._site.clock.sleep(GATEWAY_LEASE * 1.1)
        elif self._makes(Move.START_NEAR_EXPIRY, 0.05):
            self._site.clock.sleep(GATEWAY_LEASE * self._dice.choice([0.98, 1.0]))
        elif self._makes(Move.CANCEL_BEFORE_START, 0.06):
            self._front.submit(Cancel(event.key, reply.life))
        elif self._makes(Move.ABANDONED, 0.05):
            return
        self._run(event.key, reply.life)

    def _makes(self, move: Move, share: float) -> bool:
        """Return whether to make `move` now: the first time for certain, then in a `share` of all times."""
        if move not in self._to_make and not self._by_chance(share):
            return False
        self._to_make.discard(move)
        self._log.made(move.value)
        return True

    def _by_chance(self, share: float) -> bool:
        return self._dice.random() < share

    def _request(self) -> Reserve:
        """Return a request that other gateways may submit too, at about the same time, with the same parameters."""
        number = int(self._site.clock() / 1e6 * _NAMES_A_SECOND + self._dice.randrange(-4, 5)) % _NAMES
        fixed = random.Random(number)
        key = Key(fixed.choice(["red", "red", "blue", "blue", "green"]), f"r{number}")
        if self._by_chance(0.03):
            key = Key(self._dice.choice(["red", "nobody"]), f"late-{self._owner}-{self._dice.random()}")
            return Reserve(
                key,
                5,
                "d",
                self._site.clock() + 50_000,
                least_service=self._dice.choice([0, 100_000]),
                lease=GATEWAY_LEASE,
            )
        return Reserve(
            key,
            fixed.choice([5, 10, 15, 30, 45, 200 if number % 50 == 0 else 20]),
            "d",
            FAR,
            max_wait=fixed.choice([0, 0, 200_000, 400_000]),
            lease=GATEWAY_LEASE,
            authorised=number % 97 != 0,
        )

    def _wait(self, event: Reserve, reply: Reply) -> Reply:
        """Ask again while the request waits in the queue."""
        while reply.state is S.QUEUED:
            if self._by_chance(0.1) or self._site.clock.work_is_over:
                return self._front.submit(Cancel(event.key, reply.life))
            time.sleep(0.02)
            self._front.advance()
            reply = self._front.submit(event)
        return reply

    def _run(self, key: Key, life: int) -> None:
        """Start the work, let it run in steps, stop it, and deliver the receipt."""
        work = self._start(key, life)
        if work is None:
            return
        preempt = Move.LATE_RECEIPT not in self._to_make and Move.OLD_RECEIPT in self._to_make
        used, is_told_to_stop = self._steps(work, life, preempt=preempt)
        self._log.work_ended(work.generation, time.monotonic_ns())
        if self._makes(Move.FORGED_PROOF, 0.05):
            self._forge(work)
        outcome = self._dice.choice([StopOutcome.COMPLETED, StopOutcome.COMPLETED, *StopOutcome])
        if preempt:
            outcome = StopOutcome.STOPPED
        stop = self._receipt(work, used, outcome)
        if not is_told_to_stop and self._makes(Move.LATE_RECEIPT, 0.06):
            self._site.clock.sleep(OWNER_LEASE * 1.1)
            self._front.advance()
        reply = self._front.submit(stop)
        if self._makes(Move.REPEATED_RECEIPT, 0.1):
            self._front.submit(stop)
        if reply.state is S.QUEUED:
            self._go_on(key, life, stop)

    def _start(self, key: Key, life: int) -> _Execution | None:
        """Return the execution that this thread may run now; None where there is none."""
        reply = self._front.submit(Start(key, life, self._owner, lease=OWNER_LEASE))
        if reply.reason is Reason.SUSPECT:
            # A start whose reply was lost, and long ago; another owner's work refuses the renewal.
            reply = self._front.submit(Renew(key, life, self._owner, reply.generation, lease=OWNER_LEASE))
        if reply.decision in _MAY_RUN and reply.state is S.RUNNING:
            self._log.work_began(key, reply.generation, time.monotonic_ns(), reply.bound)
            return _Execution(key, reply.generation, reply.bound)
        if reply.state in OWNED_STATES:
            # Where it is this owner's it never ran, so its stop can be certified; another owner's refuses it.
            never = _Execution(key, reply.generation, 0)
            self._front.submit(self._receipt(never, 0, StopOutcome.STOPPED))
        return None

    def _steps(self, work: _Execution, life: int, *, preempt: bool) -> tuple[int, bool]:
        """Run until told to stop or done; return what was used, and whether it was told to stop.

        With `preempt` it is told so at the first step.
        """
        dice, used, bound = self._dice, 0, work.bound
        for _ in range(dice.randrange(1, 6)):
            time.sleep(dice.choice([0.002, 0.005, 0.02]))
            used += dice.randrange(1, 6)
            actions: list[LedgerEvent] = [
                ReportUsage(work.key, self._owner, work.generation, used),
                Renew(work.key, life, self._owner, work.generation, lease=OWNER_LEASE),
                Extend(work.key, self._owner, work.generation, bound + 3),
                Cancel(work.key, life),
                Preempt(work.key, work.generation),
            ]
            weights = [0, 0, 0, 0, 1] if preempt else [5, 5, 3, 1, 1]
            reply = self._front.submit(dice.choices(actions, weights)[0])
            if reply.decision is Decision.EXTENDED:
                bound = reply.bound
                self._log.work_grew(work.generation, time.monotonic_ns(), bound)
            if reply.state in (S.CANCELLING, S.PREEMPTING):
                return used, True
        return used, False

    def _go_on(self, key: Key, life: int, before: Finish) -> None:
        """Wait for a preempted request's turn, send the old receipt again, and run it once more."""
        for _ in range(20):
            time.sleep(0.01)
            self._front.advance()
            state = self._front.submit(Renew(key, life, lease=GATEWAY_LEASE)).state
            if state is S.RESERVED and (work := self._start(key, life)) is not None:
                if self._makes(Move.OLD_RECEIPT, 1):
                    self._front.submit(before)
                self._log.work_ended(work.generation, time.monotonic_ns())
                self._front.submit(self._receipt(work, 1, StopOutcome.COMPLETED))
            if state is not S.QUEUED:
                return
        self._front.submit(Cancel(key, life))

    def _receipt(self, work: _Execution, used: int, outcome: StopOutcome) -> Finish:
        receipt = Receipt("", work.key, self._owner, work.generation, 1, outcome, used, "", b"")
        return Finish(self._site.sign(receipt))

    def _forge(self, work: _Execution) -> None:
        """Deliver a receipt that nobody signed, and a proof for an owner that it was not given for."""
        stop = self._receipt(work, 0, StopOutcome.COMPLETED)
        self._caller.submit_proof(Finish(evolve(stop.receipt, used=1)), authentic=False)
        proof = self._site.fence(work.key, "another owner")
        self._caller.submit_proof(evolve(proof, owner=self._owner), authentic=False)

    def _misbehave(self) -> None:
        """Change limits as an operator does, now and then."""
        limits = {name: terms.limit for name, terms in self._site.terms.tenants.items()}
        dice = self._dice
        match dice.randrange(3):
            case 0:
                self._front.submit(SetTenantLimit("blue", limits["blue"] - dice.choice([0, 0, 10])))
            case 1:
                self._front.submit(SetBudget("red", self._site.terms.tenants["red"].budget - dice.choice([0, 1])))
            case _:
                self._front.submit(SetPoolLimit(self._site.terms.pool_limit - dice.choice([0, 0, 10])))
