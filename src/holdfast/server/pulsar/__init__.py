"""Pulsar's binary protocol: connections, and a module for each kind of request."""
