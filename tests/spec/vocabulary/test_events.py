"""Events refuse what is no integer at once, so that no balance can become a fraction."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from attrs import evolve, fields

from kvescrow.spec.vocabulary import (
    Cancel,
    Extend,
    Fence,
    Finish,
    ForceRelease,
    Forget,
    Key,
    LedgerEvent,
    Preempt,
    Promote,
    Receipt,
    Renew,
    ReportUsage,
    Reserve,
    SetBudget,
    SetPoolLimit,
    SetTenantLimit,
    Start,
    StopOutcome,
    Sweep,
    Tick,
    UserError,
)

KEY = Key("a", "r1")
RECEIPT = Receipt("pool", KEY, "w", 1, 1, StopOutcome.STOPPED, 1, "k", b"")
EVENTS: tuple[Any, ...] = (
    RECEIPT,
    Reserve(KEY, 1, "d", 9),
    Promote(KEY),
    Start(KEY, 1, "w"),
    Extend(KEY, "w", 1, 1),
    ReportUsage(KEY, "w", 1, 1),
    Cancel(KEY, 1),
    Preempt(KEY, 1),
    Finish(RECEIPT),
    Renew(KEY, 1),
    Sweep(KEY),
    Fence(KEY, "w", "k", b""),
    ForceRelease(KEY, 1),
    Forget(KEY),
    Tick(1),
    SetPoolLimit(1),
    SetTenantLimit("a", 1),
    SetBudget("a", 1),
)
INTEGERS = [(event, one.name) for event in EVENTS for one in fields(type(event)) if one.type is int]


def test_every_event_is_here() -> None:
    assert {type(event) for event in EVENTS} == {Receipt, *get_args(LedgerEvent)}


@pytest.mark.parametrize("wrong", [3.0, 2.5, float("nan"), True, "3", None])
@pytest.mark.parametrize(
    ("event", "name"), INTEGERS, ids=lambda part: part if isinstance(part, str) else type(part).__name__
)
def test_what_is_no_integer_is_refused_with_its_field(event: Any, name: str, wrong: object) -> None:
    with pytest.raises(UserError, match=rf"^{type(event).__name__}\.{name} is .*: give an integer"):
        evolve(event, **{name: wrong})


@pytest.mark.parametrize("lease", [0, -1])
def test_a_lease_is_never_zero(lease: int) -> None:
    with pytest.raises(UserError, match=r"^Renew\.lease is 0 or less"):
        Renew(KEY, 1, lease=lease)


def test_a_domain_error_is_the_tables_to_decide() -> None:
    assert Reserve(KEY, 0, "d", -1).amount == 0
