"""Test the official client with an `http://` address, and what HTTP reports of it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from holdfast.server import Server, ServerOptions
from holdfast.server.http import HttpOptions, HttpServer
from holdfast.server.pulsar.setup import Advertised
from tests.kit import KIT, module_command
from tests.kit.server.http_world import HttpWorld, T


@pytest.fixture
def http() -> Iterator[HttpWorld]:
    with HttpWorld(wire=True) as http:
        yield http


def test_a_client_that_looks_topics_up_over_http(http: HttpWorld) -> None:
    topic = f"{T}/orders"
    program = subprocess.Popen(
        [
            *module_command(KIT / "server/http_client.py"),
            http.server.url,
            "persistent://public/default/orders",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stderr is not None

    def step() -> None:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stderr is not None
        if program.stdout.readline() != "done\n":
            pytest.fail(program.stderr.read())

    try:
        step()
        stats = http.get(f"{topic}/stats")
        (publisher,), (consumer,) = stats["publishers"], stats["subscriptions"]["s"]["consumers"]
        assert publisher["producerName"] == "till"
        assert publisher["address"].startswith("127.0.0.1:")
        assert publisher["connectedSince"].startswith("20")
        assert "Pulsar" in publisher["clientVersion"]
        assert publisher["msgRateIn"] > 0
        assert (consumer["consumerName"], consumer["metadata"]) == ("one", {"who": "me"})
        assert consumer["address"] == publisher["address"]
        assert (consumer["msgOutCounter"], stats["msgInCounter"]) == (5, 5)
        assert b"pulsar_active_connections{" in http.ask("GET", "/metrics").body
        http.done("PUT", f"{topic}/unload")
        program.stdin.write("\n")
        program.stdin.flush()
        step()
        stats = http.get(f"{topic}/stats")
        assert stats["publishers"][0]["connectedSince"] > publisher["connectedSince"]  # it has come back
        assert stats["msgInCounter"] == 10
        assert sorted(stats["subscriptions"]) == ["all", "s"]
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.wait(20) == 0, program.stderr.read()
    finally:
        program.kill()
        program.communicate()


def test_where_a_broker_is(http: HttpWorld) -> None:
    assert http.wire is not None
    path = "/lookup/v2/topic/persistent/public/default/orders"
    found = http.get(path)
    assert found["brokerUrl"] == found["nativeUrl"] == f"pulsar://127.0.0.1:{http.wire.port}"
    assert found["httpUrl"] == http.server.url
    assert found["brokerUrlTls"] == ""
    by_name = http.ask("GET", path, headers={"Host": "broker.example:8080"}).json
    assert by_name["brokerUrl"] == f"pulsar://broker.example:{http.wire.port}"
    refused = http.ask("GET", f"{path}?listenerName=outside")
    assert (refused.status, "outside" in refused.reason) == (404, True)
    assert http.get("/admin/v2/clusters/standalone")["brokerServiceUrl"] == found["brokerUrl"]
    assert "persistent://public/default/orders" not in http.broker.machine.state.names


def test_advertised_addresses(http: HttpWorld) -> None:
    outside = Advertised("pulsar://out.example:1", "pulsar+ssl://out.example:2")

    async def work() -> None:
        options = ServerOptions(
            port=0, advertised=Advertised("pulsar://in.example:1"), listeners={"outside": outside}
        )
        async with (
            Server(http.broker, options) as wire,
            HttpServer(http.broker, HttpOptions(port=0), wire) as server,
        ):
            path = f"{server.url}/lookup/v2/topic/persistent/public/default/orders"
            found = (await http.asking("GET", path)).json
            assert (found["brokerUrl"], found["brokerUrlTls"]) == ("pulsar://in.example:1", "")
            found = (await http.asking("GET", f"{path}?listenerName=outside")).json
            assert (found["brokerUrl"], found["brokerUrlTls"]) == (outside.url, outside.tls_url)
            refused = await http.asking("GET", f"{path}?listenerName=elsewhere")
            assert (refused.status, "outside" in refused.reason) == (404, True)

    http.run(work())


def test_without_a_binary_protocol_there_is_no_lookup() -> None:
    with HttpWorld(HttpOptions(port=0)) as http:
        refused = http.ask("GET", "/lookup/v2/topic/persistent/public/default/orders")
        assert (refused.status, "binary" in refused.reason) == (503, True)
