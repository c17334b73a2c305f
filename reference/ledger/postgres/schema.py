"""The tables of a ledger in PostgreSQL, as numbered migrations.

The checks repeat what the decisions keep, so that no fault can be stored unseen. `{s}` stands for the schema, which
holds exactly one ledger. Identity rows are deleted by `forget` alone (IDN-5, IDN-6).
"""

from kvescrow.reference.ledger.rows import KEPT_STATES, listed
from kvescrow.spec.vocabulary import CHARGED_STATES, OWNED_STATES, ReservationState

_CHARGED = f"state IN ({listed(CHARGED_STATES)})"

# A hot row is rewritten at every commit. With room beside it, its new version needs no entry in any index and the old
# one is reclaimed in passing.
_HOT = "WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000)"

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        f"""
        CREATE TABLE {{s}}.pool (
            id smallint PRIMARY KEY CHECK (id = 1),
            name text NOT NULL,
            capacity bigint NOT NULL CHECK (capacity >= 0),
            retention bigint NOT NULL CHECK (retention >= 0),
            active bigint NOT NULL CHECK (active >= 0),
            clock bigint NOT NULL CHECK (clock >= 0),
            next_life bigint NOT NULL CHECK (next_life >= 1),
            next_generation bigint NOT NULL CHECK (next_generation >= 1),
            seq bigint NOT NULL CHECK (seq >= 0),
            epoch bigint NOT NULL DEFAULT 1 CHECK (epoch >= 1),
            writer text NOT NULL DEFAULT '',
            recovering boolean NOT NULL DEFAULT false,
            witnessed bigint NOT NULL DEFAULT 0 CHECK (witnessed >= 0)
        ) {_HOT}
        """,
        f"""
        CREATE TABLE {{s}}.tenant (
            name text PRIMARY KEY,
            capacity bigint NOT NULL CHECK (capacity >= 0),
            budget bigint NOT NULL CHECK (budget >= 0),
            queue_limit bigint NOT NULL CHECK (queue_limit >= 0),
            active bigint NOT NULL CHECK (active >= 0),
            held bigint NOT NULL CHECK (held >= 0),
            spent bigint NOT NULL CHECK (spent >= 0),
            overrun bigint NOT NULL CHECK (overrun >= 0),
            queued bigint NOT NULL CHECK (queued >= 0)
        ) {_HOT}
        """,
        f"""
        CREATE TABLE {{s}}.reservation (
            tenant text NOT NULL REFERENCES {{s}}.tenant (name),
            request text NOT NULL,
            state text NOT NULL CHECK (state IN ({listed(KEPT_STATES)})),
            amount bigint NOT NULL CHECK (amount >= 1),
            digest text NOT NULL,
            deadline bigint NOT NULL,
            least_service bigint NOT NULL CHECK (least_service >= 0),
            bound bigint NOT NULL CHECK (bound >= amount),
            life bigint NOT NULL CHECK (life >= 1),
            used bigint NOT NULL CHECK (used >= 0),
            overrun bigint NOT NULL CHECK (overrun >= 0),
            generation bigint NOT NULL CHECK (generation >= 0),
            owner text CHECK (owner <> ''),
            lease bigint NOT NULL,
            expires bigint NOT NULL,
            retained bigint NOT NULL,
            place bigint NOT NULL,
            due bigint,
            PRIMARY KEY (tenant, request),
            CHECK (used <= bound + overrun),
            CHECK ((state = '{ReservationState.QUEUED.value}') = (place > 0)),
            CHECK (state NOT IN ({listed(OWNED_STATES)}) OR (owner IS NOT NULL AND generation >= 1))
        )
        """,
        "CREATE UNIQUE INDEX reservation_life ON {s}.reservation (life)",
        "CREATE UNIQUE INDEX reservation_generation ON {s}.reservation (generation) WHERE generation > 0",
        "CREATE INDEX reservation_queue ON {s}.reservation (place) WHERE place > 0",
        "CREATE INDEX reservation_due ON {s}.reservation (due, life) WHERE due IS NOT NULL",
        f"CREATE INDEX reservation_deadline ON {{s}}.reservation (deadline) WHERE {_CHARGED}",
        f"CREATE INDEX reservation_tenant_deadline ON {{s}}.reservation (tenant, deadline) WHERE {_CHARGED}",
        """
        CREATE TABLE {s}.journal (
            seq bigint PRIMARY KEY CHECK (seq >= 1),
            now bigint NOT NULL,
            event text NOT NULL,
            reply text NOT NULL,
            writer text NOT NULL
        )
        """,
    ),
)
"""The statements of each version, the first of them version 1. One that was released is never changed again."""

VERSION = len(MIGRATIONS)

CHARGED = _CHARGED
"""Condition of the records that the active counters are the sum of."""
