"""Describe the interface in OpenAPI 3.1, from the routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast import __version__
from holdfast.server.http.refusals import Reason
from holdfast.server.http.routing import JSON, Parameter, Route

_REF = "#/components/schemas/{name}"

STATUSES = {
    400: "The request cannot be parsed.",
    401: "The credentials are missing or invalid.",
    403: "The role has no grant for this.",
    404: "The object does not exist.",
    405: "The topic is partitioned, and the request needs a single topic.",
    409: "The object exists already, or another request prevents this one.",
    412: "A name or position is invalid, or the object is in use.",
    422: "The topic cannot have so few partitions, or the definition of a schema is not valid.",
    413: "The body is too large.",
    501: "The feature is not built, or not enabled.",
    503: "Retry later: the broker stops, its disk is full, or too many requests are in progress.",
    504: "The request took too long; it may have taken effect.",
}
_ALWAYS = (401, 403, 503, 504)


def description(routes: Sequence[Route]) -> dict[str, Any]:
    """Make the whole description."""
    types = [each for route in routes for each in (route.body, route.answer) if each is not None]
    schemas, components = msgspec.json.schema_components([Reason, *types], ref_template=_REF)
    left = iter(schemas[1:])
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        body = None if route.body is None else next(left)
        answer = None if route.answer is None else next(left)
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, body, answer)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "holdfast",
            "version": __version__,
            "description": "Administration, lookup, metrics and health of a broker, at Pulsar's paths.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(route: Route, body: Any, answer: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": f"{route.tag}.{route.handle.__name__}",
        "tags": [route.tag],
        "summary": route.summary,
        "x-action": route.action,
        "parameters": [
            *(_parameter(each, "path") for each in route.parameters),
            *(_parameter(each, "query") for each in route.query),
        ],
        "responses": _responses(route, answer),
    }
    if body is not None:
        content = {JSON: {"schema": body}}
        found["requestBody"] = {"required": not route.body_optional, "content": content}
    return found


def _parameter(parameter: Parameter, where: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.type}
    if parameter.type == "integer":
        schema |= {"minimum": parameter.minimum, "maximum": parameter.maximum}
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    if parameter.default is not None:
        schema["default"] = parameter.default
    if where == "path" and parameter.type == "string":
        schema["minLength"] = 1
    return {
        "name": parameter.name,
        "in": where,
        "required": where == "path",
        "description": parameter.text,
        "schema": schema,
    }


def statuses(route: Route) -> list[int]:
    """List the statuses of a route, without 500, which is a bug of the server."""
    found = {*_ALWAYS, *route.refusals, *route.statuses.values()}
    if route.parameters:
        found.add(412)
    if route.query or route.body is not None:
        found.add(400)
    if route.body is not None:
        found |= {412, 413}
    return [200 if route.answer is not None else 204, *sorted(found)]


def _responses(route: Route, answer: Any) -> dict[str, Any]:
    refused = {JSON: {"schema": {"$ref": _REF.format(name="Reason")}}}
    responses: dict[str, Any] = {}
    for status in statuses(route):
        if status == 204:
            responses["204"] = {"description": "Done, and durable."}
        elif status == 200:
            schema = answer if route.media == JSON else {"type": "string"}
            content = {route.media: {"schema": schema}}
            responses["200"] = {"description": "Success.", "content": content}
        else:
            responses[str(status)] = {"description": STATUSES[status], "content": refused}
    return responses
