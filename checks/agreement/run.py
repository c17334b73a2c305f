"""One instance, searched here and by other checkers: what each found, and where they differ."""

from collections.abc import Callable
from typing import Any

from attrs import evolve, frozen

from kvescrow.checks.agreement.answers import Answer, Verdict
from kvescrow.checks.agreement.checkers import run_rumur, run_spin, run_tlc
from kvescrow.checks.agreement.commands import commands_of, essential
from kvescrow.checks.agreement.languages import murphi, promela
from kvescrow.checks.agreement.planted import PLANTED, Planted
from kvescrow.checks.agreement.tla_model import of_instance
from kvescrow.checks.explore.catalogue import instance_called
from kvescrow.checks.explore.instance import Instance
from kvescrow.checks.explore.result import Exploration
from kvescrow.checks.explore.run import explore

AGREED = ("lifecycle-xs", "executions", "account", "promises", "scope_reuse", "chunk_choice", "release", "pages-limit")
"""The instances that are compared where none is named: one for each table, small enough for TLC to take minutes."""
BOUND = 900.0
"""Seconds that one checker may take."""


@frozen
class Agreement:
    """What was found about one instance, with the differences in words."""

    instance: str
    ours: Exploration
    answers: tuple[Answer, ...]
    planted: str = ""
    """The error that it holds on purpose."""

    @property
    def problems(self) -> tuple[str, ...]:
        """Return one line for each difference."""
        found = [] if bool(self.planted) == (self.ours.breach is not None) else [self._ours_is_wrong()]
        for answer in self.answers:
            if answer.verdict is not Verdict.NOT_RUN:
                found += [f"{self._name}: {answer.checker} {problem}" for problem in self._differences(answer)]
        return tuple(found)

    @property
    def verdict(self) -> str:
        """Return `passed`, `failed`, or `not_run` where no checker was there to agree."""
        if self.problems:
            return "failed"
        return "not_run" if all(answer.verdict is Verdict.NOT_RUN for answer in self.answers) else "passed"

    @property
    def _name(self) -> str:
        return f"{self.instance} ({self.planted})" if self.planted else self.instance

    def _ours_is_wrong(self) -> str:
        return f"{self._name}: the search {'missed the error' if self.planted else f'found {self.ours.breach}'}"

    def _differences(self, answer: Answer) -> list[str]:
        if answer.verdict in (Verdict.STOPPED, Verdict.FAILED):
            return [f"did not come to an end: {answer.why or answer.verdict.value}"]
        if answer.verdict.value != self.ours.verdict:
            return [f"says {answer.verdict.value} {answer.law}, the search says {self.ours.verdict}"]
        if self.ours.breach is not None:
            steps = len(self.ours.breach.scenario)
            if answer.steps is not None and answer.steps != steps:
                return [f"breaks {answer.law} in {answer.steps} steps, the search {self.ours.breach.law} in {steps}"]
            return []
        pairs = [
            ("states", answer.states, self.ours.states),
            ("transitions", answer.transitions, self.ours.transitions),
        ]
        return [
            f"counts {theirs} {what}, the search {ours}" for what, theirs, ours in pairs if theirs not in (None, ours)
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the agreement as JSON."""
        return {
            "instance": self.instance,
            "planted": self.planted,
            "verdict": self.verdict,
            "search": {
                "verdict": self.ours.verdict,
                "states": self.ours.states,
                "transitions": self.ours.transitions,
                "law": self.ours.breach.law if self.ours.breach else "",
                "steps": len(self.ours.breach.scenario) if self.ours.breach else None,
            },
            "checkers": [
                {
                    "checker": answer.checker,
                    "verdict": answer.verdict.value,
                    "states": answer.states,
                    "transitions": answer.transitions,
                    "law": answer.law,
                    "steps": answer.steps,
                    "seconds": round(answer.seconds, 3),
                    "why": answer.why,
                }
                for answer in self.answers
            ],
            "problems": list(self.problems),
        }


def agree(
    instance: Instance,
    *,
    planted: Planted | None = None,
    bound: float = BOUND,
    checkers: tuple[str, ...] = ("TLC", "SPIN", "rumur"),
) -> Agreement:
    """Search `instance` here and with every checker that is installed.

    TLC gets the tables' modules and checks step rules too; SPIN gets guarded commands, with refusals, so that it
    counts the same transitions; rumur gets them without, and only its states are compared. With `planted`, TLC alone
    is asked, since the others do not know step rules.
    """
    subject = instance if planted is None else planted.of(instance)
    runs: dict[str, Callable[[], Answer]] = {"TLC": lambda: run_tlc(of_instance(subject), bound)}
    ours = explore(subject)
    if planted is None:
        system = commands_of(subject)
        runs["SPIN"] = lambda: run_spin(promela(system), bound, states=ours.states)
        runs["rumur"] = lambda: _states_only(run_rumur(murphi(essential(system)), bound))
    answers = tuple(run() for name, run in runs.items() if name in checkers)
    return Agreement(instance.name, ours, answers, str(planted) if planted else "")


def _states_only(answer: Answer) -> Answer:
    return evolve(answer, transitions=None)


def planted_in(name: str) -> list[Planted]:
    """Return the errors that are planted in the instance called `name`."""
    return [planted for planted in PLANTED if planted.instance == name]


def agree_on(name: str, bound: float = BOUND) -> list[Agreement]:
    """Return the agreement on the instance called `name`, and on each error planted in it.

    Raises `UserError` where there is no such instance.
    """
    instance = instance_called(name)
    return [agree(instance, bound=bound), *(agree(instance, planted=p, bound=bound) for p in planted_in(name))]
