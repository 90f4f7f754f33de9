"""The journal: its files, reading them, and changing from one to the next."""
