"""Page states and outcomes as constants of a module; outcomes are compared by identity."""

from kvescrow.reference.pages.replies import granted, refused
from kvescrow.spec.vocabulary import Decision, PageState, Reason

# Attributes of an enum are slow to read, and these are read several times a page.
SINK, FREE, PRIVATE = PageState.SINK, PageState.FREE, PageState.PRIVATE
SHARED, CACHED, DRAINING = PageState.SHARED, PageState.CACHED, PageState.DRAINING

GRANTED = granted(Decision.GRANTED)
DROPPED = granted(Decision.DROPPED)
PUBLISHED = granted(Decision.PUBLISHED)
LAUNCHED = granted(Decision.LAUNCHED)
SETTLED = granted(Decision.SETTLED)
RELEASED = granted(Decision.RELEASED)
EXTENDED = granted(Decision.EXTENDED)
NOTED = granted(Decision.NOTED)
FORGOTTEN = granted(Decision.FORGOTTEN)
RECORDED = granted(Decision.RECORDED)
NOTHING_DUE = granted(Decision.NOTHING_DUE)
MISS = granted(Decision.MISS)

SINK_PAGE = refused(Reason.SINK_PAGE)
NO_PROMISE = refused(Reason.NO_PROMISE)
NOT_FREE = refused(Reason.NOT_FREE)
NOT_PRIVATE = refused(Reason.NOT_PRIVATE)
NOT_HOLDER = refused(Reason.NOT_HOLDER)
NOT_COMPUTED = refused(Reason.NOT_COMPUTED)
NOT_CACHED = refused(Reason.NOT_CACHED)
NOT_OUTSTANDING = refused(Reason.NOT_OUTSTANDING)
RETIRED_SCOPE = refused(Reason.RETIRED_SCOPE)
PARENT_UNPUBLISHED = refused(Reason.PARENT_UNPUBLISHED)
PARENT_NOT_HELD = refused(Reason.PARENT_NOT_HELD)
DUPLICATE = refused(Reason.DUPLICATE)
SCOPE_CAPACITY = refused(Reason.SCOPE_CAPACITY)
HAS_CHILDREN = refused(Reason.HAS_CHILDREN)
IN_USE = refused(Reason.IN_USE)
IN_FLIGHT = refused(Reason.IN_FLIGHT)
READ_ONLY = refused(Reason.READ_ONLY)
LIVE = refused(Reason.LIVE)
MALFORMED = refused(Reason.MALFORMED)
NEVER_FITS = refused(Reason.NEVER_FITS)
POOL_CAPACITY = refused(Reason.POOL_CAPACITY)
CLOSED = refused(Reason.CLOSED)
UNKNOWN_KEY = refused(Reason.UNKNOWN_KEY)
HOLDING = refused(Reason.HOLDING)
