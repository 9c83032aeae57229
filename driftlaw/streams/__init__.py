"""Test streams: loaders, datasets and folders, schedules of domains, and images corrupted on the fly."""

from driftlaw._deprecated import add_old_names
from driftlaw.datasets.torch_dataset import TorchDatasetImages
from driftlaw.streams.corrupted import CorruptedStream
from driftlaw.streams.loader import LoaderStream
from driftlaw.streams.make import make_stream
from driftlaw.streams.settings import StreamSettings

__all__ = ["CorruptedStream", "LoaderStream", "StreamSettings", "TorchDatasetImages", "make_stream"]

add_old_names(__name__)
