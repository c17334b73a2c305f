"""The laws by which a cache manager is judged from outside, each with the capability that it needs (TGT-1)."""

from collections.abc import Callable
from functools import cache

from attrs import fields, frozen

from kvescrow.checks.targets.protocols import Capabilities, Kind, Publish, Release
from kvescrow.spec.vocabulary import PrefixScope


@frozen
class Law:
    """One law. It was exercised in a run once it held where it could have been broken."""

    name: str
    statement: str
    capability: str | None = None
    """The field of `Capabilities` that can exclude it; None where it holds for every manager."""
    applies: Callable[[Capabilities], bool] = lambda declared: True
    of_schedulers: bool = False
    """Whether a whole scheduler is judged by it."""
    of_managers: bool = True
    """Whether a cache manager is."""

    def __str__(self) -> str:
        return f"{self.name}: {self.statement}"


def _tells_apart(field: str) -> Law:
    return Law(
        f"scope.{field}",
        f"no hit across scopes that differ in {field} (SCO-1)",
        "scope_fields",
        lambda declared: field in declared.scope_fields,
    )


@cache
def texts_of(declared: Capabilities) -> tuple[str, ...]:
    """Return the fields that are texts, of those by which the target tells scopes apart."""
    texts = [one.name for one in fields(PrefixScope) if one.type in (str, str | None)]
    return tuple(name for name in texts if name in declared.scope_fields)


LAWS: tuple[Law, ...] = (
    Law("answers", "every call that a client may make is answered", of_schedulers=True),
    Law(
        "conservation",
        "every page is free, cached or held, never two of these, and they add up (PAG-2)",
        of_schedulers=True,
    ),
    Law("holders", "a page has as many holders as requests whose tables contain it (PAG-3)", of_schedulers=True),
    Law("room", "a granted request has its own page for every position granted", of_schedulers=True),
    Law("fits", "a reserve is denied only where too few pages are free"),
    Law("denied", "a denied reserve changes nothing (ADM-2)"),
    Law("unheld", "a reserve hands out only pages that no request holds"),
    Law("others", "a call about one request changes no other's table"),
    Law(
        "stable",
        "a live request's pages keep their numbers",
        "stable_tables",
        lambda declared: declared.stable_tables,
    ),
    Law("private", "a step writes only pages that no other request's table contains", of_schedulers=True),
    Law(
        "backed",
        "every position that a step takes as computed was computed before it, or is by it (PAG-6)",
        of_schedulers=True,
        of_managers=False,
    ),
    Law("content", "what a request reads was computed for exactly its tokens (SCO-2)"),
    Law(
        "computed",
        "a page matches only after the step that computed it has ended (PAG-6)",
        "publish",
        lambda declared: declared.publish is Publish.AT_COMMIT,
    ),
    Law("withdrawn", "a plan that is given up publishes nothing: no page matches that no step computes (PAG-6)"),
    *(_tells_apart(one.name) for one in fields(PrefixScope)),
    Law(
        "scope.joined",
        "no hit across scopes that are equal only when their fields are written one after the other (SCO-1)",
        "scope_fields",
        lambda declared: len(texts_of(declared)) > 1,
    ),
    Law(
        "in_flight",
        "no page of a launched step is handed out before that step has ended (PAG-4)",
        "release",
        lambda declared: declared.release is Release.CONFIRMED,
    ),
    Law(
        "cancel",
        "a request may be cancelled in flight; its step still ends, and gives back the rest (LIF-3)",
        "cancels_in_flight",
        lambda declared: declared.cancels_in_flight,
    ),
    Law(
        "duplicate",
        "submitting a live request again changes nothing (IDN-3)",
        "duplicate_ids",
        lambda declared: declared.duplicate_ids,
    ),
    Law("released", "a release empties the request's table once nothing of it is in flight", of_schedulers=True),
    Law("once", "a second release changes nothing"),
    Law("evicts", "an eviction takes only pages that no one holds"),
    Law("drained", "once every request is over, free and cached pages are all pages", of_schedulers=True),
)

BY_NAME = {law.name: law for law in LAWS}


def laws_for(kind: Kind) -> tuple[Law, ...]:
    """Return the laws by which a cache manager or a scheduler is judged."""
    return tuple(law for law in LAWS if (law.of_schedulers if kind is Kind.SCHEDULER else law.of_managers))


@cache
def applying(declared: Capabilities, kind: Kind = Kind.MANAGER) -> frozenset[str]:
    """Return the names of the laws that the declared capabilities leave in force."""
    return frozenset(law.name for law in laws_for(kind) if law.applies(declared))
