"""The state graph of an instance, walked on a real implementation.

conform("ledger-memory", subject_called("ledger-memory"), "lifecycle-s")
"""

from collections.abc import Callable

from kvescrow.checks.explore.catalogue import instance_called
from kvescrow.checks.explore.conformance.ledger import LedgerDriver
from kvescrow.checks.explore.conformance.pages import PageDriver
from kvescrow.checks.explore.conformance.result import Conformance
from kvescrow.checks.explore.conformance.subject import Driver
from kvescrow.checks.explore.conformance.walk import cover, exhaust
from kvescrow.checks.explore.instance import Instance
from kvescrow.checks.targets.registry import subject_called, told_opening
from kvescrow.checks.targets.subject import Kind, Subject
from kvescrow.spec.vocabulary import UserError

DEFAULTS = {Kind.LEDGER: "lifecycle-80k", Kind.PAGES: "pages-both"}
"""What is tried where no instance is named: more than 80,000 states each."""
COVERED = {Kind.LEDGER: "lifecycle-xs", Kind.PAGES: "pages-limit"}
"""And where the target keeps its state elsewhere, so that it cannot be copied in memory."""
_GUIDES = {Kind.LEDGER: "ledger-memory", Kind.PAGES: "pages"}
"""Targets that can be copied, which find the ways for those that cannot."""
_FAMILY = {Kind.LEDGER: "lifecycle-", Kind.PAGES: "pages-"}


def conform(
    name: str,
    subject: Subject,
    instance: str | None = None,
    jobs: int = 1,
    show: Callable[[int, int], None] | None = None,
) -> Conformance:
    """Try the transitions of an instance on a target: all of them, or a covering set where the target is durable.

    `show` is told depth and states after each level. Raises `UserError` where target and instance do not fit,
    and where the target cannot be opened.
    """
    if subject.kind not in DEFAULTS:
        raise UserError(
            f"target {name}: of kind {subject.kind.value}, which has no event for each move; use `kvescrow fuzz`"
        )
    kind = subject.kind
    durable = subject.capabilities.durable
    chosen = instance or (COVERED if durable else DEFAULTS)[kind]
    if not chosen.startswith(_FAMILY[kind]):
        raise UserError(f"target {name}: it takes the instances {_FAMILY[kind]}..., not {chosen}")
    built = instance_called(chosen)
    driver = _driver(built, told_opening(name, subject))
    if not durable:
        return exhaust(name, driver, jobs, show)
    return cover(name, driver, _driver(built, subject_called(_GUIDES[kind])), jobs)


def _driver(instance: Instance, subject: Subject) -> Driver:
    return LedgerDriver(instance, subject) if subject.kind is Kind.LEDGER else PageDriver(instance, subject)


__all__ = ["Conformance", "conform", "cover", "exhaust"]
