"""Where batches come from: schedules, orderings, images corrupted on the fly or read from official archives."""

from driftlaw.streams.archives import make_archive
from driftlaw.streams.corrupted import CorruptedStream, StreamSettings, make_stream
from driftlaw.streams.sources import DatasetImages

__all__ = ["CorruptedStream", "DatasetImages", "StreamSettings", "make_archive", "make_stream"]
