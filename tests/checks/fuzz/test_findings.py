"""A finding says all that someone else needs: steps, rule, what was seen, release, and the entry for the list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from kvescrow.checks.cli.front import main
from kvescrow.checks.fuzz.findings import source_of, write_findings
from kvescrow.checks.fuzz.profiles import PROFILES
from kvescrow.checks.fuzz.run import fuzz, run_fuzz
from kvescrow.checks.targets import protocols, subject
from kvescrow.checks.targets.protocols import ManagerSetup
from kvescrow.checks.targets.subject import Capabilities, Kind, ListedDeviation, Publish, Subject
from kvescrow.spec.vocabulary import PrefixScope, UserError

TOY = '''
from kvescrow.checks.targets.protocols import Granted, ManagerPool
from kvescrow.checks.targets.subject import Capabilities, Kind, Publish, Subject

class Greedy:
    """Gives the first page to everyone."""
    def __init__(self, setup): self.total, self.tables = setup.pages, {}
    def submit(self, request, prompt, scope):
        self.tables.setdefault(request, [])
        return Granted()
    def reserve(self, request, tokens):
        self.tables[request] = list(range(tokens))
        return Granted()
    def launch(self, request, tokens): pass
    def complete(self, request, sampled): pass
    def release(self, request): self.tables.pop(request, None)
    def pages_of(self, request): return tuple(self.tables.get(request, ()))
    def evict(self): pass
    def pool(self):
        held = {}
        for page in (page for table in self.tables.values() for page in table):
            held[page] = held.get(page, 0) + 1
        return ManagerPool(self.total, frozenset(range(self.total)) - set(held), frozenset(), held)
    def close(self): pass

def subject(): return Subject(Kind.MANAGER, Greedy, engine="greedy 1.0")
'''
BRIEF = evolve(PROFILES["pr"], examples=30, least_rounds=1, most_rounds=4)


@pytest.fixture
def greedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "greedy_engine.py").write_text(TOY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(PROFILES, "pr", BRIEF)  # type: ignore[arg-type]
    return "greedy_engine:subject"


def test_a_finding_names_rule_steps_and_release(greedy: str) -> None:
    result = run_fuzz(greedy)
    (finding,) = result.findings
    assert (finding.engine, finding.listed, result.laws[finding.law]) == ("greedy 1.0", "", "broken")
    assert finding.scenario[0].startswith("open ManagerSetup(")
    assert len(finding.scenario) <= 12
    assert finding.report.startswith("greedy 1.0 breaks a rule")
    assert "PAG-" not in finding.report
    assert finding.scenario[-1] in finding.report
    assert f"To repeat it: `kvescrow fuzz --target {greedy} --seed {result.seed}`." in finding.report


def test_the_entry_makes_the_finding_a_known_deviation(greedy: str) -> None:
    (finding,) = run_fuzz(greedy).findings
    names: dict[str, Any] = {**vars(protocols), **vars(subject), "PrefixScope": PrefixScope}
    entry = eval(finding.entry, names)
    assert isinstance(entry, ListedDeviation)
    listed = Subject(Kind.MANAGER, _greedy(), deviations=(entry,), engine="greedy 1.0")
    result = fuzz(greedy, listed, BRIEF)
    assert result.deviations[0].exercised
    assert result.findings[0].listed == finding.law
    assert result.findings[0].scenario == finding.scenario


def _greedy() -> Any:
    import greedy_engine  # type: ignore[import-not-found]

    return greedy_engine.Greedy


def test_every_law_has_a_verdict() -> None:
    result = fuzz("toy", Subject(Kind.MANAGER, _unopened, Capabilities(publish=Publish.AT_SCHEDULE)), BRIEF)
    assert result.verdict == "not_run"
    assert result.laws["computed"] == "not_applicable"
    assert {verdict for law, verdict in result.laws.items() if law != "computed"} == {"not_run"}
    assert result.findings == ()


def _unopened(setup: ManagerSetup) -> None:
    raise UserError("not here")


def test_a_table_that_is_not_followed_is_a_finding_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from kvescrow.checks.targets.ledgers import ReferenceLedger, memory_subject
    from kvescrow.checks.targets.protocols import LedgerFacts

    submit = ReferenceLedger.submit
    monkeypatch.setattr(ReferenceLedger, "submit", lambda self, event: evolve(submit(self, event), generation=7))
    result = fuzz("ledger", memory_subject(), BRIEF)
    (finding,) = result.findings
    assert "generation" in LedgerFacts.__annotations__
    assert finding.law == "reply.generation"
    assert (finding.specification, finding.implementation) == ("0", "7")
    assert finding.entry == ""
    assert next(iter(result.laws.values())) == "broken"


def test_the_command_writes_both_forms(greedy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "found" / "here"
    with pytest.raises(SystemExit) as ended:
        main(["fuzz", "--target", greedy, "--findings", str(folder), "--json"])
    assert ended.value.code == 1
    result = json.loads(capsys.readouterr().out)
    page, record = sorted(folder.iterdir(), key=lambda path: path.suffix, reverse=True)
    assert json.loads(record.read_text()) == result["findings"][0]
    assert result["findings"][0]["report"] in page.read_text()
    assert "ListedDeviation(" in page.read_text()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file/below: cannot be written"):
        write_findings(tmp_path / "file" / "below", ())


def test_source_makes_the_value_again() -> None:
    value = ("submit", (1,), PrefixScope("a", salt="it's"), Publish.AT_COMMIT, None)
    assert eval(source_of(value), {"PrefixScope": PrefixScope, "Publish": Publish}) == value
