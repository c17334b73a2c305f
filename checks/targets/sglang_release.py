"""What of SGLang 0.5.23 is used, and what stands in for the rest.

The scheduler itself is not a target. Its constructor opens a process group, sockets to other processes, a tokenizer
and a model worker, and its methods read about a hundred modules of the engine. What could run without them would be
stand-ins more than released code, and a finding there would say nothing about the release.
"""

from array import array
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from kvescrow.checks.targets.released import Release, SilentLogger
from kvescrow.spec.vocabulary import PrefixScope

FILES = frozenset(
    {
        "sglang.srt.managers.schedule_batch",
        "sglang.srt.mem_cache.allocator.base",
        "sglang.srt.mem_cache.allocator.paged",
        "sglang.srt.mem_cache.base_prefix_cache",
        "sglang.srt.mem_cache.cache_init_params",
        "sglang.srt.mem_cache.events",
        "sglang.srt.mem_cache.evict_policy",
        "sglang.srt.mem_cache.radix_cache",
        "sglang.srt.mem_cache.unified_cache.component_type",
        "sglang.srt.mem_cache.utils",
    }
)
_UTILS = {
    "ceil_align": lambda count, unit: -(-count // unit) * unit,
    "get_bool_env_var": lambda name: False,
    "is_cuda": lambda: False,
    "is_hip": lambda: False,
}
_NO_DIFFUSION = type("ReqDllmMixin", (), {"init_diffusion_llm": lambda self, config: None})
_NO_TRITON = SimpleNamespace(capabilities=SimpleNamespace(supports_triton=False))
STAND_INS: Mapping[str, Mapping[str, Any]] = {
    "sglang.srt.utils": _UTILS,
    "sglang.srt.utils.common": _UTILS,
    "sglang.srt.dllm.mixin.req": {"ReqDllmMixin": _NO_DIFFUSION},
    "sglang.srt.platforms": {"current_platform": _NO_TRITON},
    "sglang.srt.observability.req_time_stats": {"SchedulerReqTimeStats": lambda disagg_mode: SilentLogger()},
}
SGLANG = Release("sglang", "0.5.23", FILES, STAND_INS, needs=("torch", "msgspec"))


def request_of(name: str, prompt: Sequence[int], scope: PrefixScope) -> Any:
    """Return SGLang's record of a request; how the fields of its scope become a key is SGLang's own code."""
    record = SGLANG.module("sglang.srt.managers.schedule_batch").Req
    asked = record(
        name, "", array("q", prompt), None, extra_key=scope.tenant, lora_id=scope.adapter, cache_salt=scope.salt
    )
    asked.refresh_fill_ids()
    return asked
