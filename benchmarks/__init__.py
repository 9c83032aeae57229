"""Benchmarks of driftlaw and training of source models, not part of the wheel: ``python -m benchmarks`` in a clone."""
