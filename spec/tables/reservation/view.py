"""What a reservation row sees: the reservation, its tenant, the pool, the queue before it, and the opaque rest."""

from kvescrow.spec.language.expressions import Entity, Kind
from kvescrow.spec.language.table import Event, merged_event_entity
from kvescrow.spec.vocabulary import ReservationState, StopOutcome

INT, BOOL, NAME = Kind.INTEGER, Kind.BOOLEAN, Kind.NAME

reservation = Entity(
    "reservation",
    {
        "state": ReservationState,
        "amount": INT,
        "digest": NAME,
        "deadline": INT,
        "least_service": INT,
        "bound": INT,
        "used": INT,
        "overrun": INT,
        "life": INT,
        "generation": INT,
        "owner": NAME,
        "lease": INT,
        "expires": INT,
        "retained": INT,
    },
    note="the reservation that the row moves",
)
tenant = Entity(
    "tenant",
    {
        "active": INT,
        "limit": INT,
        "held": INT,
        "spent": INT,
        "budget": INT,
        "overrun": INT,
        "queued": INT,
        "queue_limit": INT,
    },
    note="the accounts of its tenant",
)
pool = Entity(
    "pool",
    {
        "active": INT,
        "limit": INT,
        "clock": INT,
        "retention": INT,
        "next_life": INT,
        "next_generation": INT,
    },
    note="the accounts of the pool, its clock and its counters of identities",
)
queue = Entity(
    "queue",
    {"ahead": INT},
    settled=True,
    note="how many requests came earlier, still wait, and lack nothing but room in the pool",
)
other = Entity(
    "other",
    {"life": INT, "generation": INT},
    settled=True,
    note="any other reservation",
)
rest = Entity(
    "rest",
    {"pool_active": INT, "tenant_active": INT, "tenant_held": INT, "tenant_queued": INT},
    settled=True,
    note="what all other reservations contribute to each account",
)
ghost = Entity(
    "ghost",
    {"grants": INT, "releases": INT},
    note="for the proof alone: how often this reservation took and gave back capacity, seen on the pool's account",
)

EVENTS = (
    Event(
        "reserve",
        {
            "authorised": BOOL,
            "amount": INT,
            "digest": NAME,
            "deadline": INT,
            "least_service": INT,
            "max_wait": INT,
            "lease": INT,
        },
        "a gateway asks for capacity for a request",
    ),
    Event("promote", {"lease": INT}, "the ledger tries to admit a queued reservation"),
    Event(
        "start",
        {"authorised": BOOL, "life": INT, "owner": NAME, "lease": INT},
        "a worker takes ownership: the commit point",
    ),
    Event(
        "extend",
        {"authorised": BOOL, "owner": NAME, "generation": INT, "bound": INT},
        "the owner asks for a larger bound, given as the new total",
    ),
    Event(
        "report_usage",
        {"authorised": BOOL, "owner": NAME, "generation": INT, "used": INT},
        "the owner reports the units used so far",
    ),
    Event("cancel", {"authorised": BOOL, "life": INT}, "the client, or a disconnect on its behalf, asks to stop"),
    Event("preempt", {"authorised": BOOL, "generation": INT}, "the scheduler asks to stop and requeue"),
    Event(
        "finish",
        {"authentic": BOOL, "owner": NAME, "generation": INT, "outcome": StopOutcome, "used": INT},
        "the owner's receipt: the work has stopped",
    ),
    Event(
        "renew",
        {"authorised": BOOL, "life": INT, "owner": NAME, "generation": INT, "lease": INT},
        "the gateway or the owner renews its lease",
    ),
    Event("sweep", {}, "the ledger applies the time limits of one record"),
    Event(
        "fence",
        {"authentic": BOOL, "owner": NAME},
        "a supervisor's proof that an incarnation of the owner is gone",
    ),
    Event(
        "force_release",
        {"authorised": BOOL, "generation": INT},
        "an operator gives up on an execution whose stop nobody confirms",
    ),
    Event("forget", {}, "the ledger drops a terminal record after its retention"),
)
event = merged_event_entity(EVENTS)
