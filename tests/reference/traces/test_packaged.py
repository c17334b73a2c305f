"""The packaged traces: the very bytes that their attribution names, with the licence texts beside them."""

from __future__ import annotations

import hashlib
import json
from importlib.resources.abc import Traversable

import pytest

from kvescrow.reference.traces import PACKAGED, packaged_trace
from kvescrow.reference.traces.packaged import data_file
from kvescrow.spec.vocabulary import UserError

MAXIMUM_BYTES = 720_000
"""A package is not the place for data sets."""

# The licence texts of the source repositories, unchanged.
LICENCES = {
    "licences/AzurePublicDataset.LICENSE": "9bbc1ea9fe5c96df01b311a2ac864d5b18fc87b9948bfd14770e4b44db755ee9",
    "licences/Mooncake.LICENSE-APACHE": "58d1e17ffe5109a7ae296caafcadfdbe6a7d176f0bc4ab01e12a689b0499d8bd",
    "licences/RAGPulse.LICENSE": "76d9798f1a0c8b8f16c73069717732ba1735c5eecd3c9b49beb6e192fb156e87",
    "licences/VTC-artifact.LICENSE": "c71d239df91726fc519c6eb72d318ec65820627232b2f796219e87dcf35d0ab4",
}


def sha256(file: Traversable) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", PACKAGED)
def test_bytes_are_those_that_the_attribution_names(name: str) -> None:
    packaged = PACKAGED[name]
    attribution = data_file("ATTRIBUTION.md").read_text("utf-8")
    for file, digest in {packaged.file: packaged.sha256, **packaged.companions}.items():
        assert sha256(data_file(file)) == digest
        assert f"`{file}`" in attribution
        assert digest in attribution
    assert packaged.licence in attribution
    assert packaged_trace(name).attribution == packaged.attribution


def test_the_vtc_file_is_the_source_file_whole() -> None:
    assert PACKAGED["vtc"].sha256 == "21cd8b32e861bef81de244744487e9d051fa82d2d047cc03333890052565dd3f"


def test_licence_texts_are_unchanged() -> None:
    assert {packaged.licence for packaged in PACKAGED.values()} == set(LICENCES)
    assert {name: sha256(data_file(name)) for name in LICENCES} == LICENCES


def test_the_data_is_small_and_nothing_else_lies_there() -> None:
    named = {file for packaged in PACKAGED.values() for file in (packaged.file, *packaged.companions)}
    files = {"ATTRIBUTION.md", *LICENCES, *named}
    beside = {f"ragpulse/{entry.name}" for entry in data_file("ragpulse").iterdir()}
    assert beside == {name for name in files if name.startswith("ragpulse/")}
    assert {entry.name for entry in data_file("").iterdir()} == {name.split("/")[0] for name in files}
    assert sum(len(data_file(name).read_bytes()) for name in files) <= MAXIMUM_BYTES


def test_mooncake_is_read_whole() -> None:
    trace = packaged_trace("mooncake")
    lines = data_file(PACKAGED["mooncake"].file).read_text("utf-8").splitlines()
    members = [json.loads(line) for line in lines]
    assert len(trace.requests) == len(lines) == 1000
    assert [request.input_tokens for request in trace.requests] == [each["input_length"] for each in members]
    assert [list(request.block_ids) for request in trace.requests] == [each["hash_ids"] for each in members]
    assert trace.requests[-1].arrival == 330_000_000
    assert {request.block_ids[0] for request in trace.requests} == {0}
    assert trace.remarks == ()


def test_vtc_is_read_whole() -> None:
    trace = packaged_trace("vtc")
    assert len(trace.requests) == 1500
    assert len({request.tenant for request in trace.requests}) == 27
    assert trace.requests[-1].arrival == 600_000_000
    assert trace.remarks == ()


def test_ragpulse_is_read_whole() -> None:
    trace = packaged_trace("ragpulse")
    lines = data_file(PACKAGED["ragpulse"].file).read_text("utf-8").splitlines()
    members = [json.loads(line) for line in lines]
    assert len(trace.requests) == len(lines) == 150
    assert [request.input_tokens for request in trace.requests] == [each["input_length"] for each in members]
    begin = int(members[0]["timestamp"])
    assert trace.requests[-1].arrival == (int(members[-1]["timestamp"]) - begin) * 1_000_000
    # The first two chunks of a system prompt, 1,024 tokens, open nearly every request; what follows is its own.
    opening = [request.block_ids[:16] for request in trace.requests]
    assert opening.count(tuple(range(16))) > 100
    assert len({request.block_ids[-1] for request in trace.requests}) == 150
    assert len(trace.remarks) == 1


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UserError, match="no packaged trace 'azure'; there are mooncake, vtc, azure-code, ragpulse"):
        packaged_trace("azure")
