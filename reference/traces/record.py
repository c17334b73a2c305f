"""What every trace format is read into: requests with an arrival, lengths and, where known, block ids."""

from enum import Enum

from attrs import field, frozen, validators

SINGLE_TENANT = "default"
"""Tenant of every request of a trace that names no tenants."""


class TraceFormat(Enum):
    """The formats that can be read, by the name that a user gives."""

    MOONCAKE = "mooncake"
    """JSON Lines of Mooncake and aiperf: `timestamp`, `input_length`, `output_length`, `hash_ids`."""
    AZURE = "azure"
    """CSV of the Azure LLM inference traces: `TIMESTAMP,ContextTokens,GeneratedTokens`."""
    VIDUR = "vidur"
    """CSV of Vidur: `arrived_at,num_prefill_tokens,num_decode_tokens`."""
    VTC = "vtc"
    """One JSON object a file: the results of the artifact of "Fairness in Serving Large Language Models"."""
    RAGPULSE = "ragpulse"
    """JSON Lines of RAGPulse, its prompts as lists of chunks whose lengths stand in files beside the trace."""


_positive = [validators.instance_of(int), validators.ge(1)]


@frozen
class TraceRequest:
    """One request as it was offered."""

    request: str
    """Id, unique in its trace; it names the place in the source file."""
    tenant: str
    arrival: int = field(validator=[validators.instance_of(int), validators.ge(0)])
    """Microseconds after the first request of the trace."""
    input_tokens: int = field(validator=_positive)
    output_tokens: int = field(validator=_positive)
    block_ids: tuple[int, ...] = ()
    """Ids of the prompt's blocks in order, an equal id meaning an equal whole prefix; empty where unknown.

    The last id names a partial block unless `input_tokens` is a multiple of `block_length`.
    """
    block_length: int = 0
    """Tokens a block; 0 where block ids are unknown."""


@frozen
class Trace:
    """A whole workload, in order of arrival; requests that arrive together keep the order of the file."""

    name: str
    format: TraceFormat
    requests: tuple[TraceRequest, ...]
    attribution: str
    """Source, authors and licence, in one line."""
    remarks: tuple[str, ...] = ()
    """What the reader changed or left out, one sentence each; empty where nothing was."""
