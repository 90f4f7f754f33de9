"""Durable state that clients create is limited, over every protocol (I90)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.server import quota_checks as checks
from tests.kit.server.quota_checks import COUNTS, Clients


@pytest.mark.parametrize(("setting", "make", "there"), COUNTS)
def test_so_many_and_no_more(setting: str, make: Callable[[Clients, int], str], there: int) -> None:
    checks.so_many_and_no_more(setting, make, there)


def test_what_is_deleted_makes_room() -> None:
    checks.what_is_deleted_makes_room()


def test_what_is_deleted_makes_room_on_a_busy_server() -> None:
    checks.what_is_deleted_makes_room_on_a_busy_server()


def test_many_at_once_are_counted_exactly() -> None:
    checks.many_at_once_are_counted_exactly()


@pytest.mark.parametrize("setting", ["subscriptions_per_topic", "schemas_per_topic"])
def test_many_at_once_are_counted_for_their_topic(setting: str) -> None:
    checks.many_at_once_are_counted_for_their_topic(setting)


def test_properties_and_schemas_have_a_size() -> None:
    checks.properties_and_schemas_have_a_size()


def test_names_properties_and_schemas_have_a_limit_in_all() -> None:
    checks.names_properties_and_schemas_have_a_limit_in_all()


def test_properties_at_once_are_counted_together() -> None:
    checks.properties_at_once_are_counted_together()


def test_what_is_removed_needs_no_room() -> None:
    checks.what_is_removed_needs_no_room()


def test_a_restart_counts_what_is_there() -> None:
    checks.a_restart_counts_what_is_there()


@pytest.mark.parametrize("size", [1, 100])
def test_a_false_mask_is_not_kept(size: int) -> None:
    checks.a_false_mask_is_not_kept(size)


def test_a_true_mask_of_a_large_batch_is_kept() -> None:
    checks.a_true_mask_of_a_large_batch_is_kept()


def test_every_mask_of_a_confirmed_request_counts() -> None:
    checks.every_mask_of_a_confirmed_request_counts()


def test_a_seek_with_a_false_mask_keeps_nothing() -> None:
    checks.a_seek_with_a_false_mask_keeps_nothing()


def test_so_many_batches_are_acknowledged_in_part() -> None:
    checks.so_many_batches_are_acknowledged_in_part()


def test_every_limit_of_the_settings_is_tried() -> None:
    checks.every_limit_of_the_settings_is_tried()
