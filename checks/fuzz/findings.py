"""What a broken law leaves behind: a record that someone else can act on, as Markdown and as JSON.

A finding is small enough to be sent to the engine's own project: the least calls, what was required after the last one,
what was seen, and which release it was. Its last part is the entry for the list of known deviations, which makes a run
fail on the day the finding is cured.
"""

import json
import re
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from attrs import asdict, fields, frozen, has

from kvescrow.checks.fuzz.differences import Difference
from kvescrow.spec.vocabulary import UserError

_IDS = re.compile(r" \([A-Z]{3}-\d+(, [A-Z]{3}-\d+)*\)")
"""Requirement ids mean nothing elsewhere."""


@frozen
class Finding:
    """One law that a target was seen to break, or one event on which it differs from the tables."""

    target: str
    engine: str
    """The implementation and its version; empty where the target does not say."""
    law: str
    """The law's name; for a target that is compared with the tables, where the first difference lies."""
    statement: str
    listed: str
    """The name under which it is known; empty where it is new."""
    scenario: tuple[str, ...]
    """The least steps that show it, from the opening on; the last one breaks the law."""
    specification: str
    """What is required after the last step."""
    implementation: str
    """What was seen instead."""
    repeat: str
    note: str = ""
    """What is known of its cause."""
    entry: str = ""
    """Python source of the entry for the list of known deviations; empty where targets of this kind have none."""

    @property
    def report(self) -> str:
        """Return a text for the engine's own project."""
        subject, rule = self.engine or self.target, _IDS.sub("", self.statement)
        required = "" if self.specification == self.statement else f" Required: {self.specification}."
        steps = "\n".join(f"{number}. `{step}`" for number, step in enumerate(self.scenario))
        return (
            f"{subject} breaks a rule that its adapter declares it to keep: {rule}.\n\n"
            + (f"{self.note[:1].upper()}{self.note[1:]}.\n\n" if self.note else "")
            + f"Least steps, made through its own calls by a small adapter, without a device:\n\n{steps}\n\n"
            f"The last step breaks the rule.{required} Seen: {self.implementation}.\n\n"
            f"To repeat it: `{self.repeat}`."
        )

    def to_markdown(self) -> str:
        """Return the finding as a page."""
        state = f"known as *{self.listed}*" if self.listed else "new"
        parts = [f"# {self.law}: {self.target}", f"{self.engine or self.target}, {state}.", self.report]
        if self.entry:
            parts += ["## Entry for the list of known deviations", f"```python\n{self.entry}\n```"]
        return "\n\n".join(parts) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain values, its report included."""
        return {**asdict(self), "report": self.report}


def differing(found: Sequence[Difference]) -> tuple[str, str]:
    """Return what is required and what was seen, in one text each."""
    named = len(found) > 1
    required = "; ".join(f"{one.path} is {one.specification}" if named else one.specification for one in found)
    return required, "; ".join(f"{one.path} is {one.implementation}" if named else one.implementation for one in found)


def entry_of(law: str, note: str, setup: object, done: Sequence[tuple[str, Sequence[object]]]) -> str:
    """Return the source of a `ListedDeviation`."""
    steps = "".join(f"        {source_of((method, *arguments))},\n" for method, arguments in done)
    return (
        f"ListedDeviation(\n    name={law!r},\n    law={law!r},\n    note={note!r},\n    steps=(\n{steps}    ),\n"
        f"    setup={source_of(setup)},\n)"
    )


def source_of(value: object) -> str:
    """Return Python source that makes `value`; fields that have their default are left out."""
    if isinstance(value, tuple):
        return "(" + "".join(f"{source_of(part)}, " for part in value).strip() + ")"
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    kind: Any = type(value)
    if has(kind):
        parts = [(one.name, getattr(value, one.name), one.default) for one in fields(kind)]
        given = [f"{name}={source_of(part)}" for name, part, default in parts if part != default]
        return f"{kind.__name__}({', '.join(given)})"
    return repr(value)


def write_findings(folder: Path, findings: Sequence[Finding]) -> list[Path]:
    """Write each finding to `folder` as a Markdown and a JSON file, and return the paths.

    Raises `UserError` where the folder cannot be written.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, finding in enumerate(findings, start=1):
            name = re.sub(r"[^\w.-]+", "-", f"{finding.target}-{number}-{finding.law}")
            for suffix, text in ((".md", finding.to_markdown()), (".json", json.dumps(finding.to_json(), indent=2))):
                path = folder / (name + suffix)
                path.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
                written.append(path)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror}); name a folder that can") from error
    return written
