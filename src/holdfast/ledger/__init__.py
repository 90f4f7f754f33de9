"""Ledgers and cursors on a disk: the journal, what lies behind it, and what was acknowledged of it."""
