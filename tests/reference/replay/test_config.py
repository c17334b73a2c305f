"""Reading of a replay configuration: what is left out keeps its default, what is wrong is named."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvescrow.reference.replay import config as module
from kvescrow.reference.replay import terms
from kvescrow.reference.replay.config import ReplayConfig, read_config
from kvescrow.spec.vocabulary import UserError


def read(tmp_path: Path, text: str | bytes) -> ReplayConfig:
    path = tmp_path / "replay.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_config(path)


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    config = read(tmp_path, "")
    assert config == ReplayConfig(source=str(tmp_path / "replay.toml"))


def test_a_value_replaces_its_default_alone(tmp_path: Path) -> None:
    config = read(tmp_path, "[pool]\ntokens = 4096\n[cancellations]\nrate = 0.25\n")
    assert config.pool.tokens == 4096
    assert config.cancellations.rate == 0.25
    assert config.pool.queue_limit == ReplayConfig().pool.queue_limit
    assert config.scheduler == ReplayConfig().scheduler


def test_the_documented_example_shows_every_key_with_its_default(tmp_path: Path) -> None:
    text = (module.__doc__ or "").split("Defaults:\n\n", 1)[1]
    config = read(tmp_path, text)
    shown = {(table, key) for table, keys in tomllib.loads(text).items() for key in keys}
    every = {
        (table, key)
        for table in module.TABLES
        if table not in ("reservation", "arrivals")
        for key in module.keys_of(module.TABLES[table])
    }
    assert shown == every
    default = ReplayConfig()
    scheduler = evolve(config.scheduler, gap_budget=None)  # its default is no number
    assert (config.times, scheduler, config.cost, config.cancellations) == (
        default.times,
        default.scheduler,
        default.cost,
        default.cancellations,
    )
    assert (config.pool.tokens, config.pool.queue_limit) == (default.pool.tokens, default.pool.queue_limit)


def test_the_documented_example_of_classes_and_tenants_shows_every_key(tmp_path: Path) -> None:
    text = (terms.__doc__ or "").split("\n\n", 1)[1]
    config = read(tmp_path, text)
    tables = tomllib.loads(text)
    for table in ("reservation", "arrivals"):
        assert set(tables[table]) == set(module.keys_of(module.TABLES[table]))
    assert set(tables["classes"]["interactive"]) == set(module.keys_of(terms.ClassConfig))
    assert set(tables["tenants"]["acme"]) == set(module.keys_of(terms.TenantSettings))
    assert set(tables["streams"][0]) == set(module.keys_of(terms.StreamConfig))
    assert config.weights == {"interactive": 4, "bulk": 1}
    assert [config.class_of(tenant) for tenant in ("acme", "another")] == ["bulk", "interactive"]
    assert [config.tokens_of(tenant) for tenant in ("acme", "another")] == [131_072, 393_216]
    assert [config.budget_of(tenant) for tenant in ("acme", "another")] == [4_000_000, None]
    assert config.streams[0].requests == 40


BULK = "[classes.bulk]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[classes]\n", "classes: there is none; name at least one, or leave the table out"),
        ("classes = 1\n", "classes: expected a table, [classes]"),
        ("[classes]\nbulk = 1\n", "classes.bulk: expected a table, [classes.bulk]"),
        (f"{BULK}share = 0\n", "classes.bulk.share is 0: while another class waits, this one is never served"),
        (f"{BULK}share = 0.5\n", "classes: the shares are bulk 0.5: set them so that they add up to 1"),
        (f"{BULK}queue_limit = 0\n", "classes.bulk.queue_limit is 0: set it to an integer from 1"),
        (f"{BULK}queue_wait = 0\n", "classes.bulk.queue_wait is 0: while others wait, each request of the class is"),
        (f"{BULK}size = 0\n", "classes.bulk.size: unknown key; there are share, queue_limit, queue_wait"),
        ("[tenants.a]\nclass = 'x'\n", "tenants.a.class is 'x': set it to one of all"),
        ("[tenants.a]\nclass = 5\n", "tenants.a.class is 5: set it to a name"),
        ("[tenants.a]\nweight = 0\n", "tenants.a.weight is 0: set it to an integer from 1"),
        ("[reservation]\npolicy = 'x'\n", "reservation.policy is 'x': set it to one of full-maximum, estimate"),
        ("[reservation]\npercent = 101\n", "reservation.percent is 101: set it to an integer from 1 to 100"),
        ("[arrivals]\nspeed = 0\n", "arrivals.speed is 0: set it to a number from 0.001 to 1000"),
        ("[arrivals]\ntrace = 1\n", "arrivals.trace is 1: set it to true or false"),
        ("streams = 1\n", "streams: expected a list of tables, [[streams]]"),
        ("[[streams]]\ntenant = 'a'\n", "streams[0].requests: missing; each of streams needs it"),
        ("[scheduler]\nbaseline = 1\n", "scheduler.baseline is 1: set it to true or false"),
    ],
)
def test_what_is_wrong_with_classes_and_tenants_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path}/replay.toml: {message}")


def test_strict_priority_is_allowed_as_a_baseline_only(tmp_path: Path) -> None:
    """FAI-3: it starves the lower class, so it must be asked for by name."""
    text = "[scheduler]\norder = 'strict-priority'\n"
    with pytest.raises(UserError, match="ends in QUEUE_TIMEOUT for all of it"):
        read(tmp_path, text)
    assert read(tmp_path, text + "baseline = true\n").scheduler.order == "strict-priority"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[pol]\n", "pol: unknown table; there are pool, times, scheduler, cost, cancellations"),
        ("pool = 3\n", "pool: expected a table, [pool]"),
        ("[pool]\ntoken = 3\n", "pool.token: unknown key; there are tokens, page_length, tenant_tokens"),
        ("[pool]\ntokens = 0\n", "pool.tokens is 0: set it to an integer from 1 to 1000000000000000"),
        ("[pool]\ntokens = true\n", "pool.tokens is True: set it to an integer"),
        ("[pool]\ntokens = 1.5\n", "pool.tokens is 1.5: set it to an integer"),
        ("[pool]\npage_length = -16\n", "pool.page_length is -16: set it to an integer from 1"),
        ("[pool]\nqueue_limit = -1\n", "pool.queue_limit is -1: set it to an integer from 0"),
        ("[times]\ndeadline = '1s'\n", "times.deadline is '1s': set it to an integer"),
        ("[scheduler]\nsequences = 0\n", "scheduler.sequences is 0: set it to an integer from 1"),
        ("[scheduler]\norder = 'strict-priority'\n", "scheduler.order is 'strict-priority': while the higher class"),
        (
            "[scheduler]\norder = 'random'\n",
            "scheduler.order is 'random': set it to one of first-come, fair, strict-priority",
        ),
        ("[cost]\nfixed = 0\n", "cost.fixed is 0: set it to an integer from 1"),
        ("[cancellations]\nrate = 1.5\n", "cancellations.rate is 1.5: set it to a share from 0.0 to 1.0"),
        ("[cancellations]\nrate = nan\n", "cancellations.rate is nan: set it to a share from 0.0 to 1.0"),
        ("[cancellations\n", "not valid TOML: "),
        (b"\xff\xfe", "not valid TOML: "),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(UserError) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path}/replay.toml: {message}")


def test_what_is_no_readable_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such file; give the path of a replay configuration"):
        read_config(tmp_path / "none")
    with pytest.raises(UserError, match="a directory; give one file in it"):
        read_config(tmp_path)
    with pytest.raises(UserError, match="cannot be read"):
        read_config("nul\0byte")


@given(st.binary(max_size=60) | st.text(alphabet="[]pool.tkens=\n0-9'\"{},", max_size=60).map(str.encode))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_read_or_refused(tmp_path: Path, content: bytes) -> None:
    try:
        read(tmp_path, content)
    except UserError as error:
        assert str(error).startswith(f"{tmp_path}/replay.toml: ")
