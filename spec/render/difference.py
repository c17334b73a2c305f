"""What differs between two versions of the tables, given as their JSON, and which proofs that touches.

An obligation joins a row with a law of its event. It is to be proved again where the row, the law, or a row that is
read before it has changed. Invariants and assumptions are also what proofs rest on: where one has changed, so has
the ground of every proof of its table. Where both versions carry the verdicts of their proofs, those that differ are
named too.
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
VERDICTS = "proofs"
"""Part of a dump that may be missing: obligation -> verdict."""
PROVED = "proved"


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
    verdicts: tuple[Change, ...] | None
    """Obligations whose verdicts differ, new ones that are not proved among them; None where a version has none."""

    @property
    def lost(self) -> tuple[str, ...]:
        """Return the obligations that are no longer proved, or are new and not proved."""
        return tuple(each.name for each in self.verdicts or () if not each.parts[0].endswith(f"-> {PROVED}"))


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

    @property
    def is_empty(self) -> bool:
        """Whether there is no difference."""
        rows = (*self.rows_added, *self.rows_removed, *self.rows_changed)
        laws = (*self.laws_added, *self.laws_removed, *self.laws_changed)
        return not (rows or laws or self.other or self.proofs.verdicts)

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain lists and dictionaries."""
        return asdict(self)


def read_dump(text: str, name: str) -> tuple[Dump, ...]:
    """Return the tables in `text`: the JSON of one table, or a list of such. Raises `UserError` naming `name`."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name}: not JSON ({error}); write it with `kvescrow render --dump`") from error
    tables = found if isinstance(found, list) else [found]
    if not tables:
        raise UserError(f"{name}: there is no table in it; write it with `kvescrow render --dump`")
    wanted = {"name", "rows", *_LAWS, *_OTHER}
    for table in tables:
        missing = sorted(wanted - set(table)) if isinstance(table, dict) else sorted(wanted)
        if missing:
            lacks = ", ".join(missing)
            raise UserError(
                f"{name}: no dump of a table, since it lacks {lacks}; write it with `kvescrow render --dump`"
            )
        _refuse_malformed(table, name)
    return tuple(tables)


def _refuse_malformed(table: Dump, name: str) -> None:
    """Raise `UserError` where name, rows, laws or verdicts are not what they are in a dump."""
    if not isinstance(table["name"], str):
        raise UserError(f"{name}: a table's name is {table['name']!r} and no text; write it anew")
    for part, key in (("rows", "id"), *((law, "name") for law in _LAWS)):
        entries = table[part]
        good = isinstance(entries, list) and all(
            isinstance(each, dict) and isinstance(each.get(key), str) for each in entries
        )
        if not good:
            raise UserError(f"{name}: table {table['name']}: {part} is no list of entries with `{key}`; write it anew")
    for number, row in enumerate(table["rows"]):
        missing = sorted({"event", "sources"} - set(row))
        if missing:
            raise UserError(f"{name}: table {table['name']}: row {number} lacks {', '.join(missing)}; write it anew")
        if not isinstance(row["sources"], list) or not all(isinstance(each, str) for each in row["sources"]):
            raise UserError(f"{name}: table {table['name']}: row {number}: sources is no list of names; write it anew")
    if not isinstance(table.get(VERDICTS, {}), dict):
        raise UserError(f"{name}: table {table['name']}: {VERDICTS} is no object of verdicts; write it anew")


def difference(old: Sequence[Dump], new: Sequence[Dump]) -> tuple[TableDifference, ...]:
    """Return what differs between two versions, table by table; tables that are the same are left out."""
    before, after = ({table["name"]: table for table in version} for version in (old, new))
    found = (
        _of_table(name, before.get(name, _empty(name)), after.get(name, _empty(name)))
        for name in dict.fromkeys((*before, *after))
        if before.get(name) != after.get(name)
    )
    return tuple(each for each in found if not each.is_empty)


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
    yield from (f"      again {row}: {', '.join(laws)}" for row, laws in _by_row(proofs.again))
    if proofs.ground:
        yield f"  every proof rests on what changed: {', '.join(proofs.ground)}"
    if proofs.verdicts is None:
        yield "  verdicts: not in both dumps; `kvescrow render --dump FILE --prove` writes them"
    else:
        yield f"  verdicts: {len(proofs.verdicts)} differ"
        yield from (f"      {change.name}: {change.parts[0]}" for change in proofs.verdicts)


def _by_row(obligations: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for obligation in obligations:
        row, _, law = obligation.partition(": ")
        found.setdefault(row, []).append(law)
    yield from found.items()


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
        verdicts=_verdicts(old, new),
    )


def _verdicts(old: Dump, new: Dump) -> tuple[Change, ...] | None:
    versions: list[Mapping[str, str] | None] = [{} if not each["rows"] else each.get(VERDICTS) for each in (old, new)]
    before, after = versions
    if before is None or after is None:
        return None
    return tuple(
        Change(name, (f"{before.get(name, 'new')} -> {verdict}",))
        for name, verdict in after.items()
        if before.get(name, PROVED) != verdict
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
