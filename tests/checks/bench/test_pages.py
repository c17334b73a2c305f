"""The bench of pages runs all its rows beside its peer; what it measures is not asserted."""

from __future__ import annotations

import pytest

from kvescrow.checks.bench.pages import PAGE_LENGTH, PAGES, SCOPE, measure
from kvescrow.checks.targets.own_pool import PoolRequests
from kvescrow.checks.targets.transformers_cache import TransformersCache
from kvescrow.spec.vocabulary import UserError


def test_every_row_is_measured_beside_the_peer() -> None:
    report = measure(rounds=3, requests=2)
    assert [row.name for row in report.rows] == [
        "miss",
        "hit on 992 evictable tokens",
        "hit on 992 tokens beside a live sharer",
    ]
    assert all(row.ours > 0 and row.peer is not None and row.peer > 0 for row in report.rows)


def test_a_missing_peer_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(UserError, match=r"pip install 'kvescrow\[targets\]'"):
        TransformersCache(PAGES, PAGE_LENGTH)


def test_both_subjects_cache_the_same_and_keep_their_pages() -> None:
    pool, cache = PoolRequests(8, 4, SCOPE), TransformersCache(8, 4)
    prompt = list(range(9))
    for turn, cached in enumerate((0, 8)):
        assert pool.admit(f"r#{turn}", prompt) == cached
        pool.release(f"r#{turn}")
        request = cache.request(f"r#{turn}", prompt)
        assert cache.match(request) == cached
        assert cache.reserve(request, 9 - cached)
        cache.complete(request, 9 - cached, cache.launch(request, 9 - cached))
        cache.release(request)
    pool.pool.check()
    assert (pool.pool.counts().free, pool.pool.counts().cached) == (6, 2)
    with pytest.raises(RuntimeError, match="r#9"):
        pool.admit("r#9", list(range(33)))
