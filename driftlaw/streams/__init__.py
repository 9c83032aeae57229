"""Where batches come from: schedules, orderings, images corrupted on the fly or read from official archives."""

from driftlaw.datasets.torch_dataset import TorchDatasetImages
from driftlaw.streams.archives import make_archive
from driftlaw.streams.corrupted import CorruptedStream, StreamSettings, make_stream

__all__ = ["CorruptedStream", "StreamSettings", "TorchDatasetImages", "make_archive", "make_stream"]
