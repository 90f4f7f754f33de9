"""`holdfast topic|namespace permit`: what a command sets is what it shows."""

from __future__ import annotations

from tests.kit.cli.data import Cli
from tests.kit.cli.data import cli as cli


def test_a_permit_tells_what_applies(cli: Cli) -> None:
    """A role keeps on a topic what it may in the namespace."""
    cli.says("topic", "create", "orders")
    assert cli.says("topic", "permit", "orders", "anna", "Produce") == "anna may produce in orders\n"
    told = cli.says("namespace", "permit", "public/default", "anna", "consume")
    assert told == "anna may consume in public/default\n"
    told = cli.says("topic", "permit", "orders", "anna", "none")
    assert told == "anna may consume in orders; consume by its namespace\n"
    found = cli.answer("topic", "permit", "orders", "anna", "produce")
    assert (found["actions"], found["may"]) == (["produce"], ["consume", "produce"])
    cli.says("namespace", "permit", "public/default", "anna", "none")
    cli.says("topic", "permit", "orders", "anna", "none")
    assert cli.says("topic", "permissions", "orders") == "no permissions\n"


def test_roles_of_a_subscription(cli: Cli) -> None:
    cli.says("topic", "create", "orders")
    of = ("namespace", "roles", "public/default")
    assert cli.answer(*of, "billing", "--roles", "anna,bert")["subscriptions"] == {
        "billing": ["anna", "bert"]
    }
    assert cli.answer(*of, "billing", "--roles", "any")["subscriptions"] == {}
