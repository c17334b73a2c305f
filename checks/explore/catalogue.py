"""The instances by name. Each is built only when it is asked for."""

from collections.abc import Callable, Mapping
from functools import partial

from kvescrow.checks.explore.instance import Instance
from kvescrow.checks.explore.instances import chunks, pages, release, reservations, worker
from kvescrow.checks.explore.instances.composition import composition
from kvescrow.checks.explore.instances.lifecycle import SIZES, lifecycle
from kvescrow.spec.vocabulary import UserError

INSTANCES: Mapping[str, Callable[[], Instance]] = {
    **{name: partial(lifecycle, name, size) for name, size in SIZES.items()},
    "usage": reservations.usage,
    "identities": reservations.identities,
    "limits": reservations.limits,
    "full-queue": reservations.full_queue,
    "refusals": reservations.refusals,
    "account": reservations.account,
    "promises": worker.promises,
    "executions": worker.executions,
    "scope_reuse": worker.scope_reuse,
    "chunk_choice": chunks.chunk_choice,
    "release": release.release_process,
    "pages-limit": pages.pages_of_a_full_scope,
    "pages-chains": pages.pages_in_chains,
    "pages-scopes": pages.pages_of_two_scopes,
    "pages-both": pages.pages_in_chains_of_two_scopes,
    "pages-three": pages.three_pages,
    "composition-2": partial(composition, 2),
    "composition": composition,
}

GATE = (
    "usage",
    "identities",
    "limits",
    "full-queue",
    "refusals",
    "account",
    "promises",
    "executions",
    "scope_reuse",
    "chunk_choice",
    "release",
    "pages-limit",
    "pages-chains",
    "pages-scopes",
    "lifecycle-80k",
)
"""The instances that are searched where none is named; together they must fire every row and reach every situation."""

UNFIRED: Mapping[str, str] = {}
"""Row -> why no instance of the gate can fire it. An entry that fires after all fails the run."""

UNREACHED: Mapping[str, str] = {}
"""Situation, as `table.name` -> why no instance of the gate reaches it; as strict."""


def instance_called(name: str) -> Instance:
    """Return the instance called `name`; raise `UserError` where there is none."""
    if name not in INSTANCES:
        raise UserError(f"no instance is called {name!r}; the instances are {', '.join(INSTANCES)}")
    return INSTANCES[name]()
