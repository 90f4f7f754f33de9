"""Producers, consumers, stages and administration of a broker, with and without asyncio."""
