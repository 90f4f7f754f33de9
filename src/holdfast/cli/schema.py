"""`holdfast schema get|versions|upload|check|delete|strategy|rules`: schemas of a running server's topics."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from holdfast.cli import applied, parsing
from holdfast.cli.asking import asking_command, server_of
from holdfast.cli.output import tell
from holdfast.cli.parsing import Subparsers, Usage, declare
from holdfast.cli.values import number, schema_type
from holdfast.cli.values import strategy as strategy_name
from holdfast.formatting import text_table

GET = "Prints the newest schema of a topic, or a version of it."

VERSIONS = "Lists the schemas of a topic since the last deletion."

UPLOAD = """\
Adds a schema to a topic, if the strategy of the topic allows it. The file has an
Avro definition, or JSON as this command's `get --json` prints it.

  holdfast schema upload orders order.avsc --type JSON"""

CHECK = """\
Tells whether a schema could be added to a topic, and which field does not fit.
The exit status is 1 if it could not."""

DELETE = """\
Ends the schemas of a topic: the next one may differ from them. Earlier versions
stay readable, because stored messages name them."""

STRATEGY = """\
Shows or sets which schemas may follow those of a topic: FULL (the default),
BACKWARD, FORWARD, each also with _TRANSITIVE, ALWAYS_COMPATIBLE or
ALWAYS_INCOMPATIBLE. The word `default`, or `none`, removes the topic's own. With
--namespace, the strategy of a namespace, for topics without their own.

  holdfast schema strategy orders BACKWARD
  holdfast schema strategy --namespace eu/shop BACKWARD"""

RULES = """\
Shows the rules for schemas that apply to a topic, or to topics of a namespace
(--namespace), with their places: the strategy, whether producers may add schemas,
and whether producers without a schema are refused. With options, sets them at
once; `default` lets the rule from above apply.

  holdfast schema rules --namespace eu/shop --auto-update no --enforced yes"""


_SWITCH = {"yes": True, "no": False, "default": None}


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser("schema", help="show, add and compare schemas of topics")
    verbs = noun.add_subparsers(title="verbs", metavar="VERB", required=True)
    parser = asking_command(verbs, "get", "print a schema", GET, get)
    _topic(parser)
    parser.add_argument("version", nargs="?", type=number, metavar="VERSION", help="default: the newest")
    _topic(asking_command(verbs, "versions", "list schemas", VERSIONS, versions))
    for name, summary, words, run in (
        ("upload", "add a schema", UPLOAD, upload),
        ("check", "tell whether a schema fits", CHECK, check),
    ):
        parser = asking_command(verbs, name, summary, words, run)
        _topic(parser)
        parser.add_argument("file", metavar="FILE", help="the definition; -: standard input")
        words = "--type TYPE: AVRO, JSON, STRING, INT32, … (default AVRO)"
        declare(parser, {"type": schema_type}, type="AVRO")(words)
    _topic(asking_command(verbs, "delete", "end the schemas of a topic", DELETE, delete))
    words = "show or set the strategy of a topic or namespace"
    parser = asking_command(verbs, "strategy", words, STRATEGY, strategy)
    _place(parser)
    parser.add_argument("strategy", nargs="?", metavar="STRATEGY", type=strategy_name)
    parser = asking_command(verbs, "rules", "show or set the rules for schemas", RULES, rules)
    _place(parser)
    words = "whether producers may add schemas"
    parser.add_argument("--auto-update", choices=("yes", "no", "default"), help=words)
    words = "whether producers without a schema are refused where a topic has one"
    parser.add_argument("--enforced", choices=("yes", "no", "default"), help=words)


def _topic(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", type=parsing.topic)


def _place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a topic, or with --namespace TENANT/NAMESPACE")
    parser.add_argument("--namespace", action="store_true", help="NAME is a namespace")


def _path(options: argparse.Namespace) -> str:
    from holdfast.cli.remote_http import path_of  # late: it loads the protocol

    return path_of(options.topic).replace("/admin/v2/persistent/", "/admin/v2/schemas/", 1)


def _path_of_place(options: argparse.Namespace) -> str:
    """Return the path of the topic or namespace whose rules are asked."""
    from holdfast.cli.remote_http import path_of, quoted  # late: it loads the protocol

    try:
        if not options.namespace:
            return path_of(parsing.topic(options.name))
        tenant, _, name = parsing.namespace(options.name).partition("/")
    except argparse.ArgumentTypeError as error:
        raise Usage(f"argument NAME: {error}") from None
    return f"/admin/v2/namespaces/{quoted(tenant)}/{quoted(name)}"


def _body(options: argparse.Namespace) -> dict[str, Any]:
    """Return the schema in the file."""
    try:
        text = sys.stdin.read() if options.file == "-" else Path(options.file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"{options.file} cannot be read: {error}") from None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict) and "data" in found and "type" in found:  # as `get --json` prints it
        return {"type": found["type"], "schema": found["data"], "properties": found.get("properties", {})}
    return {"type": options.type, "schema": text.strip()}


def get(options: argparse.Namespace) -> int:
    which = "/schema" if options.version is None else f"/schema/{options.version}"
    found = server_of(options).get(_path(options) + which)
    return tell(options, found, found["data"] or found["type"])


def versions(options: argparse.Namespace) -> int:
    found = server_of(options).get(_path(options) + "/schemas")["getSchemaResponses"]
    rows = [(each["version"], each["type"], " ".join(each["data"].split())[:60] or "-") for each in found]
    words = "\n".join(text_table(("VERSION", "TYPE", "DEFINITION"), rows)) if rows else "no schemas"
    return tell(options, found, words)


def upload(options: argparse.Namespace) -> int:
    found = server_of(options).send("POST", _path(options) + "/schema", _body(options))["version"]
    return tell(options, found, f"{options.topic}: version {found['version']}")


def check(options: argparse.Namespace) -> int:
    found = server_of(options).send("POST", _path(options) + "/compatibility", _body(options))
    fits = f"it fits ({found['schemaCompatibilityStrategy']})"
    tell(options, found, f"{options.topic}: {fits if found['compatibility'] else found['reason']}")
    return 0 if found["compatibility"] else 1


def delete(options: argparse.Namespace) -> int:
    found = server_of(options).send("DELETE", _path(options) + "/schema")["version"]
    return tell(options, found, f"{options.topic}: its schemas end with version {found['version']}")


def strategy(options: argparse.Namespace) -> int:
    http, path = server_of(options), _path_of_place(options) + "/schemaCompatibilityStrategy"
    if options.strategy in ("default", "none"):
        http.send("DELETE", path)
    elif options.strategy is not None:
        http.send("PUT", path, options.strategy)
    found = http.get(path, applied="true")
    return tell(options, {"strategy": found}, f"{options.name}: {found}")


def rules(options: argparse.Namespace) -> int:
    http, path = server_of(options), _path_of_place(options)
    given = {"schema_auto_update": options.auto_update, "schema_enforced": options.enforced}
    wanted = {name: _SWITCH[value] for name, value in given.items() if value is not None}
    if wanted:
        http.send("POST", f"{path}/policies", wanted)
    values = http.get(f"{path}/policies")
    found = {rule: values[f"schema_{rule}"] for rule in ("strategy", "auto_update", "enforced")}
    answer = {rule: each["applied"] for rule, each in found.items()}
    rows = [
        (rule, applied.word(each["own"]), applied.word(each["applied"]), each["level"])
        for rule, each in found.items()
    ]
    places = {rule: each["level"] for rule, each in found.items()}
    table = "\n".join(text_table(("RULE", *applied.HEAD[1:]), rows))
    return tell(options, {**answer, "from": places}, table)
