"""The contract that every room speaks: Domain, Batch, Stream, StepOutput and Adapter."""

from driftlaw.base.adapter import Adapter, make_adapter, registered_methods
from driftlaw.base.small_batches import BatchStatsSettings, ImageWindow
from driftlaw.base.types import Batch, Domain, Plan, StepOutput, Stream
from driftlaw.execution.graphs import ExecutionSettings
from driftlaw.execution.threads import open_lanes, twin

__all__ = [
    "Adapter",
    "Batch",
    "BatchStatsSettings",
    "Domain",
    "ExecutionSettings",
    "ImageWindow",
    "Plan",
    "StepOutput",
    "Stream",
    "make_adapter",
    "open_lanes",
    "registered_methods",
    "twin",
]
