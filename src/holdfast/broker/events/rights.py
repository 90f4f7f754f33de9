"""Events of permissions and properties."""

from __future__ import annotations

import msgspec

from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.notices import PermissionsChanged
from holdfast.broker.events.outcomes import Done
from holdfast.broker.permissions import Roles, checked_actions, checked_place, checked_roles
from holdfast.broker.state import BrokerState, SubscriptionState, TopicState
from holdfast.errors import Misuse
from holdfast.names import checked_name


@event(104, base=0)
class PropertiesSet(Event, frozen=True):
    """Change the properties of a namespace, of topics or of subscriptions.

    All partitions of a topic, or the subscriptions of all of them, change with one event.
    """

    namespace: str = ""
    topics: list[int] = msgspec.field(default_factory=list)
    subscriptions: list[int] = msgspec.field(default_factory=list)
    values: dict[str, str] = msgspec.field(default_factory=dict)
    gone: list[str] = msgspec.field(default_factory=list)
    """Names that are removed first."""
    replace: bool = False
    """Remove all others first."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        if bool(self.namespace) + bool(self.topics) + bool(self.subscriptions) != 1:
            raise Misuse("name a namespace, topics or subscriptions whose properties change")
        if self.namespace:
            state.namespaces.require(self.namespace)
            known = state.namespaces.properties.get(self.namespace, {})
            if (wanted := self._changed(known)) == known:
                return Done(changed=False)
            state.namespaces.properties[self.namespace] = wanted
            if not wanted:
                del state.namespaces.properties[self.namespace]
            state.touch(state.namespaces)
            return Done()
        of: list[TopicState | SubscriptionState] = [*map(state.require_topic, self.topics)]
        of += map(state.require_subscription, self.subscriptions)
        others = [each for each in of if self._changed(each.properties) != each.properties]
        for each in others:
            each.properties = self._changed(each.properties)
            state.touch(each)
        return Done(changed=bool(others))

    def _changed(self, known: dict[str, str]) -> dict[str, str]:
        kept = {} if self.replace else {key: known[key] for key in known.keys() - set(self.gone)}
        return dict(sorted({**kept, **self.values}.items()))


@event(105, base=0)
class PermissionSet(Event, frozen=True):
    """Replace the permissions of a role on a namespace or a topic."""

    place: str
    """`tenant/namespace` or `tenant/namespace/topic`."""
    role: str
    actions: list[str]
    """Empty: it has none any more."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        namespace = checked_place(self.place)
        state.namespaces.require(namespace)
        actions, known = checked_actions(self.actions), state.permissions
        of = known.namespaces if namespace == self.place else known.topics
        checked_name(self.role, "a role")
        return _set(state, context, of, (self.place, self.role), actions, namespace)


@event(106, version=2, base=0, older=(3,))
class SubscriptionRolesSet(Event, frozen=True):
    """Replace the roles that may consume from subscriptions of a name in a namespace."""

    namespace: str
    subscription: str
    roles: list[str] = msgspec.field(default_factory=list)
    """Empty: all that may consume."""
    gone: bool = False
    """Remove these roles, and keep the others: two senders may each remove one."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        state.namespaces.require(self.namespace)
        roles, of = checked_roles(self.roles), state.permissions.subscriptions
        checked_name(self.subscription, "a subscription")
        if self.gone:
            known = of.get(self.namespace, {}).get(self.subscription, ())
            roles = tuple(each for each in known if each not in roles)
        return _set(state, context, of, (self.namespace, self.subscription), roles, self.namespace)


@event(107, base=0)
class SubscriptionAuthSet(Event, frozen=True):
    """Set whether subscriptions of a namespace begin with the role of their consumers."""

    namespace: str
    prefixed: bool

    def apply(self, state: BrokerState, context: Context) -> Done:
        state.namespaces.require(self.namespace)
        known = state.permissions
        if (self.namespace in known.prefixed) == self.prefixed:
            return Done(changed=False)
        known.prefixed ^= {self.namespace}
        state.touch(known)
        context.notices.append(PermissionsChanged(self.namespace))
        return Done()


def _set(
    state: BrokerState,
    context: Context,
    of: dict[str, Roles],
    key: tuple[str, str],
    values: tuple[str, ...],
    namespace: str,
) -> Done:
    """Set one entry of permissions, or remove it."""
    place, name = key
    if of.get(place, {}).get(name, ()) == values:
        return Done(changed=False)
    entries = {**of.get(place, {}), name: values}
    if not values:
        del entries[name]
    of[place] = dict(sorted(entries.items()))
    if not entries:
        del of[place]
    state.touch(state.permissions)
    context.notices.append(PermissionsChanged(namespace))
    return Done()
