"""Arguments with few possible values, or with numbers, are refused by the parser: status 2."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest

from holdfast.broker import PARTITIONS_MAX, STRATEGIES, BrokerOptions
from holdfast.broker.permissions import ACTIONS
from holdfast.cli import values
from holdfast.cli.entry import build
from holdfast.cli.values import setting
from holdfast.server.registry.definition import TYPES
from tests.kit.cli.servers import Cli
from tests.kit.cli.servers import cli as cli

FREE = {
    *("--directory DIR", "--data DIR", "--server URL", "--file FILE", "--config FILE", "--to DIR"),
    *("--archive DIR", "--checkpoint DIR", "--expected FILE", "--report FILE", "--trust FILE"),
    *("--spark-log FILE", "FILE", "DIR", "TARGET", "BACKUP", "ARCHIVE", "--master URL", "--broker URL"),
    *("DATA", "VALUE", "KEY", "--key KEY", "--separator TEXT", "--where SQL", "--remove NAME"),
    *("--audience NAME", "ROLE", "--id NAME", "ELEMENT", "SERVICE"),
    *("--value FIELD", "--key FIELD", "--time FIELD", "--identity FIELDS"),
}
"""Texts that may be anything, files and addresses: the command itself looks at them."""
CHECKED = {
    *("--host ADDRESS", "--port PORT", "--tls-port PORT", "--http-port PORT", "--https-port PORT"),
    *("--log-level LEVEL", "--log-format FORMAT", "--tap SERVICE.INSTANCE/EVENT=TOPIC", "--set KEY=VALUE"),
    *("--window SPAN", "--slide SPAN", "--late SPAN", "--every SPAN"),
    *("--property NAME=VALUE", "--restore NAME", "NAME", "--name NAME", "--user UID"),
    *("TOPIC", "--to TOPIC", "--subscription NAME"),
}
"""Texts that the command compares with other arguments, settings or a server: wrong usage, too."""


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    inner = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    if not inner:
        yield parser
    for each in inner:
        for command in each.choices.values():
            yield from commands(command)


def unread(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the arguments that the parser takes as any text."""
    for action in parser._actions:
        if action.nargs in (0, argparse.REMAINDER) or action.choices or action.type not in (None, int, float):
            continue
        yield " ".join([*action.option_strings[:1], str(action.metavar)])


def test_every_argument_is_read() -> None:
    """A new argument has a reader with its possible values, or is a listed text."""
    found = {name: each.prog for each in commands(build()) for name in unread(each)}
    assert {name: prog for name, prog in found.items() if name not in FREE | CHECKED} == {}
    assert (FREE | CHECKED) - found.keys() == set(), "these are read by now"


def test_the_sets_are_those_of_the_broker() -> None:
    assert values.STRATEGIES == STRATEGIES
    assert values.ACTIONS == ACTIONS
    assert sorted(values.SCHEMA_TYPES) == sorted(TYPES)
    assert values.PARTITIONS_MAX == PARTITIONS_MAX


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("schema strategy t X", "'X' is not a strategy; use ALWAYS_INCOMPATIBLE, "),
        ("schema check t f --type XML", "'XML' is not a type of schemas; use AUTO_CONSUME, AVRO, "),
        ("schema get t -1", "'-1' is not a whole number from 0"),
        ("schema get t one", "'one' is not a whole number from 0"),
        ("schema rules t --enforced maybe", "choose from"),
        ("topic permit t anna fly", "'fly' is not an action; use produce, consume, "),
        ("topic permit t anna produce,fly", "'fly' is not an action"),
        ("namespace permit a/b anna fly", "'fly' is not an action"),
        ("namespace permit a/b \t consume", "cannot name a role"),
        ("namespace roles a/b s --roles a,,b", "cannot name a role"),
        ("namespace missing a/b --create yes --partitions 0", "use 1 to 10000"),
        ("topic create t --partitions 10001", "use 1 to 10000"),
        ("topic partitions t 99999999999", "use 1 to 10000"),
        ("topic set t --ttl 9999999999", "the policy ttl_s cannot be 9999999999.0; use 0 to 1000000000"),
        ("topic set t --roll-entries 99999999999999999999", "is not a whole number above 0"),
        ("topic set t --ring-size 9999999T", "the policy ring_bytes cannot be"),
        ("topic set t --inactive-after 0", "the policy inactive_s cannot be 0"),
        ("topic set t --inactive-mode sometimes", "use no-subscriptions or caught-up"),
        ("topic limits t --backlog-bytes-action explode", "use hold, exception, evict"),
        ("topic limits t --producers-max -1", "is not a whole number from 0"),
        ("namespace limits a/b --backlog-age 9999999999", "the policy backlog_age_s cannot be"),
        ("topic drain t --subscription \t", "cannot name a subscription"),
        ("topic move t \t u", "cannot name a subscription"),
        ("exchange alternate t e --subscription \t", "cannot name a subscription"),
        ("exchange create e --kind ring", "choose from"),
        ("broker options roll_bytes=1X", "'1X' is not a size such as"),
        ("broker options broker.backlog_action=explode", "use 'producer_request_hold', "),
        ("broker options limits.topics=-1", "use a whole number from 0 to "),
        ("broker options deduplication=maybe", "use true or false"),
        ("broker options ttl_s=soon", "is not a span of time such as"),
        ("broker options roll_bytes", "is not NAME=VALUE"),
        ("cluster options schema_strategy=up", "use ALWAYS_INCOMPATIBLE, "),
        ("user set users a:b", "cannot name a user"),
    ],
)
def test_what_the_parser_refuses(cli: Cli, line: str, words: str) -> None:
    """The command refuses it before it asks a server."""
    told = cli.complains(*line.split(" "), status=2)
    assert words in told
    assert told.startswith("usage: holdfast ")


def test_settings_have_units() -> None:
    read = [setting(f"{name}={text}") for name, text in (("broker.roll_bytes", "1M"), ("ttl_s", "7d"))]
    assert read == [("broker.roll_bytes", 1 << 20), ("ttl_s", 7 * 86400.0)]
    assert setting("retention_bytes=-1")[1] == -1
    assert [setting(f"later={text}")[1] for text in ("1", "true", "some text", "[1]")] == [
        *(1, True, "some text", "[1]"),
    ], "another version's"
    default = BrokerOptions()
    assert setting(f"schema_strategy={default.schema_strategy}")[1] == default.schema_strategy
