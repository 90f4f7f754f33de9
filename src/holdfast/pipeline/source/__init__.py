"""The source: `format("holdfast")` as Spark reads it, in batches and as a stream."""
