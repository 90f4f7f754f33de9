"""Administer schemas, and the rules by which they may change."""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

from holdfast.broker import Strategy
from holdfast.errors import BadSchema, IncompatibleSchema, Misuse, NotFound
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.http.answers import Compatible, SchemaAnswer, SchemaAnswers, SchemaBody, VersionAnswer
from holdfast.server.http.policies import APPLIED, policies_of_call
from holdfast.server.http.routing import Call, Parameter, Routes
from holdfast.server.http.topics import NAMESPACE
from holdfast.server.registry import versions
from holdfast.server.registry.definition import (
    PART_TYPE,
    RECORDS,
    TYPES,
    joined,
    pair,
    require_sound,
    shown,
    text,
)

route = Routes("schemas", "/admin/v2/schemas/{tenant}/{namespace}/{topic}", "topic", partitioned="first")
of_namespace = Routes("schemas", "/admin/v2/namespaces/{tenant}/{namespace}", "namespace")
of_topic = Routes("schemas", NAMESPACE + "/{topic}", "topic", partitioned="each")

AutoUpdate = Literal[
    "AutoUpdateDisabled",
    "Backward",
    "Forward",
    "Full",
    "AlwaysCompatible",
    "BackwardTransitive",
    "ForwardTransitive",
    "FullTransitive",
]
"""A strategy under the older name of its policy."""
GivenStrategy = Literal[Strategy, "UNDEFINED"]
"""A strategy in a request. The tools of Pulsar remove that of a namespace by `UNDEFINED`."""
OLDER: dict[Strategy, AutoUpdate] = {
    "ALWAYS_INCOMPATIBLE": "AutoUpdateDisabled",
    "BACKWARD": "Backward",
    "FORWARD": "Forward",
    "FULL": "Full",
    "ALWAYS_COMPATIBLE": "AlwaysCompatible",
    "BACKWARD_TRANSITIVE": "BackwardTransitive",
    "FORWARD_TRANSITIVE": "ForwardTransitive",
    "FULL_TRANSITIVE": "FullTransitive",
}


class _Camel(msgspec.Struct, rename="camel", kw_only=True):
    """Field names as Java writes them."""


class SchemaEntry(_Camel, kw_only=True):
    """A version of a topic's schema.

    It is in the broker's state, not in an entry of a ledger: both are −1.
    """

    ledger_id: int = -1
    entry_id: int = -1
    version: int


class SchemaMetadata(_Camel, kw_only=True):
    """All versions of a topic's schema, deletions included."""

    info: SchemaEntry
    """The newest."""
    index: list[SchemaEntry]


# -- between Pulsar's JSON and ours --------------------------------------------------------------------


def _given(call: Call) -> pb.Schema:
    """Return the schema in the body.

    Raises:
        BadSchema: its type is unknown, or its definition is not valid.
    """
    body: SchemaBody = call.body
    type_ = TYPES.get(body.type)
    if type_ is None:
        raise BadSchema(f"there is no type {body.type!r} of schemas; there are: {', '.join(sorted(TYPES))}")
    schema = pb.Schema(name=call["topic"], type=type_, schema_data=body.schema.encode())
    for key, value in sorted(body.properties.items()):
        schema.properties.add(key=key, value=value)
    if type_ == pb.Schema.KeyAndValue:
        schema.schema_data = _pair_data(body)
    require_sound(schema)
    return schema


def _pair_data(body: SchemaBody) -> bytes:
    """Return the data of a pair, which a request gives as `{"key": …, "value": …}`."""
    try:
        parts = json.loads(body.schema)
        key, value = parts["key"], parts["value"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadSchema('the definition of a KEY_VALUE schema is {"key": …, "value": …} as JSON') from None
    data = []
    for side, part in (("key", key), ("value", value)):
        record = TYPES.get(body.properties.get(PART_TYPE.format(side), "")) in RECORDS
        data.append(json.dumps(part) if record and not isinstance(part, str) else str(part or ""))
    try:
        return joined(*(each.encode() for each in data))
    except UnicodeEncodeError:  # an escape is half of a surrogate pair
        raise BadSchema("the definition of a KEY_VALUE schema is not Unicode") from None


def _shown(version: int, schema: pb.Schema) -> SchemaAnswer:
    data = text(schema.schema_data)
    if schema.type == pb.Schema.KeyAndValue:
        key, value = pair(schema)
        data = json.dumps({side: _part(each) for side, each in (("key", key), ("value", value))})
    return SchemaAnswer(
        version=version,
        type=shown(schema.type),
        data=data,
        properties={each.key: each.value for each in schema.properties},
    )


def _part(schema: pb.Schema) -> Any:
    return json.loads(schema.schema_data) if schema.type in RECORDS else text(schema.schema_data)


# -- schemas -------------------------------------------------------------------------------------------


@route("GET", "/schema", answer=SchemaAnswer, refusals=(404,), action="lookup")
async def newest(call: Call) -> SchemaAnswer:
    """Return the newest schema of a topic."""
    return _shown(*versions.find(call.topic))


@route("GET", "/schema/{version}", answer=SchemaAnswer, refusals=(404,), action="lookup")
async def of_version(call: Call) -> SchemaAnswer:
    """Return a version of a topic's schema, also one before a deletion."""
    return _shown(*versions.find(call.topic, call["version"]))


@route("GET", "/schemas", answer=SchemaAnswers, refusals=(404,), action="lookup")
async def all_versions(call: Call) -> SchemaAnswers:
    """Return all versions since the last deletion."""
    return SchemaAnswers(get_schema_responses=[_shown(*each) for each in versions.current(call.topic)])


@route("GET", "/metadata", answer=SchemaMetadata, refusals=(404,), action="lookup")
async def metadata(call: Call) -> SchemaMetadata:
    """Return the numbers of all versions, also of those before a deletion, and of deletions."""
    index = [SchemaEntry(version=version) for version in range(len(call.topic.schemas))]
    if not index:
        raise NotFound(f"{call.topic_name} has no schema")
    return SchemaMetadata(info=index[-1], index=index)


@route("POST", "/schema", body=SchemaBody, answer=VersionAnswer, refusals=(404, 409, 422))
async def upload(call: Call) -> VersionAnswer:
    """Add a schema, if the strategy of the topic allows it; return its version."""
    schema, name = _given(call), call.topic_name
    topic = await call.broker.ensure_topic(name)
    return VersionAnswer.of(await versions.add(call.broker, topic, schema, by_producer=False))


@route(
    "DELETE",
    "/schema",
    query=(Parameter("force", "boolean", "Not supported: versions stay readable.", default=False),),
    answer=VersionAnswer,
    refusals=(404,),
)
async def delete(call: Call) -> VersionAnswer:
    """End the schemas of a topic; the next one may differ.

    Versions stay readable.
    """
    if call.query("force"):
        raise Misuse(
            "versions of a schema are not removed, because stored messages name them; delete without force, "
            "or delete the topic"
        )
    return VersionAnswer.of(await call.broker.admin.delete_schema(call.topic_name))


@route("POST", "/compatibility", body=SchemaBody, answer=Compatible, refusals=(404, 422))
async def compatibility(call: Call) -> Compatible:
    """Return whether a schema could be added, by which strategy, and why not."""
    schema, topic = _given(call), call.topic
    strategy, why = versions.rules(call.broker, topic).strategy, ""
    if await versions.version_of(call.broker, topic, schema) is None:
        try:
            await versions.compare(call.broker, topic, strategy, schema)
        except IncompatibleSchema as error:
            why = str(error)
    return Compatible(compatibility=not why, schema_compatibility_strategy=strategy, reason=why)


@route("POST", "/version", body=SchemaBody, answer=VersionAnswer, refusals=(404, 422), action="lookup")
async def version(call: Call) -> VersionAnswer:
    """Return the version of a schema that the topic has."""
    found = await versions.version_of(call.broker, call.topic, _given(call))
    if found is None:
        raise NotFound(f"{call.topic_name} does not have this schema; add it first")
    return VersionAnswer.of(found)


def _strategy(call: Call) -> Strategy | None:
    """Return the strategy in the body; None: it is removed."""
    given: GivenStrategy = call.body
    return None if given == "UNDEFINED" else given


# -- rules of namespaces -------------------------------------------------------------------------------


async def _change_namespace(call: Call, **policies: Any) -> None:
    await call.broker.admin.set_namespace_policies(call.namespace, **policies)


@of_namespace("GET", "/schemaCompatibilityStrategy", query=APPLIED, answer=Strategy | None, refusals=(404,))
async def namespace_strategy(call: Call) -> Strategy | None:
    """Return which schemas may follow those of topics; null: the broker's option applies."""
    own = call.broker.admin.namespace_policies(call.namespace).schema_strategy
    return call.broker.decided.schema_strategy if own is None and call.query("applied") else own


@of_namespace("PUT", "/schemaCompatibilityStrategy", body=GivenStrategy, refusals=(404,))
async def set_namespace_strategy(call: Call) -> None:
    """Set which schemas may follow those of topics without their own setting; UNDEFINED: none."""
    await _change_namespace(call, schema_strategy=_strategy(call))


@of_namespace("DELETE", "/schemaCompatibilityStrategy", refusals=(404,))
async def drop_namespace_strategy(call: Call) -> None:
    """Remove the strategy of a namespace: the broker's option applies."""
    await _change_namespace(call, schema_strategy=None)


@of_namespace("GET", "/schemaAutoUpdateCompatibilityStrategy", answer=AutoUpdate | None, refusals=(404,))
async def older_strategy(call: Call) -> AutoUpdate | None:
    """Return the strategy of a namespace under its older name; null: not set."""
    strategy = call.broker.admin.namespace_policies(call.namespace).schema_strategy
    return None if strategy is None else OLDER[strategy]


@of_namespace("PUT", "/schemaAutoUpdateCompatibilityStrategy", body=AutoUpdate, refusals=(404,))
async def set_older_strategy(call: Call) -> None:
    """Set the strategy of a namespace under the older names of its values."""
    strategy = next(new for new, older in OLDER.items() if older == call.body)
    await _change_namespace(call, schema_strategy=strategy)


@of_namespace("GET", "/isAllowAutoUpdateSchema", answer=bool, refusals=(404,))
async def auto_update(call: Call) -> bool:
    """Return whether producers may add schemas, also by the broker's option."""
    own = call.broker.admin.namespace_policies(call.namespace).schema_auto_update
    return call.broker.decided.schema_auto_update if own is None else own


@of_namespace("POST", "/isAllowAutoUpdateSchema", body=bool, refusals=(404,))
async def set_auto_update(call: Call) -> None:
    """Set whether producers may add schemas; otherwise only administrators may."""
    await _change_namespace(call, schema_auto_update=call.body)


@of_namespace("GET", "/schemaValidationEnforced", query=APPLIED, answer=bool, refusals=(404,))
async def enforced(call: Call) -> bool:
    """Return whether producers without a schema are refused where the topic has one.

    With `applied`, also by the broker's option.
    """
    own = call.broker.admin.namespace_policies(call.namespace).schema_enforced
    return bool(call.broker.decided.schema_enforced if own is None and call.query("applied") else own)


@of_namespace("POST", "/schemaValidationEnforced", body=bool, refusals=(404,))
async def set_enforced(call: Call) -> None:
    """Set whether producers without a schema are refused where the topic has one."""
    await _change_namespace(call, schema_enforced=call.body)


# -- rules of topics -----------------------------------------------------------------------------------


async def _change_topic(call: Call, **policies: Any) -> None:
    await call.broker.admin.set_policies(call.topic_name, **policies)


@of_topic(
    "GET",
    "/schemaCompatibilityStrategy",
    query=APPLIED,
    answer=Strategy | None,
    refusals=(404,),
    partitioned="first",
)
async def topic_strategy(call: Call) -> Strategy | None:
    """Return which schemas may follow those of a topic; null: not set."""
    return policies_of_call(call).schema_strategy


@of_topic("PUT", "/schemaCompatibilityStrategy", body=GivenStrategy, refusals=(404,))
async def set_topic_strategy(call: Call) -> None:
    """Set which schemas may follow those of a topic; UNDEFINED: no setting."""
    await _change_topic(call, schema_strategy=_strategy(call))


@of_topic("DELETE", "/schemaCompatibilityStrategy", refusals=(404,))
async def drop_topic_strategy(call: Call) -> None:
    """Remove the strategy of a topic: that of its namespace applies."""
    await _change_topic(call, schema_strategy=None)


@of_topic(
    "GET",
    "/schemaValidationEnforced",
    query=APPLIED,
    answer=bool | None,
    refusals=(404,),
    partitioned="first",
)
async def topic_enforced(call: Call) -> bool | None:
    """Return whether producers without a schema are refused; null: not set."""
    return policies_of_call(call).schema_enforced


@of_topic("POST", "/schemaValidationEnforced", body=bool, refusals=(404,))
async def set_topic_enforced(call: Call) -> None:
    """Set whether producers without a schema are refused if the topic has one."""
    await _change_topic(call, schema_enforced=call.body)
