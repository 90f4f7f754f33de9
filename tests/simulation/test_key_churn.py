"""Consumers of Key_Shared come, go and die; each key keeps its order (I260, I261)."""

from __future__ import annotations

from tests.kit.broker import key_churn
from tests.kit.slices import pick, seeds

COUNT = pick(test=600, nightly=5000)


def test_on_one_broker() -> None:
    """Consumers end without a close; the broker loses its power and returns."""
    for seed in seeds("key churn", test=2, nightly=60):
        assert key_churn.alone(seed, COUNT).taken >= COUNT


def test_on_three_members() -> None:
    """A member dies with its consumers, and returns."""
    for seed in seeds("key churn of three", test=1, nightly=30):
        assert key_churn.together(seed, COUNT).taken >= COUNT
