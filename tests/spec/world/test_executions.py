"""What a worker may launch for an execution, and when it may certify the stop."""

from __future__ import annotations

from kvescrow.spec.vocabulary import ExecutionState, Reason
from kvescrow.spec.world.executions import ExecutionWorld
from tests.field_reports.replies import (
    ACCEPTED,
    CERTIFIED,
    FORGOTTEN,
    LAUNCHED,
    RECORDED,
    SETTLED,
    STARTED,
    refused,
)
from tests.spec.world.conftest import ExecutionsOf, answer


def begun(executions: ExecutionWorld, generation: int = 3) -> None:
    """Begin execution `x`."""
    assert answer(executions.begin("x", generation)) == STARTED


def test_what_was_never_begun_is_unknown(executions_of: ExecutionsOf) -> None:
    """LIF-1 LIF-2 LIF-5: nothing closes, launches, stops or is acknowledged."""
    executions = executions_of()
    unknown = refused(Reason.UNKNOWN_KEY)
    assert answer(executions.close("x")) == unknown
    assert answer(executions.certify("x")) == unknown
    assert answer(executions.acknowledge("x")) == unknown
    assert answer(executions.launch("x", 1, 1)) == unknown
    assert answer(executions.settle("x", 1, ok=True)) == refused(Reason.UNKNOWN_TICKET)


def test_a_begin_is_recorded_while_its_generation_is_here(executions_of: ExecutionsOf) -> None:
    """IDN-3 IDN-5: asked again it is recorded; another generation is stale, open, closing and stopped alike."""
    executions = executions_of()
    begun(executions)
    for _ in range(3):
        assert answer(executions.begin("x", 3)) == RECORDED
        assert answer(executions.begin("x", 2)) == refused(Reason.STALE_GENERATION)
        assert answer(executions.begin("x", 4)) == refused(Reason.STALE_GENERATION)
        if executions.executions["x"]["state"] is ExecutionState.OPEN:
            assert answer(executions.close("x")) == ACCEPTED
        else:
            executions.certify("x")
    assert executions.executions["x"]["state"] is ExecutionState.STOPPED


def test_a_close_is_accepted_once(executions_of: ExecutionsOf) -> None:
    """LIF-3 LIF-5: asked again, also after the stop, it is recorded."""
    executions = executions_of()
    begun(executions)
    assert answer(executions.close("x")) == ACCEPTED
    assert answer(executions.close("x")) == RECORDED
    assert answer(executions.certify("x")) == CERTIFIED
    assert answer(executions.close("x")) == RECORDED
    assert executions.executions["x"]["state"] is ExecutionState.STOPPED


def test_a_stop_is_certified_once_nothing_can_run(executions_of: ExecutionsOf) -> None:
    """REC-2: neither while it may still launch, nor while a launched step is outstanding; then the receipt stands."""
    executions = executions_of()
    begun(executions)
    assert answer(executions.launch("x", 5, 3)) == LAUNCHED
    assert answer(executions.launch("x", 4, 3)) == LAUNCHED
    assert answer(executions.certify("x")) == refused(Reason.STILL_OPEN)
    assert answer(executions.close("x")) == ACCEPTED
    assert answer(executions.certify("x")) == refused(Reason.IN_FLIGHT)
    assert answer(executions.settle("x", 5, ok=False)) == SETTLED
    assert answer(executions.certify("x")) == refused(Reason.IN_FLIGHT)
    assert answer(executions.settle("x", 4, ok=True)) == SETTLED
    assert answer(executions.certify("x")) == CERTIFIED
    assert answer(executions.certify("x")) == RECORDED
    assert executions.executions["x"]["last_ticket"] == 5


def test_a_receipt_is_kept_until_it_is_acknowledged(executions_of: ExecutionsOf) -> None:
    """REC-3: not before it was issued; afterwards nothing of the execution is left and the key may begin again."""
    executions = executions_of()
    begun(executions)
    assert answer(executions.acknowledge("x")) == refused(Reason.IN_FLIGHT)
    assert answer(executions.close("x")) == ACCEPTED
    assert answer(executions.acknowledge("x")) == refused(Reason.IN_FLIGHT)
    assert answer(executions.certify("x")) == CERTIFIED
    assert answer(executions.acknowledge("x")) == FORGOTTEN
    assert answer(executions.acknowledge("x")) == refused(Reason.UNKNOWN_KEY)
    begun(executions, generation=7)
    assert executions.executions["x"]["generation"] == 7
    assert executions.executions["x"]["last_ticket"] == 0


def test_only_an_open_execution_of_the_same_generation_launches(executions_of: ExecutionsOf) -> None:
    """LIF-3 IDN-5: a stale generation is told first, then the stop that was asked for."""
    executions = executions_of()
    begun(executions)
    assert answer(executions.launch("x", 1, 2)) == refused(Reason.STALE_GENERATION)
    assert answer(executions.launch("x", 1, 4)) == refused(Reason.STALE_GENERATION)
    assert answer(executions.close("x")) == ACCEPTED
    for _ in range(2):
        assert answer(executions.launch("x", 1, 3)) == refused(Reason.STOPPING)
        assert answer(executions.launch("x", 1, 2)) == refused(Reason.STALE_GENERATION)
        executions.certify("x")
    assert executions.tickets == {}


def test_a_ticket_is_launched_once_and_ends_once(executions_of: ExecutionsOf) -> None:
    """PAG-4: in flight or over, well or badly, the same number changes nothing again."""
    executions = executions_of()
    begun(executions)
    assert answer(executions.launch("x", 1, 3)) == LAUNCHED
    assert executions.tickets["x", 1]["number"] == 1
    assert answer(executions.launch("x", 1, 3)) == RECORDED
    assert answer(executions.launch("x", 1, 9)) == RECORDED
    assert answer(executions.settle("x", 1, ok=False)) == SETTLED
    assert answer(executions.settle("x", 1, ok=True)) == RECORDED
    assert answer(executions.launch("x", 1, 3)) == RECORDED
    assert executions.executions["x"]["in_flight"] == 0
    assert executions.executions["x"]["last_ticket"] == 1
