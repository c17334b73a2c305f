"""The KV page with its prefix scope (PAG, SCO).

Three rules shape it. A page is drawn from a promise, so admission is never broken. It is matchable only after the
steps that computed it ended well, and only inside its scope. It is free only when nobody holds it and no launched
step may touch it: logical release and physical reuse are two events.
"""

from kvescrow.spec.language.table import Table
from kvescrow.spec.tables.page.laws import (
    ASSUMPTIONS,
    INITIAL,
    INVARIANTS,
    NON_INTERFERENCE,
    RULES,
    SOMETIMES,
)
from kvescrow.spec.tables.page.rows import ROWS
from kvescrow.spec.tables.page.view import (
    EVENTS,
    claim,
    holder,
    index,
    other,
    page,
    parent,
    pool,
    rest,
    scope,
)
from kvescrow.spec.vocabulary import PageState

PAGE = Table(
    name="page",
    moves=page,
    state_type=PageState,
    entities=(page, claim, holder, scope, parent, pool, index, other, rest),
    events=EVENTS,
    rows=ROWS,
    initial=INITIAL,
    note="A KV page: drawn from a promise, published after it is computed, free only when untouched.",
    invariants=INVARIANTS,
    rules=RULES,
    assumptions=ASSUMPTIONS,
    sometimes=SOMETIMES,
    non_interference=NON_INTERFERENCE,
)
