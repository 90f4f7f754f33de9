"""The faces of a broker: producers, consumers, stages and administration, with and without asyncio."""
