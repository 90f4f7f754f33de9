"""`holdfast namespace ls|create|clear|unsubscribe|missing|bundles|unload`: namespaces of topics."""

from __future__ import annotations

import argparse
import itertools
from typing import TYPE_CHECKING

from holdfast.cli import limits, parsing, rights
from holdfast.cli.asking import asking_command, server_of
from holdfast.cli.data import data_command
from holdfast.cli.output import tell
from holdfast.cli.parsing import Subparsers, Usage
from holdfast.cli.values import partitions

if TYPE_CHECKING:
    from holdfast.broker import Broker

CREATE = """\
Creates namespaces, and their tenants if missing. The namespace public/default
exists from the start. On a server, a tenant can be created by superusers only."""

CLEAR = """\
Acknowledges the backlogs of all subscriptions of a namespace, one after the
other, or of those with one name."""

UNSUBSCRIBE = """\
Deletes the subscription of this name from all topics of a namespace. Refuses
where it has consumers; the other topics lose it all the same."""

MISSING = """\
Shows how a topic that does not exist is created when a client names it, or sets
it: --create no, --create yes, or --create yes --partitions N. With --create
default, the settings of the server decide."""

BUNDLES = """\
Lists the bundles of a namespace. There is always one: each topic has an owner of
its own. Tools of Pulsar ask for them."""

UNLOAD = """\
Closes the producers and consumers of all topics of a namespace, in a cluster at
every member. Their clients reconnect, and nothing is lost."""


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser("namespace", help="list and create namespaces of topics")
    verbs = noun.add_subparsers(title="verbs", metavar="VERB", required=True)
    data_command(verbs, "ls", "list namespaces", "Lists the namespaces of all tenants, one per line.", ls)
    parser = data_command(verbs, "create", "create namespaces", CREATE, create, makes=True)
    parser.add_argument("names", nargs="+", metavar="TENANT/NAMESPACE", type=parsing.namespace)

    parser = data_command(verbs, "clear", "acknowledge all backlogs", CLEAR, clear)
    parser.add_argument("name", metavar="TENANT/NAMESPACE", type=parsing.namespace)
    parser.add_argument("--subscription", metavar="NAME", type=parsing.subscription, help="only of this name")
    parser = data_command(verbs, "unsubscribe", "delete a subscription everywhere", UNSUBSCRIBE, unsubscribe)
    parser.add_argument("name", metavar="TENANT/NAMESPACE", type=parsing.namespace)
    parser.add_argument("subscription", metavar="SUBSCRIPTION", type=parsing.subscription)
    parser = data_command(verbs, "missing", "show or set how missing topics are created", MISSING, missing)
    parser.add_argument("name", metavar="TENANT/NAMESPACE", type=parsing.namespace)
    parser.add_argument(
        "--create", choices=("yes", "no", "default"), help="whether clients create missing topics"
    )
    parser.add_argument(
        "--partitions", type=partitions, default=0, metavar="N", help="partitions of a new topic"
    )
    rights.add_to_namespace(verbs)
    limits.add_to_namespace(verbs)
    parser = asking_command(verbs, "bundles", "list the bundles of a namespace", BUNDLES, bundles)
    parser.add_argument("name", metavar="TENANT/NAMESPACE", type=parsing.namespace)
    parser = asking_command(verbs, "unload", "let all clients reconnect", UNLOAD, unload)
    parser.add_argument("name", metavar="TENANT/NAMESPACE", type=parsing.namespace)


async def ls(broker: Broker, options: argparse.Namespace) -> int:
    names = [name for tenant in broker.admin.tenants() for name in broker.admin.namespaces(tenant)]
    return tell(options, names, "\n".join(names))


async def create(broker: Broker, options: argparse.Namespace) -> int:
    for name in options.names:
        tenant = name.partition("/")[0]
        if broker.admin.tenant(tenant) is None:
            await broker.admin.create_tenant(tenant)
        await broker.admin.create_namespace(name)
        if not options.json:
            print(f"{name}: created", flush=True)
    return tell(options, {"created": options.names}, "") if options.json else 0


async def clear(broker: Broker, options: argparse.Namespace) -> int:
    await broker.admin.clear_namespace(options.name, options.subscription)
    what = "all backlogs" if options.subscription is None else f"all backlogs of {options.subscription!r}"
    return tell(options, {"cleared": options.name}, f"{options.name}: acknowledged {what}")


async def unsubscribe(broker: Broker, options: argparse.Namespace) -> int:
    await broker.admin.unsubscribe_namespace(options.name, options.subscription)
    words = f"{options.name}: no topic has the subscription {options.subscription!r} any more"
    return tell(options, {"unsubscribed": options.name, "subscription": options.subscription}, words)


async def missing(broker: Broker, options: argparse.Namespace) -> int:
    if options.partitions and options.create != "yes":
        raise Usage("--partitions needs --create yes")
    if options.create == "default":
        await broker.admin.set_auto_creation(options.name, None)
    elif options.create is not None:
        from holdfast.broker import AutoCreation  # late: other commands must not wait for its core

        policy = AutoCreation(options.create == "yes", options.partitions)
        await broker.admin.set_auto_creation(options.name, policy)
    found = broker.admin.auto_creation(options.name)
    if found is None:
        return tell(options, {"name": options.name, "create": None}, "as the server has it")
    words = f"created with {found.partitions} partitions" if found.is_partitioned else "created"
    answer = {"name": options.name, "create": found.allow, "partitions": found.partitions}
    return tell(options, answer, words if found.allow else "not created: clients are refused")


def bundles(options: argparse.Namespace) -> int:
    found = server_of(options).get(f"/admin/v2/namespaces/{options.name}/bundles")
    ends = found["boundaries"]
    names = [f"{first}_{end}" for first, end in itertools.pairwise(ends)]
    return tell(options, names, "\n".join(names))


def unload(options: argparse.Namespace) -> int:
    server_of(options).send("PUT", f"/admin/v2/namespaces/{options.name}/unload")
    return tell(options, {"unloaded": options.name}, f"{options.name}: all clients reconnect")
