"""The demo of a cluster: one broker is killed, another one is cut off."""
