"""Expensive commands run in slices, once, or not at all (I89)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.protocol import pulsar_pb2 as pb
from holdfast.protocol.sizes import COMMIT_BYTES_MAX, COMMIT_PARTS_MAX
from tests.kit.server import cost_commands_checks as checks
from tests.kit.server.wire_raw import Type, full


def test_many_ids_are_redelivered_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    checks.many_ids_are_redelivered_in_slices(monkeypatch)


def test_acknowledgements_are_taken_a_few_per_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    checks.acknowledgements_are_taken_a_few_per_turn(monkeypatch)


def test_many_entries_are_acknowledged_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    checks.many_entries_are_acknowledged_in_slices(monkeypatch)


def test_many_parts_are_acknowledged_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    checks.many_parts_are_acknowledged_in_slices(monkeypatch)


def test_what_a_sink_sends_is_judged_in_small_steps() -> None:
    checks.what_a_sink_sends_is_judged_in_small_steps()


def test_one_of_many_takes_a_step_in_a_turn() -> None:
    """Twenty pieces of work together hold the loop no longer than one."""
    checks.one_of_many_takes_a_step_in_a_turn()


def test_the_largest_commit_fits() -> None:
    """As many parts as are allowed, with the largest numbers."""
    most = (1 << 64) - 1
    fields = {each.name: most for each in pb.StagePart.DESCRIPTOR.fields if each.name != "stage"}
    command = pb.CommandSinkCommit(request_id=most, key="k" * 1000, batch=most)
    command.parts.extend([pb.StagePart(stage=bytes(16), **fields)] * 1000)
    size = command.ByteSize() / 1000 * COMMIT_PARTS_MAX
    assert size < COMMIT_BYTES_MAX


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Type.LOOKUP, {"topic": "x" * (129 << 10)}),
        (Type.GET_TOPICS_OF_NAMESPACE, {"namespace": "x" * (129 << 10)}),
        (Type.PROGRESS, {"topic": full("t"), "subscription": "x" * (129 << 10)}),
        (Type.SINK_COMMIT, {"key": "x" * (COMMIT_BYTES_MAX + 1), "batch": 1}),
        (
            Type.PRODUCER,
            {"topic": full("t"), "producer_id": 1, "metadata": [{"key": "", "value": ""}] * 1001},
        ),
    ],
)
def test_a_command_that_is_too_large_costs_its_connection(kind: int, fields: dict[str, Any]) -> None:
    checks.a_command_that_is_too_large_costs_its_connection(kind, fields)


def test_who_is_asked_for_a_sign_of_life_is_asked_once() -> None:
    checks.who_is_asked_for_a_sign_of_life_is_asked_once()


def test_the_last_message_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checks.the_last_message_is_read_once(monkeypatch)


def test_less_is_read_of_a_client_whose_commands_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    checks.less_is_read_of_a_client_whose_commands_take_long(monkeypatch)
