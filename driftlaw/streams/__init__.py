"""Test streams: schedules of domains, image orders, and images corrupted on the fly or read from archives."""

from driftlaw._deprecated import add_old_names
from driftlaw.datasets.torch_dataset import TorchDatasetImages
from driftlaw.streams.corrupted import CorruptedStream, make_stream
from driftlaw.streams.settings import StreamSettings

__all__ = ["CorruptedStream", "StreamSettings", "TorchDatasetImages", "make_stream"]

add_old_names(__name__)
