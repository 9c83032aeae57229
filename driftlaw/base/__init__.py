"""Base classes: Adapter, its hooks and state, the registry of methods, and the types that packages exchange."""

from driftlaw.base.adapter import Adapter
from driftlaw.base.diagnostics import DIAGNOSTICS, Monitor
from driftlaw.base.find_method import find_method
from driftlaw.base.monitoring import Callback, Summary
from driftlaw.base.registry import make_adapter, preset_settings, registered_methods
from driftlaw.base.small_batches import AugmentationSettings, BatchStatsSettings, ImageWindow
from driftlaw.base.types import Batch, Domain, StepOutput, Stream
from driftlaw.execution import ExecutionSettings, Plan

__all__ = [
    "DIAGNOSTICS",
    "Adapter",
    "AugmentationSettings",
    "Batch",
    "BatchStatsSettings",
    "Callback",
    "Domain",
    "ExecutionSettings",
    "ImageWindow",
    "Monitor",
    "Plan",
    "StepOutput",
    "Stream",
    "Summary",
    "find_method",
    "make_adapter",
    "preset_settings",
    "registered_methods",
]
