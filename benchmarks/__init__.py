"""Benchmarks of driftlaw. They are not part of the wheel: run ``python -m benchmarks`` in a clone."""
