"""Entries as Arrow columns: read from a broker's files or over Arrow Flight.

Promises upward (the Flight process, Spark): rows exactly as they are stored. Needs from below: the tables and
ledgers of a data directory, and the core's decoder.
"""
