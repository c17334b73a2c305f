"""The decision whether a published page may be reused by a request: field by field, hash never enough (SCO-1, SCO-2).

The order of the rows is the order in which an implementation may give up early. Every miss has the same answer.
"""

from enum import Enum

from kvescrow.spec.language.expressions import Entity, Expression, Field, Kind, all_of, before, implies
from kvescrow.spec.language.table import Event, Reply, Sometimes, StepRule, Table, merged_event_entity
from kvescrow.spec.tables.authoring import RECORDED, refused, rows_of
from kvescrow.spec.vocabulary import Decision, Reason

INT, BOOL, NAME = Kind.INTEGER, Kind.BOOLEAN, Kind.NAME


class Question(Enum):
    """A decision table has one state."""

    ASKED = "ASKED"
    """The question is asked."""


SCOPE_FIELDS = {
    "tenant": NAME,
    "group": BOOL,
    "model": NAME,
    "weight_epoch": INT,
    "adapter": NAME,
    "adapter_generation": INT,
    "tokenizer": NAME,
    "position_scheme": NAME,
    "kv_dtype": NAME,
    "page_length": INT,
    "salt": NAME,
    "media": NAME,
}
"""The fields of `PrefixScope`; a test compares the two lists."""

_WHY = {
    "tenant": ("SCO-1", "another tenant, or another group"),
    "group": ("SCO-3", "a tenant's own page is not a group's, whatever the names"),
    "model": ("SCO-1", "another model"),
    "weight_epoch": ("SCO-5", "other weights"),
    "adapter": ("SCO-1", "another adapter; none is an adapter of its own"),
    "adapter_generation": ("SCO-5", "the adapter was loaded again under its name"),
    "tokenizer": ("SCO-1", "token numbers mean something else"),
    "position_scheme": ("SCO-1", "positions are encoded otherwise"),
    "kv_dtype": ("SCO-1", "stored in another type"),
    "page_length": ("SCO-1", "cut at other places"),
    "salt": ("SCO-1", "the caller separates its caches"),
    "media": ("SCO-1", "other media stand behind the same placeholder tokens"),
}

question = Entity("question", {"state": Question, "yes": BOOL}, note="the decision, no until a row says yes")
request = Entity("request", SCOPE_FIELDS, settled=True, note="the scope record of the request")
published = Entity("published", SCOPE_FIELDS, settled=True, note="the scope record that the page was published under")
content = Entity(
    "content",
    {"chain_equal": BOOL, "tokens_equal": BOOL, "matchable": BOOL},
    settled=True,
    note="whether the digests of the whole chain agree, the tokens themselves agree, and the page is published",
)

EVENTS = (
    Event("look_up", {}, "may this page be reused by this request?"),
    Event("publish", {"authorised": BOOL}, "may this request publish under its scope record?"),
)
event = merged_event_entity(EVENTS)
row = rows_of("scope_reuse")
ASKED = (Question.ASKED,)
MISS = Reply(Decision.MISS)


YES = question.yes.becomes(True)


def _equal(name: str) -> Expression:
    of_request: Field = getattr(request, name)
    of_page: Field = getattr(published, name)
    return of_request == of_page


exact = all_of(*(_equal(name) for name in SCOPE_FIELDS), content.matchable, content.chain_equal, content.tokens_equal)

SCOPE_REUSE = Table(
    name="scope_reuse",
    moves=question,
    state_type=Question,
    entities=(question, request, published, content),
    events=EVENTS,
    rows=(
        row("look_up.recorded", ASKED, RECORDED, "SCO-2", "answered before", when=question.yes),
        row("look_up.unpublished", ASKED, MISS, "PAG-6 SCO-4", "provisional pages never match",
            when=~content.matchable),
        *(row(f"look_up.{name}", ASKED, MISS, f"{_WHY[name][0]} SCO-4", _WHY[name][1], when=~_equal(name))
          for name in SCOPE_FIELDS),
        row("look_up.chain", ASKED, MISS, "SCO-2 PAG-8", "another prefix", when=~content.chain_equal),
        row("look_up.tokens", ASKED, MISS, "SCO-2", "the digests collide, the tokens differ",
            when=~content.tokens_equal),
        row("look_up.hit", ASKED, Reply(Decision.HIT), "SCO-1 SCO-2", "equal in every field, chain and token",
            do=[YES]),
        row("publish.recorded", ASKED, RECORDED, "SCO-3", "answered before", when=question.yes),
        row("publish.forbidden", ASKED, refused(Reason.FORBIDDEN), "SCO-3",
            "publishing wider than the tenant is an authorised act", when=request.group & ~event.authorised),
        row("publish.allowed", ASKED, Reply(Decision.PUBLISHED), "SCO-3", "inside its own tenant, or authorised",
            do=[YES]),
    ),
    initial=all_of(~question.yes),
    note="May a published page be reused? Only if every field, the whole chain and every token agree.",
    rules=(
        StepRule("a_hit_is_exact", implies(question.yes & ~before(question.yes), exact), ("SCO-1", "SCO-2"),
                 "no field, chain or token differs", events=frozenset({"look_up"})),
        StepRule("an_exact_page_is_hit", implies(exact, question.yes), ("SCO-1",),
                 "nothing is refused for another cause", events=frozenset({"look_up"})),
        StepRule("groups_need_authority",
                 implies(question.yes & ~before(question.yes) & request.group, event.authorised), ("SCO-3",),
                 "no one publishes for a group unasked", events=frozenset({"publish"})),
        StepRule("what_needs_no_authority_is_published", implies(~request.group | event.authorised, question.yes),
                 ("SCO-3",), "nothing is refused for another cause", events=frozenset({"publish"})),
    ),
    sometimes=(Sometimes("a_page_is_reused", question.yes, "hits happen"),),
)  # fmt: skip
