"""`holdfast namespace ls|create`: where topics with a name such as tenant/namespace/orders belong."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.cli import parsing
from holdfast.cli.data import data_command
from holdfast.cli.output import tell
from holdfast.cli.parsing import Subparsers

if TYPE_CHECKING:
    from holdfast.broker import Broker

CREATE = """\
Creates namespaces, and their tenants if missing. The namespace public/default
exists from the start. On a server, a tenant can be created by superusers only."""


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser("namespace", help="list and create namespaces of topics")
    verbs = noun.add_subparsers(title="verbs", metavar="VERB", required=True)
    data_command(verbs, "ls", "list namespaces", "Lists the namespaces of all tenants, one per line.", ls)
    parser = data_command(verbs, "create", "create namespaces", CREATE, create, makes=True)
    parser.add_argument("names", nargs="+", metavar="TENANT/NAMESPACE", type=parsing.namespace)


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
