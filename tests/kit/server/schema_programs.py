"""Programs of users with the official client, on rules for schemas, which HTTP sets.

Each runs in a process of its own: `schema_programs.py NAME URL HTTP_URL`. It fails by an exception. Schemas
are classes of that client. It has no calls for administration, so rules are set over HTTP, as users do.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pulsar
from pulsar.schema import AvroSchema, Integer, JsonSchema, Record, String

from tests.kit.server.policy_programs import NAMESPACE, TOPICS, User, denied, refused

SCHEMAS = "schemas/public/default"
INCOMPATIBLE = pulsar.IncompatibleSchema


class Order(Record):  # type: ignore[misc]
    name = String()


class Coloured(Record):  # type: ignore[misc]
    """An order with a further field that may be missing."""

    name = String()
    colour = String(required_default=True)


class Counted(Record):  # type: ignore[misc]
    """An order with a further field that must be there."""

    name = String()
    count = Integer(required=True)


class Numbered(Record):  # type: ignore[misc]
    """An order whose name is a number: no strategy but ALWAYS_COMPATIBLE lets it follow."""

    name = Integer(required=True)


for _each in (Coloured, Counted, Numbered):
    _each.__name__ = "Order"  # the name is part of the definition


class Told:
    """A client, and the words of its log.

    Its exceptions name only the kind of a refusal.
    """

    def __init__(self, user: User) -> None:
        self._log = Path(tempfile.mkstemp(prefix="holdfast-client.")[1])
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(self._log))
        self.client = pulsar.Client(user.url, operation_timeout_seconds=5, logger=logger)

    def produce(self, topic: str, schema: Any = None) -> Any:
        given = {} if schema is None else {"schema": schema}
        return self.client.create_producer(topic, **given)

    def refused(self, work: Callable[[], Any], *words: str) -> None:
        """Require that a schema is refused, with these words in the log."""
        before = len(self._log.read_text())
        refused(work, INCOMPATIBLE)
        told = self._log.read_text()[before:]
        assert all(each in told for each in words), (words, told)

    def close(self) -> None:
        self.client.close()
        self._log.unlink()


def uploaded(schema: Any) -> dict[str, Any]:
    """Return a schema of the client as the administration takes it."""
    info = schema.schema_info()
    kind = "AVRO" if isinstance(schema, AvroSchema) else "JSON"
    return {"type": kind, "schema": info.schema(), "properties": {}}


def version_of(user: User, topic: str) -> int:
    return int(user.admin("GET", f"{SCHEMAS}/{topic}/schema")["version"])


# -- auto-update ---------------------------------------------------------------------------------------


def auto_update(user: User) -> None:
    """Producers add schemas, until the namespace says that only administrators may."""
    told = Told(user)
    for schema in (JsonSchema(Order), JsonSchema(Coloured)):
        told.produce("updated", schema).close()
    assert version_of(user, "updated") == 1
    user.admin("POST", f"{NAMESPACE}/isAllowAutoUpdateSchema", False)
    assert user.admin("GET", f"{NAMESPACE}/isAllowAutoUpdateSchema") is False
    words = ("isAllowAutoUpdateSchema", "let an administrator add it")
    told.refused(partial(told.produce, "updated", JsonSchema(Numbered)), *words)
    told.refused(partial(told.produce, "brand-new", JsonSchema(Order)), *words)
    # Producers with a schema that the topic has, and consumers, are not affected.
    producer = told.produce("updated", JsonSchema(Order))
    consumer = told.client.subscribe("updated", "s", schema=JsonSchema(Coloured))
    producer.send(Order(name="nails"))
    assert consumer.receive(10_000).value().name == "nails"
    # The administrator adds it; then the producer is accepted.
    answer = user.admin("POST", f"{SCHEMAS}/brand-new/schema", uploaded(JsonSchema(Order)))
    assert answer == {"version": {"version": 0}}
    told.produce("brand-new", JsonSchema(Order)).send(Order(name="screws"))
    user.admin("POST", f"{NAMESPACE}/isAllowAutoUpdateSchema", True)
    told.produce("brand-new", JsonSchema(Coloured)).send(Coloured(name="screws", colour="grey"))
    assert version_of(user, "brand-new") == 1
    told.close()


# -- strategies ----------------------------------------------------------------------------------------


def strategy_of_the_namespace(user: User) -> None:
    """A namespace decides for topics without a strategy of their own."""
    told, path = Told(user), f"{NAMESPACE}/schemaCompatibilityStrategy"
    told.produce("ruled", AvroSchema(Order)).send(Order(name="nails"))
    told.refused(partial(told.produce, "ruled", AvroSchema(Counted)), "FULL", "field count")
    user.admin("PUT", path, "BACKWARD")
    told.refused(partial(told.produce, "ruled", AvroSchema(Counted)), "BACKWARD", "field count")
    user.admin("PUT", path, "FORWARD")
    told.produce("ruled", AvroSchema(Counted)).send(Counted(name="nails", count=7))
    assert version_of(user, "ruled") == 1
    # Consumers must read the newest version: one with the former schema ignores the new field.
    assert told.client.subscribe("ruled", "s", schema=AvroSchema(Order)) is not None
    told.refused(partial(told.client.subscribe, "ruled", "t", schema=AvroSchema(Numbered)), "field name")
    # The topic's own strategy wins.
    user.admin("PUT", f"{TOPICS}/ruled/schemaCompatibilityStrategy", "ALWAYS_INCOMPATIBLE")
    told.refused(partial(told.produce, "ruled", AvroSchema(Coloured)), "ALWAYS_INCOMPATIBLE")
    user.admin("DELETE", f"{TOPICS}/ruled/schemaCompatibilityStrategy")
    user.admin("PUT", path, "ALWAYS_COMPATIBLE")
    told.produce("ruled", JsonSchema(Numbered)).send(Numbered(name=7))
    user.admin("DELETE", path)
    told.refused(partial(told.produce, "ruled", JsonSchema(Coloured)), "FULL")
    told.close()


def misused_strategies(user: User) -> None:
    """Wrong names, wrong places and schemas that do not fit are answered with words."""
    told = Told(user)
    told.produce("misused", JsonSchema(Order))
    denied(user, "PUT", f"{NAMESPACE}/schemaCompatibilityStrategy", 400, "SIDEWAYS", "SIDEWAYS")
    denied(user, "PUT", "namespaces/public/absent/schemaCompatibilityStrategy", 404, "absent", "FULL")
    denied(user, "POST", f"{NAMESPACE}/isAllowAutoUpdateSchema", 400, "bool", "no")
    path, body = f"{SCHEMAS}/misused/schema", uploaded(JsonSchema(Counted))
    denied(user, "POST", path, 409, "field count", body)
    denied(user, "POST", path, 422, "not valid", {**body, "schema": json.dumps({"type": "order"})})
    answer = user.admin("POST", f"{SCHEMAS}/misused/compatibility", body)
    assert (answer["compatibility"], answer["schemaCompatibilityStrategy"]) == (False, "FULL")
    assert "field count" in answer["reason"]
    assert version_of(user, "misused") == 0
    told.close()


# -- enforcement ---------------------------------------------------------------------------------------


def enforcement(user: User) -> None:
    """Producers without a schema are refused where a topic has one."""
    told, path = Told(user), "schemaValidationEnforced"
    told.produce("enforced", JsonSchema(Order)).send(Order(name="nails"))
    told.produce("enforced").send(b"anything")
    user.admin("POST", f"{NAMESPACE}/{path}", True)
    told.refused(partial(told.produce, "enforced"), "schemaValidationEnforced", "of type JSON")
    told.produce("enforced", JsonSchema(Order)).send(Order(name="screws"))
    told.produce("without-a-schema").send(b"anything")
    consumer = told.client.subscribe("enforced", "s", initial_position=pulsar.InitialPosition.Earliest)
    assert len([consumer.receive(10_000) for _ in range(3)]) == 3, "consumers of bytes are welcome"
    # The topic's own rule wins.
    user.admin("POST", f"{TOPICS}/enforced/{path}", False)
    assert user.admin("GET", f"{TOPICS}/enforced/{path}?applied=true") is False
    told.produce("enforced").send(b"anything")
    user.admin("POST", f"{NAMESPACE}/{path}", False)
    user.admin("POST", f"{TOPICS}/enforced/{path}", True)
    told.refused(partial(told.produce, "enforced"), "give the producer a schema")
    told.close()


# -- over a kill ---------------------------------------------------------------------------------------


def ruled_before_a_restart(user: User) -> None:
    told = Told(user)
    for topic in ("kept", "other"):
        told.produce(topic, JsonSchema(Order)).send(Order(name="nails"))
    user.admin("PUT", f"{NAMESPACE}/schemaCompatibilityStrategy", "FORWARD")
    told.produce("kept", JsonSchema(Counted)).send(Counted(name="nails", count=7))
    user.admin("POST", f"{TOPICS}/kept/schemaValidationEnforced", True)
    user.admin("PUT", f"{TOPICS}/other/schemaCompatibilityStrategy", "ALWAYS_INCOMPATIBLE")
    told.close()


def ruled_after_a_restart(user: User) -> None:
    """Versions, strategies and rules are those of before the kill."""
    told = Told(user)
    assert (version_of(user, "kept"), version_of(user, "other")) == (1, 0)
    told.refused(partial(told.produce, "kept", JsonSchema(Numbered)), "FORWARD", "field name")
    told.refused(partial(told.produce, "other", JsonSchema(Coloured)), "ALWAYS_INCOMPATIBLE")
    told.refused(partial(told.produce, "kept"), "schemaValidationEnforced")
    told.produce("kept", JsonSchema(Order)).send(Order(name="screws"))
    reader = told.client.create_reader("kept", pulsar.MessageId.earliest)
    sent = [reader.read_next(10_000) for _ in range(3)]
    assert [each._message.int_schema_version() for each in sent] == [0, 1, 0]
    told.close()


PROGRAMS: dict[str, Callable[[User], None]] = {
    each.__name__: each
    for each in (
        auto_update,
        strategy_of_the_namespace,
        misused_strategies,
        enforcement,
        ruled_before_a_restart,
        ruled_after_a_restart,
    )
}


if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](User(*sys.argv[2:4]))
