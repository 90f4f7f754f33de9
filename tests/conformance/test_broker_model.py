"""Random work on a broker, compared with a model, on real and simulated files."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase

from tests.kit.broker.life_machine import LifeMachine
from tests.kit.broker.machine import RealMachine, SimMachine
from tests.kit.broker.policy_machine import PolicyMachine
from tests.kit.examples import examples

pytestmark = pytest.mark.timeout(900)  # a failure is shortened before it is reported


MORE: dict[str, Any] = {
    "stateful_step_count": 50,
    "phases": [Phase.reuse, Phase.generate, Phase.shrink],
    "suppress_health_check": [*HealthCheck],
}
TestRealBroker = RealMachine.TestCase
TestRealBroker.settings = examples(10, 800, **MORE)
TestSimBroker = SimMachine.TestCase
TestSimBroker.settings = examples(16, 1200, **MORE)
TestPolicies = PolicyMachine.TestCase
TestPolicies.settings = examples(12, 1200, **MORE)
TestLives = LifeMachine.TestCase
TestLives.settings = examples(10, 800, **MORE)
