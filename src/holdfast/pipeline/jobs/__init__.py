"""Parts of the jobs: archive, compact, audit, replay, measure."""
