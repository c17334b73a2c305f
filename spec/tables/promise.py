"""The promise of pages: admission to a page pool (PAG-1, ADM-10, ADM-11).

An admitted holder may still draw as many pages as it has promised units. The promises of all holders together
never exceed the pages that are free or evictable now; so a draw can never fail for want of a page. A hit on a
page that others hold needs no unit; a hit on a cached page needs one, since it takes an evictable page away.
"""

from kvescrow.spec.language.expressions import Entity, Kind, all_of, as_count, before, if_else, implies
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
from kvescrow.spec.vocabulary import Decision, HolderState, Reason

INT = Kind.INTEGER
H = HolderState

holder = Entity(
    "holder",
    {"state": HolderState, "promised": INT, "pages": INT, "shares": INT},
    note="the execution that asks: units it may still draw, private pages and shared pages that it holds",
)
pool = Entity(
    "pool",
    {"usable": INT, "free": INT, "cached": INT, "promised": INT},
    note="the page pool; usable excludes the sink",
)
rest = Entity("rest", {"promised": INT}, settled=True, note="units promised to all other holders")

EVENTS = (
    Event("admit", {"units": INT}, "an execution asks for a promise: new pages plus hits that nobody holds"),
    Event("grow", {"units": INT}, "it asks for more before it crosses its bound"),
    Event("close", {}, "it has given up all its pages and returns the units it did not draw"),
    Event("forget", {}, "its stop is confirmed, so nothing late can come: its name is free"),
)
event = merged_event_entity(EVENTS)
row = rows_of("promise")
lacks_room = pool.promised + event.units > pool.free + pool.cached
PROMISE_UNITS = (pool.promised.adds(event.units), holder.promised.adds(event.units))

ROWS = (
    row("admit.malformed", [H.ABSENT], refused(Reason.MALFORMED), "ADM-9", "a promise is not negative",
        when=event.units < 0),
    row("admit.never_fits", [H.ABSENT], refused(Reason.NEVER_FITS), "ADM-6 ADM-11",
        "more than the usable pool", when=event.units > pool.usable),
    row("admit.pool_capacity", [H.ABSENT], refused(Reason.POOL_CAPACITY), "PAG-1 PAG-5 ADM-10",
        "units promised before are not free, and the caller's own hits are not free space", when=lacks_room),
    row("admit.grant", [H.ABSENT], Reply(Decision.GRANTED), "PAG-1 ADM-10",
        "all that the request may need is promised at once", to=H.ADMITTED, do=PROMISE_UNITS),
    row("admit.recorded", [H.ADMITTED], RECORDED, "IDN-3", "admitted before"),
    row("admit.closed", [H.CLOSED], refused(Reason.CLOSED), "LIF-8", "this execution is over"),
    row("grow.unknown", [H.ABSENT], refused(Reason.UNKNOWN_KEY), "LIF-1", "it was never admitted"),
    row("grow.malformed", [H.ADMITTED], refused(Reason.MALFORMED), "ADM-9", "growth is positive",
        when=event.units <= 0),
    row("grow.pool_capacity", [H.ADMITTED], refused(Reason.POOL_CAPACITY), "PAG-1 GRO-3",
        "the old promise stands", when=lacks_room),
    row("grow.grant", [H.ADMITTED], Reply(Decision.EXTENDED), "PAG-1 GRO-2", "only the difference is promised",
        do=PROMISE_UNITS),
    row("grow.closed", [H.CLOSED], refused(Reason.CLOSED), "LIF-8", "this execution is over"),
    row("close.unknown", [H.ABSENT], refused(Reason.UNKNOWN_KEY), "LIF-1", "it was never admitted"),
    row("close.holding", [H.ADMITTED], refused(Reason.HOLDING), "LIF-10 PAG-3",
        "its pages come first", when=(holder.pages > 0) | (holder.shares > 0)),
    row("close.released", [H.ADMITTED], Reply(Decision.RELEASED), "LIF-4 PAG-1",
        "undrawn units go back once", to=H.CLOSED,
        do=[pool.promised.loses(holder.promised), holder.promised.becomes(0)]),
    row("close.recorded", [H.CLOSED], RECORDED, "LIF-5", "closed before; nothing is released again"),
    row("forget.unknown", [H.ABSENT], refused(Reason.UNKNOWN_KEY), "LIF-1", "it is not here"),
    row("forget.live", [H.ADMITTED], refused(Reason.LIVE), "IDN-6", "it may still hold pages"),
    row("forget.gone", [H.CLOSED], Reply(Decision.FORGOTTEN), "IDN-5 ADM-10",
        "nothing late can come, or its admission elsewhere failed and it may try again", to=H.ABSENT),
)  # fmt: skip

admitted = holder.state == H.ADMITTED

PROMISE = Table(
    name="promise",
    moves=holder,
    state_type=HolderState,
    entities=(holder, pool, rest),
    events=EVENTS,
    rows=ROWS,
    initial=all_of(
        holder.state == H.ABSENT, holder.promised == 0, holder.pages == 0, holder.shares == 0,
        pool.promised == 0, pool.cached == 0, pool.free == pool.usable, rest.promised == 0,
    ),
    note="Admission to the page pool: what is promised is always free or evictable.",
    invariants=(
        Invariant("promised_is_the_sum", pool.promised == holder.promised + rest.promised, ("PAG-1", "LIF-10"),
                  "the pool's promise is the sum over holders"),
        Invariant("promises_can_be_kept", pool.promised <= pool.free + pool.cached, ("PAG-1",),
                  "every promised unit is free or evictable now"),
        Invariant("only_the_admitted_hold",
                  if_else(admitted, (holder.promised >= 0) & (holder.pages >= 0) & (holder.shares >= 0),
                          (holder.promised == 0) & (holder.pages == 0) & (holder.shares == 0)), ("ADM-1", "LIF-4"),
                  "no promise or page without admission, none after the end"),
    ),
    rules=(
        StepRule("closed_absorbs",
                 implies(before(holder.state) == H.CLOSED, (holder.state == H.CLOSED)
                         & (pool.promised == before(pool.promised))), ("LIF-8",), "nothing changes after the end",
                 events=frozenset({"admit", "grow", "close"})),
        StepRule("only_the_closed_are_forgotten",
                 implies(holder.state != before(holder.state), (before(holder.state) == H.CLOSED)
                         & (holder.state == H.ABSENT)) & (pool.promised == before(pool.promised)),
                 ("IDN-5", "IDN-6"), "a name is free only when nothing late can come", events=frozenset({"forget"})),
        StepRule("no_page_moves",
                 (pool.free == before(pool.free)) & (pool.cached == before(pool.cached)), ("ADM-1",),
                 "a promise allocates nothing"),
        StepRule("units_return_once",
                 implies(pool.promised < before(pool.promised),
                         (as_count(before(holder.state) == H.ADMITTED) == 1) & (holder.state == H.CLOSED)
                         & (before(pool.promised) - pool.promised == before(holder.promised))), ("LIF-4",),
                 "units go back in one step, when the holder closes"),
    ),
    assumptions=(
        Assumption("other_promises_are_not_negative", rest.promised >= 0, "a sum over the other holders"),
        Assumption("counts_are_not_negative",
                   (pool.free >= 0) & (pool.cached >= 0) & (pool.free + pool.cached <= pool.usable),
                   "the page table keeps them so"),
    ),
    sometimes=(
        *(Sometimes(f"a_holder_is_{state.value.lower()}", holder.state == state, "every state is reached")
          for state in H),
        Sometimes("everything_is_promised", (pool.promised == pool.free + pool.cached) & (pool.promised >= 1),
                  "the bound is attained"),
    ),
)  # fmt: skip
