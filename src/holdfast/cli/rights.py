"""`holdfast namespace|topic permissions|permit|properties …`: rights of roles, and properties."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from holdfast.cli import applied, parsing, values
from holdfast.cli.data import data_command, find_subscription, find_topic
from holdfast.cli.output import tell
from holdfast.cli.parsing import Subparsers
from holdfast.formatting import text_table

if TYPE_CHECKING:
    from holdfast.broker import Broker

PERMISSIONS = """\
Lists what roles may do, by permissions. Grants in the configuration of a server
are not among them."""

PERMIT = """\
Lets a role do these actions, and no other: produce, consume, or both with a
comma between them; none revokes all. Servers close clients that may not go on."""

ROLES = """\
Lists the roles that alone may consume from subscriptions, or sets those of a
subscription. With --roles any, all that may consume can. With --prefixed yes,
each subscription must begin with the role of its consumers."""

SET = """\
Changes settings of a namespace, which apply to topics without their own. The
value `default` restores the broker's setting. Then shows each setting: the value
set here, the value that applies to such topics, and its place. With --data, the
options of a server are not known."""

PROPERTIES = """\
Shows properties, or changes them: texts that programs keep here. The broker does
not read them."""


def add_to_namespace(verbs: Subparsers) -> None:
    from holdfast.cli.topic import add_policies

    parser = data_command(verbs, "set", "change settings of a namespace", SET, change)
    _of_namespace(parser)
    add_policies(parser, default=True)
    _of_namespace(data_command(verbs, "permissions", "list permissions of roles", PERMISSIONS, permissions))
    parser = data_command(verbs, "permit", "grant or revoke permissions", PERMIT, permit)
    _of_namespace(parser)
    _permitted(parser)
    parser = data_command(verbs, "roles", "show or set roles of subscriptions", ROLES, roles)
    _of_namespace(parser)
    parser.add_argument("subscription", nargs="?", metavar="SUBSCRIPTION", type=parsing.subscription)
    words = "roles, with commas between them, or any"
    parser.add_argument("--roles", metavar="LIST", type=role_list, help=words)
    parser.add_argument("--prefixed", choices=("yes", "no"), help="subscriptions begin with a role")
    parser = data_command(verbs, "properties", "show or change properties", PROPERTIES, of_namespace)
    _of_namespace(parser)
    _changed(parser)


def add_to_topic(verbs: Subparsers) -> None:
    parser = data_command(verbs, "permissions", "list permissions of roles", PERMISSIONS, permissions)
    parser.add_argument("name", metavar="TOPIC", type=parsing.topic)
    parser = data_command(verbs, "permit", "grant or revoke permissions", PERMIT, permit)
    parser.add_argument("name", metavar="TOPIC", type=parsing.topic)
    _permitted(parser)
    parser = data_command(verbs, "properties", "show or change properties", PROPERTIES, of_topic)
    parser.add_argument("name", metavar="TOPIC", type=parsing.topic)
    _changed(parser)


def add_to_subscription(verbs: Subparsers) -> None:
    parser = data_command(verbs, "properties", "show or change properties", PROPERTIES, of_subscription)
    parser.add_argument("topic", metavar="TOPIC", type=parsing.topic)
    parser.add_argument("name", metavar="SUBSCRIPTION", type=parsing.subscription)
    _changed(parser)


def _of_namespace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="TENANT/NAMESPACE", type=parsing.namespace)


def _permitted(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("role", metavar="ROLE", type=parsing.role)
    words = "such as produce,consume; none: revoke all"
    parser.add_argument("actions", metavar="ACTIONS", type=values.actions, help=words)


def _changed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", dest="given", action="append", default=[], type=pair, metavar="NAME=VALUE", help="set one"
    )
    parser.add_argument(
        "--remove", dest="gone", action="append", default=[], metavar="NAME", help="remove one"
    )


def role_list(text: str) -> list[str]:
    """Read roles with commas between them; any: an empty list."""
    return [] if text == "any" else [parsing.role(each) for each in text.split(",")]


def pair(text: str) -> tuple[str, str]:
    """Read NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


# -- settings ------------------------------------------------------------------------------------------


async def change(broker: Broker, options: argparse.Namespace) -> int:
    from holdfast.cli.topic import POLICIES, SWITCHES, policies_of

    wanted = policies_of(options)
    if wanted:
        await broker.admin.set_namespace_policies(options.name, **wanted)
    shown, lines = applied.table(broker, options.name, (*POLICIES, *SWITCHES))
    answer = {"name": options.name, **shown}
    return tell(options, answer, "\n".join([f"namespace {options.name}", *lines]))


# -- permissions ---------------------------------------------------------------------------------------


async def permissions(broker: Broker, options: argparse.Namespace) -> int:
    found = broker.admin.permissions(options.name)
    return tell(options, found, _table("ROLE", "MAY", found) or "no permissions")


async def permit(broker: Broker, options: argparse.Namespace) -> int:
    role, name = options.role, options.name
    await broker.admin.permit(name, role, options.actions)
    may = broker.admin.permissions(name).get(role, [])  # of a topic also by its namespace
    words = f"{role} may {', '.join(may) or 'do nothing'} in {name}"
    if above := [each for each in may if each not in options.actions]:
        words += f"; {', '.join(above)} by its namespace"
    return tell(options, {"role": role, "on": name, "actions": options.actions, "may": may}, words)


async def roles(broker: Broker, options: argparse.Namespace) -> int:
    if options.prefixed is not None:
        await broker.admin.set_prefixed(options.name, options.prefixed == "yes")
    if options.roles is not None:
        if options.subscription is None:
            raise parsing.Usage("--roles needs a SUBSCRIPTION")
        await broker.admin.set_subscription_roles(options.name, options.subscription, options.roles)
    found, prefixed = broker.admin.subscription_roles(options.name), broker.admin.is_prefixed(options.name)
    lines = ["subscriptions must begin with the role of their consumers"] if prefixed else []
    lines.append(_table("SUBSCRIPTION", "FOR", found) or "no subscription is for some roles only")
    return tell(options, {"subscriptions": found, "prefixed": prefixed}, "\n".join(lines))


def _table(first: str, second: str, found: dict[str, list[str]]) -> str:
    rows = [(name, ", ".join(values)) for name, values in found.items()]
    return "\n".join(text_table((first, second), rows)) if rows else ""


# -- properties ----------------------------------------------------------------------------------------


async def of_namespace(broker: Broker, options: argparse.Namespace) -> int:
    if options.given or options.gone:
        await broker.admin.set_namespace_properties(options.name, dict(options.given), options.gone)
    return _tell_properties(options, broker.admin.namespace_properties(options.name))


async def of_topic(broker: Broker, options: argparse.Namespace) -> int:
    full = find_topic(broker, options.name)
    if options.given or options.gone:
        await broker.admin.set_topic_properties(full, dict(options.given), options.gone)
    return _tell_properties(options, broker.admin.topic_properties(full))


async def of_subscription(broker: Broker, options: argparse.Namespace) -> int:
    full = find_topic(broker, options.topic)
    admin, name = broker.admin, options.name
    if not admin.partitions(full):
        find_subscription(broker, full, name)
    if options.given or options.gone:
        await admin.set_subscription_properties(full, name, dict(options.given), options.gone)
    return _tell_properties(options, admin.subscription_properties(full, name))


def _tell_properties(options: argparse.Namespace, found: dict[str, Any]) -> int:
    lines = [f"{name}={value}" for name, value in found.items()]
    return tell(options, found, "\n".join(lines) or "no properties")
