"""Another engine's recording against those laws that it can decide (TGT-3).

A recording says less than a journal: digests without answers, steps without promises. Each law says which events and
fields it needs; a recording without them leaves it undecided, by name, and an undecided law is never a passed one.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import define, field, frozen

from kvescrow.checks.monitor.mapping import MappingFile, Recorded, read_mapping, read_recording
from kvescrow.spec.vocabulary import UserError


@frozen
class RecordingLaw:
    """One law of a recording."""

    name: str
    statement: str
    needs: tuple[tuple[str, ...], ...]
    """Events with fields that must all be there."""

    def __str__(self) -> str:
        return f"{self.name}: {self.statement}"


LAWS = (
    RecordingLaw("known", "what is removed was stored (PAG-8)", (("stored",), ("removed",))),
    RecordingLaw("parent", "a page is stored while the page before it is (PAG-8)", (("stored", "parent"),)),
    RecordingLaw(
        "leaves", "a page is removed only after those that follow it (PAG-8)", (("stored", "parent"), ("removed",))
    ),
    RecordingLaw("length", "a page holds exactly its tokens (PAG-10)", (("stored", "tokens", "page_length"),)),
    RecordingLaw(
        "digest",
        "one digest stands for one prefix in one scope, and one prefix in one scope has one digest (SCO-2)",
        (("stored", "tokens", "parent", "page_length"),),
    ),
    RecordingLaw(
        "in_flight",
        "no block of a launched step is handed to another request before that step has ended (PAG-4)",
        (("launched",), ("ended",), ("taken",)),
    ),
)


@frozen
class Broken:
    """One event after which a law does not hold."""

    line: int
    law: str
    seen: str

    def __str__(self) -> str:
        return f"line {self.line}: {next(law for law in LAWS if law.name == self.law)}; {self.seen}"


@frozen
class RecordingVerdict:
    """The verdict over a recording."""

    events: int
    laws: Mapping[str, str]
    """Law -> passed, broken, or not_decided."""
    undecided: Mapping[str, str]
    """Law -> what the mapping would have to give."""
    findings: tuple[Broken, ...]

    def as_json(self) -> dict[str, object]:
        """Return the record as JSON values."""
        return {
            "verdict": "refuted" if self.findings else "passed",
            "events": self.events,
            "laws": dict(self.laws),
            "undecided": dict(self.undecided),
            "findings": [{"line": one.line, "law": one.law, "seen": one.seen} for one in self.findings],
        }


def check_recording(path: Path, mapping_name: str) -> RecordingVerdict:
    """Return the verdict over the recording at `path`, read by the mapping called `mapping_name`.

    Raises `UserError` for a recording or a mapping that cannot be read, that has an unmatched event, has no event, or
    decides no law.
    """
    mapping = read_mapping(mapping_name)
    lacking = {law.name: _lacking(law, mapping) for law in LAWS}
    decided = frozenset(name for name, lacks in lacking.items() if not lacks)
    if not decided:
        raise UserError(f"{mapping.path}: with these rows no law can be decided: map stored and removed at least")
    pages = _Recording(decided)
    count = 0
    for event in read_recording(path, mapping):
        count += 1
        try:
            pages.take(event)
        except UserError as error:
            raise UserError(f"{path}:{event.line}: {error}") from error
    if not count:
        raise UserError(f"{path}: there is no event in it, so nothing was checked: record a run")
    broken = {finding.law for finding in pages.findings}
    laws = {
        law.name: "not_decided" if law.name not in decided else "broken" if law.name in broken else "passed"
        for law in LAWS
    }
    return RecordingVerdict(count, laws, {n: lacks for n, lacks in lacking.items() if lacks}, tuple(pages.findings))


def _lacking(law: RecordingLaw, mapping: MappingFile) -> str:
    lacks = [" with ".join((event, ", ".join(names))) if names else event for event, *names in law.needs]
    there = [mapping.has(event, *names) for event, *names in law.needs]
    return "; ".join(text for text, has in zip(lacks, there, strict=True) if not has)


@frozen
class _Page:
    parent: object
    prefix: tuple[object, ...]
    """(scope, tokens) of each page up to this one, as far as they are known."""


@define
class _Recording:
    decided: frozenset[str]
    findings: list[Broken] = field(factory=list)
    stored: dict[tuple[str, str], _Page] = field(factory=dict)
    copies: dict[tuple[str, str], int] = field(factory=dict)
    seen: dict[str, tuple[object, ...]] = field(factory=dict)
    """Digest -> the prefix that it was first seen with; digests outlive their pages."""
    digests: dict[tuple[object, ...], str] = field(factory=dict)
    steps: dict[str, tuple[str, frozenset[str]]] = field(factory=dict)
    line: int = 0

    def take(self, event: Recorded) -> None:
        """Judge one event."""
        self.line = event.line
        handlers: Mapping[str, Callable[[Mapping[str, object]], None]] = {
            "stored": self._stored,
            "removed": self._removed,
            "cleared": lambda values: self._cleared(),
            "launched": self._launched,
            "ended": lambda values: self._ended(_key(values["step"])),
            "taken": self._taken,
            "ignored": lambda values: None,
        }
        handlers[event.event](event.values)

    def _require(self, law: str, holds: bool, seen: str) -> None:
        if not holds and law in self.decided:
            self.findings.append(Broken(self.line, law, seen))

    def _stored(self, values: Mapping[str, object]) -> None:
        pool, pages = _key(values.get("pool")), _list(values["pages"], "pages")
        parent, tokens = values.get("parent"), _list(values.get("tokens") or [], "tokens")
        length = values.get("page_length")
        if "length" in self.decided:
            fits = type(length) is int and len(tokens) == len(pages) * length
            self._require("length", fits, f"{len(pages)} pages of {length} tokens hold {len(tokens)}")
        size = length if type(length) is int else 0
        for place, page in enumerate(pages):
            self._require(
                "parent",
                parent is None or (pool, _key(parent)) in self.stored,
                f"page {page} follows {parent}, which is not stored",
            )
            before = self.stored.get((pool, _key(parent)), _Page(None, ())).prefix
            own = tuple(_key(token) for token in tokens[place * size : (place + 1) * size])
            scope = _key(_of_page(values.get("scope"), place, len(pages)))
            prefix = (*before, (scope, own))
            self._same(_key(page), prefix, whole=parent is None or bool(before))
            key = pool, _key(page)
            self.stored[key] = _Page(parent, prefix)
            self.copies[key] = self.copies.get(key, 0) + 1
            parent = page

    def _same(self, digest: str, prefix: tuple[object, ...], *, whole: bool) -> None:
        """Compare with what was first seen of the digest and of the prefix; `whole`: it is known to its start."""
        if not whole or "digest" not in self.decided:
            return
        first = self.seen.setdefault(digest, prefix)
        self._require("digest", first == prefix, f"digest {digest} stood for another prefix or scope before")
        known = self.digests.setdefault(prefix, digest)
        self._require("digest", known == digest, f"digest {digest} is of a prefix that had {known} before")

    def _removed(self, values: Mapping[str, object]) -> None:
        pool, gone = _key(values.get("pool")), _list(values["pages"], "pages")
        keys = [(pool, _key(page)) for page in gone]
        for key in keys:
            self._require("known", key in self.stored, f"page {key[1]} is removed and was not stored")
            if key not in self.stored:
                continue
            self.copies[key] -= 1
            if not self.copies[key]:
                del self.stored[key], self.copies[key]
        for key in keys:
            after = [one for (of, one), page in self.stored.items() if of == pool and _key(page.parent) == key[1]]
            still = key in self.stored
            self._require("leaves", still or not after, f"page {key[1]} is removed before {', '.join(after)}")

    def _cleared(self) -> None:
        self.stored.clear()
        self.copies.clear()

    def _launched(self, values: Mapping[str, object]) -> None:
        blocks = frozenset(_key(block) for block in _list(values["blocks"], "blocks"))
        self.steps[_key(values["step"])] = _key(values["request"]), blocks

    def _ended(self, step: str) -> None:
        if self.steps.pop(step, None) is None:
            raise UserError(f"step {step} ends and was not launched: record from the start")

    def _taken(self, values: Mapping[str, object]) -> None:
        request, blocks = _key(values["request"]), {_key(block) for block in _list(values["blocks"], "blocks")}
        for step, (owner, touched) in self.steps.items():
            shared = sorted(blocks & touched)
            told = f"blocks {', '.join(shared)} of step {step} of {owner} are handed to {request}"
            self._require("in_flight", owner == request or not shared, told)


def _of_page(scope: object, place: int, pages: int) -> object:
    """Return the scope of one page: engines give one for all, or a list with one for each."""
    return scope[place] if isinstance(scope, list) and len(scope) == pages else scope


def _key(value: object) -> str:
    return repr(value) if isinstance(value, (list, dict)) else str(value)


def _list(value: object, name: str) -> list[object]:
    if not isinstance(value, list):
        raise UserError(f"{name} is {value!r}, not a list: correct the mapping")
    return value
