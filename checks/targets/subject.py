"""What is said about a target: which protocol it implements, and how strictly it may be compared (TGT-1)."""

from collections.abc import Callable
from enum import Enum
from typing import Any

from attrs import field, frozen

from kvescrow.checks.targets.capacity import CapacitySetup
from kvescrow.checks.targets.protocols import ManagerSetup, SchedulerSetup
from kvescrow.checks.targets.typed import misfit
from kvescrow.spec.vocabulary import PrefixScope, UserError

SCOPE_FIELDS = frozenset(attribute.name for attribute in PrefixScope.__attrs_attrs__)


class Publish(Enum):
    """When a page becomes matchable."""

    AT_COMMIT = "at_commit"
    """When the step that computed it has ended well (PAG-6)."""
    AT_SCHEDULE = "at_schedule"
    """When the step is planned: before it has computed anything."""


class Release(Enum):
    """When capacity that a launched step may touch is handed out again."""

    CONFIRMED = "confirmed"
    """After the runtime confirms that nothing launched can touch it (PAG-4)."""
    ORDERED = "ordered"
    """At once: safe only where everything runs on one stream in order."""


class Expiry(Enum):
    """Whether time alone gives back what a ledger has granted."""

    NEVER = "never"
    """It stays granted until it is settled."""
    WINDOW = "window"
    """It comes back when its window is over, not before. A window begins with a grant: with each one where the ledger
    is exact, else with the first one since everything was there."""
    GRADUAL = "gradual"
    """It comes back bit by bit; two windows without a grant bring back everything."""


@frozen
class Capabilities:
    """How strictly a target may be compared. Each law that a capability excludes is listed, never passed."""

    publish: Publish = Publish.AT_COMMIT
    release: Release = Release.CONFIRMED
    scope_fields: frozenset[str] = SCOPE_FIELDS
    """The fields of `PrefixScope` that tell one cache from another here."""
    stable_tables: bool = True
    """Whether a live request's pages keep their numbers."""
    reserves_output: bool = True
    """Whether admission promises the pages of the output too (ADM-4)."""
    duplicate_ids: bool = True
    """Whether an identity that is live may be submitted again (IDN-3)."""
    cancels_in_flight: bool = True
    """Whether a cancel may arrive while a step is in flight (LIF-3)."""
    chooses_digest: bool = True
    """Whether the digest of a prefix can be replaced by a weak one, so that collisions can be forced (SCO-2)."""
    durable: bool = False
    """Whether the target survives a restart of its process (LEA-7)."""
    # Of a `CapacityLedger` alone:
    holds: bool = True
    """Whether a grant is held while work runs, and is wholly free again once it is settled. Else what was used stays
    spent until time gives it back."""
    gives_back: bool = True
    """Whether a settlement gives back anything at all."""
    remembers_grants: bool = True
    """Whether a grant is known by its name, so that it is settled once."""
    expiry: Expiry = Expiry.NEVER
    exact: bool = True
    """Whether the limit holds in every interval as long as the window, wherever it begins."""
    joint: bool = True
    """Whether one request may ask for amounts of several resources."""
    concurrent: bool = True
    """Whether several threads may call at the same moment."""
    resizes: bool = True
    """Whether a limit may be changed while something is granted."""


_SMALL = ManagerSetup(pages=8, page_length=4)


@frozen
class ListedDeviation:
    """A law that a released implementation is known to break, with the least scenario that shows it.

    It is strict: the run fails where the scenario no longer breaks the law.
    """

    name: str
    law: str
    note: str
    steps: tuple[tuple[object, ...], ...] = field(repr=False)
    """Method names of the target's protocol with their arguments; `step` has the token that each request samples."""
    setup: ManagerSetup | SchedulerSetup | CapacitySetup = _SMALL
    """How the target is opened for them."""


class Kind(Enum):
    """Which protocol a target implements, and so what it is checked by."""

    LEDGER = "ledger"
    """`LedgerTarget`, compared with the reservation and account tables."""
    PAGES = "pages"
    """`PageTarget`, compared with the promise and page tables."""
    COMPOSED = "composed"
    """`ComposedTarget`, compared with the execution and ticket tables, and with those of its ledger and its pages."""
    RELEASE = "release"
    """`ReleaseTarget`, compared with the release table."""
    MANAGER = "manager"
    """`CacheManager`, judged from outside."""
    SCHEDULER = "scheduler"
    """`ServingScheduler`, judged from outside."""
    CAPACITY = "capacity"
    """`CapacityLedger`, judged from outside."""


@frozen
class Subject:
    """A target as the fuzzer takes it. A factory without parameters returns one.

    Raises `UserError` where a part has another type than it must have.
    """

    kind: Kind
    open: Callable[..., Any] = field(repr=False)
    """Opens a fresh target from the setup that the kind has, such as a `LedgerSetup` or a `PoolSetup`."""
    capabilities: Capabilities = Capabilities()
    deviations: tuple[ListedDeviation, ...] = ()
    engine: str = ""
    """The implementation and its version, as findings name it."""

    def __attrs_post_init__(self) -> None:
        if wrong := misfit(self, Subject):
            raise UserError(f"Subject{wrong}: correct it")
