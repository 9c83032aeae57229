"""Generates RESULTS.md and its figures from the records in results/. Run ``python -m tools.results``."""
