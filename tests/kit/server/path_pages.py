"""Make the tables of paths in docs/guide/http.md from the routes; `tests.kit.made_pages` writes them."""

from __future__ import annotations

from holdfast.server.http.missing import MISSING
from holdfast.server.http.routing import Route
from holdfast.server.http.server import ROUTES

ADMIN = "/admin/v2/"


def shortened(path: str) -> str:
    """Return a path without what all paths have in common, and with Pulsar's short words."""
    for long, short in (
        ("/admin/v2/persistent/{tenant}/{namespace}/{topic}", "TOPIC"),
        ("/admin/v2/persistent/{tenant}/{namespace}", "TOPICS"),
        ("/admin/v2/exchanges/{tenant}/{namespace}/{exchange}", "EXCHANGE"),
        ("/admin/v2/namespaces/{tenant}/{namespace}", "NAMESPACE"),
    ):
        if path.startswith(long):
            return f"`{short}{path.removeprefix(long)}`"
    return f"`{path.removeprefix(ADMIN)}`"


def grant(route: Route) -> str:
    """Return the words for the right that a request needs."""
    if route.action in ("health", "describe", "metrics"):
        return route.action
    if route.of == "broker":
        return {"consume": "consume anywhere", "lookup": "any role"}.get(route.action, "superuser")
    words = {"lookup": "produce, consume or admin", "consume": "consume or admin"}
    return f"{words.get(route.action, 'admin')} on the {route.of}"


def served() -> str:
    """Return a table of the paths that work."""
    paths: dict[str, list[Route]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, []).append(route)
    rows = [
        f"| {shortened(path)} | {' '.join(each.method for each in routes)} "
        f"| {'; '.join(dict.fromkeys(map(grant, routes)))} |"
        for path, routes in sorted(paths.items())
    ]
    return "\n".join(["| path | works | right |", "|---|---|---|", *rows])


def refused() -> str:
    """Return a table of the paths that are refused, with the words."""
    rows = [
        f"| {reason} | {', '.join(shortened(path) for path in paths)} |" for reason, paths in MISSING.items()
    ]
    return "\n".join(["| 501: the reason in the answer | paths |", "|---|---|", *rows])
