"""What differs between two versions of the tables, given as their JSON, and which proofs that touches.

An obligation joins a row with a law of its event. It is to be proved again where the row, the law, or a row that is
read before it has changed. Invariants and assumptions are also what proofs rest on: where one has changed, so has
the ground of every proof of its table.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import asdict, frozen

from kvescrow.spec.vocabulary import UserError

Dump = Mapping[str, Any]
"""One table, as `table_as_json` writes it."""

_LAWS = ("invariants", "step_rules", "non_interference", "assumptions", "sometimes")
_OTHER = ("moves", "states", "entities", "events", "initial", "ghosts", "note")
_GROUND = ("invariants", "assumptions")


@frozen
class Change:
    """One row or law that is in both versions and not the same."""

    name: str
    parts: tuple[str, ...]
    """Each part that differs, as `part: old -> new`."""


@frozen
class Proofs:
    """Obligations as `row: law`."""

    new: tuple[str, ...]
    gone: tuple[str, ...]
    again: tuple[str, ...]
    """In both versions, but of a row or a law that has changed, or of a row that is read after a changed one."""
    ground: tuple[str, ...]
    """Invariants and assumptions that have changed: every proof of the table rests on them."""


@frozen
class TableDifference:
    """What differs in one table. A table that only one version has is all added or all removed."""

    table: str
    rows_added: tuple[str, ...]
    rows_removed: tuple[str, ...]
    rows_changed: tuple[Change, ...]
    laws_added: tuple[str, ...]
    laws_removed: tuple[str, ...]
    laws_changed: tuple[Change, ...]
    other: tuple[str, ...]
    """Parts of the table beside rows and laws that differ."""
    proofs: Proofs

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain lists and dictionaries."""
        return asdict(self)


def read_dump(text: str, name: str) -> tuple[Dump, ...]:
    """Return the tables in `text`: the JSON of one table, or a list of such. Raises `UserError` naming `name`."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise UserError(f"{name}: not JSON ({error}); write it with `kvescrow render --json`") from error
    tables = found if isinstance(found, list) else [found]
    wanted = {"name", "rows", *_LAWS, *_OTHER}
    for table in tables:
        missing = sorted(wanted - set(table)) if isinstance(table, dict) else sorted(wanted)
        if missing:
            raise UserError(f"{name}: no dump of a table, since it lacks {', '.join(missing)}")
    return tuple(tables)


def difference(old: Sequence[Dump], new: Sequence[Dump]) -> tuple[TableDifference, ...]:
    """Return what differs between two versions, table by table; tables that are the same are left out."""
    before, after = ({table["name"]: table for table in version} for version in (old, new))
    return tuple(
        _of_table(name, before.get(name, _empty(name)), after.get(name, _empty(name)))
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    )


def render_difference(found: Sequence[TableDifference]) -> str:
    """Return the difference as text: `+` added, `-` removed, `~` changed with each part below."""
    if not found:
        return "the tables are the same"
    return "\n".join(line for each in found for line in _lines(each))


def _lines(found: TableDifference) -> Iterator[str]:
    yield f"table {found.table}"
    for sign, names in (
        ("+", (*found.rows_added, *found.laws_added)),
        ("-", (*found.rows_removed, *found.laws_removed)),
    ):
        yield from (f"  {sign} {name}" for name in names)
    for change in (*found.rows_changed, *found.laws_changed):
        yield f"  ~ {change.name}"
        yield from (f"      {part}" for part in change.parts)
    yield from (f"  ~ {part}" for part in found.other)
    proofs = found.proofs
    yield f"  proofs: {len(proofs.new)} new, {len(proofs.gone)} gone, {len(proofs.again)} of something that changed"
    if proofs.ground:
        yield f"  every proof rests on what changed: {', '.join(proofs.ground)}"


def _empty(name: str) -> Dump:
    return {"name": name, "rows": [], **{part: [] for part in _LAWS}, **{part: None for part in _OTHER}}


def _of_table(name: str, old: Dump, new: Dump) -> TableDifference:
    rows = _by("id", old["rows"]), _by("id", new["rows"])
    laws = _laws(old), _laws(new)
    rows_changed = tuple(_changes(*rows, moved=_moved(old, new)))
    laws_changed = tuple(_changes(*laws, moved={}))
    return TableDifference(
        table=name,
        rows_added=_only(rows[1], rows[0]),
        rows_removed=_only(rows[0], rows[1]),
        rows_changed=rows_changed,
        laws_added=_only(laws[1], laws[0]),
        laws_removed=_only(laws[0], laws[1]),
        laws_changed=laws_changed,
        other=tuple(part for part in _OTHER if old[part] != new[part]),
        proofs=_proofs(old, new, _bearing(rows_changed), _bearing(laws_changed)),
    )


def _by(key: str, entries: Iterable[Dump]) -> Mapping[str, Dump]:
    return {entry[key]: entry for entry in entries}


def _laws(table: Dump) -> Mapping[str, Dump]:
    return {entry["name"]: entry for part in _LAWS for entry in table[part]}


def _only(these: Mapping[str, Dump], those: Mapping[str, Dump]) -> tuple[str, ...]:
    return tuple(name for name in these if name not in those)


def _changes(old: Mapping[str, Dump], new: Mapping[str, Dump], moved: Mapping[str, str]) -> Iterator[Change]:
    for name, entry in new.items():
        if name in old:
            parts = [
                f"{part}: {_told(old[name].get(part))} -> {_told(entry.get(part))}"
                for part in dict.fromkeys((*old[name], *entry))
                if old[name].get(part) != entry.get(part)
            ]
            if name in moved:
                parts.append(moved[name])
            if parts:
                yield Change(name, tuple(parts))


def _told(value: object) -> str:
    """Return a part of a row or law as text: an expression by its text, lists by their entries."""
    match value:
        case {"text": str(text)}:
            return text
        case {"target": str(target), "value": {"text": str(text)}}:
            return f"{target} := {text}"
        case list():
            return "; ".join(_told(entry) for entry in value) or "nothing"
        case None:
            return "nothing"
        case _:
            return str(value)


def _moved(old: Dump, new: Dump) -> Mapping[str, str]:
    """Return the rows that are read after a row of their event that was read after them."""
    before = {row["id"]: place for place, row in enumerate(old["rows"])}
    kept = [row for row in new["rows"] if row["id"] in before]
    found: dict[str, str] = {}
    for place, row in enumerate(kept):
        overtaken = [
            other["id"]
            for other in kept[:place]
            if _share_a_cell(row, other) and before[other["id"]] > before[row["id"]]
        ]
        if overtaken:
            found[row["id"]] = f"read after {', '.join(overtaken)}"
    return found


def _share_a_cell(row: Dump, other: Dump) -> bool:
    return row["event"] == other["event"] and not set(row["sources"]).isdisjoint(other["sources"])


_WORDS = ("note", "cites")


def _bearing(changes: Iterable[Change]) -> frozenset[str]:
    """Return the names of what has changed in more than its words."""
    return frozenset(
        change.name for change in changes if any(part.partition(":")[0] not in _WORDS for part in change.parts)
    )


def _proofs(old: Dump, new: Dump, rows: frozenset[str], laws: frozenset[str]) -> Proofs:
    before, after = ({f"{row}: {law}": (row, law) for row, law in _obligations(table)} for table in (old, new))
    touched = _touched(old, new, rows)
    ground = {entry["name"] for part in _GROUND for entry in (*old[part], *new[part])}
    unlike = laws | set(_laws(old)) ^ set(_laws(new))
    return Proofs(
        new=tuple(name for name in after if name not in before),
        gone=tuple(name for name in before if name not in after),
        again=tuple(name for name, (row, law) in after.items() if name in before and (row in touched or law in laws)),
        ground=tuple(sorted(ground & unlike)),
    )


def _obligations(table: Dump) -> Iterator[tuple[str, str]]:
    """Yield (row, law) for each law that is proved of each row; that a row can fire is one of them."""
    for row in table["rows"]:
        yield row["id"], "witness"
        for part in ("invariants", "step_rules", "assumptions"):
            for law in table[part]:
                events = law.get("events")
                limited = part == "assumptions" and events is not None
                if not limited and (events is None or row["event"] in events):
                    yield row["id"], law["name"]


def _touched(old: Dump, new: Dump, changed: frozenset[str]) -> frozenset[str]:
    """Return the rows of the new version that have changed, or are read after one that has, is new, or is gone."""
    before, after = _by("id", old["rows"]), _by("id", new["rows"])
    unlike = changed | set(before) ^ set(after)
    later = {
        row["id"]
        for version in (old, new)
        for place, row in enumerate(version["rows"])
        if any(other["id"] in unlike and _share_a_cell(row, other) for other in version["rows"][:place])
    }
    return frozenset((changed | later) & set(after))
