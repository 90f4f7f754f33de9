"""Run the commands of exchanges and moves against a server. See `remote`."""

from __future__ import annotations

from typing import Any

from holdfast import errors
from holdfast._core import TopicMessage
from holdfast.broker import ExchangeStats
from holdfast.cli.remote_http import Http, path_of, quoted, restored
from holdfast.ids import MessageId


def exchange_path(name: str) -> str:
    return path_of(name).replace("/admin/v2/persistent/", "/admin/v2/exchanges/", 1)


class RemoteExchanges:
    """Of the administration of exchanges and moves what the commands use."""

    _http: Http

    def exchanges(self) -> list[str]:
        return sorted(
            name
            for tenant in self._http.get("/admin/v2/tenants")
            for namespace in self._http.get(f"/admin/v2/namespaces/{quoted(tenant)}")
            for name in self._http.get(f"/admin/v2/exchanges/{namespace}")
        )

    def exchange_stats(self, name: str) -> ExchangeStats:
        found: dict[str, Any] = self._http.get(exchange_path(name))
        found["bindings"] = [(each["topic"], each["key"]) for each in found["bindings"]]
        return ExchangeStats(**found)

    async def create_exchange(self, name: str, kind: str, **more: Any) -> None:
        self._http.send("PUT", exchange_path(name), {"kind": kind, **more})

    async def delete_exchange(self, name: str, force: bool = False) -> None:
        self._http.send("DELETE", exchange_path(name), force=str(force).lower())

    async def bind(self, exchange: str, topic: str, key: str = "") -> None:
        self._http.send("POST", exchange_path(exchange) + "/bindings", {"topic": topic, "key": key})

    async def unbind(self, exchange: str, topic: str, key: str | None = None) -> None:
        query = {"topic": topic} if key is None else {"topic": topic, "key": key}
        self._http.send("DELETE", exchange_path(exchange) + "/bindings", **query)

    async def set_alternate(self, name: str, exchange: str | None, subscription: str | None = None) -> None:
        method = "DELETE" if exchange is None else "POST"
        at = path_of(name) if subscription is None else self._of(name, subscription)
        self._http.send(method, at + "/alternate", exchange)

    async def purge(self, name: str) -> int:
        return int(self._http.send("POST", path_of(name) + "/purge"))

    async def move(self, topic: str, name: str, to: str, count: int | None = None) -> int:
        query: dict[str, Any] = {"to": to} if count is None else {"to": to, "count": count}
        return int(self._http.send("POST", self._of(topic, name) + "/move", **query))

    async def take(self, topic: str, name: str) -> TopicMessage | None:
        try:
            data, headers = self._http.raw("POST", self._of(topic, name) + "/take", None, {})
        except errors.NotFound:
            return None
        return restored(data, headers)[0]

    async def reject(self, topic: str, name: str, id: MessageId) -> bool:  # noqa: A002  # as everywhere
        at = f"{self._of(topic, name)}/reject/{id.ledger}/{id.entry}"
        return bool(self._http.send("POST", at, batch=id.batch))

    async def drain_topic(self, name: str) -> int:
        return int(self._http.send("POST", path_of(name) + "/drain"))

    async def drain_subscription(self, topic: str, name: str) -> int:
        return int(self._http.send("POST", self._of(topic, name) + "/drain"))

    def _of(self, topic: str, subscription: str) -> str:
        return f"{path_of(topic)}/subscription/{quoted(subscription)}"
