"""How long a run is, and every Hypothesis setting that decides what it finds.

Hypothesis suppresses all health checks for state machines by default, and loads a profile of its own where `CI` is
set. Both would decide silently, so each setting is pinned here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from kvescrow.spec.vocabulary import UserError

if TYPE_CHECKING:
    from hypothesis import settings


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
    "soak": Profile("soak", 200, 60, 1, None, 600.0, keeps_database=True, pursues_holes=False),
}
"""`pr` draws the same on every machine and is bounded by its examples; `soak` draws anew and is bounded by time."""

DATABASE = Path(".hypothesis") / "kvescrow"
"""Where `soak` keeps what failed, relative to the working directory."""


def profile_called(name: str) -> Profile:
    """Return the profile called `name`; raise `UserError` where there is none."""
    try:
        return PROFILES[name]
    except KeyError:
        raise UserError(f"profile {name!r}: choose one of {', '.join(PROFILES)}") from None


def settings_of(profile: Profile) -> "settings":
    """Return the Hypothesis settings of one round."""
    from hypothesis import HealthCheck, Phase, Verbosity, settings
    from hypothesis.database import DirectoryBasedExampleDatabase

    replayed = (Phase.reuse,) if profile.keeps_database else ()
    return settings(
        max_examples=profile.examples,
        stateful_step_count=profile.steps,
        # The seed is given explicitly and decides alone; without a database nothing else can come in.
        derandomize=not profile.keeps_database,
        database=DirectoryBasedExampleDatabase(DATABASE) if profile.keeps_database else None,
        deadline=None,
        # A failure is shrunk as the events that were sent (see `shrink`), not as the draws that chose them.
        phases=(*replayed, Phase.generate),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=Verbosity.quiet,
        # A slow or busy machine says nothing about the generator. All other health checks stay on.
        suppress_health_check=(HealthCheck.too_slow,),
    )
