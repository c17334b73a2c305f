"""Every engine finds the same states and transitions; the counts of the named instances are pinned (FRM-3)."""

from __future__ import annotations

import pytest
from attrs import evolve, frozen

from kvescrow.checks.explore import GATE, INSTANCES, EngineName, EngineNotInstalled, coverage, explore, instance_called
from kvescrow.checks.explore.bdd import installed
from kvescrow.checks.explore.instances.composition import composition
from kvescrow.checks.explore.instances.lifecycle import SIZES, Size, closed_form, lifecycle
from kvescrow.spec.tables.registry import ALL_TABLES
from kvescrow.spec.vocabulary import UserError


@frozen
class Pin:
    """What an instance has."""

    states: int
    transitions: int
    moves: int
    depth: int
    cut: int = 0


PINS = {
    "usage": Pin(6783, 287940, 92604, 16, 24078),
    "identities": Pin(16318, 680982, 69136, 21, 4374),
    "limits": Pin(3648, 116736, 33416, 13),
    "full-queue": Pin(4032, 120960, 32952, 11),
    "refusals": Pin(761, 121760, 6314, 12),
    "account": Pin(256, 5376, 2688, 4),
    "promises": Pin(193, 9843, 1272, 6),
    "executions": Pin(232, 3944, 552, 13),
    "scope_reuse": Pin(2, 40, 4, 1),
    "chunk_choice": Pin(315, 14870, 11033, 10),
    "release": Pin(438, 12660, 1557, 14, 42),
    "pages-limit": Pin(3398, 153824, 22733, 20, 2484),
    "pages-chains": Pin(21082, 1433042, 157150, 25, 20032),
    "pages-scopes": Pin(74952, 4598480, 588704, 24, 48544),
    "lifecycle-80k": Pin(80396, 8682768, 1339944, 23),
}
SMALL = ("account", "promises", "executions", "scope_reuse", "chunk_choice", "release", "lifecycle-xs")


def test_the_gate_passes_fires_every_row_and_reaches_every_situation() -> None:
    found = {name: explore(instance_called(name)) for name in GATE}
    assert {name: one.breach for name, one in found.items() if one.breach} == {}
    counted = {
        name: Pin(one.states, one.transitions, one.moves or 0, one.depth or 0, one.cut) for name, one in found.items()
    }
    assert counted == PINS
    assert coverage(list(found.values()), ALL_TABLES).problems == ()


@pytest.mark.parametrize(
    ("pages", "pin"),
    [
        (1, Pin(97524, 3031308, 656748, 38, 4536)),
        (2, Pin(750888, 26665224, 5679372, 43, 131616)),
    ],
)
def test_the_composition_holds_and_its_counts_are_pinned(pages: int, pin: Pin) -> None:
    found = explore(composition(pages))
    assert found.breach is None
    assert Pin(found.states, found.transitions, found.moves or 0, found.depth or 0, found.cut) == pin


@pytest.mark.parametrize("name", SMALL)
def test_packed_agrees_with_the_interpreter(name: str) -> None:
    instance = instance_called(name)
    oracle, packed = (explore(instance, engine) for engine in (EngineName.INTERPRETER, EngineName.PACKED))
    same = ("states", "transitions", "moves", "depth", "cut", "rows", "reached", "left_out", "unfired")
    assert [getattr(oracle, part) for part in same] == [getattr(packed, part) for part in same]


@pytest.mark.parametrize(
    "size",
    [
        Size(slots=2, amounts=1, growth=0, pool=1, tenant=1),
        Size(slots=2, amounts=2, growth=1, pool=3, tenant=3),
        Size(slots=3, amounts=1, growth=1, pool=2, tenant=2),
        Size(slots=4, amounts=1, growth=0, pool=3, tenant=1),
    ],
)
def test_packed_dense_symmetric_and_the_closed_form_agree(size: Size) -> None:
    instance = lifecycle("lifecycle-test", size)
    packed = explore(instance, EngineName.PACKED)
    dense = explore(instance, EngineName.DENSE)
    symmetric = explore(instance, EngineName.PACKED, symmetric=True)
    counts = {(one.states, one.transitions, one.moves) for one in (packed, dense, symmetric)}
    assert counts == {(closed_form(size), packed.transitions, packed.moves)}
    assert symmetric.orbits is not None and symmetric.orbits <= packed.states
    assert packed.rows == symmetric.rows


def test_symmetry_leaves_fewer_states_to_visit() -> None:
    found = explore(instance_called("lifecycle-1m"), symmetric=True)
    assert (found.states, found.orbits) == (closed_form(SIZES["lifecycle-1m"]), 103152)


@pytest.mark.parametrize("name", ["lifecycle-80k", "lifecycle-1m", "lifecycle-8m"])
def test_dense_counts_what_the_closed_form_counts(name: str) -> None:
    found = explore(instance_called(name), EngineName.DENSE)
    assert found.states == closed_form(SIZES[name])
    assert found.transitions == found.states * len(instance_called(name).moves)


def test_decision_diagrams_agree_where_they_are_installed() -> None:
    instance = instance_called("lifecycle-1m")
    if installed():
        assert explore(instance, EngineName.BDD).states == closed_form(SIZES["lifecycle-1m"])
    else:
        with pytest.raises(EngineNotInstalled, match="explore"):
            explore(instance, EngineName.BDD)


def test_every_named_instance_can_be_built_and_says_what_it_is() -> None:
    for name in INSTANCES:
        instance = instance_called(name)
        assert instance.name == name
        assert instance.note.strip()


def test_a_search_stops_before_memory_runs_out() -> None:
    with pytest.raises(
        UserError, match=r"instance lifecycle-80k: the packed engine would need about .* choose a smaller"
    ):
        explore(instance_called("lifecycle-80k"), memory=200_000)


def test_the_report_names_engine_instance_and_verdict() -> None:
    found = explore(instance_called("account"))
    written = found.to_json()
    assert (written["engine"], written["instance"], written["verdict"]) == ("packed", "account", "passed")
    assert written["why"] and written["memory"] > 0
    assert evolve(found, states=0, seconds=0.0).to_json()["states_per_second"] is None
