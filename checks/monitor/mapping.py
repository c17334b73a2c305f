"""How another engine's recording is read: a mapping file of three columns, and the events that it makes of each line.

    specification   field         engine
    any             type          type            the key that holds an event's name
    any             batch         events          the key that holds several events, where a line has several
    stored          name          BlockStored     the engine's name of the event
    stored          pages         block_hashes    the engine's name of a field
    ignored         name          Heartbeat       an event that says nothing here

A field may have several rows; its value is then all of theirs. Columns are parted by blanks, and `#` begins a comment.
An event that no row names is refused, since what is skipped silently is not checked.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from attrs import field, frozen

from kvescrow.spec.vocabulary import UserError

FIELDS: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
    "stored": (frozenset({"pages"}), frozenset({"parent", "tokens", "page_length", "scope", "pool"})),
    "removed": (frozenset({"pages"}), frozenset({"pool"})),
    "cleared": (frozenset(), frozenset()),
    "launched": (frozenset({"step", "request", "blocks"}), frozenset()),
    "ended": (frozenset({"step"}), frozenset()),
    "taken": (frozenset({"request", "blocks"}), frozenset()),
    "ignored": (frozenset(), frozenset()),
}
"""Event of a recording -> the fields that it must have, and those that it may have.

stored, removed, cleared: published pages by digest. launched, ended, taken: steps, and blocks that were handed out.
"""
PACKAGED = Path(__file__).parent / "mappings"


@frozen
class Recorded:
    """One event of a recording."""

    line: int
    event: str
    values: Mapping[str, object]


@frozen
class MappingFile:
    """A mapping that was read."""

    path: Path
    type_key: str
    batch_key: str | None
    events: Mapping[str, str] = field(repr=False)
    """The engine's name -> ours."""
    fields: Mapping[str, Mapping[str, Sequence[str]]] = field(repr=False)
    """Our event -> our field -> the engine's names."""

    def has(self, event: str, *names: str) -> bool:
        """Whether the recording has `event` with these fields."""
        return event in self.events.values() and all(name in self.fields.get(event, {}) for name in names)


def read_mapping(name: str) -> MappingFile:
    """Return the mapping in the file `name`, or the packaged one of that name.

    Raises `UserError`, which names file and line, where it cannot be read or says something unknown.
    """
    packaged = PACKAGED / f"{name}.txt"
    path = packaged if os.path.isfile(packaged) else Path(name)
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(sorted(file.stem for file in PACKAGED.iterdir()))
        raise UserError(f"{name}: cannot be read; name a mapping file, or one of {known}") from error
    keys: dict[str, str] = {}
    events: dict[str, str] = {}
    fields: dict[str, dict[str, list[str]]] = {}
    for number, line in enumerate(lines, start=1):
        columns = line.partition("#")[0].split()
        if not columns:
            continue
        try:
            event, ours, engines = columns
        except ValueError:
            raise UserError(f"{path}:{number}: a row has three columns, not {len(columns)}") from None
        if event == "any" and ours in ("type", "batch"):
            keys[ours] = engines
        elif event not in FIELDS:
            raise UserError(f"{path}:{number}: unknown event {event!r}: choose one of any, {', '.join(FIELDS)}")
        elif ours == "name":
            events[engines] = event
        elif ours in FIELDS[event][0] | FIELDS[event][1]:
            fields.setdefault(event, {}).setdefault(ours, []).append(engines)
        else:
            choice = ", ".join(sorted({"name", *FIELDS[event][0], *FIELDS[event][1]}))
            raise UserError(f"{path}:{number}: {event} has no field {ours!r}: choose one of {choice}")
    _check_whole(path, keys, events, fields)
    return MappingFile(path, keys["type"], keys.get("batch"), events, fields)


def _check_whole(
    path: Path, keys: Mapping[str, str], events: Mapping[str, str], fields: Mapping[str, Mapping[str, Sequence[str]]]
) -> None:
    if "type" not in keys or not events:
        raise UserError(f"{path}: a row `any type KEY` and at least one row `EVENT name NAME` are needed: add them")
    for event in {*events.values(), *fields}:
        if event not in events.values():
            raise UserError(f"{path}: {event} has fields and no name: add a row `{event} name NAME`")
        lacking = FIELDS[event][0] - fields.get(event, {}).keys()
        if lacking:
            raise UserError(f"{path}: {event} needs {', '.join(sorted(lacking))}: add a row for each")


def read_recording(path: Path, mapping: MappingFile) -> Iterator[Recorded]:
    """Yield the events of the recording at `path`.

    Raises `UserError`, which names file and line, for a line that is not JSON, an event that no row names, and a field
    that is not there.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    try:
                        yield from _events(json.loads(line), number, mapping)
                    except (ValueError, RecursionError) as error:
                        raise UserError(f"{path}:{number}: the line is not JSON: restore it") from error
                    except UserError as error:
                        raise UserError(f"{path}:{number}: {error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text: name a recording of JSON Lines") from error
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}: name a recording that can be read") from error


def _events(value: object, number: int, mapping: MappingFile) -> Iterator[Recorded]:
    if not isinstance(value, dict):
        raise UserError("the line is no JSON object: every line of a recording is one")
    if mapping.batch_key in value and mapping.type_key not in value:
        batch = value[mapping.batch_key]
        if not isinstance(batch, list):
            raise UserError(f"{mapping.batch_key} is no list of events: correct it")
        for one in batch:
            yield from _events(one, number, mapping)
        return
    name = value.get(mapping.type_key)
    if not isinstance(name, str) or name not in mapping.events:
        known = ", ".join(mapping.events)
        raise UserError(f"unmatched event {name!r}: {mapping.path} names {known}; add a row, `ignored` if it is none")
    event = mapping.events[name]
    yield Recorded(number, event, {ours: _value(value, names, ours, event) for ours, names in _of(mapping, event)})


def _of(mapping: MappingFile, event: str) -> list[tuple[str, Sequence[str]]]:
    return list(mapping.fields.get(event, {}).items())


def _value(entry: Mapping[str, object], names: Sequence[str], ours: str, event: str) -> object:
    needed = ours in FIELDS[event][0] or ours == "tokens"
    missing = [name for name in names if name not in entry]
    if needed and missing:
        raise UserError(f"{event} lacks {', '.join(missing)}: record it, or correct the mapping")
    if len(names) == 1:
        return entry.get(names[0])
    return [entry.get(name) for name in names]
