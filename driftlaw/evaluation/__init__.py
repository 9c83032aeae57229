"""Runs an adapter over a stream and writes a record."""
