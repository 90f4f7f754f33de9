"""Telemetry of a broker: stats, metrics and traffic."""
