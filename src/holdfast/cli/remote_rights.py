"""Run the commands of policies, permissions and properties against a server. See `remote`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.broker import PolicyValue
from holdfast.cli.remote_http import Http, path_of, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class RemoteRights:
    """Of the administration of policies, permissions and properties what the commands use."""

    _http: Http

    # -- policies --------------------------------------------------------------------------------------

    def policy_values(self, of: str) -> dict[str, PolicyValue]:
        found = self._http.get(f"{_place(of)}/policies")
        return {name: PolicyValue(**each) for name, each in found.items()}

    async def set_policies(self, name: str, **policies: Any) -> None:
        self._http.send("POST", f"{_place(name)}/policies", policies)

    async def set_namespace_policies(self, name: str, **policies: Any) -> None:
        self._http.send("POST", f"{_place(name)}/policies", policies)

    async def set_limits(self, of: str, **limits: Any) -> None:
        self._http.send("POST", f"{_place(of)}/limits", limits)

    # -- permissions -----------------------------------------------------------------------------------

    def permissions(self, of: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = self._http.get(f"{_place(of)}/permissions")
        return found

    async def permit(self, of: str, role: str, actions: Sequence[str]) -> None:
        path = f"{_place(of)}/permissions/{quoted(role)}"
        self._http.send("POST" if actions else "DELETE", path, list(actions) or None)

    def subscription_roles(self, namespace: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = self._http.get(f"{_place(namespace)}/permissions/subscription")
        return found

    async def set_subscription_roles(self, namespace: str, subscription: str, roles: Sequence[str]) -> None:
        path = f"{_place(namespace)}/permissions/subscription/{quoted(subscription)}"
        self._http.send("POST", path, list(roles))

    def is_prefixed(self, namespace: str) -> bool:
        return bool(self._http.get(f"{_place(namespace)}/subscriptionAuthMode") == "Prefix")

    async def set_prefixed(self, namespace: str, prefixed: bool) -> None:
        mode = "Prefix" if prefixed else "None"
        self._http.send("POST", f"{_place(namespace)}/subscriptionAuthMode", mode)

    # -- properties ------------------------------------------------------------------------------------

    def namespace_properties(self, namespace: str) -> dict[str, str]:
        found: dict[str, str] = self._http.get(f"{_place(namespace)}/properties")
        return found

    async def set_namespace_properties(
        self, namespace: str, values: Mapping[str, str], gone: Sequence[str] = ()
    ) -> None:
        for each in gone:
            self._http.send("DELETE", f"{_place(namespace)}/property/{quoted(each)}")
        if values:
            self._http.send("PUT", f"{_place(namespace)}/properties", dict(values))

    def topic_properties(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self._http.get(f"{path_of(name)}/properties")
        return found

    async def set_topic_properties(
        self, name: str, values: Mapping[str, str], gone: Sequence[str] = ()
    ) -> None:
        for each in gone:
            self._http.send("DELETE", f"{path_of(name)}/properties", key=each)
        if values:
            self._http.send("PUT", f"{path_of(name)}/properties", dict(values))

    def subscription_properties(self, topic: str, name: str) -> dict[str, str]:
        found: dict[str, str] = self._http.get(_subscription(topic, name))
        return found

    async def set_subscription_properties(
        self, topic: str, name: str, values: Mapping[str, str], gone: Sequence[str] = ()
    ) -> None:
        kept = {
            key: each for key, each in self.subscription_properties(topic, name).items() if key not in gone
        }
        self._http.send("PUT", _subscription(topic, name), {**kept, **values})


def _place(of: str) -> str:
    """Return the path of a namespace or of a topic."""
    is_namespace = "://" not in of and of.count("/") == 1
    return f"/admin/v2/namespaces/{of}" if is_namespace else path_of(of)


def _subscription(topic: str, name: str) -> str:
    return f"{path_of(topic)}/subscription/{quoted(name)}/properties"
