"""A worker's view of one execution, and of its share in each launched step (LIF-2, LIF-3, REC-2, PAG-4).

An execution is one generation of one reservation. A ticket is its share in one launched step, copy or scrub.
A stop can be certified when the execution launches nothing any more and no ticket of it is outstanding. Tickets
end once, well or badly alike, and in any order, since device streams do not wait for each other.
"""

from kvescrow.spec.language.expressions import (
    Entity,
    Kind,
    all_of,
    as_count,
    before,
    if_else,
    implies,
    maximum,
)
from kvescrow.spec.language.table import (
    Assumption,
    Event,
    Invariant,
    Reply,
    Sometimes,
    StepRule,
    Table,
    merged_event_entity,
)
from kvescrow.spec.tables.authoring import RECORDED, refused, rows_of
from kvescrow.spec.vocabulary import Decision, ExecutionState, Reason, TicketState

INT, BOOL = Kind.INTEGER, Kind.BOOLEAN
E, T = ExecutionState, TicketState

execution = Entity(
    "execution",
    {"state": ExecutionState, "generation": INT, "in_flight": INT, "last_ticket": INT},
    note="one generation of one reservation on this worker",
)
ticket = Entity("ticket", {"state": TicketState, "number": INT}, note="its share in one launched step")
rest = Entity("rest", {"in_flight": INT}, settled=True, note="its other tickets that are outstanding")

# --- the execution --------------------------------------------------------------------------------------------------

EXECUTION_EVENTS = (
    Event("begin", {"generation": INT}, "the ledger's start was granted"),
    Event("close", {}, "a cancel, a preemption or its end: launch nothing any more"),
    Event("certify", {}, "the worker asks for the stop receipt"),
    Event("acknowledge", {}, "the ledger has confirmed the stop"),
)
event = merged_event_entity(EXECUTION_EVENTS)
row = rows_of("execution")

EXECUTION = Table(
    name="execution",
    moves=execution,
    state_type=ExecutionState,
    entities=(execution,),
    events=EXECUTION_EVENTS,
    rows=(
        row("begin.opened", [E.ABSENT], Reply(Decision.STARTED), "LIF-2", "only after the record says RUNNING",
            to=E.OPEN, do=[execution.generation.becomes(event.generation), execution.last_ticket.becomes(0)]),
        row("begin.stale", [E.OPEN, E.CLOSING, E.STOPPED], refused(Reason.STALE_GENERATION), "IDN-5",
            "another generation of this key is here", when=event.generation != execution.generation),
        row("begin.recorded", [E.OPEN, E.CLOSING, E.STOPPED], RECORDED, "IDN-3", "begun before"),
        row("close.unknown", [E.ABSENT], refused(Reason.UNKNOWN_KEY), "LIF-1", "it is not here"),
        row("close.closing", [E.OPEN], Reply(Decision.ACCEPTED), "LIF-3",
            "no launched kernel can be stopped, so only the next launch is withheld", to=E.CLOSING),
        row("close.recorded", [E.CLOSING, E.STOPPED], RECORDED, "LIF-5", "asked before"),
        row("certify.unknown", [E.ABSENT], refused(Reason.UNKNOWN_KEY), "LIF-1", "it is not here"),
        row("certify.still_open", [E.OPEN], refused(Reason.STILL_OPEN), "REC-2", "it could launch after the receipt"),
        row("certify.in_flight", [E.CLOSING], refused(Reason.IN_FLIGHT), "REC-2",
            "a launched step may still touch its capacity", when=execution.in_flight > 0),
        row("certify.issued", [E.CLOSING], Reply(Decision.CERTIFIED), "REC-2", "nothing of it can run any more",
            to=E.STOPPED),
        row("certify.recorded", [E.STOPPED], RECORDED, "REC-3", "the same receipt is sent again"),
        row("acknowledge.unknown", [E.ABSENT], refused(Reason.UNKNOWN_KEY), "LIF-5", "acknowledged before"),
        row("acknowledge.too_early", [E.OPEN, E.CLOSING], refused(Reason.IN_FLIGHT), "REC-3",
            "no receipt was issued yet"),
        row("acknowledge.dropped", [E.STOPPED], Reply(Decision.FORGOTTEN), "REC-3",
            "the receipt is kept until the ledger has it", to=E.ABSENT,
            do=[execution.generation.becomes(0), execution.last_ticket.becomes(0)]),
    ),
    initial=all_of(execution.state == E.ABSENT, execution.generation == 0, execution.in_flight == 0,
                   execution.last_ticket == 0),
    note="What a worker may do for one generation, and when it may certify the stop.",
    invariants=(
        Invariant("stopped_means_stopped",
                  if_else(execution.state.is_in((E.OPEN, E.CLOSING)), execution.in_flight >= 0,
                          execution.in_flight == 0), ("REC-2",),
                  "no ticket is outstanding once the receipt exists"),
        Invariant("live_executions_have_a_generation",
                  (execution.state == E.ABSENT) == (execution.generation == 0), ("LIF-2",),
                  "nothing is launched without one"),
    ),
    rules=(
        StepRule("a_begin_opens",
                 implies(before(execution.state) == E.ABSENT,
                         (execution.state == E.OPEN) & (execution.generation == event.generation)
                         & (execution.last_ticket == 0)), ("LIF-2",), "a generation starts without tickets",
                 events=frozenset({"begin"})),
        StepRule("a_close_ends_launches", execution.state != E.OPEN, ("LIF-3",), "at once",
                 events=frozenset({"close"})),
        StepRule("a_stop_is_certified",
                 implies((before(execution.state) == E.CLOSING) & (before(execution.in_flight) <= 0),
                         execution.state == E.STOPPED), ("REC-2",), "as soon as nothing of it can run",
                 events=frozenset({"certify"})),
        StepRule("an_acknowledged_execution_is_gone",
                 implies(before(execution.state) == E.STOPPED,
                         (execution.state == E.ABSENT) & (execution.generation == 0) & (execution.last_ticket == 0)),
                 ("REC-3",), "the ledger has the receipt", events=frozenset({"acknowledge"})),
        StepRule("no_way_back_to_open",
                 implies(before(execution.state).is_in((E.CLOSING, E.STOPPED)), execution.state != E.OPEN),
                 ("LIF-3", "LIF-6"), "after a stop was asked for, the same generation launches nothing"),
        StepRule("the_receipt_needs_a_stop",
                 implies((execution.state == E.STOPPED) & (before(execution.state) != E.STOPPED),
                         (before(execution.state) == E.CLOSING) & (before(execution.in_flight) == 0)), ("REC-2",),
                 "closed to launches, and nothing in flight"),
        StepRule("tickets_are_not_touched", execution.in_flight == before(execution.in_flight), ("PAG-4",),
                 "only the end of a ticket ends it"),
    ),
    assumptions=(
        Assumption("generations_start_at_one", event.generation >= 1, "0 means none", events=frozenset({"begin"})),
    ),
    sometimes=(
        *(Sometimes(f"an_execution_is_{state.value.lower()}", execution.state == state, "every state is reached")
          for state in E),
        Sometimes("a_stop_waits_for_a_ticket", (execution.state == E.CLOSING) & (execution.in_flight >= 1),
                  "a cancel comes while a step is in flight"),
    ),
)  # fmt: skip

# --- the ticket -----------------------------------------------------------------------------------------------------

TICKET_EVENTS = (
    Event(
        "launch",
        {"generation": INT, "number": INT},
        "a step that lists this execution is handed to the device",
    ),
    Event("settle", {"ok": BOOL}, "the device reports the step over, well or badly"),
)
ticket_event = merged_event_entity(TICKET_EVENTS)
ticket_row = rows_of("ticket")

TICKET = Table(
    name="ticket",
    moves=ticket,
    state_type=TicketState,
    entities=(ticket, execution, rest),
    events=TICKET_EVENTS,
    rows=(
        ticket_row("launch.recorded", [T.LAUNCHED, T.DONE], RECORDED, "PAG-4", "a ticket is launched once"),
        ticket_row("launch.unknown", [T.ABSENT], refused(Reason.UNKNOWN_KEY), "LIF-2 ADM-1",
                   "nothing was started here", when=execution.state == E.ABSENT),
        ticket_row("launch.stale_generation", [T.ABSENT], refused(Reason.STALE_GENERATION), "IDN-5 LEA-2",
                   "the step was planned for another execution",
                   when=ticket_event.generation != execution.generation),
        ticket_row("launch.stopping", [T.ABSENT], refused(Reason.STOPPING), "LIF-3 REC-2",
                   "a stop was asked for: nothing new", when=execution.state != E.OPEN),
        ticket_row("launch.launched", [T.ABSENT], Reply(Decision.LAUNCHED), "PAG-4 LIF-2",
                   "from here on its pages may be touched", to=T.LAUNCHED,
                   do=[execution.in_flight.adds(1), ticket.number.becomes(ticket_event.number),
                       execution.last_ticket.becomes(maximum(execution.last_ticket, ticket_event.number))]),
        ticket_row("settle.unknown", [T.ABSENT], refused(Reason.UNKNOWN_TICKET), "PAG-4", "it was not launched"),
        ticket_row("settle.done", [T.LAUNCHED], Reply(Decision.SETTLED), "PAG-4",
                   "good or bad, it is the same event: it touches nothing any more", to=T.DONE,
                   do=[execution.in_flight.loses(1)]),
        ticket_row("settle.recorded", [T.DONE], RECORDED, "PAG-4", "each ticket ends once"),
    ),
    initial=all_of(ticket.state == T.ABSENT, ticket.number == 0, execution.state == E.ABSENT,
                   execution.generation == 0, execution.in_flight == 0, execution.last_ticket == 0,
                   rest.in_flight == 0),
    note="One execution's share in one launched step.",
    invariants=(
        Invariant("in_flight_is_the_count",
                  execution.in_flight == as_count(ticket.state == T.LAUNCHED) + rest.in_flight, ("REC-2", "PAG-4"),
                  "what is in flight is what was launched and has not ended"),
        Invariant("nothing_flies_unless_begun",
                  implies(execution.state.is_in((E.ABSENT, E.STOPPED)), execution.in_flight == 0), ("REC-2",),
                  "an issued receipt stays true"),
        Invariant("the_last_ticket_is_known",
                  implies(ticket.state == T.LAUNCHED, ticket.number <= execution.last_ticket), ("REC-1",),
                  "the receipt names a ticket no older than any that is in flight"),
    ),
    rules=(
        StepRule("launches_need_an_open_execution",
                 implies(execution.in_flight > before(execution.in_flight),
                         (before(execution.state) == E.OPEN)
                         & (ticket_event.generation == before(execution.generation))),
                 ("LIF-3", "LIF-2"), "open, and of this generation", events=frozenset({"launch"})),
        StepRule("launches_are_numbered",
                 implies(execution.in_flight > before(execution.in_flight),
                         (ticket.number == ticket_event.number)
                         & (execution.last_ticket == maximum(before(execution.last_ticket), ticket_event.number))),
                 ("REC-1",), "the receipt will name the last one that was launched", events=frozenset({"launch"})),
        StepRule("a_ticket_ends_once",
                 (execution.in_flight == before(execution.in_flight))
                 | ((before(ticket.state) == T.LAUNCHED) & (ticket.state == T.DONE)
                    & (execution.in_flight == before(execution.in_flight) - 1)), ("PAG-4",),
                 "ending a ticket again changes nothing", events=frozenset({"settle"})),
        StepRule("executions_are_not_moved", execution.state == before(execution.state), ("LIF-3",),
                 "a ticket neither opens nor closes an execution"),
    ),
    assumptions=(
        Assumption("other_tickets_are_counted", rest.in_flight >= 0, "a count over its other tickets"),
        Assumption("executions_are_sound", (execution.state == E.ABSENT) == (execution.generation == 0),
                   "the execution table keeps it so"),
        Assumption("ticket_numbers_are_positive", ticket_event.number >= 1, "0 means none",
                   events=frozenset({"launch"})),
    ),
    sometimes=(
        *(Sometimes(f"a_ticket_is_{state.value.lower()}", ticket.state == state, "every state is reached")
          for state in T),
        Sometimes("two_are_in_flight", execution.in_flight >= 2, "several streams at once"),
    ),
)  # fmt: skip
