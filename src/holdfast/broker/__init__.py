"""The broker: an ordered event machine with topics, subscriptions and dispatchers, embeddable."""
