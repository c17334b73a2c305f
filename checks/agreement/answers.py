"""What another model checker found, read from what it printed."""

import re
from collections.abc import Mapping
from datetime import datetime
from enum import Enum

from attrs import frozen


class Verdict(Enum):
    """The end of one run of one checker."""

    PASSED = "passed"
    """Every reachable state was visited, and every law holds."""
    REFUTED = "refuted"
    """A law is broken."""
    STOPPED = "stopped"
    """It met its bound of time or memory; the counts are those so far."""
    NOT_RUN = "not_run"
    """The checker is not installed."""
    FAILED = "failed"
    """It did not understand its input, or did not end as it should."""


@frozen
class Answer:
    """The verdict of one checker on one system."""

    checker: str
    verdict: Verdict
    states: int | None = None
    """Distinct states."""
    transitions: int | None = None
    """Steps taken, those that change nothing included, the initial state excluded."""
    seconds: float = 0.0
    """Processor seconds of the search, its start included, translation and compilation excluded."""
    law: str = ""
    """What is broken, where the checker names it."""
    steps: int | None = None
    """Length of the way to what is broken, where it is a shortest one."""
    why: str = ""
    """Why it was not run, was stopped, or failed."""

    @property
    def rate(self) -> float:
        """Return distinct states a second."""
        return (self.states or 0) / self.seconds if self.seconds > 0 else 0.0


_TLC_COUNTS = re.compile(r"([\d,]+) states generated(?: \([^)]*\))?, ([\d,]+) distinct states found")
_TLC_RULE = re.compile(r'^/\\ broken = "([^"]+)"', re.MULTILINE)
_TLC_INVARIANT = re.compile(r"Invariant (\w+) is violated")


def read_tlc(text: str, seconds: float, laws: Mapping[str, str], *, ended: bool) -> Answer:
    """Return what TLC says. `laws` names the law of each invariant."""
    counts = _TLC_COUNTS.findall(text)
    generated, states = (int(part.replace(",", "")) for part in counts[-1]) if counts else (None, None)
    transitions = None if generated is None else generated - 1
    if not ended:
        until = min(seconds, _until_last_progress(text, seconds))
        return Answer("TLC", Verdict.STOPPED, states, transitions, until, why="stopped at its bound of time")
    shown = len(re.findall(r"^State \d+:", text, re.MULTILINE))
    if (broken := _TLC_INVARIANT.search(text)) is not None:
        rule = _TLC_RULE.search(text)
        law = rule[1] if rule else laws.get(broken[1], broken[1])
        return Answer("TLC", Verdict.REFUTED, states, transitions, seconds, law, max(shown - 1, 0))
    if "Model checking completed. No error has been found." in text and states is not None:
        return Answer("TLC", Verdict.PASSED, states, transitions, seconds)
    return Answer("TLC", Verdict.FAILED, states, transitions, seconds, why=_last_lines(text))


def _until_last_progress(text: str, otherwise: float) -> float:
    """Return the seconds from the start to the newest count, which TLC prints once a minute."""
    moments = re.findall(r"^(?:Starting\.\.\. \(|Progress\(\d+\) at )(\d+-\d+-\d+ \d+:\d+:\d+)", text, re.MULTILINE)
    if len(moments) < 2:
        return otherwise
    first, last = (datetime.fromisoformat(moments[index]) for index in (0, -1))
    return (last - first).total_seconds() or otherwise


_SPIN_STATES = re.compile(r"^\s*([\d.e+]+) states, stored", re.MULTILINE)
_SPIN_TRANSITIONS = re.compile(r"^\s*([\d.e+]+) transitions", re.MULTILINE)
_SPIN_PROGRESS = re.compile(r"States=\s*([\d.e+]+)\s+Transitions=\s*([\d.e+]+)")


def read_spin(text: str, seconds: float, *, ended: bool) -> Answer:
    """Return what a verifier made by SPIN says."""
    states, transitions = _SPIN_STATES.search(text), _SPIN_TRANSITIONS.search(text)
    if not ended:
        progress = _SPIN_PROGRESS.findall(text)
        count = int(float(states[1])) if states else int(float(progress[-1][0])) if progress else None
        return Answer("SPIN", Verdict.STOPPED, count, None, seconds, why="stopped at its bound of time")
    if states is None or transitions is None:
        return Answer("SPIN", Verdict.FAILED, seconds=seconds, why=_last_lines(text))
    found = int(float(states[1]))
    if "max search depth too small" in text or "out of memory" in text or "reached -DMEMLIM" in text:
        return Answer("SPIN", Verdict.STOPPED, found, None, seconds, why="ran out of depth or memory")
    # The step into the initial state counts as one.
    steps = int(float(transitions[1])) - 1
    if "assertion violated" in text:
        return Answer("SPIN", Verdict.REFUTED, found, steps, seconds)
    passed = re.search(r"errors: 0\b", text) is not None
    return Answer("SPIN", Verdict.PASSED if passed else Verdict.FAILED, found, steps, seconds)


_RUMUR_COUNTS = re.compile(r"(\d+) states, (\d+) rules fired")
_RUMUR_PROGRESS = re.compile(r"(\d+) states explored in (\d+)s, with (\d+) rules fired")


def read_rumur(text: str, seconds: float, *, ended: bool) -> Answer:
    """Return what a verifier made by rumur says."""
    if not ended:
        progress = _RUMUR_PROGRESS.findall(text)
        count = int(progress[-1][0]) if progress else None
        until = min(seconds, float(progress[-1][1])) if progress else seconds
        return Answer("rumur", Verdict.STOPPED, count, None, until, why="stopped at its bound of time")
    counts = _RUMUR_COUNTS.search(text)
    if counts is None:
        return Answer("rumur", Verdict.FAILED, seconds=seconds, why=_last_lines(text))
    states, fired = int(counts[1]), int(counts[2])
    if "No error found" in text:
        return Answer("rumur", Verdict.PASSED, states, fired, seconds)
    broken = re.search(r"invariant \"?\d+ ([\w.]+)", text)
    return Answer("rumur", Verdict.REFUTED, states, fired, seconds, broken[1] if broken else "")


def _last_lines(text: str) -> str:
    return " / ".join(line.strip() for line in text.strip().splitlines()[-3:]) or "it printed nothing"
