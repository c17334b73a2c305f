"""Recordings of other engines: what they can decide is decided, the rest is named, and nothing is skipped silently."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvescrow.checks.cli.front import main
from kvescrow.checks.monitor.mapping import PACKAGED, read_mapping
from kvescrow.checks.monitor.recording import RecordingVerdict, check_recording
from kvescrow.spec.vocabulary import UserError


def stored(*pages: str, parent: str | None = None, first: int = 0, **more: object) -> dict[str, object]:
    tokens = list(range(first, first + 2 * len(pages)))
    return {
        "type": "BlockStored",
        "block_hashes": list(pages),
        "parent_block_hash": parent,
        "token_ids": tokens,
        "block_size": 2,
        "lora_id": None,
        "medium": "GPU",
        "group_idx": 0,
        **more,
    }


def removed(*pages: str) -> dict[str, object]:
    return {"type": "BlockRemoved", "block_hashes": list(pages), "medium": "GPU", "group_idx": 0}


CLEARED: dict[str, object] = {"type": "AllBlocksCleared"}


def check(folder: Path, *events: dict[str, object], mapping: str = "vllm") -> RecordingVerdict:
    path = folder / "recording.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return check_recording(path, mapping)


def test_a_right_recording_passes_and_says_what_it_cannot_decide(tmp_path: Path) -> None:
    verdict = check(
        tmp_path,
        stored("a", "b"),
        stored("c", parent="b", first=4),
        {"ts": 1.5, "events": [removed("c"), removed("b"), stored("b", parent="a", first=2)]},
        stored("salted", extra_keys=[["salt"]]),
        CLEARED,
        stored("a"),
    )
    assert verdict.events == 8
    assert verdict.findings == ()
    assert verdict.laws == {
        "known": "passed",
        "parent": "passed",
        "leaves": "passed",
        "length": "passed",
        "digest": "passed",
        "in_flight": "not_decided",
    }
    assert verdict.undecided == {"in_flight": "launched; ended; taken"}


@pytest.mark.parametrize(
    ("events", "law", "line"),
    [
        ((stored("a"), removed("b")), "known", 2),
        ((stored("a"), removed("a"), removed("a")), "known", 3),
        ((stored("a"), CLEARED, removed("a")), "known", 3),
        ((stored("b", parent="a"),), "parent", 1),
        ((stored("a", "b"), removed("a")), "leaves", 2),
        ((stored("a", token_ids=[1, 2, 3]),), "length", 1),
        ((stored("a", token_ids=[1], block_size=True),), "length", 1),
        ((stored("a"), removed("a"), stored("a", first=8)), "digest", 3),
        ((stored("a"), stored("b")), "digest", 2),
        ((stored("a"), stored("a", extra_keys=[["salt"]])), "digest", 2),
        (
            (stored("a", extra_keys=[["salt"]]), stored("b", parent="a"), stored("z"), stored("b", parent="z")),
            "digest",
            4,
        ),
    ],
)
def test_a_broken_law_is_named_with_its_line(
    tmp_path: Path, events: tuple[dict[str, object], ...], law: str, line: int
) -> None:
    verdict = check(tmp_path, *events)
    assert {(finding.law, finding.line) for finding in verdict.findings} == {(law, line)}
    assert verdict.laws[law] == "broken"
    assert set(verdict.laws.values()) == {"broken", "passed", "not_decided"}


def test_copies_of_a_page_and_pools_are_told_apart(tmp_path: Path) -> None:
    on_the_host = {**stored("a"), "medium": "CPU"}
    assert check(tmp_path, stored("a"), stored("a"), removed("a"), removed("a"), on_the_host).findings == ()
    (finding,) = check(tmp_path, on_the_host, removed("a")).findings
    assert finding.law == "known"


def plain(event: str, **values: object) -> dict[str, object]:
    return {"event": event, **values}


def test_a_plain_recording_decides_steps_too(tmp_path: Path) -> None:
    launched = plain("launched", step=1, request="r0", blocks=[3, 4])
    taken = plain("taken", request="r1", blocks=[4])
    own = plain("taken", request="r0", blocks=[5])
    assert check(tmp_path, launched, own, plain("ended", step=1), taken, mapping="plain").findings == ()
    verdict = check(tmp_path, launched, taken, mapping="plain")
    assert verdict.undecided == {}
    assert [str(one) for one in verdict.findings] == [
        "line 2: in_flight: no block of a launched step is handed to another request before that step has ended "
        "(PAG-4); blocks 4 of step 1 of r0 are handed to r1"
    ]
    with pytest.raises(UserError, match=r"recording\.jsonl:1: step 7 ends and was not launched"):
        check(tmp_path, plain("ended", step=7), mapping="plain")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no event in it"),
        ('{"type": "BlockStored"', r"recording\.jsonl:1: the line is not JSON"),
        ("[1]", r"recording\.jsonl:1: the line is no JSON object"),
        ('{"type": "BlockMoved"}', r"recording\.jsonl:1: unmatched event 'BlockMoved'"),
        ('\n{"no": "type"}', r"recording\.jsonl:2: unmatched event None"),
        ('{"type": "BlockRemoved", "medium": 1}', r"recording\.jsonl:1: removed lacks block_hashes"),
        ('{"type": "BlockRemoved", "block_hashes": 1}', r"recording\.jsonl:1: pages is 1, not a list"),
        ('{"events": 1}', r"recording\.jsonl:1: events is no list"),
    ],
)
def test_a_recording_that_cannot_be_read_is_refused(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "recording.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match=told):
        check_recording(path, "vllm")


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("any type", "mine:1: a row has three columns, not 2"),
        ("# all of it\n\nbroken name X", "mine:3: unknown event 'broken'"),
        ("stored colour x", "mine:1: stored has no field 'colour': choose one of name, page_length"),
        ("stored name S", "mine: a row `any type KEY`"),
        ("any type t\nstored name S", "mine: stored needs pages"),
        ("any type t\nstored name S\nstored pages p\nremoved pages p", "mine: removed has fields and no name"),
        ("any type t\nstored name S\nstored pages p", "mine: with these rows no law can be decided"),
    ],
)
def test_a_mapping_that_says_too_little_is_refused(tmp_path: Path, rows: str, told: str) -> None:
    (tmp_path / "mine").write_text(rows)
    with pytest.raises(UserError, match=told):
        check_recording(tmp_path / "none.jsonl", str(tmp_path / "mine"))


def test_an_absent_mapping_names_the_packaged_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="one of plain, vllm"):
        read_mapping(str(tmp_path / "absent"))
    assert sorted(file.stem for file in PACKAGED.iterdir()) == ["plain", "vllm"]


def test_the_command_concludes_by_the_laws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "recording.jsonl"
    statuses = []
    for text in (stored("a"), removed("a"), {"type": "Unheard"}):
        path.write_text(json.dumps(text))
        with pytest.raises(SystemExit) as ended:
            main(["check-journal", str(path), "--mapping", "vllm"])
        statuses.append(ended.value.code)
    assert statuses == [0, 1, 2]
    shown = capsys.readouterr()
    assert "passed: digest: one digest stands for one prefix" in shown.out
    assert "not decided: in_flight: " in shown.out
    assert "check-journal: refuted, 1 events, 5 of 6 laws decided" in shown.out
    assert f"{path}:1: unmatched event 'Unheard'" in shown.err
