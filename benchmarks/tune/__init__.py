"""Tuning: search for settings on the four held-out corruptions."""
