"""The table of Pulsar's features is true: requests are refused, tests exist."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.auth.access import Access
from holdfast.server.config import Authentication, Config, Secret, Tokens
from tests.kit import ROOT
from tests.kit.server import refusal_checks
from tests.kit.server.cost_world import CostWorld
from tests.kit.server.http_world import HttpWorld, http
from tests.kit.server.wire_raw import Raw, Type

__all__ = ["http"]

PAGE = ROOT / "docs/reference/pulsar.md"
STATES = ("works", "refused", "not applicable")


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    feature: str
    state: str
    text: str

    @property
    def quoted(self) -> list[str]:
        """Return what stands in backticks."""
        return [inner or outer for outer, inner in re.findall(r"`([^`]+)`(?!`)|``(.+?)``", self.text)]


def rows() -> Iterator[Row]:
    for line in PAGE.read_text().splitlines():
        cells = [each.strip() for each in line.strip("|").split(" | ")]
        if line.startswith("|") and len(cells) == 3 and cells[0] != "feature":
            yield Row(*cells)


ROWS = list(rows())
REFUSED = [each for each in ROWS if each.state == "refused"]
WORKS = [each for each in ROWS if each.state == "works"]


def test_every_feature_of_the_matrix_is_there() -> None:
    """The names are those of Pulsar's pages."""
    text = PAGE.read_text()
    for name in MATRIX:
        assert name.lower() in text.lower(), name
    assert {each.state for each in ROWS} == {*STATES}
    assert len(ROWS) > 90
    lines = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    assert len(lines) == len(ROWS) + text.count("| feature | here |"), "a row has not three cells"


MATRIX = (
    *("TLS encryption", "JWT", "mTLS", "Kerberos", "OAuth2", "Athenz", "HTTP Basic", "Transaction"),
    *("Cluster-level failover", "Multi-host service", "Statistics", "Proxy", "Reconnection"),
    *("Batching", "Chunking", "Delayed message delivery", "LZ4", "ZLIB", "ZSTD", "SNAPPY"),
    *("Primitive", "Avro", "JSON", "Protobuf", "Protobuf-native", "Native avro", "KeyValue", "Autoschema"),
    *("End-to-end encryption", "Sync and async send", "batch index", "ACK: timeout", "NACK", "back-off"),
    *("Seek: by time", "Seek: by message id", "inclusive", "Subscription type", "Subscription mode"),
    *("Retry letter topic", "Dead letter topic", "Compression", "Compaction", "Reader", "TableView"),
    *("Listener", "Exclusive", "Failover", "Shared", "Key_Shared", "Segmented snapshot", "Functions"),
    *("Multitenancy", "Geo replication"),
)


@pytest.mark.parametrize("row", WORKS, ids=lambda row: row.feature)
def test_a_feature_that_works_names_its_tests(row: Row) -> None:
    """A file alone may have tests, and none of the feature."""
    tests = [each.partition("::") for each in row.quoted if each.startswith("tests/")]
    assert tests, f"{row.feature}: name a test"
    for path, _, name in tests:
        found = re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE)
        assert found, f"{path} has no {name!r}"


@pytest.mark.parametrize("row", REFUSED, ids=lambda row: f"{row.feature}: {row.quoted[-2]}")
def test_a_feature_that_is_refused_is_told_so(row: Row, http: HttpWorld, raw: Raw) -> None:
    *_, request, words = row.quoted
    method, _, rest = request.partition(" ")
    if rest.startswith("/"):
        path, _, body = rest.partition(" with ")
        answer = http.ask(method, path, **({"json": json.loads(body)} if body else {}))
        assert answer.status >= 400, f"{PAGE.name}: {row.feature} is not refused any more; change its row"
        told = answer.reason
    else:
        told = WIRE[request](raw)
    assert words in told, f"{PAGE.name}: {row.feature}: the server says {told!r}"


# -- requests of the Pulsar protocol -------------------------------------------------------------------


def connect(method: str) -> Callable[[Raw], str]:
    """Return a request to a server that needs credentials, by this method."""

    def ask(_: Raw) -> str:
        given = Authentication(methods=("token",), token=Tokens(secret=Secret("s" * 32)))
        access = Access(Config(authentication=given))
        with CostWorld(authenticate=access.authenticate) as world, world.raw(greet=False) as raw:
            raw.tell(Type.CONNECT, client_version="raw", auth_method_name=method, auth_data=b"x")
            return str(raw.expect(Type.ERROR).message)

    return ask


WIRE: dict[str, Callable[[Raw], str]] = {
    "CONNECT with sasl": connect("sasl"),
    "CONNECT with athenz": connect("athenz"),
    "PARTITIONED_METADATA of the coordinator": refusal_checks.transactions_of_a_client,
    "SEND in a transaction": refusal_checks.a_message_in_a_transaction,
    "ACK in a transaction": refusal_checks.an_acknowledgement_in_a_transaction,
    "SUBSCRIBE with replicate_subscription_state": refusal_checks.replicated_subscriptions,
    "SUBSCRIBE with Key_Shared": refusal_checks.key_shared_of_a_topic_that_is_not_persistent,
    "PRODUCER that waits or fences": refusal_checks.access_modes_of_a_topic_that_is_not_persistent,
}


@pytest.fixture(scope="module")
def world() -> Iterator[CostWorld]:
    with CostWorld() as world:
        yield world


@pytest.fixture
def raw(world: CostWorld) -> Iterator[Raw]:
    with world.raw() as raw:
        yield raw


def test_commands_of_transactions_are_refused(raw: Raw) -> None:
    """The file of the protocol does not have them: their number is refused."""
    raw.socket.sendall(b"\0\0\0\6\0\0\0\2\x08\x32")
    assert "(transactions) are not supported" in raw.expect(pb.BaseCommand.ERROR).message
