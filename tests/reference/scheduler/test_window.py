"""The sliding window: by hand, and against the published decisions of another implementation on a real trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvescrow.reference.scheduler.window import MINUTE, RequestWindow
from kvescrow.reference.traces import packaged_trace
from kvescrow.spec.vocabulary import UserError

PUBLISHED = json.loads(Path(__file__).with_name("published_refusals.json").read_text("utf-8"))


@pytest.mark.parametrize(("limit", "refusals"), [(5, 919), (15, 447), (20, 342)])
def test_published_refusals_are_reproduced(limit: int, refusals: int) -> None:
    """The recorded run read its own clock, so decisions close to a window's edge differ: 1.1 % at most."""
    requests = packaged_trace("vtc").requests
    window = RequestWindow(limit)
    refused = {
        int(request.request.removeprefix("response-"))
        for request in requests
        if not window.admit(request.tenant, request.arrival)
    }
    published = set(PUBLISHED["refused"][str(limit)])
    assert len(requests) == 1500
    assert len(published) == refusals
    assert abs(len(refused) - refusals) <= 1
    assert len(refused ^ published) <= 0.011 * len(requests)


def test_only_admitted_requests_count() -> None:
    """Counting refusals too would shut the caller out for as long as it tries."""
    window = RequestWindow(2, 10)
    assert [window.admit("a", now) for now in (0, 4, 5, 9, 10, 11, 14)] == [True, True, False, False, True, False, True]
    assert window.admit("b", 14)


def test_a_refusal_says_when_there_is_room() -> None:
    window = RequestWindow(1, 10)
    assert window.admit("a", 3)
    assert [window.wait("a", now) for now in (3, 12, 13)] == [10, 1, 0]


def test_idle_time_earns_nothing_and_a_clock_that_steps_back_neither_frees_nor_charges() -> None:
    window = RequestWindow(2, MINUTE)
    assert [window.admit("a", 100 * MINUTE) for _ in range(3)] == [True, True, False]
    assert not window.admit("a", 99 * MINUTE)
    assert not window.admit("a", 101 * MINUTE - 1)
    assert window.admit("a", 101 * MINUTE)


@pytest.mark.parametrize(("limit", "span"), [(0, 1), (1, 0), (-1, 5)])
def test_a_window_that_admits_nothing_is_refused(limit: int, span: int) -> None:
    with pytest.raises(UserError, match="admits nothing: set both to 1 or more"):
        RequestWindow(limit, span)
