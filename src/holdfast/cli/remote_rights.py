"""Run the commands of permissions, properties and lives against a server. See `remote`."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from holdfast.cli.parsing import Usage
from holdfast.cli.remote_http import Http, path_of, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LIVES = (
    *("subscription_expiry_s", "inactive_delete", "inactive_mode", "inactive_s", "auto_subscribe"),
    "subscription_types",
)
MB = 1 << 20
_TYPES = {"Exclusive": "exclusive", "Failover": "failover", "Shared": "shared", "Key_Shared": "key_shared"}
DELAYED = ("delayed_delivery", "delayed_tick_s", "delayed_most_s")
_OF_NAMESPACES = {"retention_bytes", "retention_s", "ttl_s", "deduplication", *DELAYED, *LIVES}
"""Settings of namespaces that a server offers by HTTP to commands."""


def delayed_of(answer: dict[str, Any] | None) -> dict[str, Any]:
    """Return the policies of delivery times, as the server gives them."""
    found = answer or {}
    tick_ms, most_ms = found.get("tickTime"), found.get("maxDeliveryDelayInMillis")
    return {
        "delayed_delivery": found.get("active"),
        "delayed_tick_s": None if tick_ms is None else tick_ms / 1000,
        "delayed_most_s": None if most_ms is None else most_ms / 1000,
    }


def set_delayed(http: Http, at: str, policies: Mapping[str, Any]) -> None:
    """Set those policies of delivery times that are given, of a namespace or a topic."""
    if policies.keys().isdisjoint(DELAYED):
        return
    wanted = {**delayed_of(http.get(f"{at}/delayedDelivery")), **policies}
    tick_s, most_s = wanted["delayed_tick_s"], wanted["delayed_most_s"]
    body = {
        "active": wanted["delayed_delivery"],
        "tickTime": None if tick_s is None else round(tick_s * 1000),
        "maxDeliveryDelayInMillis": None if most_s is None else round(most_s * 1000),
    }
    http.send("POST", f"{at}/delayedDelivery", body)


def lives_of(http: Http, at: str) -> dict[str, Any]:
    """Return the policies of lives of a namespace or a topic, whose path is `at`."""
    minutes = http.get(f"{at}/subscriptionExpirationTime")
    inactive = http.get(f"{at}/inactiveTopicPolicies") or {}
    creation = http.get(f"{at}/autoSubscriptionCreation") or {}
    types = tuple(_TYPES[each] for each in http.get(f"{at}/subscriptionTypesEnabled"))
    return {
        "subscription_expiry_s": None if minutes is None else minutes * 60.0,
        "inactive_delete": inactive.get("deleteWhileInactive"),
        "inactive_mode": inactive.get("inactiveTopicDeleteMode"),
        "inactive_s": inactive.get("maxInactiveDurationSeconds"),
        "auto_subscribe": creation.get("allowAutoSubscriptionCreation"),
        "subscription_types": types or None,
    }


def set_lives(http: Http, at: str, policies: Mapping[str, Any]) -> None:
    """Set those policies of lives that are given; None: remove."""

    def send(path: str, body: object) -> None:
        http.send("DELETE" if body is None else "POST", f"{at}/{path}", body)

    if "subscription_expiry_s" in policies:
        seconds = policies["subscription_expiry_s"]
        send("subscriptionExpirationTime", None if seconds is None else math.ceil(seconds / 60))
    if {"inactive_delete", "inactive_mode", "inactive_s"} & policies.keys():
        wanted = {**lives_of(http, at), **policies}
        delete, mode, seconds = (wanted[f"inactive_{name}"] for name in ("delete", "mode", "s"))
        body: dict[str, Any] = {"deleteWhileInactive": bool(delete)}
        body["maxInactiveDurationSeconds"] = math.ceil(seconds or 0)
        if mode is not None:
            body["inactiveTopicDeleteMode"] = mode
        send("inactiveTopicPolicies", None if (delete, mode, seconds) == (None, None, None) else body)
    if "auto_subscribe" in policies:
        allowed = policies["auto_subscribe"]
        body_ = None if allowed is None else {"allowAutoSubscriptionCreation": allowed}
        send("autoSubscriptionCreation", body_)
    if "subscription_types" in policies:
        ours = policies["subscription_types"]
        send("subscriptionTypesEnabled", ours and [name for name, each in _TYPES.items() if each in ours])


class RemoteRights:
    """Of the administration of permissions and properties what the commands use."""

    _http: Http

    # -- settings of namespaces ------------------------------------------------------------------------

    def namespace_policies(self, name: str) -> SimpleNamespace:
        from holdfast.cli.topic import POLICIES, SWITCHES

        at = f"/admin/v2/namespaces/{name}"
        kept = self._http.get(f"{at}/retention") or {}
        minutes, size = kept.get("retentionTimeInMinutes"), kept.get("retentionSizeInMB")
        ttl = self._http.get(f"{at}/messageTTL")
        return SimpleNamespace(
            **dict.fromkeys((*POLICIES, *SWITCHES))
            | {
                "retention_s": minutes if minutes is None or minutes < 0 else minutes * 60.0,
                "retention_bytes": size if size is None or size < 0 else size * MB,
                "ttl_s": ttl,
                "deduplication": self._http.get(f"{at}/deduplication"),
            }
            | delayed_of(self._http.get(f"{at}/delayedDelivery"))
            | lives_of(self._http, at)
        )

    async def set_namespace_policies(self, name: str, **policies: Any) -> None:
        from holdfast.cli.topic import POLICIES

        if others := policies.keys() - _OF_NAMESPACES:
            named = ", ".join(sorted(POLICIES[each][0] if each in POLICIES else each for each in others))
            raise Usage(f"{named} of a namespace cannot be set through a server; stop it, and use --data DIR")
        at = f"/admin/v2/namespaces/{name}"
        if {"retention_bytes", "retention_s"} & policies.keys():
            now = self.namespace_policies(name)
            seconds = policies.get("retention_s", now.retention_s)
            size = policies.get("retention_bytes", now.retention_bytes)
            body = {
                "retentionTimeInMinutes": -1 if seconds is None else math.ceil(seconds / 60),
                "retentionSizeInMB": -1 if size is None else math.ceil(size / MB),
            }
            self._change(f"{at}/retention", None if seconds is None and size is None else body)
        if "ttl_s" in policies:
            seconds = policies["ttl_s"]
            self._change(f"{at}/messageTTL", None if seconds is None else math.ceil(seconds))
        if "deduplication" in policies:
            self._change(f"{at}/deduplication", policies["deduplication"])
        set_delayed(self._http, at, policies)
        set_lives(self._http, at, policies)

    def _change(self, path: str, body: object) -> None:
        self._http.send("DELETE" if body is None else "POST", path, body)

    # -- permissions -----------------------------------------------------------------------------------

    def limits(self, of: str, applied: bool = False) -> dict[str, Any]:
        query = {"applied": "true"} if applied else {}
        found: dict[str, Any] = self._http.get(f"{_place(of)}/limits", **query)
        return found

    async def set_limits(self, of: str, **limits: Any) -> None:
        self._http.send("POST", f"{_place(of)}/limits", limits)

    def permissions(self, of: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = self._http.get(f"{_place(of)}/permissions")
        return found

    async def permit(self, of: str, role: str, actions: Sequence[str]) -> None:
        path = f"{_place(of)}/permissions/{quoted(role)}"
        self._change(path, list(actions) or None)

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
