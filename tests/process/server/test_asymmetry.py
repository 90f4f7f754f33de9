"""No command or route costs much more than it sends, alone and pipelined (I89, I91).

Costs are counted, so that no machine is too slow or too fast for them: see tests/kit/server/asymmetry.py. The
bounds below are what this server promises; each is at least twice of what was counted when they were written.
"""

from __future__ import annotations

import pytest

from holdfast.server.http.routing import Route
from holdfast.server.http.server import ROUTES
from tests.kit.server import asymmetry_checks as checks
from tests.kit.server.asymmetry import COMMANDS, LARGEST, Population, Row, texts_of
from tests.kit.server.asymmetry_checks import large as large
from tests.kit.server.asymmetry_checks import small as small
from tests.kit.server.asymmetry_routes import ROUTES_PIPELINED


def test_every_command_is_in_the_table() -> None:
    checks.every_command_is_in_the_table()


@pytest.mark.parametrize("row", COMMANDS, ids=str)
@pytest.mark.parametrize("count", [1, 0], ids=["alone", "pipelined"])
def test_a_command(row: Row, count: int, small: Population, large: Population) -> None:
    checks.a_command(row, count, small, large)


@pytest.mark.parametrize("row", LARGEST, ids=str)
def test_a_command_of_the_largest_size(row: Row, large: Population) -> None:
    checks.a_command_of_the_largest_size(row, large)


@pytest.mark.parametrize("row", [row for row in COMMANDS if not row.words], ids=str)
@pytest.mark.parametrize("size", [60_000, (1 << 20) - 100], ids=["60k", "1M"])
def test_a_command_stuffed_with_nothing(row: Row, size: int, large: Population) -> None:
    checks.a_command_stuffed_with_nothing(row, size, large)


@pytest.mark.parametrize("row", [row for row in COMMANDS if texts_of(row.kind) and not row.words], ids=str)
def test_a_command_with_a_long_text(row: Row, large: Population) -> None:
    checks.a_command_with_a_long_text(row, large)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_route_alone(route: Route, large: Population) -> None:
    checks.a_route(route, 1, large)


@pytest.mark.parametrize("route", checks.slice_of(ROUTES), ids=lambda route: f"{route.method} {route.path}")
def test_a_route_pipelined(route: Route, large: Population) -> None:
    checks.a_route(route, ROUTES_PIPELINED, large)


@pytest.mark.parametrize("route", checks.slice_of(ROUTES), ids=lambda route: f"{route.method} {route.path}")
def test_a_route_with_the_largest_body(route: Route, large: Population) -> None:
    checks.a_route_with_the_largest_body(route, large)
