"""Compaction: of each key of a topic keep the newest message, in a view that readers can choose."""
