"""Consumers of Key_Shared come, go and die; each key keeps its order (I260, I261)."""

from __future__ import annotations

from tests.kit.broker import key_churn
from tests.kit.slices import pick, seeds

COUNT = pick(test=600, nightly=5000)


def test_on_one_broker() -> None:
    for seed in seeds("key churn", test=3, nightly=60):
        assert key_churn.alone(seed, COUNT) >= COUNT


def test_on_three_members() -> None:
    """A member dies with its consumers."""
    for seed in seeds("key churn of three", test=2, nightly=30):
        assert key_churn.together(seed, COUNT) >= COUNT
