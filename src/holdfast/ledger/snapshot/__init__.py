"""Snapshots: their format, and taking one of a running store."""
