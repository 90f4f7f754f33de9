"""Check that messages of attached clients need no schema: counted calls of the registry."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from holdfast.broker import Topic
from holdfast.server.registry import compatibility, definition, native, versions
from tests.kit.server.cost_world import CostWorld
from tests.kit.server.schema_checks import ONE
from tests.kit.server.wire_raw import Raw, Type

MESSAGES = 200
REGISTRY = {module.__name__ for module in (compatibility, definition, native, versions)}


def watched(patch: pytest.MonkeyPatch) -> list[str]:
    """Return a list in which each use of schemas is noted from now on.

    These are the functions of the registry, under every name by which a module knows them, its kept parsers,
    and the schemas of a topic.
    """
    uses: list[str] = []

    def noting(name: str, before: Callable[..., Any]) -> Callable[..., Any]:
        def note(*given: Any, **named: Any) -> Any:
            uses.append(name)
            return before(*given, **named)

        return note

    for module in [each for name, each in sys.modules.items() if name.startswith("holdfast.")]:
        for name, value in list(vars(module).items()):
            parser = hasattr(value, "cache_info")
            if (isinstance(value, FunctionType) or parser) and value.__module__ in REGISTRY:
                patch.setattr(module, name, noting(f"{value.__module__}.{name}", value))
    for name in ("schemas", "schemas_applying"):
        patch.setattr(Topic, name, property(noting(f"Topic.{name}", getattr(Topic, name).__get__)))
    return uses


def exchange(raw: Raw, first: int) -> int:
    """Send messages, receive and acknowledge them; return how many came."""
    receipts, came = 0, list[Any]()
    for number in range(first, first + MESSAGES):
        raw.send(number, b"%d" % number)
    while receipts < MESSAGES or len(came) < MESSAGES:
        kind, message = raw.hear()
        assert kind in (Type.SEND_RECEIPT, Type.MESSAGE, Type.PING), (kind, message)
        receipts += kind == Type.SEND_RECEIPT
        came += [message.message_id] if kind == Type.MESSAGE else []
    raw.ack(*came)
    return len(came)


def messages_look_at_no_schema(patch: pytest.MonkeyPatch) -> None:
    """Of an attached producer and consumer, whose schemas were checked when they came."""
    with CostWorld() as world:
        raw = world.raw()
        raw.produce("orders", schema=ONE)
        raw.subscribe("orders", sub_type=1, schema=ONE)
        raw.flow(4 * MESSAGES)
        assert exchange(raw, 0) == MESSAGES
        uses = watched(patch)
        assert exchange(raw, MESSAGES) == MESSAGES
        assert uses == [], f"messages look at schemas: {uses[:5]}"
        raw.produce("orders", 2, schema=ONE)
        assert "holdfast.server.registry.versions.admit_producer" in uses, "uses are noted"
