"""Rows and guards that no run can hit, each with the reason.

The list is strict: an entry that is hit after all fails the run, so that it cannot outlive its cause.
"""

from collections.abc import Mapping

UNREACHABLE: Mapping[str, Mapping[str, str]] = {
    "ledger": {
        "reservation.reserve.malformed for `event.lease <= 0` alone": "`Reserve` cannot be built so",
    },
}
"""Kind of target -> name of the goal -> why nothing can reach it."""
