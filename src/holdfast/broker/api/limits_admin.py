"""Administration of limits: maximums, rates and backlog quotas; and of all policies together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.broker.events import NamespaceUpdate, PolicySet
from holdfast.broker.policy import PolicyValue, of_namespace, of_topic
from holdfast.broker.topic_policies import LIMIT_POLICIES, Policies
from holdfast.errors import Misuse
from holdfast.names import namespace_name, topic_name

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker


class LimitsAdmin:
    """The part of `Admin` for limits.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> async def main(path: str) -> None:
        ...     async with holdfast.Broker.open(path, consumers_max=8) as broker:
        ...         await broker.admin.create_topic("orders")
        ...         await broker.admin.set_limits("public/default", producers_max=3)
        ...         await broker.admin.set_limits("orders", publish_rate_messages=100)
        ...         own, applied = (broker.admin.limits("orders", applied=each) for each in (False, True))
        ...         names = "publish_rate_messages", "producers_max", "consumers_max"
        ...         print([own[name] for name in names], [applied[name] for name in names])
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(main(path))
        [100, None, None] [100, 3, 8]
    """

    _broker: Broker

    def policy_values(self, of: str) -> dict[str, PolicyValue]:
        """Return all policies of a namespace (`tenant/namespace`) or a topic, by their names in `Policies`.

        Each with its own value, the one that applies, and its level: topic, namespace or broker.

        Raises:
            NotFound: the namespace or the topic does not exist.
        """
        if is_namespace(of):
            return of_namespace(self._broker, namespace_name(of))
        return of_topic(self._broker, self._broker.topic(topic_name(of)))

    def limits(self, of: str, applied: bool = False) -> dict[str, Any]:
        """Return the limits of a namespace (`tenant/namespace`) or a topic, by the names in `Policies`.

        None: not set there. With `applied`, the value of a topic that has its effect; 0: no limit.

        Raises:
            NotFound: the namespace or the topic does not exist.
            Misuse: `applied` of a namespace.
        """
        if not is_namespace(of):
            topic = self._broker.topic(topic_name(of))
            found = self._broker.limiting.of(topic) if applied else topic.state.policies
        elif applied:
            raise Misuse(f"{of} is a namespace; limits have their effect on topics, so ask for one")
        else:
            self._broker.machine.state.namespaces.require(namespace_name(of))
            found = self._broker.machine.state.namespaces.policies[namespace_name(of)]
        values = found.fields()
        return {name: values[name] for name in LIMIT_POLICIES}

    async def set_limits(self, of: str, **limits: Any) -> None:
        """Change limits of a namespace or a topic; None: the value from above applies again.

        A change has its effect at once. A lower maximum closes no client.

        Raises:
            NotFound: the namespace or the topic does not exist.
            Misuse: there is no such limit, or its value is not possible.
        """
        require_limits(limits)
        names, values = sorted(limits), Policies(**limits)
        if is_namespace(of):
            await self._broker.engine.submit(NamespaceUpdate(namespace_name(of), values, names))
        else:
            topic = self._broker.topic(topic_name(of))
            await self._broker.engine.submit(PolicySet(topic.id, values, names))


def require_limits(names: dict[str, Any]) -> None:
    """Raise Misuse for a name that no limit has."""
    for name in names:
        if name not in LIMIT_POLICIES:
            raise Misuse(f"{name!r} is not a limit; there are: {', '.join(LIMIT_POLICIES)}")


def is_namespace(of: str) -> bool:
    """Return whether a text names a namespace, and not a topic.

    Example:
        >>> is_namespace("public/default"), is_namespace("orders"), is_namespace("public/default/orders")
        (True, False, False)
    """
    return "://" not in of and of.count("/") == 1
