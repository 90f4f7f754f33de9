"""Broken brokers, which the model test must notice: the proof that it can fail.

Each runs a fixed number of random histories in the simulated world, where waiting costs nothing.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast.errors import HoldfastError
from tests.kit.broker import harness as broker_harness
from tests.kit.broker.machine import SimMachine
from tests.kit.broker.model import Wrong
from tests.kit.broker.mutants import MUTANTS
from tests.kit.slices import pick

EXAMPLES = pick(test=100, nightly=150)


@seed(20)
class Fixed(SimMachine):
    """The same histories in every run."""


@seed(21)
class Others(SimMachine):
    """More of them, for a mutant that the first ones do not meet.

    Hypothesis draws constants of the package, too: a changed module means other histories.
    """


@seed(22)
class Third(SimMachine):
    """The same again."""


MACHINES = (Fixed, Others, Third)


def play() -> None:
    fixed = settings(
        max_examples=EXAMPLES,
        stateful_step_count=50,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=[*HealthCheck],
    )
    for machine in MACHINES:
        run_state_machine_as_test(machine, settings=fixed)


def test_without_a_mutant_nothing_is_noticed() -> None:
    """The histories that notice every mutant find no fault in the sound broker."""
    play()


@pytest.mark.parametrize("name", MUTANTS)
def test_the_model_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    monkeypatch.setattr(broker_harness, "PATIENCE", 0.2)
    # The model's error, or a consequence of the mutant; an error in the mutant itself is neither.
    with pytest.raises((Wrong, AssertionError, HoldfastError)):
        play()
