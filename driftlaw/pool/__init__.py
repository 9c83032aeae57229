"""Many streams in one process: one adapter, and the states of all streams that share it."""

from driftlaw.pool.adapter_pool import AdapterPool

__all__ = ["AdapterPool"]
