"""Measurements of reliability: ``python -m benchmarks reliability …``, one file per command."""
