"""Administer limits of namespaces and topics: with paths and JSON of Pulsar, and with ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.broker import LIMIT_POLICIES, Policies
from holdfast.server.http import limit_answers as answers
from holdfast.server.http.all_policies import given
from holdfast.server.http.limit_answers import AGE, SIZE, BacklogQuota, Most
from holdfast.server.http.policies import APPLIED, policies_of_call
from holdfast.server.http.routing import Call, Parameter, Routes
from holdfast.server.http.topics import NAMESPACE

of_namespace = Routes("limits", "/admin/v2/namespaces/{tenant}/{namespace}", "namespace")
of_topic = Routes("limits", NAMESPACE + "/{topic}", "topic", partitioned="each")
of_broker = Routes("limits", "/admin/v2/brokers", "broker")

_TYPE = Parameter(
    "backlogQuotaType", "string", "The quota: by size or by age.", default=SIZE, choices=(SIZE, AGE)
)
Limits = dict[str, int | float | str | None]
Show = Callable[[Policies], Any]
Read = Callable[[Any], dict[str, Any]]


async def _set_namespace(call: Call, policies: dict[str, Any]) -> None:
    await call.broker.admin.set_namespace_policies(call.namespace, **policies)


async def _set_topic(call: Call, policies: dict[str, Any]) -> None:
    await call.broker.admin.set_policies(call.topic_name, **policies)


def _add(path: str, type_: Any, what: str, show: Show, read: Read, topic: bool) -> None:
    """Add the three routes of one policy of a namespace or a topic."""
    routes = of_topic if topic else of_namespace
    whose, store = ("a topic", _set_topic) if topic else ("a namespace", _set_namespace)
    above = "that of its namespace applies" if topic else "the broker's options apply"
    name = f"{'topic' if topic else 'namespace'}_{path}"

    async def shown(call: Call) -> Any:
        if topic:
            return show(policies_of_call(call))
        return show(call.broker.admin.namespace_policies(call.namespace))

    async def change(call: Call) -> None:
        await store(call, read(call.body))

    async def drop(call: Call) -> None:
        await store(call, read(None))

    shown.__name__, change.__name__, drop.__name__ = name, f"set_{name}", f"drop_{name}"
    shown.__doc__ = f"Return {what} of {whose}; null: not set."
    change.__doc__ = f"Set {what} of {whose}."
    drop.__doc__ = f"Remove {what} of {whose}: {above}."
    query = {"query": APPLIED} if topic else {}
    routes("GET", f"/{path}", answer=type_ | None, refusals=(404,), **query)(shown)
    routes("POST", f"/{path}", body=type_, refusals=(404,))(change)
    routes("DELETE", f"/{path}", refusals=(404,))(drop)


_NUMBERS = (
    ("producers_max", "maxProducersPerTopic", "maxProducers", "the largest number of producers"),
    ("consumers_max", "maxConsumersPerTopic", "maxConsumers", "the largest number of consumers"),
    (
        "subscription_consumers_max",
        *("maxConsumersPerSubscription", "maxConsumersPerSubscription"),
        "the largest number of consumers of each subscription",
    ),
    (
        "subscriptions_max",
        *("maxSubscriptionsPerTopic", "maxSubscriptionsPerTopic"),
        "the largest number of subscriptions",
    ),
    (
        "unacked_max",
        *("maxUnackedMessagesPerConsumer", "maxUnackedMessagesOnConsumer"),
        "how many unacknowledged messages a consumer may hold",
    ),
    (
        "subscription_unacked_max",
        *("maxUnackedMessagesPerSubscription", "maxUnackedMessagesOnSubscription"),
        "how many unacknowledged messages a subscription may hold",
    ),
    ("topics_max", "maxTopicsPerNamespace", "", "the largest number of topics"),
    ("message_bytes_max", "", "maxMessageSize", "the size of the largest message"),
)
"""Field, path of the namespace, path of the topic, words."""


def _add_number(field: str, path: str, what: str, topic: bool) -> None:
    _add(path, Most, what, lambda policies: getattr(policies, field), lambda value: {field: value}, topic)


for _field, _above, _own, _what in _NUMBERS:
    if _above:
        _add_number(_field, _above, f"{_what} (0: no limit)", topic=False)
    if _own:
        _add_number(_field, _own, f"{_what} (0: no limit)", topic=True)

for _topic in (False, True):
    _add(
        *("publishRate", answers.PublishRate, "the rate of publishes at each member"),
        *(answers.publish_rate, answers.publish_policies, _topic),
    )
    _add(
        *("dispatchRate", answers.DispatchRate, "the rate of deliveries at each member"),
        lambda policies: answers.dispatch_rate(policies, "dispatch"),
        lambda rate: answers.dispatch_policies(rate, "dispatch"),
        _topic,
    )
    _add(
        *("subscriptionDispatchRate", answers.DispatchRate, "the rate of deliveries of each subscription"),
        lambda policies: answers.dispatch_rate(policies, "subscription"),
        lambda rate: answers.dispatch_policies(rate, "subscription"),
        _topic,
    )
    _add(
        *("subscribeRate", answers.SubscribeRate, "how often a consumer may subscribe"),
        *(answers.subscribe_rate, answers.subscribe_policies, _topic),
    )


# -- backlog quotas ------------------------------------------------------------------------------------


@of_namespace("GET", "/backlogQuotaMap", answer=dict[str, BacklogQuota], refusals=(404,))
async def namespace_quotas(call: Call) -> dict[str, BacklogQuota]:
    """Return the backlog quotas of a namespace, by their types."""
    return answers.quota_map(call.broker.admin.namespace_policies(call.namespace))


@of_namespace("POST", "/backlogQuota", query=(_TYPE,), body=BacklogQuota, refusals=(404,))
async def set_namespace_quota(call: Call) -> None:
    """Set a backlog quota of a namespace, for topics without their own."""
    await _set_namespace(call, answers.quota_policies(call.body, call.query("backlogQuotaType")))


@of_namespace("DELETE", "/backlogQuota", query=(_TYPE,), refusals=(404,))
async def drop_namespace_quota(call: Call) -> None:
    """Remove a backlog quota of a namespace: the broker's options apply."""
    await _set_namespace(call, answers.quota_policies(None, call.query("backlogQuotaType")))


@of_topic("GET", "/backlogQuotaMap", query=APPLIED, answer=dict[str, BacklogQuota], refusals=(404,))
async def topic_quotas(call: Call) -> dict[str, BacklogQuota]:
    """Return the backlog quotas of a topic, by their types."""
    return answers.quota_map(policies_of_call(call))


@of_topic("POST", "/backlogQuota", query=(_TYPE,), body=BacklogQuota, refusals=(404,))
async def set_topic_quota(call: Call) -> None:
    """Set a backlog quota of a topic."""
    await _set_topic(call, answers.quota_policies(call.body, call.query("backlogQuotaType")))


@of_topic("DELETE", "/backlogQuota", query=(_TYPE,), refusals=(404,))
async def drop_topic_quota(call: Call) -> None:
    """Remove a backlog quota of a topic: that of its namespace applies."""
    await _set_topic(call, answers.quota_policies(None, call.query("backlogQuotaType")))


@of_broker("GET", "/backlog-quota-check")
async def check_quotas(call: Call) -> None:
    """Compare the backlogs of all topics that this broker owns with their quotas now."""
    await call.broker.limiting.check_all()


# -- all limits at once: ours --------------------------------------------------------------------------


def _limits(policies: Policies) -> Limits:
    values = policies.fields()
    return {name: values[name] for name in LIMIT_POLICIES}


@of_namespace("GET", "/limits", answer=Limits, refusals=(404,))
async def namespace_limits(call: Call) -> Limits:
    """Return all limits of a namespace; null: the broker's options apply."""
    return _limits(call.broker.admin.namespace_policies(call.namespace))


@of_namespace("POST", "/limits", body=Limits, refusals=(404,))
async def set_namespace_limits(call: Call) -> None:
    """Set the given limits of a namespace; null removes one."""
    await _set_namespace(call, given(call.body, LIMIT_POLICIES, "limit"))


@of_topic("GET", "/limits", query=APPLIED, answer=Limits, refusals=(404,))
async def topic_limits(call: Call) -> Limits:
    """Return all limits of a topic; null: those of its namespace apply."""
    return _limits(policies_of_call(call))


@of_topic("POST", "/limits", body=Limits, refusals=(404,))
async def set_topic_limits(call: Call) -> None:
    """Set the given limits of a topic; null removes one."""
    await _set_topic(call, given(call.body, LIMIT_POLICIES, "limit"))
