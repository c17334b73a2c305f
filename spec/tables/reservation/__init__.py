"""The reservation lifecycle: from a request for capacity to its one release (ADM, IDN, LIF, REC, LEA, QUE, GRO).

Two rules shape it. Capacity is charged in one step, before any expensive act. It is released in one step, and for
work that may have been launched only on the owner's authentic receipt or on proof that the owner is fenced off.
"""

from kvescrow.spec.language.table import Table
from kvescrow.spec.tables.reservation.duties import DUTIES
from kvescrow.spec.tables.reservation.laws import (
    ASSUMPTIONS,
    GHOSTS,
    INITIAL,
    INVARIANTS,
    RULES,
    SOMETIMES,
)
from kvescrow.spec.tables.reservation.rows import ROWS
from kvescrow.spec.tables.reservation.view import (
    EVENTS,
    ghost,
    other,
    pool,
    queue,
    reservation,
    rest,
    tenant,
)
from kvescrow.spec.vocabulary import ReservationState

RESERVATION = Table(
    name="reservation",
    moves=reservation,
    state_type=ReservationState,
    entities=(reservation, tenant, pool, queue, other, rest, ghost),
    events=EVENTS,
    rows=ROWS,
    initial=INITIAL,
    note="A reservation's life: charged in one step before any work, released once, on a confirmed stop.",
    invariants=INVARIANTS,
    rules=(*RULES, *DUTIES),
    assumptions=ASSUMPTIONS,
    sometimes=SOMETIMES,
    ghosts=GHOSTS,
)
