"""Benchmarks: what a user of holdfast gets, beside what the usual alternatives and the machine itself give.

`holdfast bench queue` is the entry (`queue.main`). The parts, in reading order: `links` (what every
transport must offer), `peers` and `ours` (the transports), `worker` (the two measured processes), `rounds`
(who is measured when), `recovery` and `attached` (two questions only holdfast has to answer), `report`
(table, JSON, goals). How the figures are made, and figures: `docs/reference/benchmarks.md`.
"""
