"""Create the subscriptions of consumers, as far as policies allow them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.broker.compaction.reading import CompactedReading
from holdfast.broker.topic_policies import TYPES
from holdfast.errors import Exists, Misuse, NotFound

if TYPE_CHECKING:
    from holdfast.broker.api.consumer import Start
    from holdfast.broker.broker import Broker
    from holdfast.broker.state import SubscriptionState, SubscriptionType
    from holdfast.broker.topic import Topic


async def subscribed(
    broker: Broker,
    topic: Topic,
    name: str,
    start: Start,
    properties: Mapping[str, str] | None,
    compacted: bool = False,
) -> SubscriptionState:
    """Return a durable subscription; create it at `start` if it does not exist.

    Raises:
        NotFound: it does not exist, and consumers may not create subscriptions of the topic.
    """
    while (found := topic.subscriptions.get(name)) is None:  # again if it was deleted meanwhile
        if not broker.effective_policies(topic).auto_subscribe:
            raise NotFound(
                f"{topic.name} has no subscription {name!r}, and consumers may not create any here; "
                "create it first"
            )
        place = await (CompactedReading(topic) if compacted else topic).place(start)
        with contextlib.suppress(Exists):  # created by another caller meanwhile
            await broker.create_subscription_at(topic, name, place, properties)
    return found


def require_type(broker: Broker, topic: Topic, type: SubscriptionType) -> None:  # noqa: A002  # as everywhere
    """Refuse a consumer whose type the topic's policies exclude.

    Raises:
        Misuse: the text names the types that are possible.
    """
    allowed = TYPES if broker.is_deleted(topic) else broker.effective_policies(topic).subscription_types
    allowed = allowed or TYPES
    if type not in allowed:
        raise Misuse(
            f"consumers of {topic.name} cannot be {type}: the policy subscription_types allows "
            f"{', '.join(allowed)}"
        )
