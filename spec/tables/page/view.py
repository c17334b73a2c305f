"""What a page row sees: the page, one holder and its claim, the scope's account, the page before it, the pool."""

from kvescrow.spec.language.expressions import Entity, Kind
from kvescrow.spec.language.table import Event, merged_event_entity
from kvescrow.spec.vocabulary import HolderState, PageState

INT, BOOL, NAME = Kind.INTEGER, Kind.BOOLEAN, Kind.NAME

page = Entity(
    "page",
    {
        "state": PageState,
        "holders": INT,
        "readers": INT,
        "writers": INT,
        "computed": BOOL,
        "spoiled": BOOL,
        "matchable": BOOL,
        "scope": NAME,
        "chain": NAME,
        "children": INT,
        "busy": INT,
        "generation": INT,
    },
    note="the page that the row moves; readers and writers are outstanding tickets; children are published pages "
    "that follow it in the chain, busy those of them that are not cached",
)
claim = Entity("claim", {"holds": BOOL}, note="whether the holder is in the page's set of holders")
holder = Entity(
    "holder",
    {"state": HolderState, "scope": NAME, "promised": INT, "pages": INT, "shares": INT},
    note="the execution that acts: its scope, its promised units, its private and its shared pages",
)
scope = Entity(
    "scope",
    {"identity": NAME, "live": BOOL, "shared": INT, "published": INT, "limit": INT},
    note="the account of the page's scope: pages charged to it now, pages published, and their limit",
)
parent = Entity(
    "parent",
    {"matchable": BOOL, "cached": BOOL, "children": INT, "busy": INT},
    note="the page before it in the chain; the root is always matchable and never cached",
)
pool = Entity(
    "pool",
    {
        "total": INT,
        "free": INT,
        "private": INT,
        "shared": INT,
        "cached": INT,
        "draining": INT,
        "promised": INT,
    },
    note="pages by state, the sink excluded, and all promised units",
)
index = Entity("index", {"occupied": BOOL}, settled=True, note="whether a page is published under this scope and chain")
other = Entity("other", {"matchable": BOOL, "scope": NAME, "chain": NAME}, settled=True, note="any other page")
rest = Entity(
    "rest",
    {
        "holders": INT,
        "free": INT,
        "private": INT,
        "shared": INT,
        "cached": INT,
        "draining": INT,
        "promised": INT,
        "holder_pages": INT,
        "holder_shares": INT,
        "scope_shared": INT,
        "scope_published": INT,
        "siblings": INT,
        "busy_siblings": INT,
    },
    settled=True,
    note="what other pages and other holders contribute to each count",
)

EVENTS = (
    Event("allocate", {}, "the holder draws a promised page"),
    Event("seal", {"chain": NAME}, "the holder publishes a full page under its scope and chain"),
    Event(
        "share",
        {"chain": NAME, "tokens_equal": BOOL},
        "a lookup of the holder arrives at this page; its tokens were compared",
    ),
    Event("drop", {}, "the holder gives up its claim"),
    Event("evict", {}, "the pool takes back the content of a page that nobody holds"),
    Event("touch", {"write": BOOL}, "a step that reads or writes the page is launched for the holder"),
    Event(
        "settle",
        {"write": BOOL, "ok": BOOL, "filled": BOOL},
        "such a step is over; `filled`: it wrote the last slot",
    ),
    Event("park", {}, "the pool looks whether a draining page has still to wait"),
    Event("retire_scope", {}, "weights or adapter changed: nothing of this scope is matched again"),
)
event = merged_event_entity(EVENTS)
