"""How long a run is, and every Hypothesis setting that decides what it finds.

Hypothesis suppresses all health checks for state machines by default, and loads a profile of its own where `CI` is
set. Both would decide silently, so each setting is pinned here.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from kvescrow.spec.vocabulary import UserError

if TYPE_CHECKING:
    from hypothesis import settings
    from hypothesis.database import ExampleDatabase


@frozen
class Profile:
    """One way to run. A round is one Hypothesis run; its seed is the seed of the run plus the number of the round."""

    name: str
    examples: int
    """Runs of the machine in one round."""
    steps: int
    """Events in one run."""
    least_rounds: int
    most_rounds: int | None
    """None: as many as `seconds` allows."""
    seconds: float | None
    keeps_database: bool
    pursues_holes: bool
    """Whether each round after the first pursues only what the rounds before have not seen. A soak run pursues
    everything always, so that each of its rounds can be repeated by itself."""


PROFILES: Mapping[str, Profile] = {
    "pr": Profile("pr", 60, 40, 8, 60, None, keeps_database=False, pursues_holes=True),
    "minute": Profile("minute", 100, 50, 1, None, 60.0, keeps_database=True, pursues_holes=False),
    "soak": Profile("soak", 200, 60, 1, None, 600.0, keeps_database=True, pursues_holes=False),
    "hour": Profile("hour", 200, 60, 1, None, 3600.0, keeps_database=True, pursues_holes=False),
}
"""`pr` draws the same on every machine and is bounded by its examples. The others draw anew and are bounded by time: a
minute for each change, ten minutes by hand, an hour at night."""

DATABASE = str(Path(".hypothesis") / "kvescrow")
"""Where what failed is kept, relative to the working directory, unless a run names another place."""
_SERVERS = ("valkey://", "valkeys://", "redis://", "rediss://", "unix://")


def profile_called(name: str) -> Profile:
    """Return the profile called `name`; raise `UserError` where there is none."""
    try:
        return PROFILES[name]
    except KeyError:
        raise UserError(f"profile {name!r}: choose one of {', '.join(PROFILES)}") from None


def database_at(place: str, target: str) -> "ExampleDatabase":
    """Return the database of failures of `target` at `place`: a folder, or the address of a Valkey or Redis server.

    Each target has a part of its own, since a run drops what no longer fails. Raises `UserError` where a server is
    named that does not answer, or whose client is not installed.
    """
    from hypothesis.database import DirectoryBasedExampleDatabase

    if not place.startswith(_SERVERS):
        return DirectoryBasedExampleDatabase(Path(place) / re.sub(r"[^\w.-]", "_", target))
    try:
        from hypothesis.extra.redis import RedisExampleDatabase
        from redis import Redis, RedisError
    except ImportError as error:
        raise UserError(f"database {place}: {error}; install it with `pip install 'kvescrow[examples]'`") from error
    try:
        client = Redis.from_url(re.sub("^valkey", "redis", place))
        client.ping()
    except (RedisError, OSError, ValueError) as error:
        raise UserError(f"database {place}: no server answers there ({error}); start it or correct it") from error
    return RedisExampleDatabase(client, key_prefix=f"kvescrow:{target}:".encode())


def settings_of(profile: Profile, target: str = "", place: str = DATABASE) -> "settings":
    """Return the Hypothesis settings of one round over `target`, whose failures are kept at `place`."""
    from hypothesis import HealthCheck, Phase, Verbosity, settings

    replayed = (Phase.reuse,) if profile.keeps_database else ()
    return settings(
        max_examples=profile.examples,
        stateful_step_count=profile.steps,
        # The seed is given explicitly and decides alone; without a database nothing else can come in.
        derandomize=not profile.keeps_database,
        database=database_at(place, target) if profile.keeps_database else None,
        deadline=None,
        # A failure is shrunk as the events that were sent (see `shrink`), not as the draws that chose them.
        phases=(*replayed, Phase.generate),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=Verbosity.quiet,
        # A slow or busy machine says nothing about the generator. All other health checks stay on.
        suppress_health_check=(HealthCheck.too_slow,),
    )
