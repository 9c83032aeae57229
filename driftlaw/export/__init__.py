"""The adapted network as a file for a device that only infers: statistics fixed, BatchNorm folded, answers compared."""

from driftlaw.export.adapter import Exported, export_adapter, export_network
from driftlaw.export.formats import FORMATS, find_format
from driftlaw.export.inference_module import answering_network
from driftlaw.export.state import read_state, restore_adapter

__all__ = [
    "FORMATS",
    "Exported",
    "answering_network",
    "export_adapter",
    "export_network",
    "find_format",
    "read_state",
    "restore_adapter",
]
