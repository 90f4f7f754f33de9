"""Random work on partitioned topics, compared with a model: two dictionaries."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck

from tests.kit.broker.partition_model import PartitionMachine
from tests.kit.examples import examples

MORE: dict[str, Any] = {"stateful_step_count": 40, "suppress_health_check": [*HealthCheck]}
TestPartitions = PartitionMachine.TestCase
TestPartitions.settings = examples(20, 1500, **MORE)
