"""Programs of users with the official client and the administration by HTTP, on policies.

Each runs in a process of its own: `policy_programs.py NAME URL HTTP_URL`. It fails by an exception.
"""

from __future__ import annotations

import base64
import contextlib
import http.server
import json
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pulsar
import pytest

from tests.kit.server.auth_world import token

PATIENCE_S = 20.0
NAMESPACE = "namespaces/public/default"
TOPICS = "persistent/public/default"


class User:
    """A user with the official client, and the administration."""

    def __init__(self, url: str, http_url: str) -> None:
        self.url, self._http = url, http_url

    def client(self, role: str = "") -> Any:
        more = {"authentication": pulsar.AuthenticationToken(token(role))} if role else {}
        return pulsar.Client(
            self.url,
            operation_timeout_seconds=5,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
            **more,
        )

    def admin(self, method: str, path: str, body: Any = None, role: str = "root") -> Any:
        """Send a request; return the answer. A refusal raises with status and reason."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token(role)}"}
        request = urllib.request.Request(f"{self._http}/admin/v2/{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                text = answer.read()
                return json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            raise Refused(error.code, json.loads(error.read())["reason"]) from None


class Refused(Exception):
    """An answer that is not 2xx."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status, reason)
        self.status, self.reason = status, reason


def until(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"not in {PATIENCE_S} s: {what}"
        time.sleep(0.05)


def refused(work: Callable[[], Any], *errors: type[Exception]) -> Exception:
    """Require that the client raises one of these errors."""
    with pytest.raises(errors) as told:
        work()
    return told.value


def denied(
    user: User, method: str, path: str, status: int, words: str, body: Any = None, role: str = "root"
) -> None:
    """Require that the administration refuses with these words."""
    with pytest.raises(Refused) as told:
        user.admin(method, path, body, role)
    assert told.value.status == status, told.value
    assert words in told.value.reason, told.value


def exists(user: User, topic: str) -> bool:
    return any(each.endswith(f"/{topic}") for each in user.admin("GET", TOPICS))


# -- permissions ---------------------------------------------------------------------------------------

DENIED = pulsar.AuthorizationError
GONE = (pulsar.PulsarException,)


def permissions(user: User) -> None:
    """Roles without a grant; granted, revoked while attached, and granted again."""
    shop, billing = user.client("shop"), user.client("stranger")
    refused(lambda: shop.create_producer("orders"), DENIED)
    refused(lambda: billing.subscribe("orders", "s"), DENIED)
    user.admin("POST", f"{NAMESPACE}/permissions/shop", ["produce"])
    user.admin("POST", f"{TOPICS}/orders/permissions/stranger", ["consume"])
    producer, consumer = (
        shop.create_producer("orders", send_timeout_millis=3000),
        billing.subscribe("orders", "s"),
    )
    producer.send(b"nails")
    message = consumer.receive(10_000)
    assert message.data() == b"nails"
    consumer.acknowledge(message)
    refused(lambda: shop.subscribe("orders", "t"), DENIED)
    refused(lambda: billing.create_producer("orders"), DENIED)
    refused(lambda: billing.subscribe("others", "s"), DENIED)
    found = user.admin("GET", f"{TOPICS}/orders/permissions")
    assert found == {"shop": ["produce"], "stranger": ["consume"]}, found
    # Revoked while attached: the producer ends, the consumer of the other role notices nothing.
    user.admin("DELETE", f"{NAMESPACE}/permissions/shop")
    until(lambda: not user.admin("GET", f"{TOPICS}/orders/stats")["publishers"], "the producer is closed")
    refused(lambda: producer.send(b"more"), *GONE)
    refused(lambda: shop.create_producer("orders"), DENIED)
    refused(lambda: consumer.receive(300), pulsar.Timeout)
    user.admin("DELETE", f"{TOPICS}/orders/permissions/stranger")

    def attached() -> list[Any]:
        subscriptions = user.admin("GET", f"{TOPICS}/orders/stats")["subscriptions"]
        return [*subscriptions["s"]["consumers"]]

    until(lambda: not attached(), "the consumer is closed")
    refused(lambda: billing.subscribe("orders", "s"), DENIED)
    user.admin("POST", f"{NAMESPACE}/permissions/shop", ["produce", "consume"])
    with_more = user.client("shop")
    with_more.create_producer("orders").send(b"again")
    assert with_more.subscribe("orders", "s").receive(10_000).data() == b"again"
    for each in (shop, billing, with_more):
        with contextlib.suppress(pulsar.PulsarException):
            each.close()


def subscription_roles(user: User) -> None:
    """Subscriptions for some roles only, and names that begin with a role."""
    for role in ("shop", "auditor"):
        user.admin("POST", f"{NAMESPACE}/permissions/{role}", ["consume"])
    user.admin("POST", f"{NAMESPACE}/permissions/subscription/audit", ["auditor"])
    shop, auditor = user.client("shop"), user.client("auditor")
    refused(lambda: shop.subscribe("books", "audit"), DENIED)
    auditor.subscribe("books", "audit").close()
    user.admin("DELETE", f"{NAMESPACE}/permissions/audit/auditor")
    shop.subscribe("books", "audit").close()
    user.admin("POST", f"{NAMESPACE}/subscriptionAuthMode", "Prefix")
    assert user.admin("GET", f"{NAMESPACE}/subscriptionAuthMode") == "Prefix"
    refused(lambda: shop.subscribe("books", "mine"), DENIED)
    shop.subscribe("books", "shop-mine").close()
    user.admin("POST", f"{NAMESPACE}/subscriptionAuthMode", "None")
    shop.subscribe("books", "mine").close()
    shop.close()
    auditor.close()


def granted_before_a_restart(user: User) -> None:
    user.admin("POST", f"{NAMESPACE}/permissions/kept", ["produce"])
    user.admin("POST", f"{NAMESPACE}/permissions/revoked", ["produce"])
    user.admin("DELETE", f"{NAMESPACE}/permissions/revoked")


def granted_after_a_restart(user: User) -> None:
    kept, revoked = user.client("kept"), user.client("revoked")
    kept.create_producer("orders").send(b"x")
    refused(lambda: revoked.create_producer("orders"), DENIED)
    refused(lambda: kept.subscribe("orders", "s"), DENIED)
    kept.close()
    revoked.close()


def misused_permissions(user: User) -> None:
    denied(user, "POST", f"{NAMESPACE}/permissions/shop", 400, "fly", ["fly"])
    denied(user, "POST", "namespaces/public/none/permissions/shop", 404, "no namespace", ["produce"])
    denied(user, "POST", f"{NAMESPACE}/permissions/shop", 403, "may not administer", ["produce"], "shop")


def oauth2(user: User) -> None:
    """The client fetches a token from its issuer; the server checks it like others."""
    asked: list[str] = []

    class Issuer(http.server.BaseHTTPRequestHandler):
        def answer(self, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self.answer({"token_endpoint": f"{issuer}/token"})

        def do_POST(self) -> None:
            asked.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.answer({"access_token": token("issued"), "expires_in": 3600, "token_type": "Bearer"})

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Issuer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    issuer = f"http://127.0.0.1:{server.server_address[1]}"
    key = base64.b64encode(json.dumps({"client_id": "me", "client_secret": "secret"}).encode()).decode()
    parameters = {"issuer_url": issuer, "private_key": f"data:application/json;base64,{key}"}
    given = pulsar.AuthenticationOauth2(json.dumps({**parameters, "audience": "all"}))
    client = pulsar.Client(user.url, authentication=given, operation_timeout_seconds=5)
    refused(lambda: client.create_producer("orders"), DENIED)
    user.admin("POST", f"{NAMESPACE}/permissions/issued", ["produce"])
    client.create_producer("orders").send(b"x")
    assert "client_secret" in asked[0]
    client.close()
    server.shutdown()


def without_authorization(user: User) -> None:
    """A permission that would have no effect is refused, as by Pulsar."""
    words = "authorization is not enabled"
    denied(user, "POST", f"{NAMESPACE}/permissions/shop", 501, words, ["produce"])


# -- lives ---------------------------------------------------------------------------------------------


def expiry_of_subscriptions(user: User) -> None:
    """The server has `subscription_expiry_s = 1`: attached ones stay, others go."""
    client = user.client()
    consumer = client.subscribe("expiring", "attached")
    client.subscribe("expiring", "left").close()

    def found() -> list[str]:
        return [*user.admin("GET", f"{TOPICS}/expiring/subscriptions")]

    until(lambda: found() == ["attached"], "the subscription without a consumer expires")
    time.sleep(2)
    assert found() == ["attached"]
    client.create_producer("expiring").send(b"still here")
    assert consumer.receive(10_000).data() == b"still here"
    user.admin("POST", f"{TOPICS}/expiring/subscriptionExpirationTime", 1440)  # the topic's goes before
    assert user.admin("GET", f"{TOPICS}/expiring/subscriptionExpirationTime?applied=true") == 1440
    consumer.close()
    time.sleep(2.5)
    assert found() == ["attached"]
    user.admin("DELETE", f"{TOPICS}/expiring/subscriptionExpirationTime")
    until(lambda: found() == [], "the option applies again")
    client.close()


def inactive_topics(user: User) -> None:
    """A policy deletes unused topics; a producer keeps one."""
    policy = {
        "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
        "maxInactiveDurationSeconds": 1,
        "deleteWhileInactive": True,
    }
    client = user.client()
    consumer, producer = client.subscribe("unused", "s"), client.create_producer("unused")
    user.admin("POST", f"{TOPICS}/unused/subscriptionExpirationTime", 0)
    user.admin("POST", f"{TOPICS}/unused/inactiveTopicPolicies", policy)
    producer.send(b"1")
    time.sleep(2.5)
    assert exists(user, "unused"), "it has clients"
    producer.close()
    consumer.close()
    time.sleep(2.5)
    assert exists(user, "unused"), "it has a backlog"
    user.admin("POST", f"{TOPICS}/unused/subscription/s/skip_all")
    until(lambda: not exists(user, "unused"), "the unused topic is deleted")
    # The next client creates it again, and it is empty.
    reader = client.create_reader("unused", pulsar.MessageId.earliest)
    assert not reader.has_message_available()
    client.close()


# -- retention, time to live ---------------------------------------------------------------------------


def stored(user: User, topic: str) -> int:
    return int(user.admin("GET", f"{topic}/internalStats")["numberOfEntries"])


def all_read(client: Any, topic: str) -> list[bytes]:
    """Return the messages of a topic, as a new reader gets them."""
    reader, found = client.create_reader(topic, pulsar.MessageId.earliest), []
    while reader.has_message_available():
        found.append(reader.read_next(10_000).data())
    reader.close()
    return found


def retention(user: User) -> None:
    """Acknowledged messages stay as the namespace says; a topic may say otherwise.

    Ledgers have 10 messages here: only whole ones are deleted.
    """
    long = {"retentionTimeInMinutes": 60, "retentionSizeInMB": 100}
    place, prefix = "namespaces/public/library", "persistent://public/library"
    user.admin("PUT", place, {"retention_policies": long})
    client, none = user.client(), {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    for topic in ("kept", "lent"):
        consumer = client.subscribe(f"{prefix}/{topic}", "s")
        if topic == "lent":
            user.admin("POST", f"persistent/public/library/{topic}/retention", none)
        producer = client.create_producer(f"{prefix}/{topic}")
        for number in range(50):
            producer.send(b"%d" % number)
        for _ in range(50):
            consumer.acknowledge(consumer.receive(10_000))
    until(lambda: stored(user, "persistent/public/library/lent") <= 10, "acknowledged messages go")
    assert all_read(client, f"{prefix}/kept") == [b"%d" % number for number in range(50)]
    assert len(all_read(client, f"{prefix}/lent")) <= 10
    applied = user.admin("GET", "persistent/public/library/kept/retention?applied=true")
    assert applied == long
    user.admin("POST", f"{place}/retention", none)
    until(lambda: stored(user, "persistent/public/library/kept") <= 10, "the namespace keeps no more")
    one = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 100}
    denied(user, "POST", f"{place}/retention", 412, "a single 0 keeps nothing", one)
    client.close()


def time_to_live(user: User) -> None:
    """Messages expire unread by the namespace's policy; those of a topic with 0 never do."""
    place, prefix = "namespaces/public/news", "persistent://public/news"
    lives = {"message_ttl_in_seconds": 1, "subscription_expiration_time_minutes": 0}
    user.admin("PUT", place, lives)
    client = user.client()
    for topic in ("paper", "archive"):
        client.subscribe(f"{prefix}/{topic}", "s").close()  # its consumer is not there
    user.admin("POST", "persistent/public/news/archive/messageTTL?messageTTL=0")
    for topic in ("paper", "archive"):
        producer = client.create_producer(f"{prefix}/{topic}")
        for number in range(10):
            producer.send(b"%d" % number)

    def backlog(topic: str) -> int:
        found = user.admin("GET", f"persistent/public/news/{topic}/stats")["subscriptions"]["s"]
        return int(found["msgBacklog"])

    until(lambda: backlog("paper") == 0, "unread messages expire")
    assert backlog("archive") == 10
    ages = [
        user.admin("GET", f"persistent/public/news/{topic}/messageTTL?applied=true")
        for topic in ("paper", "archive")
    ]
    assert ages == [1, 0], ages
    user.admin("POST", "persistent/public/news/paper/messageTTL?messageTTL=3600")
    client.create_producer(f"{prefix}/paper").send(b"today")
    consumer = client.subscribe(f"{prefix}/paper", "s")
    assert consumer.receive(10_000).data() == b"today", "an expired message came"
    consumer = client.subscribe(f"{prefix}/archive", "s")
    assert [consumer.receive(10_000).data() for _ in range(10)] == [b"%d" % each for each in range(10)]
    denied(user, "POST", f"{place}/messageTTL", 400, "Expected `int` >= 0", -5)
    client.close()


# -- properties, types, creation -----------------------------------------------------------------------


def properties(user: User) -> None:
    """Texts at a namespace, a topic and a subscription."""
    client = user.client()
    client.subscribe("described", "s")
    where = f"{TOPICS}/described/subscription/s/properties"
    user.admin("PUT", where, {"for": "invoices"})
    assert user.admin("GET", where) == {"for": "invoices"}
    user.admin("PUT", where, {"for": "audits", "since": "May"})
    assert user.admin("GET", where) == {"for": "audits", "since": "May"}
    user.admin("PUT", f"{TOPICS}/described/properties", {"owner": "shop", "old": "1"})
    user.admin("DELETE", f"{TOPICS}/described/properties?key=old")
    assert user.admin("GET", f"{TOPICS}/described/properties") == {"owner": "shop"}
    user.admin("PUT", f"{NAMESPACE}/properties", {"team": "shop"})
    user.admin("PUT", f"{NAMESPACE}/property/floor/3")
    assert user.admin("GET", f"{NAMESPACE}/properties") == {"floor": "3", "team": "shop"}
    denied(user, "DELETE", f"{TOPICS}/described/properties?key=lost", 404, "no property 'lost'")
    client.close()


def subscription_types(user: User) -> None:
    """A topic for some types only: a consumer of another type is refused."""
    client = user.client()
    client.create_producer("typed").close()
    user.admin("POST", f"{TOPICS}/typed/subscriptionTypesEnabled", ["Shared", "Failover"])
    refused(lambda: client.subscribe("typed", "s"), pulsar.NotAllowedError, pulsar.UnsupportedVersionError)
    client.subscribe("typed", "s", consumer_type=pulsar.ConsumerType.Shared).close()
    user.admin("POST", f"{NAMESPACE}/subscriptionTypesEnabled", ["Exclusive"])
    client.subscribe("typed", "s", consumer_type=pulsar.ConsumerType.Failover).close()  # the topic's apply
    client.create_producer("typed-otherwise").close()
    refused(
        lambda: client.subscribe("typed-otherwise", "s", consumer_type=pulsar.ConsumerType.Shared),
        pulsar.PulsarException,
    )
    user.admin("DELETE", f"{NAMESPACE}/subscriptionTypesEnabled")
    user.admin("DELETE", f"{TOPICS}/typed/subscriptionTypesEnabled")
    client.subscribe("typed", "s").close()
    client.close()


def auto_subscription_creation(user: User) -> None:
    """Consumers may not create subscriptions where a policy forbids it; existing ones work."""
    client = user.client()
    client.create_producer("closed").close()
    user.admin("POST", f"{TOPICS}/closed/autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False})
    refused(lambda: client.subscribe("closed", "new"), pulsar.PulsarException)
    assert user.admin("GET", f"{TOPICS}/closed/subscriptions") == []
    user.admin("PUT", f"{TOPICS}/closed/subscription/made")
    client.subscribe("closed", "made").close()
    client.create_reader("closed", pulsar.MessageId.earliest).close()  # not durable, so not forbidden
    user.admin("DELETE", f"{TOPICS}/closed/autoSubscriptionCreation")
    client.subscribe("closed", "new").close()
    client.close()


# -- terminate, truncate, unload -----------------------------------------------------------------------


def terminate(user: User) -> None:
    """No further message; consumers read to the end and notice it."""
    client = user.client()
    user.admin("PUT", f"{TOPICS}/ended-many/partitions", 3)
    for topic in ("ended", "ended-many"):
        consumer, producer = client.subscribe(topic, "s"), client.create_producer(topic)
        for number in range(6):
            producer.send(b"%d" % number)
        many = topic == "ended-many"
        last = user.admin("POST", f"{TOPICS}/{topic}/terminate{'/partitions' if many else ''}")
        assert len(last) == 3 if many else last["entryId"] == 5, last
        refused(lambda producer=producer: producer.send(b"late"), pulsar.PulsarException)  # type: ignore[misc]
        refused(lambda topic=topic: client.create_producer(topic), pulsar.TopicTerminated)  # type: ignore[misc]
        got = sorted(int(consumer.receive(10_000).data()) for _ in range(6))
        assert got == [*range(6)], got
    denied(user, "POST", f"{TOPICS}/ended-many/terminate", 405, "terminate/partitions")
    denied(user, "POST", f"{TOPICS}/absent/terminate", 404, "absent")
    with contextlib.suppress(pulsar.AlreadyClosed):  # its producers have ended
        client.close()


def terminate_drained(user: User) -> None:
    """The connection outlasts the end of a topic: other producers and consumers work on."""
    client = user.client()
    consumer, other = client.subscribe("drained", "s"), client.create_producer("beside-drained")

    def connection() -> str:
        other.send(b"x")
        found: str = user.admin("GET", f"{TOPICS}/beside-drained/stats")["publishers"][0]["address"]
        return found

    before = connection()
    user.admin("POST", f"{TOPICS}/drained/terminate")
    late = client.subscribe("drained", "late")
    assert connection() == before
    refused(lambda: late.receive(100), pulsar.Timeout)
    assert consumer.is_connected()
    client.close()


def truncate(user: User) -> None:
    """All messages go, also unacknowledged ones; new ones arrive."""
    client = user.client()
    user.admin("PUT", f"{TOPICS}/cut-many/partitions", 3)
    for topic in ("cut", "cut-many"):
        consumer = client.subscribe(topic, "s", receiver_queue_size=1)
        producer = client.create_producer(topic)
        consumer.close()
        for number in range(9):
            producer.send(b"%d" % number)
        user.admin("DELETE", f"{TOPICS}/{topic}/truncate")
        again = client.subscribe(topic, "s")
        refused(lambda again=again: again.receive(500), pulsar.Timeout)  # type: ignore[misc]
        producer.send(b"new")
        assert again.receive(10_000).data() == b"new"
    denied(user, "DELETE", f"{TOPICS}/absent/truncate", 404, "absent")
    client.close()


def unload(user: User) -> None:
    """Clients reconnect, and nothing is lost."""
    client = user.client()
    user.admin("PUT", f"{TOPICS}/moved-many/partitions", 3)
    for topic in ("moved", "moved-many"):
        consumer, producer = client.subscribe(topic, "s"), client.create_producer(topic)
        for number in range(4):
            producer.send(b"%d" % number)
            user.admin("PUT", f"{TOPICS}/{topic}/unload")
        got: set[bytes] = set()
        while len(got) < 4:
            message = consumer.receive(10_000)
            got.add(message.data())
            consumer.acknowledge(message)
    denied(user, "PUT", f"{TOPICS}/absent/unload", 404, "absent")
    client.close()


PROGRAMS: dict[str, Callable[[User], None]] = {
    each.__name__: each
    for each in (
        permissions,
        subscription_roles,
        granted_before_a_restart,
        granted_after_a_restart,
        misused_permissions,
        oauth2,
        without_authorization,
        expiry_of_subscriptions,
        inactive_topics,
        retention,
        time_to_live,
        properties,
        subscription_types,
        auto_subscription_creation,
        terminate,
        terminate_drained,
        truncate,
        unload,
    )
}


if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](User(*sys.argv[2:4]))
