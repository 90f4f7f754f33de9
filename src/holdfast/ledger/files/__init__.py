"""Files of a data directory: entries, the table for readers, rebuilding, checking and copying them."""
