"""The contract that every room speaks: Domain, Batch, Stream, Output and Adapter."""

from driftlaw.contract.adapter import Adapter, make_adapter, registered_methods
from driftlaw.contract.execution import StepSettings
from driftlaw.contract.lanes import open_lanes, twin
from driftlaw.contract.nouns import Batch, Domain, Output, Stream
from driftlaw.contract.small_batches import RecentImages, SmallBatches

__all__ = [
    "Adapter",
    "Batch",
    "Domain",
    "Output",
    "RecentImages",
    "SmallBatches",
    "StepSettings",
    "Stream",
    "make_adapter",
    "open_lanes",
    "registered_methods",
    "twin",
]
