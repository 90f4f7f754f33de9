"""The sink: `format("holdfast")` as Spark writes it, each row once."""
