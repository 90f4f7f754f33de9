"""Administer compaction: start it, see its state, remove a view; the threshold as a policy."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec

from holdfast.broker import CompactionStats
from holdfast.names import partition_name
from holdfast.server.http.limit_answers import Most
from holdfast.server.http.partition_routes import AT_ONCE
from holdfast.server.http.policies import APPLIED, policies_of_call
from holdfast.server.http.routing import Call, Routes
from holdfast.server.http.topics import NAMESPACE

of_namespace = Routes("compaction", "/admin/v2/namespaces/{tenant}/{namespace}", "namespace")
of_topic = Routes("compaction", NAMESPACE + "/{topic}", "topic", partitioned="each")

Status = Literal["NOT_RUN", "RUNNING", "SUCCESS", "ERROR"]
_STATUSES: dict[str, Status] = {
    "running": "RUNNING",
    "failed": "ERROR",
    "never": "NOT_RUN",
    "done": "SUCCESS",
}
"""Pulsar's names. Of several partitions the first status in this order counts."""


class CompactionAnswer(msgspec.Struct, kw_only=True, rename="camel"):
    """The state of a topic's compaction. All but the first two fields are ours.

    Times are in milliseconds since 1970; 0: never.
    """

    status: Status = "NOT_RUN"
    last_error: str = ""
    """Why the last compaction failed; empty: it did not."""
    error_timestamp: int = 0
    requested_timestamp: int = 0
    """When the compaction under way was requested; 0: none is under way."""
    view: int = 0
    """Number of the compacted view; 0: the topic has no view."""
    view_timestamp: int = 0
    view_ledger: int = 0
    entries: int = 0
    """Entries of the view."""
    size: int = 0
    messages_read: int = 0
    """Messages that were read to make the view."""
    messages_kept: int = 0
    """Messages in it."""
    duration_in_millis: int = 0
    horizon: str = ""
    """Id of the first message behind the view; empty for a partitioned topic."""
    size_behind: int = 0
    """Bytes of the topic that are not in the view."""
    threshold: int = 0
    """Bytes behind the view at which the topic is compacted; 0: only on request."""
    succeeded: int = 0
    """Compactions of the member that answers, since its start."""
    failed: int = 0
    removed: int = 0
    """Messages that these left out."""


def answer_of(found: CompactionStats) -> CompactionAnswer:
    """Convert to Pulsar's names and units."""
    return CompactionAnswer(
        status=_STATUSES[found.state],
        last_error=found.error,
        error_timestamp=found.error_time // 1_000_000,
        requested_timestamp=found.requested // 1_000_000,
        view=found.view,
        view_timestamp=found.time // 1_000_000,
        view_ledger=found.ledger,
        entries=found.entries,
        size=found.size,
        messages_read=found.read,
        messages_kept=found.kept,
        duration_in_millis=found.duration_ms,
        horizon=found.horizon,
        size_behind=found.size_behind,
        threshold=found.threshold,
        succeeded=found.succeeded,
        failed=found.failed,
        removed=found.removed,
    )


_LARGEST = ("error_timestamp", "requested_timestamp", "view", "view_timestamp", "duration_in_millis")
_SUMMED = (
    *("entries", "size", "messages_read", "messages_kept", "size_behind"),
    *("succeeded", "failed", "removed"),
)


def whole_of(partitions: dict[str, CompactionAnswer]) -> CompactionAnswer:
    """Return the state of a partitioned topic: SUCCESS only if all partitions succeeded."""
    found = list(partitions.values())
    statuses = {each.status for each in found}
    return CompactionAnswer(
        status=next(each for each in _STATUSES.values() if each in statuses),
        last_error=next(
            (f"{name}: {each.last_error}" for name, each in partitions.items() if each.last_error), ""
        ),
        threshold=found[0].threshold,
        **{name: max(getattr(each, name) for each in found) for name in _LARGEST},
        **{name: sum(getattr(each, name) for each in found) for name in _SUMMED},
    )


@of_topic("PUT", "/compaction", refusals=(404, 409))
async def compact(call: Call) -> None:
    """Compact a topic: answers when the request is durable. 409: it is being compacted."""
    await call.broker.admin.compact(call.topic_name)


@of_topic("GET", "/compaction", answer=CompactionAnswer, refusals=(404,), partitioned="whole")
async def compaction(call: Call) -> CompactionAnswer:
    """Return the state of the last compaction of a topic, and of its view."""
    admin, full = call.broker.admin, call.topic_name
    if not (count := call.broker.partitioned.count(full)):
        return answer_of(admin.compaction(full))
    found = dict[str, CompactionAnswer]()
    for index in range(count):
        if index % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)  # others have a turn
        name = partition_name(full, index)
        found[name] = answer_of(admin.compaction(name))
    return whole_of(found)


@of_topic("DELETE", "/compaction", refusals=(404,))
async def forget(call: Call) -> None:
    """Remove the compacted view of a topic, and end its compaction. (Ours.)

    Messages that only the view had are gone."""
    await call.broker.admin.forget_compaction(call.topic_name)


# -- the threshold -------------------------------------------------------------------------------------


async def _change_namespace(call: Call, threshold: int | None) -> None:
    await call.broker.admin.set_namespace_policies(call.namespace, compaction_threshold=threshold)


async def _change_topic(call: Call, threshold: int | None) -> None:
    await call.broker.admin.set_policies(call.topic_name, compaction_threshold=threshold)


@of_namespace("GET", "/compactionThreshold", answer=int | None, refusals=(404,))
async def namespace_threshold(call: Call) -> Any:
    """Return the threshold of compaction in bytes; 0: only on request, null: not set."""
    return call.broker.admin.namespace_policies(call.namespace).compaction_threshold


@of_namespace("PUT", "/compactionThreshold", body=Most, refusals=(404,))
async def set_namespace_threshold(call: Call) -> None:
    """Set the threshold of compaction, for topics without their own; 0: only on request."""
    await _change_namespace(call, call.body)


@of_namespace("DELETE", "/compactionThreshold", refusals=(404,))
async def drop_namespace_threshold(call: Call) -> None:
    """Remove the threshold of a namespace: the broker's option applies."""
    await _change_namespace(call, None)


@of_topic("GET", "/compactionThreshold", query=APPLIED, answer=int | None, refusals=(404,))
async def topic_threshold(call: Call) -> Any:
    """Return the bytes behind the view at which the topic is compacted; null: not set."""
    return policies_of_call(call).compaction_threshold


@of_topic("POST", "/compactionThreshold", body=Most, refusals=(404,))
async def set_topic_threshold(call: Call) -> None:
    """Set the threshold of a topic; 0: only on request."""
    await _change_topic(call, call.body)


@of_topic("DELETE", "/compactionThreshold", refusals=(404,))
async def drop_topic_threshold(call: Call) -> None:
    """Remove the threshold of a topic: that of its namespace applies."""
    await _change_topic(call, None)
