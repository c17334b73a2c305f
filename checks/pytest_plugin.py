"""kvescrow in someone's own pytest: a target as a test (TGT-1).

    pytest --kvescrow-target package.module:factory

adds one test for each target named. In a test file, `conforms` turns a function that returns a `Subject` into a test,
and the fixture `kvescrow_check` checks one in the middle of a test. Each of them fails with the law that is broken and
the least steps that break it, and with `not_run` and the remedy where the target cannot be opened here: what did not
run is no pass, so a test that may be left out must skip by itself. The verdict of every law is recorded as a property
of the test, so that JUnit reports have it. Hypothesis is used inside; its database is where `--kvescrow-database` says.
"""

import inspect
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve

from kvescrow.spec.vocabulary import UserError

if TYPE_CHECKING:
    from kvescrow.checks.fuzz.result import FuzzResult
    from kvescrow.checks.targets.subject import Subject

Check = Callable[..., "FuzzResult"]
"""(subject or `package.module:factory`, profile=None, seed=None) -> the record of a run that passed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("kvescrow", "laws of capacity, fuzzed")
    group.addoption(
        "--kvescrow-target",
        action="append",
        default=[],
        metavar="TARGET",
        help="Add a test that fuzzes this target: package.module:factory, or a name that `kvescrow fuzz` knows.",
    )
    group.addoption(
        "--kvescrow-profile",
        default=None,
        help="How long each target is fuzzed, unless its test says otherwise: pr (the default), minute, soak or hour.",
    )
    group.addoption("--kvescrow-seed", type=int, default=None, help="Repeats a run; the failure names it.")
    group.addoption(
        "--kvescrow-database",
        default=None,
        metavar="PLACE",
        help="Where failures are kept and replayed first: a folder, or valkey://HOST:PORT/0.",
    )
    group.addoption("--kvescrow-findings", default=None, metavar="DIR", help="Write each finding to this folder.")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for each target that the command line names."""
    from kvescrow.checks.targets.registry import subject_called

    for target in config.getoption("--kvescrow-target"):
        try:
            subject = subject_called(target)
        except UserError as error:
            raise pytest.UsageError(str(error)) from error
        items.append(TargetItem.from_parent(session, name=f"kvescrow[{target}]", target=target, subject=subject))


class TargetItem(pytest.Item):
    """One target as a test."""

    def __init__(self, *, target: str, subject: "Subject", **rest: Any) -> None:
        super().__init__(**rest)
        self.target = target
        self.subject = subject

    def runtest(self) -> None:
        """Fuzz it."""
        check(self, self.subject, self.target)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return where it stands in reports."""
        return self.path, None, self.name


def check(
    item: pytest.Item, subject: "Subject | str", name: str, profile: str | None = None, seed: int | None = None
) -> "FuzzResult":
    """Fuzz `subject` for the test `item`, which fails unless it passes. Options of the command line give the rest."""
    from kvescrow.checks.fuzz.findings import write_findings
    from kvescrow.checks.fuzz.profiles import DATABASE, profile_called
    from kvescrow.checks.fuzz.run import fuzz
    from kvescrow.checks.targets.registry import TARGETS, subject_called

    option = item.config.getoption
    try:
        wanted = profile_called(option("--kvescrow-profile") or profile or "pr")
        named = subject_called(subject) if isinstance(subject, str) else subject
        given = option("--kvescrow-seed") if seed is None else seed
        result = fuzz(name, named, wanted, given, database=option("--kvescrow-database") or DATABASE)
        repeat = (
            result.repeat if ":" in name or name in TARGETS else f"pytest {item.nodeid} --kvescrow-seed {result.seed}"
        )
        if option("--kvescrow-findings"):
            findings = [evolve(finding, repeat=repeat) for finding in result.findings]
            write_findings(Path(option("--kvescrow-findings")), findings)
    except UserError as error:
        pytest.fail(str(error), pytrace=False)
    item.user_properties += [("kvescrow_seed", str(result.seed)), *sorted(result.laws.items())]
    if result.verdict == "not_run":
        pytest.fail(f"not_run: {result.failure}", pytrace=False)
    if result.verdict != "passed":
        holes = [f"never put to the test: {hole}" for hole in result.holes]
        told = result.failure.replace(result.repeat, repeat)
        pytest.fail("\n".join([told] if told else holes), pytrace=False)
    return result


@pytest.fixture
def kvescrow_check(request: pytest.FixtureRequest) -> Iterator[Check]:
    """Return a function that fuzzes a subject, fails the test unless it passes, and returns the record."""

    def checked(
        subject: "Subject | str", profile: str | None = None, seed: int | None = None, name: str | None = None
    ) -> "FuzzResult":
        named = name or (subject if isinstance(subject, str) else request.node.name)
        return check(request.node, subject, named, profile, seed)

    yield checked


def conforms(
    profile: str | None = None, seed: int | None = None
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Turn a function that returns a `Subject`, or the name of one, into a test of it.

    `profile` holds where the command line names none, and is `pr` where neither does. The function may ask for
    fixtures.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., None]:
        @wraps(function)
        def test(*arguments: Any, kvescrow_check: Check, **fixtures: Any) -> None:
            kvescrow_check(function(*arguments, **fixtures), profile=profile, seed=seed)

        own = inspect.signature(function)
        asked = inspect.Parameter("kvescrow_check", inspect.Parameter.KEYWORD_ONLY)
        test.__signature__ = own.replace(  # type: ignore[attr-defined]  # pytest asks it for the fixtures
            parameters=[*own.parameters.values(), asked], return_annotation=None
        )
        return test

    return decorate
