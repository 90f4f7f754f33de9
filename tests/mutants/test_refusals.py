"""Servers that refuse in silence, or serve without a feature: the checks must notice each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from holdfast.server.logs import Refusals
from holdfast.server.pulsar import commands, fields
from tests.kit.server import refusal_checks as checks
from tests.kit.server.http_world import HttpWorld
from tests.kit.server.wire_raw import Raw


@pytest.fixture
def raw(monkeypatch: pytest.MonkeyPatch) -> Iterator[Raw]:
    with HttpWorld(wire=True) as world:
        assert world.wire is not None
        with closing(Raw(f"pulsar://127.0.0.1:{world.wire.port}")) as found:
            yield found


def no_line_for_messages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commands, "tell_refused", lambda *given, **more: None)


def no_line_for_requests(patch: pytest.MonkeyPatch) -> None:
    say = Refusals.say

    def silent(self: Refusals, text: str, why: object, **more: Any) -> bool:
        return text != "request refused" and say(self, text, why, **more)

    patch.setattr(Refusals, "say", silent)


def no_reason_for_clients(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commands.Refused, "__str__", lambda self: "refused")


def every_field_is_served(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fields, "_BY_KIND", {})


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[Raw], str]]] = [
    (no_line_for_messages, checks.a_wrong_checksum),
    (no_line_for_messages, checks.a_message_in_a_transaction),
    (no_line_for_messages, checks.an_acknowledgement_without_an_answer),
    (no_line_for_messages, checks.a_cumulative_acknowledgement_of_a_shared_subscription),
    (no_line_for_requests, checks.a_missing_namespace),
    (no_reason_for_clients, checks.an_unknown_consumer),
    (every_field_is_served, checks.replicated_subscriptions),
]


@pytest.mark.parametrize(("broken", "case"), MUTANTS, ids=lambda each: getattr(each, "__name__", ""))
def test_mistakes_are_noticed(
    raw: Raw,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    broken: Callable[[pytest.MonkeyPatch], None],
    case: Callable[[Raw], str],
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        checks.has_words_and_a_line(raw, caplog, case, patience_s=0.2)
