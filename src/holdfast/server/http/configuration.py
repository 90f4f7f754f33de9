"""Show the settings of the server, and change those that may change while it runs."""

from __future__ import annotations

from typing import Any

from holdfast.errors import Misuse
from holdfast.server.http.routing import Call, Routes

route = Routes("configuration", "/admin/v2/brokers/configuration", "broker")

PREFIX = "broker."
"""Of the settings of a broker. In a cluster their names are shared options without it."""


@route("GET", "", answer=list[str])
async def names(call: Call) -> list[str]:
    """List the settings that can be changed at run time."""
    return list(_changeable(call))


@route("GET", "/values", answer=dict[str, str])
async def values(call: Call) -> dict[str, str]:
    """Return settings that apply with another value than the configuration has."""
    differing = call.broker.membership.differing()
    return {_key(name): _text(applied) for name, (applied, _) in differing.items()}


@route("GET", "/runtime", answer=dict[str, str])
async def runtime(call: Call) -> dict[str, str]:
    """Return all settings with the values that apply; secrets are not shown."""
    changed = {key: _text(value) for key, value in _changeable(call).items()}
    return {**call.server.options.settings, **changed}


@route("POST", "/{setting}/{value}")
async def change(call: Call) -> None:
    """Change a setting at run time: in a cluster for all members. It outlives restarts.

    412 for a setting that is read only at the start."""
    name = _name(call)
    await call.broker.membership.set_options({name: _value(name, call["value"], _changeable(call))})


@route("DELETE", "/{setting}")
async def restore(call: Call) -> None:
    """Let the value of this server's configuration apply again."""
    await call.broker.membership.restore_options([_name(call)])


def _changeable(call: Call) -> dict[str, Any]:
    return {_key(name): value for name, value in call.broker.membership.changeable().items()}


def _key(name: str) -> str:
    """Return the key of a setting for the name of an option."""
    return name if name.startswith("limits.") else PREFIX + name


def _name(call: Call) -> str:
    """Return the name of an option for the key in the path.

    Raises:
        Misuse: there is no such setting, or it cannot change while the server runs.
    """
    key, known = call["setting"], _changeable(call)
    for each in (key, PREFIX + key):
        if each in known:
            return str(each.removeprefix(PREFIX))
    if key in call.server.options.settings:
        raise Misuse(
            f"the setting {key} is read only at the start; change the configuration, and restart the server"
        )
    names = ", ".join(known)
    raise Misuse(f"there is no setting {key!r} that can be changed at run time; there are: {names}")


def _value(name: str, text: str, known: dict[str, Any]) -> Any:
    """Parse a value as the type that the setting has.

    Raises:
        Misuse: the text has another type.
    """
    kind = type(known[_key(name)])
    try:
        if kind is str:
            return text
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return int(text) if kind is int and not name.endswith("_s") else float(text)
    except (KeyError, ValueError):
        words = {bool: "true or false", int: "a whole number"}.get(kind, "a number")
        raise Misuse(f"the setting {_key(name)} cannot be {text!r}; use {words}") from None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
