"""Benchmarks of holdfast beside the usual alternatives and the machine itself.

`holdfast bench queue` runs `queue.main`; `channel`, `service`, `broker`, `server` and `pipeline` likewise.
The parts of the queue's benchmark, in reading order:

- `links` has the interface of a transport, `peers` and `ours` have the transports.
- `worker` has the two measured processes, `rounds` the order of measurements.
- `recovery` and `attached` measure what only holdfast has.
- `queue_figures` has tables and goals.

`docs/reference/benchmarks.md` has the method and the figures.
"""
