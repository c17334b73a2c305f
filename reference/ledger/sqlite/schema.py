"""The tables of a ledger file. The checks repeat what the decisions keep, so that no fault can be stored unseen."""

from collections.abc import Collection

from kvescrow.reference.ledger.rows import KEPT_STATES
from kvescrow.spec.vocabulary import OWNED_STATES, ReservationState

APPLICATION_ID = 0x6B766573
"""Marks the file as a ledger ("kves"), so that another program's file is never touched."""
VERSION = 1
"""Version of the schema; a file of another version is refused, never guessed at."""


def _one_of(states: Collection[ReservationState]) -> str:
    """Return the condition that the state is one of `states`.

    Spelled out, since SQLite builds a table for each list after IN, anew for every row that it checks: that took more
    than all the rest of writing a row.
    """
    return " OR ".join(f"state = '{state.value}'" for state in ReservationState if state in states)


SCHEMA = (
    """
    CREATE TABLE pool (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        name TEXT NOT NULL,
        capacity INTEGER NOT NULL CHECK (capacity >= 0),
        retention INTEGER NOT NULL CHECK (retention >= 0),
        active INTEGER NOT NULL CHECK (active >= 0),
        clock INTEGER NOT NULL CHECK (clock >= 0),
        next_life INTEGER NOT NULL CHECK (next_life >= 1),
        next_generation INTEGER NOT NULL CHECK (next_generation >= 1),
        seq INTEGER NOT NULL CHECK (seq >= 0)
    ) STRICT
    """,
    """
    CREATE TABLE tenant (
        name TEXT PRIMARY KEY,
        capacity INTEGER NOT NULL CHECK (capacity >= 0),
        budget INTEGER NOT NULL CHECK (budget >= 0),
        queue_limit INTEGER NOT NULL CHECK (queue_limit >= 0),
        active INTEGER NOT NULL CHECK (active >= 0),
        held INTEGER NOT NULL CHECK (held >= 0),
        spent INTEGER NOT NULL CHECK (spent >= 0),
        overrun INTEGER NOT NULL CHECK (overrun >= 0),
        queued INTEGER NOT NULL CHECK (queued >= 0)
    ) STRICT, WITHOUT ROWID
    """,
    f"""
    CREATE TABLE reservation (
        tenant TEXT NOT NULL REFERENCES tenant (name),
        request TEXT NOT NULL,
        state TEXT NOT NULL CHECK ({_one_of(KEPT_STATES)}),
        amount INTEGER NOT NULL CHECK (amount >= 1),
        digest TEXT NOT NULL,
        deadline INTEGER NOT NULL,
        least_service INTEGER NOT NULL CHECK (least_service >= 0),
        bound INTEGER NOT NULL CHECK (bound >= amount),
        life INTEGER NOT NULL UNIQUE CHECK (life >= 1),
        used INTEGER NOT NULL CHECK (used >= 0),
        overrun INTEGER NOT NULL CHECK (overrun >= 0),
        generation INTEGER NOT NULL CHECK (generation >= 0),
        owner TEXT CHECK (owner <> ''),
        lease INTEGER NOT NULL,
        expires INTEGER NOT NULL,
        retained INTEGER NOT NULL,
        place INTEGER NOT NULL,
        PRIMARY KEY (tenant, request),
        CHECK (used <= bound + overrun),
        CHECK ((state = '{ReservationState.QUEUED.value}') = (place > 0)),
        CHECK (NOT ({_one_of(OWNED_STATES)}) OR (owner IS NOT NULL AND generation >= 1))
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE UNIQUE INDEX reservation_generation ON reservation (generation) WHERE generation > 0",
    """
    CREATE TABLE journal (
        seq INTEGER PRIMARY KEY CHECK (seq >= 1),
        now INTEGER NOT NULL,
        event TEXT NOT NULL,
        reply TEXT NOT NULL
    ) STRICT
    """,
)
