"""Files of a data directory: read, publish, rebuild, check and copy them."""
