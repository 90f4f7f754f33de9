"""Storms over a dispatcher (I50 to I58)."""

from __future__ import annotations

from tests.kit.broker.dispatch_storm import storm
from tests.kit.slices import seeds


def test_storms() -> None:
    """The mutants of the dispatcher need 58 storms (tests/mutants/test_dispatch.py)."""
    for seed in seeds("dispatch", test=64, nightly=6000):
        try:
            storm(seed)
        except BaseException as error:
            error.add_note(f"HOLDFAST_SEED={seed} repeats it")
            raise


def test_a_seed_repeats_its_run() -> None:
    assert storm(7) == storm(7)
    assert storm(7) != storm(8)
