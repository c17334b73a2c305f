"""What a worker may launch for each execution, and when it may certify that one has stopped (LIF-3, REC-2).

An execution is one generation of one reservation. A step lists several of them and the pages that it reads and
writes for each; its number is each one's ticket. Steps end once, well or badly, in any order.
"""

from functools import lru_cache
from urllib.parse import quote

from attrs import define, frozen

from kvescrow.reference.pages import PagePool, PageUse
from kvescrow.spec.vocabulary import Decision, ExecutionState, Key, Reason, UserError


@frozen
class ExecutionReply:
    """The answer to one event of an execution or of a step."""

    decision: Decision
    reason: Reason
    seq: int
    """Commit number of this change; where nothing changed, of the last change before the decision."""
    generation: int = 0
    """Of the execution, after the event; 0 where it is not here."""
    last_ticket: int = 0
    """Number of the last step that was launched for it; what a stop receipt is bound to (REC-1)."""
    refused_key: Key | None = None
    """The execution in the step that made a launch impossible."""
    refused_page: int | None = None
    """The page that made it impossible, where it was a page."""


@frozen
class Share:
    """One execution's share in a step. Pages may be read and written at once."""

    key: Key
    generation: int
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    filled: frozenset[int] = frozenset()
    """Those of `writes` whose last slot the step writes."""


@frozen
class Step:
    """Work that is handed to the device at once. Numbers are unique on a worker and start at 1."""

    number: int
    shares: tuple[Share, ...]


@define
class _Execution:
    generation: int
    state: ExecutionState = ExecutionState.OPEN
    in_flight: int = 0
    last_ticket: int = 0


class _Numbers:
    """A growing set of numbers from 1 on; only those above the first gap take room."""

    def __init__(self) -> None:
        self._up_to = 0
        self._above: set[int] = set()

    def __contains__(self, number: int) -> bool:
        return number <= self._up_to or number in self._above

    def add(self, number: int) -> None:
        """Put `number` in the set."""
        self._above.add(number)
        while self._up_to + 1 in self._above:
            self._up_to += 1
            self._above.remove(self._up_to)


@lru_cache(maxsize=1024)
def holder_name(key: Key, generation: int) -> str:
    """Return the name under which an execution holds pages: `tenant/request#generation`.

    Tenant and request are quoted, so that no two executions have one name. The names of those that run are kept: each
    of their steps asks for one.
    """
    return f"{quote(key.tenant, safe='')}/{quote(key.request, safe='')}#{generation}"


class Executions:
    """The executions of one worker, over its page pool."""

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self._executions: dict[Key, _Execution] = {}
        self._in_flight: dict[int, Step] = {}
        self._done = _Numbers()
        self._seq = 0

    def begin(self, key: Key, generation: int) -> ExecutionReply:
        """The ledger granted the start. Raises UserError for a generation below 1, which means none."""
        if generation < 1:
            raise UserError(f"generation: {generation} is not one; generations start at 1")
        execution = self._executions.get(key)
        if execution is None:
            self._executions[key] = _Execution(generation)
            return self._changed(key, Decision.STARTED)
        if execution.generation != generation:
            return self._refused(key, Reason.STALE_GENERATION)
        return self._unchanged(key)

    def close(self, key: Key) -> ExecutionReply:
        """Launch nothing more for this execution: a cancel, a preemption, or its end (LIF-3)."""
        execution = self._executions.get(key)
        if execution is None:
            return self._refused(key, Reason.UNKNOWN_KEY)
        if execution.state is not ExecutionState.OPEN:
            return self._unchanged(key)
        execution.state = ExecutionState.CLOSING
        return self._changed(key, Decision.ACCEPTED)

    def certify(self, key: Key) -> ExecutionReply:
        """Certify the stop. CERTIFIED, or RECORDED where it was certified before, carries what a receipt says."""
        execution = self._executions.get(key)
        if execution is None:
            return self._refused(key, Reason.UNKNOWN_KEY)
        if execution.state is ExecutionState.OPEN:
            return self._refused(key, Reason.STILL_OPEN)
        if execution.state is ExecutionState.STOPPED:
            return self._unchanged(key)
        if execution.in_flight:
            return self._refused(key, Reason.IN_FLIGHT)
        execution.state = ExecutionState.STOPPED
        return self._changed(key, Decision.CERTIFIED)

    def acknowledge(self, key: Key) -> ExecutionReply:
        """The ledger has confirmed the stop; the execution is forgotten (REC-3)."""
        execution = self._executions.get(key)
        if execution is None:
            return self._refused(key, Reason.UNKNOWN_KEY)
        if execution.state is not ExecutionState.STOPPED:
            return self._refused(key, Reason.IN_FLIGHT)
        del self._executions[key]
        return self._changed(key, Decision.FORGOTTEN)

    def launch(self, step: Step) -> ExecutionReply:
        """Launch a step for all executions that it lists, or for none.

        From here on it may touch its pages, so the pool is told. The first refusal is the answer and names the
        execution. Raises UserError for a number below 1, a step without shares, or one that lists an execution twice.
        """
        _check_step(step)
        if step.number in self._in_flight or step.number in self._done:
            return ExecutionReply(Decision.RECORDED, Reason.NONE, self._seq)
        for share in step.shares:
            reason = self._launch_refusal(share)
            if reason is not Reason.NONE:
                return ExecutionReply(Decision.REFUSED, reason, self._seq, refused_key=share.key)
        reply = self._pool.launch(_uses(step))
        if reply.decision is not Decision.LAUNCHED:
            key = next(share.key for share in step.shares if holder_name(share.key, share.generation) == reply.holder)
            return ExecutionReply(reply.decision, reply.reason, self._seq, refused_key=key, refused_page=reply.page)
        for share in step.shares:
            execution = self._executions[share.key]
            execution.in_flight += 1
            execution.last_ticket = max(execution.last_ticket, step.number)
        self._in_flight[step.number] = step
        self._seq += 1
        return ExecutionReply(Decision.LAUNCHED, Reason.NONE, self._seq)

    def settle(self, number: int, *, ok: bool = True) -> ExecutionReply:
        """The device reports a step over, well or badly; it touches nothing any more (PAG-4)."""
        step = self._in_flight.pop(number, None)
        if step is None:
            if number in self._done:
                return ExecutionReply(Decision.RECORDED, Reason.NONE, self._seq)
            return ExecutionReply(Decision.REFUSED, Reason.UNKNOWN_TICKET, self._seq)
        self._done.add(number)
        for share in step.shares:
            self._executions[share.key].in_flight -= 1
        self._pool.finish(_uses(step), ok)
        self._seq += 1
        return ExecutionReply(Decision.SETTLED, Reason.NONE, self._seq)

    def state(self, key: Key) -> ExecutionState:
        """Return where the execution of `key` is."""
        execution = self._executions.get(key)
        return ExecutionState.ABSENT if execution is None else execution.state

    def in_flight(self, key: Key) -> int:
        """Return the number of launched steps that list `key` and are not over."""
        execution = self._executions.get(key)
        return 0 if execution is None else execution.in_flight

    def _launch_refusal(self, share: Share) -> Reason:
        execution = self._executions.get(share.key)
        if execution is None:
            return Reason.UNKNOWN_KEY
        if execution.generation != share.generation:
            return Reason.STALE_GENERATION
        return Reason.NONE if execution.state is ExecutionState.OPEN else Reason.STOPPING

    def _changed(self, key: Key, decision: Decision) -> ExecutionReply:
        self._seq += 1
        return self._reply(key, decision, Reason.NONE)

    def _unchanged(self, key: Key) -> ExecutionReply:
        return self._reply(key, Decision.RECORDED, Reason.NONE)

    def _refused(self, key: Key, reason: Reason) -> ExecutionReply:
        return self._reply(key, Decision.REFUSED, reason)

    def _reply(self, key: Key, decision: Decision, reason: Reason) -> ExecutionReply:
        execution = self._executions.get(key)
        if execution is None:
            return ExecutionReply(decision, reason, self._seq)
        return ExecutionReply(decision, reason, self._seq, execution.generation, execution.last_ticket)


def _check_step(step: Step) -> None:
    if step.number < 1:
        raise UserError(f"step: number {step.number} is not one; numbers start at 1")
    if not step.shares:
        raise UserError(f"step {step.number}: it lists no execution")
    keys = [share.key for share in step.shares]
    if len(set(keys)) != len(keys):
        raise UserError(f"step {step.number}: it lists an execution twice; join the two shares")


def _uses(step: Step) -> tuple[PageUse, ...]:
    return tuple(
        PageUse(holder_name(share.key, share.generation), share.reads, share.writes, share.filled)
        for share in step.shares
    )
