"""Compaction: a view of a topic with the newest message of each key."""
