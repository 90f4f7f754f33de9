"""Administration of namespaces, settings and clients over HTTP, and paths of Pulsar that are missing."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from holdfast.server.config import Authentication, Config, Secret, Tokens
from holdfast.server.http import HttpOptions
from holdfast.server.http.missing import missing_feature, templates
from holdfast.server.http.server import ROUTES
from holdfast.server.settings import shown_settings
from tests.kit.server import admin_checks as checks
from tests.kit.server.cluster_checks import member
from tests.kit.server.http_world import HttpWorld, T
from tests.kit.server.pulsar_paths import ALL, FACTS, requests


@pytest.fixture(scope="module")
def http() -> Iterator[HttpWorld]:
    settings = {"listen.port": "6650", "tls.key": "***", "broker.roll_entries": "7"}
    with HttpWorld(HttpOptions(port=0, settings=settings), wire=True) as world:
        yield world


def test_backlogs_of_a_namespace(http: HttpWorld) -> None:
    checks.backlogs_of_a_namespace(http)


def test_a_failure_stops_no_other(http: HttpWorld) -> None:
    checks.a_failure_stops_no_other(http)


def test_an_unload_closes_clients(http: HttpWorld) -> None:
    checks.an_unload_closes_clients(http)


def test_another_member_unloads() -> None:
    with member() as found:
        checks.another_member_unloads(found)


def test_missing_topics_of_a_namespace(http: HttpWorld) -> None:
    checks.missing_topics_of_a_namespace(http)


def test_settings_at_run_time(http: HttpWorld) -> None:
    checks.settings_at_run_time(http)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("listen.port/1", "listen.port is read only at the start"),
        ("sync/os", "no setting 'sync' that can be changed at run time; there are: broker."),
        ("broker.roll_entries/-4", "roll_entries is -4; use 0 to"),
        ("broker.retention_s/nan", "retention_s"),
        ("broker.deduplication/1", "cannot be '1'; use true or false"),
        ("limits.topics/5", "no setting 'limits.topics'"),  # a server without limits
    ],
)
def test_settings_that_are_refused(http: HttpWorld, path: str, words: str) -> None:
    before = http.broker.machine.log.next_d
    refused = http.ask("POST", f"{checks.SETTINGS}/{path}")
    assert (refused.status, words in refused.reason) == (412, True), refused
    assert http.broker.machine.log.next_d == before


def test_settings_of_the_configuration(http: HttpWorld) -> None:
    """The value that applies stands before that of the configuration; secrets are hidden."""
    found = http.get(f"{checks.SETTINGS}/runtime")
    assert (found["listen.port"], found["tls.key"]) == ("6650", "***")
    assert found["broker.roll_entries"] == str(http.broker.decided.roll_entries)
    shown = shown_settings(Config(authentication=_with_secret()))
    assert shown["authentication.token.secret"] == "***"
    assert "sesame" not in str(shown)
    assert (shown["listen.port"], shown["broker.create_topics"]) == ("6650", "true")


def _with_secret() -> Authentication:
    return Authentication(token=Tokens(secret=Secret("sesame")))


def test_settings_of_a_cluster() -> None:
    """A change is that of all members; a deletion brings this member's configuration back."""
    with member() as found:
        http = found.world
        http.done("POST", f"{checks.SETTINGS}/broker.roll_entries/77")
        assert http.broker.membership.shared()["roll_entries"] == 77
        assert http.get(f"{checks.SETTINGS}/values") == {"broker.roll_entries": "77"}
        assert http.get("/admin/v2/cluster/status")["options"]["roll_entries"] == 77
        http.done("DELETE", f"{checks.SETTINGS}/broker.roll_entries")
        assert http.get(f"{checks.SETTINGS}/values") == {}


def test_sizes_and_ages_of_a_topic(http: HttpWorld) -> None:
    topic = http.topic(messages=10, subscription="s")
    http.done("PUT", f"{topic}/subscription/t", json={"ledgerId": -1, "entryId": -1})
    size = f"{topic}/backlogSize"
    ledger = http.get(f"{topic}/lastMessageId")["ledgerId"]

    def behind(entry: int) -> int:
        answer = http.ask("PUT", size, json={"ledgerId": ledger, "entryId": entry})
        assert answer.status == 200
        return int(answer.json)

    sizes = [behind(entry) for entry in range(10)]
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[9], sizes[0] > 0) == (0, True)
    http.done("POST", f"{topic}/all_subscription/expireMessages/3600")
    assert (http.backlog(topic, "s"), http.backlog(topic, "t")) == (10, 10)
    http.done("POST", f"{topic}/all_subscription/expireMessages/0")
    assert (http.backlog(topic, "s"), http.backlog(topic, "t")) == (0, 0)


def test_figures_of_the_broker(http: HttpWorld) -> None:
    topic = http.topic(messages=6, subscription="s")
    name = f"persistent://public/default/{topic.rpartition('/')[2]}"
    stats = "/admin/v2/broker-stats"
    (found,) = (
        each for each in http.get(f"{stats}/metrics") if each["dimensions"]["namespace"] == "public/default"
    )
    assert found["metrics"]["brk_msg_backlog"] >= 6
    nested = http.get(f"{stats}/topics")
    assert nested["public/default"]["0x00000000_0xffffffff"]["persistent"][name]["msgInCounter"] == 6
    assert http.get(f"{stats}/destinations").keys() == nested.keys()
    passing = "non-persistent/public/default/passing"
    http.done("PUT", f"/admin/v2/{passing}")
    kinds = http.get(f"{stats}/topics")["public/default"]["0x00000000_0xffffffff"]
    assert kinds["non-persistent"]["non-persistent://public/default/passing"]["msgDropCounter"] == 0
    assert kinds.keys() == {"persistent", "non-persistent"}
    http.done("DELETE", f"/admin/v2/{passing}")
    load = http.get(f"{stats}/load-report")
    assert load["numTopics"] == len(http.broker.topics)
    assert load["pulsarServiceUrl"].startswith("pulsar://")
    assert 0 < load["memory"]["usage"] < load["memory"]["limit"]


# -- paths that are missing ----------------------------------------------------------------------------

VALUES = {"tenant": "public", "namespace": "default", "topic": "orders", "…": "some/thing"}


def filled(template: str) -> str:
    return re.sub(r"{(\w+)}|…", lambda found: VALUES.get(found[1] or "…", "x"), template)


def test_missing_paths_are_refused_with_words(http: HttpWorld) -> None:
    """Never 404 or 405, which do not tell a missing feature from a wrong name."""
    tried = 0
    for template, reason in templates():
        path = filled(template)
        for method in ("GET", "PUT", "POST", "DELETE"):
            if not _is_served(method, path):  # else a part of the feature is built
                found = http.ask(method, path)
                assert (found.status, reason in found.reason) == (501, True), (method, template, found)
                tried += 1
    assert tried > 3 * len(list(templates()))


def _is_served(method: str, path: str) -> bool:
    for route in ROUTES:
        if route.method == method and re.fullmatch(re.sub(r"{\w+}", "[^/]+", route.path), path):
            return True
    return False


def test_names_of_features_are_not_clusters(http: HttpWorld) -> None:
    for name in ("internal-configuration", "backlogQuotaCheck", "shutdown"):
        found = http.ask("GET", f"/admin/v2/brokers/{name}")
        assert (found.status, missing_feature("GET", f"/admin/v2/brokers/{name}")) == (501, found.reason)
    assert http.ask("GET", "/admin/v2/brokers/typo").status == 404


def test_wrong_names_are_not_features(http: HttpWorld) -> None:
    for path in (
        "/admin/v2/namespace/public",
        "/admin/v2/namespaces/public/default/typo",
        f"{T}/x/typo",
        "/",
    ):
        assert missing_feature("GET", path) is None
        found = http.ask("GET", path)
        assert (found.status, "/openapi.json" in found.reason) == (404, True)


def test_all_that_the_tools_of_pulsar_send_is_served_or_refused() -> None:
    """With each method: never 404 or 405."""
    sent = dict.fromkeys(requests(*ALL))
    unknown = [each for each in sent if not _is_served(*each) and missing_feature(*each) is None]
    assert unknown == []
    assert len(sent) > 350
    refused = [each for each in requests(FACTS) if not _is_served(*each)]
    assert refused == [*requests("PUT T/X/offload")]


def test_all_that_the_tools_of_pulsar_read_is_answered(http: HttpWorld) -> None:
    for method, path in dict.fromkeys(requests(*ALL)):
        if method == "GET":
            found = http.ask("GET", path)
            unknown = found.status in (404, 405) and "/openapi.json" in found.reason
            assert not unknown, (path, found)
            assert found.status != 405, (path, found)
