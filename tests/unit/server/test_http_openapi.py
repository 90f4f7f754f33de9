"""The description of the HTTP interface is true: it names every route, and every answer is as it says."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis.strategies import SearchStrategy, one_of
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from holdfast.wire.http.openapi import statuses
from holdfast.wire.http.server import ROUTES
from tests.kit.server.http_world import HttpWorld, http
from tests.kit.slices import pick

__all__ = ["http"]

EXAMPLES = pick(test=4, nightly=60)
"""Of each operation."""
JUDGES = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


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


@pytest.fixture(scope="module")
def schema(http: HttpWorld) -> Any:
    """The page as schemathesis reads it."""
    load_all_checks()
    return schemathesis.openapi.from_url(f"{http.server.url}/openapi.json")


KNOWN = {
    "tenant": "public",
    "namespace": "default",
    "topic": "a",
    "subscription": "s",
    "cluster": "standalone",
}
THERE = (
    "/admin/v2/tenants/public",
    "/admin/v2/namespaces/public/default",
    "/admin/v2/persistent/public/default/a/subscription/s",
)
met: dict[str, set[int]] = {}
"""The statuses that each operation has answered."""


def cases(operation: Any) -> SearchStrategy[Any]:
    """Requests as described, requests that are not, and requests for what is there."""
    raw = operation.definition.raw
    allowed = operation.as_strategy()
    named = [each["name"] for each in raw["parameters"] if each["in"] == "path"]
    strategies = [allowed]
    if named:
        there = {name: KNOWN.get(name, 1) for name in named}
        strategies.append(operation.as_strategy(path_parameters=there))
    if raw["parameters"] or "requestBody" in raw:
        strategies.append(operation.as_strategy(GenerationMode.NEGATIVE))
    return one_of(*strategies)


@pytest.mark.filterwarnings("ignore")  # those of the tool
@pytest.mark.parametrize("path", sorted({route.path for route in ROUTES}))
def test_answers_are_as_described(schema: Any, http: HttpWorld, path: str) -> None:
    """Fuzzing: never a mistake of the program, always a status and a body that the description tells of."""
    checks = [CHECKS.get_one(name) for name in JUDGES]
    for method, operation in schema[path].items():
        statuses_met = met.setdefault(f"{method} {path}", set())
        for there in THERE:  # the last one may have deleted it
            http.ask("PUT", there)

        @hypothesis.given(case=cases(operation))
        @hypothesis.settings(
            max_examples=EXAMPLES,
            database=None,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def fuzz(case: Any) -> None:
            statuses_met.add(case.call_and_validate(checks=checks).status_code)  # noqa: B023  # called here

        fuzz()
    assert http.ask("GET", "/admin/v2/brokers/health").status == 200


def test_the_fuzzing_met_both_sides() -> None:
    """What always fails, or never does, was not tried."""
    if len(met) < len(ROUTES):
        pytest.skip("the fuzzing was not run in whole")
    succeeded = [name for name, statuses in met.items() if statuses & {200, 204}]
    refused = [name for name, statuses in met.items() if statuses - {200, 204}]
    assert len(succeeded) > 0.7 * len(met), sorted(set(met) - set(succeeded))
    assert len(refused) > 0.7 * len(met), sorted(set(met) - set(refused))
