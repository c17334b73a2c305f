"""Decisions of one worker: who joins the batch, what the next step does, what it is predicted to cost."""

from kvescrow.reference.scheduler.calibration import Checked, MeasuredStep, calibrated, checked
from kvescrow.reference.scheduler.chunk_rule import ChunkReply, ChunkRule, GapBudget, Moment
from kvescrow.reference.scheduler.cost import CostModel, StepCost, StepWork, WorkRange, of_chunk, of_decodes
from kvescrow.reference.scheduler.drift import DriftDetector
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
    "Checked",
    "Chunk",
    "ChunkReply",
    "ChunkRule",
    "CostModel",
    "DriftDetector",
    "GapBudget",
    "MeasuredStep",
    "Moment",
    "Schedulable",
    "StepChoice",
    "StepCost",
    "StepWork",
    "WorkRange",
    "calibrated",
    "checked",
    "next_step",
    "of_chunk",
    "of_decodes",
    "places",
]
