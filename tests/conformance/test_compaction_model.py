"""Random work on a compacted topic, compared with a model: the list of its messages."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck

from tests.kit.broker.compaction_model import CompactionMachine
from tests.kit.examples import examples

MORE: dict[str, Any] = {"stateful_step_count": 25, "suppress_health_check": [*HealthCheck]}
TestCompaction = CompactionMachine.TestCase
TestCompaction.settings = examples(12, 800, **MORE)
