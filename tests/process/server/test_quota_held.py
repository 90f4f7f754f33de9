"""The count of durable state holds nothing itself. Looks at every object of the process, which takes long."""

from __future__ import annotations

from tests.kit.server import quota_checks as checks


def test_what_is_deleted_is_not_held() -> None:
    checks.what_is_deleted_is_not_held()
