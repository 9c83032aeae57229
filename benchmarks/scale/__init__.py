"""Measurements of many streams and devices: ``python -m benchmarks scale …``, one file per command."""
