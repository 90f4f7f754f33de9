"""The journal: its files, their scan, and the change to the next file."""
