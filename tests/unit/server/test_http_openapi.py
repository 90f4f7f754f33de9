"""The OpenAPI description is true: it has every route, and every answer matches it."""

from __future__ import annotations

from typing import Any

from holdfast.server.http.openapi import statuses
from holdfast.server.http.server import ROUTES
from tests.kit.server.http_world import HttpWorld
from tests.kit.server.http_world import http as http


def test_the_description_names_every_route_and_no_other(http: HttpWorld) -> None:
    described = {
        (method.upper(), path)
        for path, methods in http.get("/openapi.json")["paths"].items()
        for method in methods
    }
    served = {
        (route.method, route.resource.canonical)
        for resource in http.server.application.router.resources()
        for route in resource
        if route.resource is not None
    }
    assert described == served == {(route.method, route.path) for route in ROUTES}
    assert len(ROUTES) == len(described)


def test_every_route_tells_what_it_does(http: HttpWorld) -> None:
    page = http.get("/openapi.json")
    operations = [each for methods in page["paths"].values() for each in methods.values()]
    assert len({each["operationId"] for each in operations}) == len(operations)
    for each in operations:
        assert each["summary"].endswith("."), each
        assert {"401", "403", "503", "504"} < set(each["responses"])
        assert len({parameter["name"] for parameter in each["parameters"]}) == len(each["parameters"])
    for route in ROUTES:
        assert 200 in statuses(route) or 204 in statuses(route)


def walk(value: Any, references: set[str]) -> None:
    if isinstance(value, dict):
        if "$ref" in value:
            references.add(value["$ref"])
        for each in value.values():
            walk(each, references)
    elif isinstance(value, list):
        for each in value:
            walk(each, references)


def test_references_lead_somewhere(http: HttpWorld) -> None:
    page = http.get("/openapi.json")
    references: set[str] = set()
    walk(page, references)
    components = {f"#/components/schemas/{name}" for name in page["components"]["schemas"]}
    assert references == components
