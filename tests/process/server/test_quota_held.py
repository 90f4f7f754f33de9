"""The count of durable state keeps no object alive. Searching all objects takes long."""

from __future__ import annotations

from tests.kit.server import quota_checks as checks


def test_what_is_deleted_is_not_held() -> None:
    checks.what_is_deleted_is_not_held()
