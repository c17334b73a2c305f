"""The traces that come with kvescrow, by name.

`data/ATTRIBUTION.md` states their sources, authors, licences and changes.
"""

from collections.abc import Mapping
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable

from attrs import evolve, field, frozen

from kvescrow.reference.traces.reader import read_trace
from kvescrow.reference.traces.record import Trace, TraceFormat
from kvescrow.spec.vocabulary import UserError


@frozen
class PackagedTrace:
    """One file of the package."""

    file: str
    sha256: str
    format: TraceFormat
    licence: str
    """File of the licence text."""
    attribution: str
    companions: Mapping[str, str] = field(factory=dict)
    """Files that lie beside it and belong to it, with their sha256."""


PACKAGED: dict[str, PackagedTrace] = {
    "mooncake": PackagedTrace(
        file="mooncake.conversation_trace.first1000.jsonl",
        sha256="d289afab1294d376c92b3496d96c27f8f0e36893398fbda7957f3a40e37b70ba",
        format=TraceFormat.MOONCAKE,
        licence="licences/Mooncake.LICENSE-APACHE",
        attribution=(
            "Mooncake conversation trace, Qin et al., FAST 2025, https://github.com/kvcache-ai/Mooncake, "
            "Apache-2.0; truncated to the first 1,000 lines."
        ),
    ),
    "vtc": PackagedTrace(
        file="vtc.FCFS.all_results_real.jsonl",
        sha256="21cd8b32e861bef81de244744487e9d051fa82d2d047cc03333890052565dd3f",
        format=TraceFormat.VTC,
        licence="licences/VTC-artifact.LICENSE",
        attribution=(
            "VTC-artifact fair_bench/FCFS, Sheng et al., arXiv:2401.00588, "
            "https://github.com/Ying1123/VTC-artifact, Apache-2.0; renamed only."
        ),
    ),
    "azure-code": PackagedTrace(
        file="azure.AzureLLMInferenceTrace_code.first1000.csv",
        sha256="0993960b316b4ead73102ddb7aa673dd4c014cbc477cbd2338183ad1952c094e",
        format=TraceFormat.AZURE,
        licence="licences/AzurePublicDataset.LICENSE",
        attribution=(
            "Azure LLM inference trace 2023 (code), (c) Microsoft, Patel et al., ISCA 2024, "
            "https://github.com/Azure/AzurePublicDataset, CC BY 4.0; truncated to the first 1,000 lines."
        ),
    ),
    "ragpulse": PackagedTrace(
        file="ragpulse/0_trace.first150.jsonl",
        sha256="bf54788d8c1583b6953674fd3b4a6f4e92c21151ae687c0cce0076648c972e26",
        format=TraceFormat.RAGPULSE,
        licence="licences/RAGPulse.LICENSE",
        attribution=(
            "RAGPulse, (c) 2025 zhengchao wang, Wang et al., arXiv:2511.12979, "
            "https://github.com/flashserve/RAGPulse, MIT; truncated to the first 150 lines and their chunks."
        ),
        companions={
            "ragpulse/1_sys_prompt.jsonl": "5ca63af3664040878fd65ce32b9d088a04a30f742e7598f328f5a40f647261db",
            "ragpulse/2_passages.jsonl": "6bcd87bb00f3ddfde52c457ccb61c5fb4f8adc2bd7241381885ea40bd5ad96f1",
            "ragpulse/3_history.jsonl": "7c0b41d25e3487bcfeac9d950117828c584444f0a0fd1a87b841047a1ec4a67f",
            "ragpulse/4_user_input.jsonl": "c9706696659656b28935e04f23d33dfd83a886c1a13f3c30706d196eb70d5e98",
            "ragpulse/5_web_search.jsonl": "01790f881f5546e991529babc7c549f06d528182dd8037c90896436d2b90bea3",
        },
    ),
}
"""Packaged traces by the name that a user gives."""


def data_file(name: str) -> Traversable:
    """Return a file of the package's data folder."""
    return files("kvescrow.reference.traces").joinpath("data", *name.split("/"))


def packaged_trace(name: str) -> Trace:
    """Return the packaged trace `name`.

    Raises:
        UserError: There is no packaged trace of that name.

    """
    if name not in PACKAGED:
        raise UserError(f"no packaged trace {name!r}; there are {', '.join(PACKAGED)}")
    packaged = PACKAGED[name]
    # An installed package is a folder, so that what lies beside the file lies beside `path` too.
    with as_file(data_file(packaged.file)) as path:
        trace = read_trace(path, packaged.format.value)
    return evolve(trace, name=name, attribution=packaged.attribution)
