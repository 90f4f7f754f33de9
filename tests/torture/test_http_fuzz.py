"""Requests made from the description of the HTTP interface: every answer is as it says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis.strategies import SearchStrategy, one_of
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from holdfast.server.http.server import ROUTES
from tests.kit.examples import examples
from tests.kit.server.http_world import HttpWorld
from tests.kit.slices import pick

PHASES = [Phase.reuse, Phase.generate, *pick(test=[], nightly=[Phase.shrink])]
"""Shrinking asks the server again and again: only what is kept is worth it."""


JUDGES = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)


@pytest.fixture(scope="module")
def http() -> Iterator[HttpWorld]:
    """A server with a binary port: it has non-persistent topics."""
    with HttpWorld(wire=True) as world:
        yield world


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
    "exchange": "x",
    "cluster": "standalone",
}


PARTED = "parted"
"""The topic of requests for partitions."""

THERE = (
    "/admin/v2/exchanges/public/default/x",
    "/admin/v2/tenants/public",
    "/admin/v2/namespaces/public/default",
    "/admin/v2/persistent/public/default/a/subscription/s",
    "/admin/v2/non-persistent/public/default/a",
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
        if "artition" in operation.path and "topic" in there:
            there["topic"] = PARTED
        strategies.append(operation.as_strategy(path_parameters=there))
    if raw["parameters"] or "requestBody" in raw:
        strategies.append(operation.as_strategy(GenerationMode.NEGATIVE))
    return one_of(*strategies)


PATHS = sorted({route.path for route in ROUTES})


def fuzz(schema: Any, http: HttpWorld, path: str) -> None:
    """Send requests of all kinds to the operations of a path; count the statuses."""
    checks = [CHECKS.get_one(name) for name in JUDGES]
    for method, operation in schema[path].items():
        statuses_met = met.setdefault(f"{method} {path}", set())
        for there in THERE:  # the last one may have deleted it
            http.ask("PUT", there)
        for domain in ("persistent", "non-persistent"):
            http.ask("PUT", f"/admin/v2/{domain}/public/default/{PARTED}/partitions", json=2)

        @hypothesis.given(case=cases(operation))
        @examples(8, 60, phases=PHASES, suppress_health_check=list(HealthCheck))
        def ask(case: Any) -> None:
            statuses_met.add(case.call_and_validate(checks=checks).status_code)  # noqa: B023  # called here

        # Kept examples of one operation do not count for another.
        given: Any = ask
        given.hypothesis.inner_test._hypothesis_internal_add_digest = f"{method} {path}".encode()
        given()


@pytest.mark.filterwarnings("ignore")  # those of the tool
@pytest.mark.parametrize("path", PATHS)
def test_answers_are_as_described(schema: Any, http: HttpWorld, path: str) -> None:
    """Fuzz: the server never raises, and each response fits the description."""
    fuzz(schema, http, path)
    assert http.ask("GET", "/admin/v2/brokers/health").status == 200


@pytest.mark.filterwarnings("ignore")
def test_the_fuzzing_met_both_sides(schema: Any, http: HttpWorld) -> None:
    """An operation that always fails, or never does, was not tried."""
    tried = {name.partition(" ")[2] for name in met}
    for path in PATHS:
        if path not in tried:  # this test was chosen alone
            fuzz(schema, http, path)
    succeeded = [name for name, statuses in met.items() if statuses & {200, 204}]
    refused = [name for name, statuses in met.items() if statuses - {200, 204}]
    assert len(met) == len(ROUTES)
    assert len(succeeded) > 0.7 * len(met), sorted(set(met) - set(succeeded))
    assert len(refused) > 0.7 * len(met), sorted(set(met) - set(refused))
