"""What of vLLM 0.33 is used, and how its own records are made and read."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from kvescrow.checks.targets.protocols import ManagerPool
from kvescrow.checks.targets.released import Release, SilentLogger
from kvescrow.spec.vocabulary import PrefixScope

MANAGER_FILES = frozenset(
    {
        "vllm.utils.hashing",
        "vllm.utils.math_utils",
        "vllm.v1.core.block_pool",
        "vllm.v1.core.kv_cache_coordinator",
        "vllm.v1.core.kv_cache_manager",
        "vllm.v1.core.kv_cache_metrics",
        "vllm.v1.core.kv_cache_utils",
        "vllm.v1.core.single_type_kv_cache_manager",
        "vllm.v1.kv_cache_interface",
        "vllm.v1.kv_cache_spec_registry",
        "vllm.v1.request",
    }
)
STAND_INS: Mapping[str, Mapping[str, object]] = {
    "vllm.logger": {"init_logger": lambda name: SilentLogger()},
    "vllm.utils": {"length_from_prompt_token_ids_or_embeds": lambda tokens, embeds: len(tokens)},
    "vllm.v1.utils": {"ConstantList": lambda tokens: tokens},
    "vllm.v1.structured_output.request": {
        "StructuredOutputRequest": SimpleNamespace(from_sampling_params=lambda params: None)
    },
}
VLLM = Release("vllm", "0.33.0", MANAGER_FILES, STAND_INS, needs=("torch", "cbor2"))
LONGEST = 4096
"""Tokens of the longest sequence."""


def hasher(page_length: int) -> Any:
    """Return vLLM's own function from a request to the hashes of its blocks."""
    utils, sha256 = VLLM.module("vllm.v1.core.kv_cache_utils"), VLLM.module("vllm.utils.hashing").sha256
    utils.init_none_hash(sha256)
    return utils.get_request_block_hasher(page_length, sha256)


def cache_config(blocks: int, page_length: int) -> Any:
    """Return the configuration of one layer with full attention and `blocks` blocks, the null block included."""
    interface = VLLM.module("vllm.v1.kv_cache_interface")
    layer = interface.FullAttentionSpec(block_size=page_length, num_kv_heads=1, head_size=1, dtype=None)
    return interface.KVCacheConfig(blocks, [], [interface.KVCacheGroupSpec(["layer"], layer)])


def request_of(name: str, prompt: Sequence[int], scope: PrefixScope, hashes: Any, **more: Any) -> Any:
    """Return vLLM's record of a request: the scope's salt is its cache salt, the scope's adapter its LoRA."""
    lora = scope.adapter and SimpleNamespace(lora_name=scope.adapter, lora_path=scope.adapter)
    asked = SimpleNamespace(max_tokens=LONGEST, extra_args=None, skip_reading_prefix_cache=None)
    record = VLLM.module("vllm.v1.request").Request
    return record(
        name, list(prompt), asked, None, lora_request=lora, cache_salt=scope.salt or None, block_hasher=hashes, **more
    )


def pool_of(manager: Any) -> ManagerPool:
    """Return where every block is: a block in the free queue that has a hash can still be matched."""
    queue, blocks = manager.block_pool.free_block_queue.get_all_free_blocks(), manager.block_pool.blocks[1:]
    cached = frozenset(block.block_id for block in queue if block.block_hash is not None)
    holders = {block.block_id: block.ref_cnt for block in blocks if block.ref_cnt}
    return ManagerPool(len(blocks), frozenset(block.block_id for block in queue) - cached, cached, holders)
