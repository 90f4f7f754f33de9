"""Administration of permissions and properties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from holdfast.broker.events import PermissionSet, PropertiesSet, SubscriptionAuthSet, SubscriptionRolesSet
from holdfast.broker.partitions import partitions_of
from holdfast.broker.permissions import place_of
from holdfast.errors import Misuse, NotFound
from holdfast.names import any_topic_name, namespace_name, no_subscription, topic_name

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.permissions import Permissions
    from holdfast.broker.state import SubscriptionState, TopicState


class RightsAdmin:
    """The part of `Admin` for permissions and properties.

    Permissions have an effect on clients of servers with authorization. Properties are texts that programs
    keep with a namespace, a topic or a subscription; the broker does not read them.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> async def main(path: str) -> None:
        ...     async with holdfast.Broker.open(path) as broker:
        ...         await broker.admin.create_topic("orders")
        ...         await broker.admin.set_topic_properties("orders", {"owner": "shop"})
        ...         await broker.admin.permit("public/default", "billing", ["consume"])
        ...         print(broker.admin.topic_properties("orders"), broker.admin.permissions("public/default"))
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(main(path))
        {'owner': 'shop'} {'billing': ['consume']}
    """

    _broker: Broker

    # -- permissions -----------------------------------------------------------------------------------

    @property
    def granted(self) -> Permissions:
        """All permissions, as they are now."""
        return self._broker.machine.state.permissions

    def permissions(self, of: str) -> dict[str, list[str]]:
        """Return the actions of each role on a namespace (`tenant/namespace`) or a topic.

        Those of a topic include those of its namespace.

        Raises:
            NotFound: the namespace does not exist.
        """
        place = _place(of)
        namespace = "/".join(place.split("/", 2)[:2])
        self._broker.machine.state.namespaces.require(namespace)
        found: dict[str, list[str]] = {}
        for roles in (self.granted.namespaces.get(namespace, {}), self.granted.topics.get(place, {})):
            for role, actions in roles.items():
                found[role] = [*dict.fromkeys([*found.get(role, ()), *actions])]
        return dict(sorted(found.items()))

    async def permit(self, of: str, role: str, actions: Sequence[str]) -> None:
        """Replace the actions that a role may do in a namespace or with a topic.

        Without actions, it loses all.

        Attached clients of servers that may not do what they do any more are closed.

        Raises:
            NotFound: the namespace does not exist.
            Misuse: an action or a name is not possible.
        """
        await self._broker.engine.submit(PermissionSet(_place(of), role, list(actions)))

    def subscription_roles(self, namespace: str) -> dict[str, list[str]]:
        """Return the roles that alone may consume from subscriptions of a namespace, by subscription."""
        name = namespace_name(namespace)
        self._broker.machine.state.namespaces.require(name)
        return {key: [*roles] for key, roles in self.granted.subscriptions.get(name, {}).items()}

    async def set_subscription_roles(self, namespace: str, subscription: str, roles: Sequence[str]) -> None:
        """Let only these roles consume from subscriptions of a name; none: all may."""
        event = SubscriptionRolesSet(namespace_name(namespace), subscription, list(roles))
        await self._broker.engine.submit(event)

    async def drop_subscription_role(self, namespace: str, subscription: str, role: str) -> None:
        """Remove one of the roles that may consume from subscriptions of a name.

        After the last one all may.
        """
        event = SubscriptionRolesSet(namespace_name(namespace), subscription, [role], gone=True)
        await self._broker.engine.submit(event)

    def is_prefixed(self, namespace: str) -> bool:
        """Return whether subscriptions of a namespace must begin with the role of their consumers."""
        name = namespace_name(namespace)
        self._broker.machine.state.namespaces.require(name)
        return name in self.granted.prefixed

    async def set_prefixed(self, namespace: str, prefixed: bool) -> None:
        """Set whether subscriptions of a namespace must begin with the role of their consumers."""
        await self._broker.engine.submit(SubscriptionAuthSet(namespace_name(namespace), prefixed))

    # -- properties ------------------------------------------------------------------------------------

    def namespace_properties(self, namespace: str) -> dict[str, str]:
        """Return the properties of a namespace.

        Raises:
            NotFound: the namespace does not exist.
        """
        namespaces, name = self._broker.machine.state.namespaces, namespace_name(namespace)
        namespaces.require(name)
        return dict(namespaces.properties.get(name, {}))

    async def set_namespace_properties(
        self, namespace: str, values: Mapping[str, str], gone: Sequence[str] = (), replace: bool = False
    ) -> None:
        """Set properties of a namespace and remove others; with `replace`, all others."""
        event = PropertiesSet(
            namespace_name(namespace), values=dict(values), gone=list(gone), replace=replace
        )
        await self._broker.engine.submit(event)

    def topic_properties(self, name: str) -> dict[str, str]:
        """Return the properties of a topic, partitioned or not.

        Raises:
            NotFound: the topic does not exist.
        """
        return dict(self._topic_states(name)[0].properties)

    async def set_topic_properties(
        self, name: str, values: Mapping[str, str], gone: Sequence[str] = (), replace: bool = False
    ) -> None:
        """Set properties of a topic and remove others; with `replace`, all others."""
        topics = [each.id for each in self._topic_states(name)]
        event = PropertiesSet(topics=topics, values=dict(values), gone=list(gone), replace=replace)
        await self._broker.engine.submit(event)

    def subscription_properties(self, topic: str, name: str) -> dict[str, str]:
        """Return the properties of a subscription.

        Raises:
            NotFound: the topic or the subscription does not exist.
        """
        return dict(self._subscription_states(topic, name)[0].properties)

    async def set_subscription_properties(
        self,
        topic: str,
        name: str,
        values: Mapping[str, str],
        gone: Sequence[str] = (),
        replace: bool = False,
    ) -> None:
        """Set properties of a subscription and remove others; with `replace`, all others."""
        found = [each.id for each in self._subscription_states(topic, name)]
        event = PropertiesSet(subscriptions=found, values=dict(values), gone=list(gone), replace=replace)
        await self._broker.engine.submit(event)

    def _topic_states(self, name: str) -> list[TopicState]:
        """Return a topic, or all partitions of it."""
        full, state = any_topic_name(name), self._broker.machine.state
        if not full.startswith("persistent://"):
            raise Misuse(f"{full} keeps nothing, and has no properties; use a persistent topic")
        return partitions_of(state, full) or [self._broker.topic(topic_name(full)).state]

    def _subscription_states(self, topic: str, name: str) -> list[SubscriptionState]:
        topics = self._topic_states(topic)
        found = [each.subscriptions[name] for each in topics if name in each.subscriptions]
        if not found:
            known = {each for one in topics for each in one.subscriptions}
            raise NotFound(no_subscription(any_topic_name(topic), name, known))
        return found


def _place(of: str) -> str:
    """Return the key of a namespace or a topic in the permissions."""
    return namespace_name(of) if "://" not in of and of.count("/") == 1 else place_of(any_topic_name(of))
