"""The sets of states that the packed search keeps: bits and sorted arrays are the same set, and so is torch's."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from kvescrow.checks.explore import EngineName, EngineNotInstalled, explore, instance_called
from kvescrow.checks.explore.instance import integers
from kvescrow.checks.explore.normal_form import NormalForm
from kvescrow.checks.explore.packed import Engine, levels
from kvescrow.checks.explore.packing import short_packings_of
from kvescrow.checks.explore.result import Exploration
from kvescrow.checks.explore.sums import Keeper, NotKept
from kvescrow.checks.explore.visited import Bits, Sorted
from kvescrow.spec.language.table import Table
from kvescrow.spec.tables.reservation import RESERVATION
from kvescrow.spec.vocabulary import UserError

FOUND = ("states", "transitions", "moves", "depth", "cut", "rows", "reached", "left_out", "breach")


def found_in(exploration: Exploration) -> list[object]:
    return [getattr(exploration, part) for part in FOUND]


def without_effect(table: Table, row_id: str, field: str) -> Table:
    def shortened(row_effects: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(effect for effect in row_effects if str(getattr(effect, "target", "")) != field)

    assert len(shortened(table.row_by_id[row_id].do)) == len(table.row_by_id[row_id].do) - 1
    return evolve(
        table, rows=tuple(evolve(row, do=shortened(row.do)) if row.id == row_id else row for row in table.rows)
    )


@pytest.mark.parametrize("apart", [0, 5])
def test_bits_and_sorted_arrays_are_the_same_set(apart: int) -> None:
    random = np.random.default_rng(7)
    bits, ordered = Bits(12, apart), Sorted(12 + apart)
    known: set[int] = set()
    for _ in range(6):
        # What is apart follows from the key: each key has one state.
        keys = random.integers(0, 1 << 12, 900)
        offered = np.array_split((keys << apart) | (keys * 11 & ((1 << apart) - 1)), 3)
        wanted = sorted({int(state) for part in offered for state in part} - known)
        known.update(wanted)
        for seen in (bits, ordered):
            seen.offer(offered[:2])
            seen.offer(offered[2:])
            assert seen.settle().tolist() == wanted
    assert bits.size == ordered.size == len(known)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("lifecycle-80k", "a bit for each of 2^24 keys"),
        # Too many records for five bits a place: the next packing has six.
        ("usage", "a bit for each of 2^17 keys"),
    ],
)
def test_a_bit_a_key_finds_the_states_that_whole_states_find(name: str, kept: str) -> None:
    instance = instance_called(name)
    found = explore(instance)
    assert found.kept == kept
    by_level = [len(level) for level in levels(Engine(NormalForm(instance)))]
    assert (sum(by_level), len(by_level) - 1) == (found.states, found.depth)


def test_a_counter_is_left_out_of_the_key_only_where_every_step_keeps_it() -> None:
    sound = instance_called("lifecycle-xs")
    forgetful = sound.with_table(without_effect(RESERVATION, "reservation.finish.completed", "tenant.active"))
    assert explore(sound).kept.startswith("a bit for each")
    found = explore(forgetful)
    assert (found.kept, found.verdict) == ("sorted states", "refuted")
    form = NormalForm(forgetful)
    packing = next(iter(short_packings_of(form.views.variables, Keeper(form).follow)))
    with pytest.raises(NotKept):
        list(levels(Engine(form, packing)))


@pytest.mark.parametrize("name", ["account", "promises", "executions", "release", "usage", "lifecycle-80k"])
def test_torch_on_cpu_finds_what_numpy_finds(name: str) -> None:
    instance = instance_called(name)
    numpy, torch = explore(instance), explore(instance, EngineName.PACKED, device="cpu")
    assert found_in(torch) == found_in(numpy)
    assert "in torch on cpu" in torch.kept


@pytest.mark.parametrize("planted", ["domain", "counter"])
def test_torch_on_cpu_finds_a_breach_as_deep(planted: str) -> None:
    if planted == "counter":
        table = without_effect(RESERVATION, "reservation.finish.completed", "tenant.active")
        instance = instance_called("lifecycle-xs").with_table(table)
    else:
        sound = instance_called("lifecycle-xs")
        narrow = {"pool": {"active": integers(0, 1)}}
        places = tuple(evolve(place, kept=narrow.get(place.name, place.kept)) for place in sound.places)
        instance = evolve(sound, places=places)
    numpy, torch = explore(instance), explore(instance, device="cpu")
    assert numpy.breach is not None and torch.breach is not None
    assert (torch.breach.law, len(torch.breach.scenario)) == (numpy.breach.law, len(numpy.breach.scenario))


def test_torch_says_what_it_does_not_take() -> None:
    with pytest.raises(UserError, match="instance pages-chains: torch takes instances with short keys"):
        explore(instance_called("pages-chains"), device="cpu")
    with pytest.raises(UserError, match="`--device` is of the packed engine"):
        explore(instance_called("account"), EngineName.DENSE, device="cpu")
    with pytest.raises(UserError, match="`--device` is of the packed engine"):
        explore(instance_called("lifecycle-xs"), symmetric=True, device="cpu")


def test_cuda_that_is_not_here_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(EngineNotInstalled, match="torch finds no CUDA device"):
        explore(instance_called("account"), device="cuda")
