"""The options of commands for the life of subscriptions and topics."""

from __future__ import annotations

import argparse
from typing import Any

from holdfast.cli.positions import span

MODES = {
    "no-subscriptions": "delete_when_no_subscriptions",
    "caught-up": "delete_when_subscriptions_caught_up",
}
TYPES = ("exclusive", "failover", "shared", "key_shared")


def mode(text: str) -> str:
    """Read no-subscriptions or caught-up."""
    if text not in MODES:
        raise argparse.ArgumentTypeError(f"{text!r} is not possible; use {' or '.join(MODES)}")
    return MODES[text]


def types(text: str) -> tuple[str, ...]:
    """Read types of subscriptions, with commas between them."""
    given = [each.strip().lower() for each in text.split(",")]
    for each in given:
        if each not in TYPES:
            raise argparse.ArgumentTypeError(f"{each!r} is not a type; use some of {','.join(TYPES)}")
    return tuple(each for each in TYPES if each in given)


OPTIONS: dict[str, tuple[str, Any, str, str]] = {
    "subscription_expiry_s": (
        "--subscription-expiry",
        span,
        "SPAN",
        "delete subscriptions without a consumer for this time; 0: never",
    ),
    "inactive_s": ("--inactive-after", span, "SPAN", "time after which an unused topic is deleted"),
    "inactive_mode": (
        "--inactive-mode",
        mode,
        "MODE",
        "no-subscriptions, or caught-up: also with subscriptions without backlog",
    ),
    "subscription_types": (
        "--subscription-types",
        types,
        "LIST",
        "types that consumers may use, such as shared,failover",
    ),
}
"""The policy, and the option for it."""
SWITCHES = {
    "inactive_delete": "delete the topic when it is unused (--inactive-after)",
    "auto_subscribe": "consumers create missing subscriptions",
}
