"""What the jobs of the pipeline are made of: archive, compact, audit, replay, measure."""
