"""Broken brokers, which the model test must notice: the proof that it can fail.

Each runs a fixed number of random histories in the simulated world, where waiting costs nothing.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast.errors import HoldfastError
from tests.kit.broker import harness as broker_harness
from tests.kit.broker.life_machine import LifeMachine
from tests.kit.broker.life_mutants import LIFE_MUTANTS
from tests.kit.broker.machine import SimMachine
from tests.kit.broker.model import Wrong
from tests.kit.broker.mutants import MUTANTS
from tests.kit.broker.policy_machine import PolicyMachine, machine_of
from tests.kit.broker.policy_mutants import POLICY_MUTANTS
from tests.kit.slices import pick

EXAMPLES = pick(test=100, nightly=150)
POLICY_EXAMPLES = pick(test=20, nightly=100)
SOUND = pick(test=1, nightly=3)
"""Sets of histories that the sound broker plays; see also tests/conformance/test_broker_model.py."""
SOUND_EXAMPLES = pick(test=40, nightly=EXAMPLES)
"""Histories of such a set."""
MOST = 12
"""Sets of histories in which a mutant must be noticed. Nearly all are noticed in the first one."""


def play(sets: int, examples: int = EXAMPLES, of: type[SimMachine] = SimMachine) -> None:
    """Play so many sets of histories, the same in every run."""
    fixed = settings(
        max_examples=examples,
        stateful_step_count=50,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=[*HealthCheck],
    )
    for number in range(sets):
        machine = seed(20 + number)(type("Histories", (of,), {}))
        run_state_machine_as_test(machine, settings=fixed)


@pytest.mark.parametrize("machine", [SimMachine, PolicyMachine, LifeMachine])
def test_without_a_mutant_nothing_is_noticed(machine: type[SimMachine]) -> None:
    """The histories that notice every mutant find no fault in the sound broker."""
    play(SOUND, SOUND_EXAMPLES, machine)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_model_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    monkeypatch.setattr(broker_harness, "PATIENCE", 0.2)
    # The model's error, or a consequence of the mutant; an error in the mutant itself is neither.
    with pytest.raises((Wrong, AssertionError, HoldfastError)):
        play(MOST)


@pytest.mark.parametrize("name", POLICY_MUTANTS)
def test_the_model_with_policies_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, break_it = POLICY_MUTANTS[name]
    break_it(monkeypatch)
    monkeypatch.setattr(broker_harness, "PATIENCE", 0.2)
    with pytest.raises((Wrong, AssertionError, HoldfastError)):
        play(MOST, POLICY_EXAMPLES, machine_of(kind))


@pytest.mark.parametrize("name", LIFE_MUTANTS)
def test_the_model_with_lives_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    LIFE_MUTANTS[name](monkeypatch)
    monkeypatch.setattr(broker_harness, "PATIENCE", 0.2)
    with pytest.raises((Wrong, AssertionError, HoldfastError)):
        play(MOST, POLICY_EXAMPLES, LifeMachine)
