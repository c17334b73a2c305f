"""Reading of a replay configuration: what is left out keeps its default, what is wrong is named."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvescrow.reference.replay import config as module
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
    text = (module.__doc__ or "").split("\n\n", 1)[1]
    config = read(tmp_path, text)
    shown = {(table, key) for table, keys in tomllib.loads(text).items() for key in keys}
    every = {(table, key) for table in module.TABLES for key in module.keys_of(table)}
    assert shown == every
    default = ReplayConfig()
    assert (config.times, config.scheduler, config.cost, config.cancellations) == (
        default.times,
        default.scheduler,
        default.cost,
        default.cancellations,
    )
    assert (config.pool.tokens, config.pool.queue_limit) == (default.pool.tokens, default.pool.queue_limit)


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
        ("[scheduler]\norder = 'random'\n", "scheduler.order is 'random': the one order there is, is 'first-come'"),
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
