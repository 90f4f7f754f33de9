"""JSON of limits, with the names and units of Pulsar's tools; −1: unlimited."""

from __future__ import annotations

import math
from typing import Annotated, Any

import msgspec

from holdfast.broker import Policies, QuotaAction
from holdfast.errors import Misuse
from holdfast.server.http.answers import PolicyBody

MOST = (1 << 62) - 1
Most = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
"""A largest number; 0: no limit."""
_Rate = Annotated[int, msgspec.Meta(ge=-1, le=MOST)]
_Period = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]

SIZE, AGE = "destination_storage", "message_age"
"""Pulsar's names of the quotas by size and by age."""
QUOTAS = {"size": SIZE, "age": AGE}
"""The same, by ours."""


class PublishRate(PolicyBody, kw_only=True):
    """Messages and bytes per second; −1: no limit."""

    publish_throttling_rate_in_msg: _Rate = -1
    publish_throttling_rate_in_byte: _Rate = -1


class DispatchRate(PolicyBody, kw_only=True):
    """Messages and bytes in a period; −1: no limit."""

    dispatch_throttling_rate_in_msg: _Rate = -1
    dispatch_throttling_rate_in_byte: _Rate = -1
    relative_to_publish_rate: bool = False
    """Not supported."""
    rate_period_in_second: _Period = 1


class SubscribeRate(PolicyBody, kw_only=True):
    """How often one consumer may subscribe in a period; −1: no limit."""

    subscribe_throttling_rate_per_consumer: _Rate = -1
    rate_period_in_second: _Period = 30


class BacklogQuota(PolicyBody, kw_only=True):
    """A quota of a backlog; −1: none."""

    limit: _Rate | None = None
    """An older name of limitSize."""
    limit_size: _Rate | None = None
    """Bytes, of the quota destination_storage, which needs it."""
    limit_time: _Rate | None = None
    """Seconds, of the quota message_age, which needs it."""
    policy: QuotaAction = "producer_request_hold"


def publish_rate(policies: Policies) -> PublishRate | None:
    """Convert to Pulsar's form; None: not set."""
    messages, size = policies.publish_rate_messages, policies.publish_rate_bytes
    if messages is size is None:
        return None
    return PublishRate(
        publish_throttling_rate_in_msg=messages or -1, publish_throttling_rate_in_byte=size or -1
    )


def publish_policies(rate: PublishRate | None) -> dict[str, Any]:
    """Convert from Pulsar's form."""
    if rate is None:
        return {"publish_rate_messages": None, "publish_rate_bytes": None}
    return {
        "publish_rate_messages": max(0, rate.publish_throttling_rate_in_msg),
        "publish_rate_bytes": max(0, rate.publish_throttling_rate_in_byte),
    }


def _in_whole_seconds(rate: int | None, period_s: float) -> int:
    """Convert a rate to one of whole seconds, as Pulsar's are; −1: no limit.

    Example:
        >>> _in_whole_seconds(5, 0.5), _in_whole_seconds(5, 2.5), _in_whole_seconds(0, 2.5)
        (10, 6, -1)
    """
    if not rate:
        return -1
    whole_s = math.ceil(period_s)
    return rate if whole_s == period_s else max(1, int(min(MOST, rate * whole_s / period_s)))


def dispatch_rate(policies: Policies, of: str) -> DispatchRate | None:
    """Convert the rate of a topic (`dispatch`) or of its subscriptions; None: not set."""
    values = policies.fields()
    messages, size = values[f"{of}_rate_messages"], values[f"{of}_rate_bytes"]
    if messages is size is None:
        return None
    period_s = values[f"{of}_rate_period_s"] or 1
    return DispatchRate(
        dispatch_throttling_rate_in_msg=_in_whole_seconds(messages, period_s),
        dispatch_throttling_rate_in_byte=_in_whole_seconds(size, period_s),
        rate_period_in_second=math.ceil(period_s),
    )


def dispatch_policies(rate: DispatchRate | None, of: str) -> dict[str, Any]:
    """Convert from Pulsar's form.

    Raises:
        Misuse: the rate is relative.
    """
    names = [f"{of}_rate_{each}" for each in ("messages", "bytes", "period_s")]
    if rate is None:
        return dict.fromkeys(names)
    if rate.relative_to_publish_rate:
        raise Misuse("relativeToPublishRate is not supported; use a rate of its own")
    values = (rate.dispatch_throttling_rate_in_msg, rate.dispatch_throttling_rate_in_byte)
    found = [*(max(0, each) for each in values), float(rate.rate_period_in_second)]
    return dict(zip(names, found, strict=True))


def subscribe_rate(policies: Policies) -> SubscribeRate | None:
    """Convert to Pulsar's form; None: not set."""
    if policies.subscribe_rate is None:
        return None
    period_s = policies.subscribe_rate_period_s or 1
    return SubscribeRate(
        subscribe_throttling_rate_per_consumer=_in_whole_seconds(policies.subscribe_rate, period_s),
        rate_period_in_second=math.ceil(period_s),
    )


def subscribe_policies(rate: SubscribeRate | None) -> dict[str, Any]:
    """Convert from Pulsar's form."""
    if rate is None:
        return {"subscribe_rate": None, "subscribe_rate_period_s": None}
    return {
        "subscribe_rate": max(0, rate.subscribe_throttling_rate_per_consumer),
        "subscribe_rate_period_s": float(rate.rate_period_in_second),
    }


def quota_map(policies: Policies) -> dict[str, BacklogQuota]:
    """Convert to Pulsar's form: the quotas that are set, by their names there."""
    found: dict[str, BacklogQuota] = {}
    if policies.backlog_bytes is not None:
        size, action = policies.backlog_bytes or -1, policies.backlog_bytes_action
        action = action or "producer_request_hold"
        found[SIZE] = BacklogQuota(limit=size, limit_size=size, limit_time=-1, policy=action)
    if policies.backlog_age_s is not None:
        seconds, action = math.ceil(policies.backlog_age_s) or -1, policies.backlog_age_action
        action = action or "producer_request_hold"
        found[AGE] = BacklogQuota(limit_size=-1, limit_time=seconds, policy=action)
    return found


def quota_policies(quota: BacklogQuota | None, which: str) -> dict[str, Any]:
    """Convert from Pulsar's form; None: not set.

    Raises:
        Misuse: the limit of this quota is missing.
    """
    limit, action = ("backlog_bytes", "backlog_bytes_action") if which == SIZE else _BY_AGE
    if quota is None:
        return {limit: None, action: None}
    sizes = [each for each in (quota.limit_size, quota.limit) if each is not None]
    given = max(sizes, default=None), quota.limit_time
    wanted, other = given if which == SIZE else given[::-1]
    if wanted is None or (wanted < 0 and other is not None and other > 0):
        name, type_ = ("limitTime (seconds)", AGE) if which == AGE else ("limitSize (bytes)", SIZE)
        elsewhere = SIZE if which == AGE else AGE
        raise Misuse(
            f"the quota {type_} has no limit; give {name}, or -1 for none. "
            f"For the other limit add ?backlogQuotaType={elsewhere}"
        )
    return {limit: max(0, wanted) if which == SIZE else float(max(0, wanted)), action: quota.policy}


_BY_AGE = ("backlog_age_s", "backlog_age_action")
