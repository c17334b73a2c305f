"""Decisions of one worker: who joins the batch, what the next step does, what it is predicted to cost."""

from kvescrow.reference.scheduler.cost import StepCost, StepWork, of_chunk, of_decodes
from kvescrow.reference.scheduler.first_come import (
    BatchLimits,
    Chunk,
    Schedulable,
    StepChoice,
    next_step,
    places,
)

__all__ = [
    "BatchLimits",
    "Chunk",
    "Schedulable",
    "StepChoice",
    "StepCost",
    "StepWork",
    "next_step",
    "of_chunk",
    "of_decodes",
    "places",
]
