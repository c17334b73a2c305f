"""`kvescrow render --dump` and `--diff`: what a reviewer of a changed table is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvescrow.checks.cli import main
from kvescrow.spec.tables.registry import ALL_TABLES

Tables = list[dict[str, Any]]


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of this checkout."""
    file = tmp_path_factory.mktemp("dump") / "tables.json"
    with pytest.raises(SystemExit) as ended:
        main(["render", "--dump", str(file)])
    assert ended.value.code == 0
    return file


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["render", *map(str, arguments)])
    printed = capsys.readouterr()
    return ended.value.code, printed.out, printed.err


def changed(dump: Path, folder: Path, table: str, **parts: object) -> Path:
    tables: Tables = json.loads(dump.read_text("utf-8"))
    next(each for each in tables if each["name"] == table).update(parts)
    file = folder / "changed.json"
    file.write_text(json.dumps(tables), "utf-8")
    return file


def of(dump: Path, table: str) -> dict[str, Any]:
    tables: Tables = json.loads(dump.read_text("utf-8"))
    return next(each for each in tables if each["name"] == table)


def test_a_dump_has_every_table_and_differs_from_itself_in_nothing(
    dump: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [table["name"] for table in json.loads(dump.read_text("utf-8"))] == [table.name for table in ALL_TABLES]
    status, told, _ = run(capsys, "--diff", dump, dump)
    assert (status, told) == (0, "the tables are the same\n")


def test_a_row_that_is_gone_is_shown_with_the_proofs_to_do_again(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row for row in of(dump, "promise")["rows"] if row["id"] != "promise.admit.never_fits"]
    status, told, _ = run(capsys, "--diff", dump, changed(dump, tmp_path, "promise", rows=rows))
    lines = told.splitlines()
    assert status == 0
    assert lines[:2] == ["table promise", "  - promise.admit.never_fits"]
    assert any(line.startswith("      again promise.admit.grant: witness, ") for line in lines)
    assert not any("promise.grow" in line for line in lines)
    assert lines[-1].startswith("  verdicts: not in both dumps")


def test_what_is_no_longer_proved_fails_the_comparison(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proved = {"promise.grow.grant: witness": "proved", "promise.grow.grant: promised_is_the_sum": "unknown"}
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old = changed(dump, tmp_path / "old", "promise", proofs=proved)
    refuted = {"promise.grow.grant: witness": "refuted", "promise.grow.grant: promised_is_the_sum": "proved"}
    new = changed(dump, tmp_path / "new", "promise", proofs={**refuted, "new: one": "proved", "new: two": "vacuous"})
    result = tmp_path / "result.json"
    status, told, _ = run(capsys, "--diff", old, new, "--json", result)
    assert status == 1
    assert "      promise.grow.grant: witness: proved -> refuted" in told.splitlines()
    assert "      promise.grow.grant: promised_is_the_sum: unknown -> proved" in told.splitlines()
    assert json.loads(result.read_text())["not_proved"] == ["promise.grow.grant: witness", "new: two"]
    # A version without verdicts is compared without them.
    assert run(capsys, "--diff", dump, new)[1] == "the tables are the same\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read"),
        ("{", "not JSON"),
        ("[]", "there is no table in it"),
        ('[{"name": "promise"}]', "no dump of a table, since it lacks"),
    ],
)
def test_a_bad_file_is_named_with_the_remedy(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, says: str
) -> None:
    bad = tmp_path / "bad.json"
    if text is not None:
        bad.write_text(text)
    status, _, told = run(capsys, "--diff", dump, bad)
    assert status == 2
    assert f"{bad}: " in told and says in told and "kvescrow render --dump" in told


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"rows": [{"id": "promise.a.b"}]}, "row 0 lacks event, sources"),
        ({"rows": "none"}, "rows is no list of entries with `id`"),
        ({"invariants": [{}]}, "invariants is no list of entries with `name`"),
        ({"proofs": []}, "proofs is no object of verdicts"),
    ],
)
def test_a_malformed_part_is_named(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], parts: dict[str, object], says: str
) -> None:
    status, _, told = run(capsys, "--diff", changed(dump, tmp_path, "promise", **parts), dump)
    assert status == 2
    assert f"table promise: {says}" in told


def test_options_that_exclude_each_other_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--check", "--dump", "x.json")[0] == 2
    assert run(capsys, "--prove")[0] == 2
