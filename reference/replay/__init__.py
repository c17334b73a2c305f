"""A recorded workload run through admission, page pool and scheduler on virtual time."""

from kvescrow.reference.replay.config import (
    CancellationConfig,
    CostConfig,
    PoolConfig,
    ReplayConfig,
    SchedulerConfig,
    TimesConfig,
    read_config,
)
from kvescrow.reference.replay.fault import ReplayFault
from kvescrow.reference.replay.loop import replay
from kvescrow.reference.replay.measures import Quantiles
from kvescrow.reference.replay.result import Cancellations, ReplayResult
from kvescrow.reference.replay.shape import Capacity, capacity_of

__all__ = [
    "CancellationConfig",
    "Cancellations",
    "Capacity",
    "CostConfig",
    "PoolConfig",
    "Quantiles",
    "ReplayConfig",
    "ReplayFault",
    "ReplayResult",
    "SchedulerConfig",
    "TimesConfig",
    "capacity_of",
    "read_config",
    "replay",
]
