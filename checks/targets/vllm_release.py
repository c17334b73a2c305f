"""What of vLLM 0.33 is used, and how its own records are made and read."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from kvescrow.checks.targets.protocols import ManagerPool, SchedulerSetup
from kvescrow.checks.targets.released import Release, SilentLogger
from kvescrow.spec.vocabulary import PrefixScope

FILES = frozenset(
    {
        "vllm.utils.hashing",
        "vllm.utils.math_utils",
        "vllm.v1.core.block_pool",
        "vllm.v1.core.kv_cache_coordinator",
        "vllm.v1.core.kv_cache_manager",
        "vllm.v1.core.kv_cache_metrics",
        "vllm.v1.core.kv_cache_utils",
        "vllm.v1.core.sched.interface",
        "vllm.v1.core.sched.output",
        "vllm.v1.core.sched.request_queue",
        "vllm.v1.core.sched.scheduler",
        "vllm.v1.core.sched.utils",
        "vllm.v1.core.single_type_kv_cache_manager",
        "vllm.v1.kv_cache_interface",
        "vllm.v1.kv_cache_spec_registry",
        "vllm.v1.outputs",
        "vllm.v1.request",
    }
)


class NoEncoder:
    """Stands for the cache of encoder outputs, which text does not have."""

    @classmethod
    def create_manager(cls, **_: object) -> "NoEncoder":
        """Return one."""
        return cls()

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: []


STAND_INS: Mapping[str, Mapping[str, object]] = {
    "vllm.logger": {"init_logger": lambda name: SilentLogger()},
    "vllm.utils": {"length_from_prompt_token_ids_or_embeds": lambda tokens, embeds: len(tokens)},
    "vllm.v1.utils": {
        "ConstantList": lambda tokens: tokens,
        "record_function_or_nullcontext": lambda name: nullcontext(),
    },
    "vllm.v1.metrics.stats": {"KV_FETCH_STAGES": (), "PrefillStats": SilentLogger},
    "vllm.v1.core.encoder_cache_manager": dict.fromkeys(
        ("EncoderCacheManager", "EncoderDecoderCacheManager"), NoEncoder
    ),
    "vllm.distributed.kv_events": {"EventPublisherFactory": SimpleNamespace(create=lambda *_: SilentLogger())},
    "vllm.v1.structured_output.request": {
        "StructuredOutputRequest": SimpleNamespace(from_sampling_params=lambda params: None)
    },
}
VLLM = Release("vllm", "0.33.0", FILES, STAND_INS, needs=("torch", "cbor2"))
_PLAIN = dict.fromkeys(
    (
        "eos_token_id",
        "extra_args",
        "logprobs",
        "num_logprobs",
        "repetition_detection",
        "skip_reading_prefix_cache",
        "stop_token_ids",
    )
) | {"min_tokens": 0}
"""Sampling parameters of a request that asks for nothing special."""
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


class Off:
    """A configuration in which everything that is not named is off."""

    def __init__(self, **named: object) -> None:
        self.__dict__.update(named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return False


def scheduler_config(setup: SchedulerSetup) -> Off:
    """Return the configuration of a scheduler without a device, a connector or a draft model."""
    return Off(
        scheduler_config=Off(
            max_num_seqs=16,
            max_num_active_seqs=None,
            max_num_scheduled_tokens=None,
            max_num_batched_tokens=setup.step_tokens,
            policy="priority" if setup.priority else "fcfs",
            long_prefill_token_threshold=setup.long_prefill,
            enable_chunked_prefill=True,
            prefill_schedule_interval=1,
            scheduler_reserve_full_isl=True,
        ),
        cache_config=Off(num_gpu_blocks=setup.pages + 1, enable_prefix_caching=True),
        model_config=Off(max_model_len=LONGEST),
        parallel_config=Off(
            decode_context_parallel_size=1, prefill_context_parallel_size=1, data_parallel_size=1, data_parallel_index=0
        ),
        observability_config=Off(per_request_spec_decode_metrics=None),
        ec_manager_config=Off(get_encoder_cache_manager_obj=lambda: None),
        aux_output_config=Off(),
        max_in_flight_tokens=LONGEST,
        max_concurrent_batches=1,
        **dict.fromkeys(
            ("lora_config", "kv_events_config", "kv_transfer_config", "ec_transfer_config", "speculative_config")
        ),
    )


def request_of(name: str, prompt: Sequence[int], scope: PrefixScope, hashes: Any, **more: Any) -> Any:
    """Return vLLM's record of a request: the scope's salt is its cache salt, the scope's adapter its LoRA."""
    lora = scope.adapter and SimpleNamespace(lora_name=scope.adapter, lora_path=scope.adapter)
    asked = SimpleNamespace(max_tokens=LONGEST, **_PLAIN)
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
