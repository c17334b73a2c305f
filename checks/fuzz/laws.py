"""The laws by which a target is judged from outside, each with the capabilities that it needs (TGT-1)."""

from collections.abc import Callable, Mapping
from functools import cache

from attrs import field, fields, frozen

from kvescrow.checks.targets.subject import Capabilities, Expiry, Kind, Publish, Release
from kvescrow.spec.vocabulary import PrefixScope

Holds = Callable[[Capabilities], bool]
MANAGERS = frozenset({Kind.MANAGER})
_BOTH = frozenset({Kind.MANAGER, Kind.SCHEDULER})


@frozen
class Law:
    """One law. It was exercised in a run once it held where it could have been broken."""

    name: str
    statement: str
    needs: Mapping[str, Holds] = field(factory=dict, eq=False, repr=False)
    """Field of `Capabilities` -> whether what is declared there leaves the law in force; none where it holds always."""
    kinds: frozenset[Kind] = MANAGERS
    """Which kinds of target are judged by it."""

    def __str__(self) -> str:
        return f"{self.name}: {self.statement}"

    def excluded_by(self, declared: Capabilities) -> str | None:
        """Return the capability that excludes the law; None where it applies."""
        return next((name for name, holds in self.needs.items() if not holds(declared)), None)


def _tells_apart(name: str) -> Law:
    return Law(
        f"scope.{name}",
        f"no hit across scopes that differ in {name} (SCO-1)",
        {"scope_fields": lambda declared: name in declared.scope_fields},
    )


def _of_capacity(name: str, statement: str, **needs: Holds) -> Law:
    return Law(name, statement, needs, frozenset({Kind.CAPACITY}))


def _gives_back(declared: Capabilities) -> bool:
    return declared.gives_back


def _remembers(declared: Capabilities) -> bool:
    return declared.remembers_grants


def _expires(declared: Capabilities) -> bool:
    return declared.expiry is not Expiry.NEVER


@cache
def texts_of(declared: Capabilities) -> tuple[str, ...]:
    """Return the fields that are texts, of those by which the target tells scopes apart."""
    texts = [one.name for one in fields(PrefixScope) if one.type in (str, str | None)]
    return tuple(name for name in texts if name in declared.scope_fields)


LAWS: tuple[Law, ...] = (
    Law("answers", "every call that a client may make is answered", kinds=_BOTH | {Kind.CAPACITY}),
    Law(
        "conservation",
        "every page is free, cached or held, never two of these, and they add up (PAG-2)",
        kinds=_BOTH,
    ),
    Law("holders", "a page has as many holders as requests whose tables contain it (PAG-3)", kinds=_BOTH),
    Law("room", "a granted request has its own page for every position granted", kinds=_BOTH),
    Law("fits", "a reserve is denied only where too few pages are free"),
    Law("denied", "a denied reserve changes nothing (ADM-2)"),
    Law("unheld", "a reserve hands out only pages that no request holds"),
    Law("others", "a call about one request changes no other's table"),
    Law(
        "stable",
        "a live request's pages keep their numbers",
        {"stable_tables": lambda declared: declared.stable_tables},
    ),
    Law("private", "a step writes only pages that no other request's table contains", kinds=_BOTH),
    Law(
        "backed",
        "every position that a step takes as computed was computed before it, or is by it (PAG-6)",
        kinds=frozenset({Kind.SCHEDULER}),
    ),
    Law("content", "what a request reads was computed for exactly its tokens (SCO-2)"),
    Law(
        "computed",
        "a page matches only after the step that computed it has ended (PAG-6)",
        {"publish": lambda declared: declared.publish is Publish.AT_COMMIT},
    ),
    Law("withdrawn", "a plan that is given up publishes nothing: no page matches that no step computes (PAG-6)"),
    *(_tells_apart(one.name) for one in fields(PrefixScope)),
    Law(
        "scope.joined",
        "no hit across scopes that are equal only when their fields are written one after the other (SCO-1)",
        {"scope_fields": lambda declared: len(texts_of(declared)) > 1},
    ),
    Law(
        "in_flight",
        "no page of a launched step is handed out before that step has ended (PAG-4)",
        {"release": lambda declared: declared.release is Release.CONFIRMED},
    ),
    Law(
        "cancel",
        "a request may be cancelled in flight; its step still ends, and gives back the rest (LIF-3)",
        {"cancels_in_flight": lambda declared: declared.cancels_in_flight},
    ),
    Law(
        "duplicate",
        "submitting a live request again changes nothing (IDN-3)",
        {"duplicate_ids": lambda declared: declared.duplicate_ids},
    ),
    Law("released", "a release empties the request's table once nothing of it is in flight", kinds=_BOTH),
    Law("once", "a second release changes nothing"),
    Law("evicts", "an eviction takes only pages that no one holds"),
    Law("drained", "once every request is over, free and cached pages are all pages", kinds=_BOTH),
    # Of ledgers that grant capacity and take it back.
    _of_capacity("limit", "no more than the limit is granted at one time (ADM-5)"),
    _of_capacity("charged", "a grant takes its amount from what remains, no more and no less (ADM-2)"),
    _of_capacity("grants", "a request is refused only where it does not fit"),
    _of_capacity("refused", "a refusal changes nothing (ADM-9)"),
    _of_capacity("bounds", "what remains is never below nothing and never above the limit"),
    _of_capacity(
        "counted",
        "as many grants are held as were granted and not settled (LIF-10)",
        remembers_grants=_remembers,
    ),
    _of_capacity("keys", "a call about one key changes what remains of no other"),
    _of_capacity(
        "joint",
        "of several resources a request takes all or none (ADM-10)",
        joint=lambda declared: declared.joint,
    ),
    _of_capacity(
        "retry",
        "asking again under a live name gets the same answer and takes nothing more (IDN-3)",
        duplicate_ids=lambda declared: declared.duplicate_ids,
    ),
    _of_capacity(
        "settled",
        "a settled grant gives back what it should, no more and no less (LIF-4)",
        gives_back=_gives_back,
    ),
    _of_capacity(
        "settled.once",
        "a second settlement of a grant changes nothing (LIF-5)",
        gives_back=_gives_back,
        remembers_grants=_remembers,
    ),
    _of_capacity(
        "settled.late",
        "what time has given back already, a settlement does not give back again (LIF-5)",
        expiry=_expires,
        gives_back=_gives_back,
        remembers_grants=_remembers,
    ),
    _of_capacity(
        "early",
        "time alone gives nothing back before the window of a grant is over (LEA-3)",
        expiry=lambda declared: declared.expiry is not Expiry.GRADUAL,
    ),
    _of_capacity("expired", "once every window is over, the whole limit remains (LEA-1)", expiry=_expires),
    _of_capacity(
        "interval",
        "no interval as long as the window sees more granted than the limit",
        expiry=_expires,
        exact=lambda declared: declared.exact,
    ),
    _of_capacity(
        "flow",
        "no interval sees more granted than the limit and what flows in while it lasts",
        expiry=lambda declared: declared.expiry is Expiry.GRADUAL,
    ),
    _of_capacity(
        "race",
        "two calls at the same moment come to what one after the other comes to (ADM-2)",
        concurrent=lambda declared: declared.concurrent,
    ),
    _of_capacity(
        "resized",
        "another limit changes what remains by the difference, and takes nothing from what is granted",
        resizes=lambda declared: declared.resizes,
    ),
    _of_capacity("restarted", "a restart changes nothing (LEA-7)", durable=lambda declared: declared.durable),
)

BY_NAME = {law.name: law for law in LAWS}


def laws_for(kind: Kind) -> tuple[Law, ...]:
    """Return the laws by which a target of this kind is judged."""
    return tuple(law for law in LAWS if kind in law.kinds)


@cache
def applying(declared: Capabilities, kind: Kind = Kind.MANAGER) -> frozenset[str]:
    """Return the names of the laws that the declared capabilities leave in force."""
    return frozenset(law.name for law in laws_for(kind) if law.excluded_by(declared) is None)
