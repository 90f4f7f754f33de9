"""Settings of a server: three sources, their precedence, and errors for wrong values."""

from __future__ import annotations

import contextlib
import dataclasses
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli import main
from holdfast.errors import BadConfiguration
from holdfast.server import ServerOptions
from holdfast.server.config import Config, Listen, Tap, Tokens
from holdfast.server.conflicts import conflicts
from holdfast.server.http import HttpOptions
from holdfast.server.settings import leaves, load
from tests.kit import ROOT
from tests.kit.examples import examples
from tests.kit.server import config_checks, config_pages
from tests.kit.server.config_checks import SECRET, read, refused

# -- what wins ----------------------------------------------------------------------------------------


def test_nothing_given_is_a_server_for_this_machine_alone() -> None:
    config = load().config
    assert config == Config()
    assert (config.listen.host, config.listen.port, config.listen.http_port) == ("127.0.0.1", 6650, 8080)
    assert (config.listen.tls_port, config.listen.https_port) == (None, None)
    assert conflicts(config) == []


@pytest.mark.parametrize("options", [ServerOptions, HttpOptions])
def test_a_limit_has_one_name_from_the_file_to_its_use(options: type) -> None:
    keys = {each.name: each.metadata.get("setting", "") for each in dataclasses.fields(options)}
    limits = {name: key for name, key in keys.items() if key.startswith("limits.")}
    assert limits
    assert limits == {name: f"limits.{name}" for name in limits}


def test_flag_wins_over_variable_over_file(tmp_path: Path) -> None:
    config_checks.flag_wins_over_variable_over_file(tmp_path)


def test_every_kind_of_value_from_every_source(tmp_path: Path) -> None:
    text = """
data = "here"
[listen]
port = "off"
[limits]
message_bytes = "6M"
shutdown_s = "1m"
[broker]
retention_s = -1
deduplication = true
[authorization]
superusers = ["a", "b"]
"""
    variables = {"HOLDFAST_BROKER_RETENTION_BYTES": "2GiB", "HOLDFAST_BROKER_CREATE_TOPICS": "no"}
    found = read(
        text, tmp_path, variables, "authentication.anonymous_role=nobody", "limits.keepalive_s=500ms"
    )
    config = found.config
    assert config.data == tmp_path / "here"  # from its file's place, wherever the server is started
    assert config.listen.port is None
    assert (config.limits.message_bytes, config.limits.shutdown_s) == (6 << 20, 60.0)
    assert (config.broker.retention_s, config.broker.retention_bytes) == (-1.0, 2 << 30)
    assert (config.broker.deduplication, config.broker.create_topics) == (True, False)
    assert config.authorization.superusers == ("a", "b")
    assert config.authentication.anonymous_role == "nobody"
    assert config.limits.keepalive_s == 0.5


def test_lists_of_tables(tmp_path: Path) -> None:
    text = """
[[advertised]]
name = "outside"
url = "pulsar://broker.example.com:6650"
[[authorization.grants]]
roles = ["billing"]
on = "shop/eu"
allow = ["produce", "consume"]
[[authorization.grants]]
roles = ["*"]
on = "public"
allow = ["consume"]
"""
    config = read(text, tmp_path).config
    assert config.advertised[0].name == "outside"
    assert [grant.on for grant in config.authorization.grants] == ["shop/eu", "public"]
    assert config.authorization.grants[0].allow == ("produce", "consume")


def test_taps_from_every_source(tmp_path: Path) -> None:
    text = "[[taps]]\nservice = 'A.b'\nevent = 'a'\ntopic = 't'\nmax_samples = 9\n"
    assert read(text, tmp_path).config.taps == (Tap("A.b", "a", "t", 9),)
    given = "C.d.e/f=shop/eu/u, G.h/i=v"
    wanted = (Tap("C.d.e", "f", "shop/eu/u"), Tap("G.h", "i", "v"))
    assert read(text, tmp_path, {"HOLDFAST_TAPS": given}).config.taps == wanted
    assert load(flags=[("--tap", "taps", given)]).config.taps == wanted


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            "A.b",
            "--tap: taps: 'A.b' is not SERVICE.INSTANCE/EVENT=TOPIC, such as Camera.left/frame=camera-left",
        ),
        ("A.b/a", "'A.b/a' is not SERVICE.INSTANCE/EVENT=TOPIC"),
        ("A.b=t", "'A.b=t' is not SERVICE.INSTANCE/EVENT=TOPIC"),
        ("A.b/a=", "--tap: taps[0].topic: "),
        ("A/a=t", "--tap: taps[0].service: 'A' is not the name of an instance"),
    ],
)
def test_a_mistake_in_a_tap_is_named_with_its_flag(given: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[[taps]]\nservice = 'A.b'\nevent = 'a'\ntopic = 't'\n")
    with pytest.raises(BadConfiguration) as caught:
        load(tmp_path / "a.toml", flags=[("--tap", "taps", given)])
    assert words in str(caught.value)


def test_variables_have_names_of_their_own() -> None:
    names = [leaf.variable for leaf in leaves().values()]
    assert len(set(names)) == len(names)
    assert "HOLDFAST_DATA" in names  # as for the other commands
    # Kubernetes sets these in every container if a service is called holdfast.
    kubernetes = {"HOLDFAST_PORT", "HOLDFAST_SERVICE_HOST", "HOLDFAST_SERVICE_PORT", "HOLDFAST_PORT_6650_TCP"}
    assert not kubernetes & set(names)
    load(environment=dict.fromkeys(kubernetes, "tcp://10.0.0.1:6650"))


TABLES = ("advertised", "authorization.grants", "cluster.nodes")
"""Settings that only a file can have."""


def test_every_key_can_be_given_in_every_way(tmp_path: Path) -> None:
    for key, leaf in leaves().items():
        if isinstance(leaf.default, tuple) and key in TABLES:
            continue
        text = {None: "off" if key.endswith("port") else ""}.get(leaf.default, str(leaf.default))
        if isinstance(leaf.default, tuple):
            text = ",".join(leaf.default)
        assert load(environment={leaf.variable: text}).config == Config(), key
        if "secret" not in key.split(".")[-1]:
            assert load(flags=[("--set", key, text)]).config == Config(), key


# -- mistakes -----------------------------------------------------------------------------------------

MISTAKES = [
    (
        "[listen]\n# a remark\nprot = 1\n",
        "holdfast.toml:3: listen.prot: there is no such key; did you mean listen.port?",
    ),
    ("port = 1\n", "holdfast.toml:1: port: there is no such key; did you mean listen.port?"),
    ("\n\n[lisen]\nport = 1\n", "holdfast.toml:3: lisen: there is no such key; did you mean listen?"),
    (
        "[listen]\nport = true\n",
        "holdfast.toml:2: listen.port: True is not a port: 1 to 65535, 0 for any free one",
    ),
    ("[listen]\nport = 65536\n", "holdfast.toml:2: listen.port: 65536 is not a port"),
    ("[listen]\nhost = 3\n", "holdfast.toml:2: listen.host: 3 is not a text in quotes"),
    (
        "[listen]\nport = 7\nhttp_port = 7\n",
        "holdfast.toml:3: listen.http_port: port 7 is taken by listen.port",
    ),
    ("[listen]\ntls_port = 7\n", "holdfast.toml:2: listen.tls_port: needs tls.certificate"),
    ("[limits]\nmessage_bytes = '6X'\n", "holdfast.toml:2: limits.message_bytes: '6X' is not a size such as"),
    (
        "[limits]\nshutdown_s = 'soon'\n",
        "holdfast.toml:2: limits.shutdown_s: 'soon' is not a time such as",
    ),
    ("[limits]\nshutdown_s = nan\n", "holdfast.toml:2: limits.shutdown_s: nan is not a finite number"),
    ("[limits]\nconnections = 1.5\n", "holdfast.toml:2: limits.connections: 1.5 is not a whole number"),
    ("[limits]\nconnections = 0\n", "holdfast.toml:2: limits.connections: 0 is too small; use at least 1"),
    (
        "[log]\nlevel = 'loud'\n",
        "holdfast.toml:2: log.level: 'loud' is not one of debug, info, warning, error",
    ),
    ("[cluster]\nnode = 1\n", "holdfast.toml:2: cluster.node: 1 is not in cluster.nodes; list every node"),
    ("[cluster]\nnode = 1\n", "cluster.secret_file: is missing; holdfast cluster init creates it"),
    (
        "[[cluster.nodes]]\nnode = 1\ntransfer = 'a:1'\n",
        "cluster.nodes: has no effect without the id of this node; add --set cluster.node=ID",
    ),
    (
        "[cluster]\nnode = 1\n[[cluster.nodes]]\nnode = 1\ntransfer = 'here'\n",
        "cluster.nodes: 'here' is not an address with a port; write HOST:PORT",
    ),
    (
        "[cluster]\nnode = 1\nname = 'a b'\n[[cluster.nodes]]\nnode = 1\ntransfer = 'a:1'\n",
        "holdfast.toml:3: cluster.name: 'a b' is not the name of a cluster",
    ),
    (
        "[cluster]\nnode = 1\n"
        "[[cluster.nodes]]\nnode = 1\ntransfer = 'a:1'\n[[cluster.nodes]]\nnode = 1\ntransfer = 'b:1'\n",
        "cluster.nodes: two nodes have the id 1; give each its own",
    ),
    (
        "[cluster]\nnode = 1\n"
        "[[cluster.nodes]]\nnode = 1\ntransfer = 'a:1'\n[[cluster.nodes]]\nnode = 2\ntransfer = 'a:1'\n",
        "cluster.nodes: two nodes have the same address for transfers; give each its own",
    ),
    (
        "[cluster]\nunreplicated_port = 65536\n",
        "holdfast.toml:2: cluster.unreplicated_port: 65536 is not a port; use 1 to 65535, or 0 for any",
    ),
    ("[cluster]\nunreplicated_tls_port = -1\n", "cluster.unreplicated_tls_port: -1 is not a port"),
    (
        "[cluster]\nunreplicated_port = 8080\n",
        "holdfast.toml:2: cluster.unreplicated_port: port 8080 is taken by listen.http_port",
    ),
    (
        "[cluster]\nunreplicated_port = 7\nunreplicated_tls_port = 7\n",
        "cluster.unreplicated_tls_port: port 7 is taken by cluster.unreplicated_port",
    ),
    ("[broker]\nsync = 'grup'\n", "'grup' is not one of group, always, os; did you mean group?"),
    ("[broker]\nroll_bytes = 0\n", "holdfast.toml:2: broker.roll_bytes: 0 is too small; use more than 0"),
    (
        "[broker]\njournal_bytes = 20_000\n",
        "broker.journal_bytes: 20000 is out of range; use a multiple of 4096, at least 16384",
    ),
    (
        "[broker]\nunacked_max = -2\n",
        "holdfast.toml:2: broker.unacked_max: -2 is out of range; use 0 to 4611686018427387904",
    ),
    (
        "[broker]\nretention_s = 2e9\n",
        "broker.retention_s: 2000000000.0 is out of range; use 0 to 1000000000, or -1 for no limit",
    ),
    ("listen = 3\n", "holdfast.toml:1: listen: is a table: write [listen]"),
    ("[listen]\nport = = 1\n", "holdfast.toml:2: Invalid value at column 8"),
    ("[authentication]\nmethods = ['token']\n", "holdfast.toml:2: authentication.methods: token needs a key"),
    ("[listen]\nhost = ''\n", "holdfast.toml:2: listen.host: is empty; use 127.0.0.1"),
    (
        "[authentication.token]\nsecret_file = 'a'\n",
        "holdfast.toml:2: authentication.token.secret_file: it has no effect",
    ),
    (
        "[authentication]\nmethods = []\nbasic.users_file = 'a'\n",
        "holdfast.toml:3: authentication.basic.users_file: it has no effect",
    ),
    ("[authentication]\nmethods = ['basic']\n", "basic needs authentication.basic.users_file"),
    ("[authentication]\nmethods = ['tls']\n", "tls needs tls.ca, the authorities"),
    ("[authentication]\nmethods = 'token'\n", "holdfast.toml:2: authentication.methods: is not a list"),
    (
        "[authentication]\nmethods = ['tokens']\n",
        "'tokens' is not one of token, basic, tls; did you mean token?",
    ),
    ("[authorization]\nsuperusers = ['a*']\n", "'a*' is not the name of one role"),
    (
        "[[authorization.grants]]\nroles = ['a']\non = 'x'\nallow = [\n  'produce',\n]\n"
        "[[authorization.grants]]\nroles = ['a']\non = 'persistent://x'\nallow = ['produce']\n",
        "holdfast.toml:9: authorization.grants[1].on: 'persistent://x' is not a resource",
    ),
    (
        "[[authorization.grants]]\nroles = ['a']\non = 'x'\nalow = ['produce']\n",
        "holdfast.toml:4: authorization.grants[0].alow: there is no such key; did you mean allow?",
    ),
    ("[[authorization.grants]]\non = 'x'\n", "holdfast.toml:1: authorization.grants[0]: roles is missing"),
    ("[authorization]\ngrants = 3\n", "is not a list of tables: write [[authorization.grants]]"),
    (
        "[[advertised]]\nname = 'a'\nurl = 'http://b'\n",
        "holdfast.toml:3: advertised[0].url: 'http://b' does not begin",
    ),
    ("[[taps]]\nservice = 'A.b'\ntopic = 't'\n", "holdfast.toml:1: taps[0]: event is missing"),
    (
        "[[taps]]\nservice = 'Camera'\nevent = 'frame'\ntopic = 't'\n",
        "holdfast.toml:2: taps[0].service: 'Camera' is not the name of an instance; write",
    ),
    (
        "[[taps]]\nservice = 'A.b'\nevent = 'a b'\ntopic = 't'\n",
        "holdfast.toml:3: taps[0].event: 'a b' is not the name of an event or a field",
    ),
    ("[[taps]]\nservice = 'A.b'\nevent = 'a'\ntopic = 'x/y'\n", "holdfast.toml:4: taps[0].topic: 'x/y'"),
    (
        "[[taps]]\nservice = 'A.b'\nevent = 'a'\ntopic = 't'\nmax_samples = 0\n",
        "holdfast.toml:5: taps[0].max_samples: 0 is out of bounds; use 1 to 1024",
    ),
    (
        "[[taps]]\nservice = 'A.b'\nevent = 'a'\ntopic = 't'\n"
        "[[taps]]\nservice = 'A.b'\nevent = 'a'\ntopic = 'public/default/t'\n",
        "holdfast.toml:8: taps[1].topic: another tap stores A.b/a in persistent://public/default/t",
    ),
    ("x = '''\n[listen]\nport = 3\n'''\n[listen]\nprot = 1\n", "holdfast.toml:6: listen.prot"),
]


@pytest.mark.parametrize(("text", "words"), MISTAKES, ids=[words[:60] for _, words in MISTAKES])
def test_a_mistake_in_the_file_is_named_with_its_line(text: str, words: str, tmp_path: Path) -> None:
    assert any(words in line for line in refused(text, tmp_path)), refused(text, tmp_path)


def test_every_key_is_found_where_it_stands() -> None:
    config_checks.every_key_is_found_where_it_stands()


def test_a_long_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is parsed once, not once per line: SIGHUP reads it on the loop."""
    read_bytes = 0
    loads = tomllib.loads

    def counted(text: str) -> dict[str, Any]:
        nonlocal read_bytes
        read_bytes += len(text)
        return loads(text)

    monkeypatch.setattr(tomllib, "loads", counted)
    grant = "[[authorization.grants]]\nroles = [\n'a',\n]\non = 'x'\nallow = ['produce']\n"
    text = grant * 1000 + "[log]\nlevel = 'debug'\n"
    assert read(text, tmp_path).origin("log.level").endswith(":6002")
    assert read_bytes < 4 * len(text)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    told = refused("[listen]\nprot = 1\n[limits]\nconnections = 'x'\n", tmp_path, {"HOLDFAST_LOG_LEVEL": "x"})
    assert [line.split(": ")[0] for line in told] == [
        "holdfast.toml:2",
        "holdfast.toml:4",
        "$HOLDFAST_LOG_LEVEL",
    ]


def test_an_empty_variable_does_not_open_every_network(tmp_path: Path) -> None:
    """`HOLDFAST_LISTEN_HOST=$ADDRESS`, with $ADDRESS unset."""
    config_checks.an_empty_variable_does_not_open_every_network(tmp_path)


def test_keys_that_nobody_asks_for(tmp_path: Path) -> None:
    """A key without its method is an error: all clients would be accepted."""
    config_checks.keys_that_nobody_asks_for(tmp_path)


def test_variables_of_services_are_not_ours(tmp_path: Path) -> None:
    """Kubernetes sets them in every container, for services called holdfast-http and holdfast-broker."""
    variables = {
        "HOLDFAST_HTTP_SERVICE_HOST": "10.0.0.1",
        "HOLDFAST_HTTP_SERVICE_PORT": "8080",
        "HOLDFAST_HTTP_SERVICE_PORT_METRICS": "8080",
        "HOLDFAST_HTTP_PORT": "tcp://10.0.0.1:8080",
        "HOLDFAST_BROKER_PORT_6650_TCP": "tcp://10.0.0.1:6650",
        "HOLDFAST_BROKER_PORT_6650_TCP_ADDR": "10.0.0.1",
        "HOLDFAST_PORT": "tcp://10.0.0.1:6650",
    }
    assert read("", tmp_path, variables).config == Config()
    (told,) = refused("", tmp_path, {"HOLDFAST_HTTP_PORT": "8080"})
    assert told == "$HOLDFAST_HTTP_PORT: there is no such setting; did you mean $HOLDFAST_LISTEN_HTTP_PORT?"


def test_mistakes_in_the_environment_and_in_flags(tmp_path: Path) -> None:
    told = refused(
        "", tmp_path, {"HOLDFAST_LISTEN_PROT": "1"}, "listen.port=x", "listen.prot=1", "advertised=x"
    )
    assert told[0] == "$HOLDFAST_LISTEN_PROT: there is no such setting; did you mean $HOLDFAST_LISTEN_PORT?"
    assert told[1].startswith("--set: listen.port: 'x' is not a port")
    assert told[2] == "--set: listen.prot: there is no such key; did you mean listen.port?"
    assert told[3] == "--set: advertised: is a list of tables, which only the file can have"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"nowhere\.toml: cannot be read: No such file"):
        load(tmp_path / "nowhere.toml")
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    with pytest.raises(BadConfiguration, match=r"latin\.toml: is not UTF-8 at byte 5"):
        load(tmp_path / "latin.toml")


TOML_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@examples(test=60)
@given(key=st.sampled_from([*leaves(), "nothing", "listen"]), value=TOML_VALUES)
def test_no_value_does_worse_than_to_be_refused(key: str, value: Any, shared_path: Path) -> None:
    text = f"{key} = {written(value)}\n"
    file = shared_path / "any.toml"
    file.write_bytes(text.encode(errors="replace"))
    with contextlib.suppress(BadConfiguration):
        load(file, {}, [("--set", key, str(value))])


def written(value: Any) -> str:
    """Roughly TOML: where it is not, that is one more thing to be refused."""
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{name}" = {written(each)}' for name, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    return {True: "true", False: "false"}.get(value, repr(value)) if isinstance(value, bool) else repr(value)


# -- secrets ------------------------------------------------------------------------------------------


def test_secrets_are_not_shown(tmp_path: Path) -> None:
    config_checks.secrets_are_not_shown(tmp_path)


def test_a_secret_is_not_for_the_command_line(tmp_path: Path) -> None:
    [told] = refused("", tmp_path, {}, f"authentication.token.secret={SECRET}")
    assert "every user of this machine can read a secret" in told
    assert SECRET not in told


def test_secrets_are_not_in_what_is_told_of_mistakes(tmp_path: Path) -> None:
    both = f"[authentication.token]\nsecret = '{SECRET}'\nsecret_file = 'x'\nsecert = '{SECRET}'\n"
    for text in (
        both,
        f"[authentication.token]\nsecret = ['{SECRET}']\n",
        both.replace("secert", "role_claim"),
    ):
        assert SECRET not in "".join(refused(text, tmp_path))


# -- the command, the pages ---------------------------------------------------------------------------


Command = Callable[..., tuple[str, str]]


@pytest.fixture
def holdfast(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """`holdfast serve`, in this process: what it writes to either stream."""

    def run(*arguments: str, status: int = 0, **variables: str) -> tuple[str, str]:
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            assert main(["serve", *arguments]) == status
        return capsys.readouterr()

    return run


def test_print_config_gives_a_file_that_gives_the_same(tmp_path: Path, holdfast: Command) -> None:
    text = "data = 'd'\n[[advertised]]\nname = 'a'\nurl = 'pulsar://a:1'\n[limits]\nmessage_bytes = '6M'\n"
    (tmp_path / "a.toml").write_text(text)
    shown, _ = holdfast(
        "--config", f"{tmp_path}/a.toml", "--port", "off", "--print-config", HOLDFAST_LOG_FORMAT="json"
    )
    assert f"message_bytes = 6291456  # {tmp_path}/a.toml:6" in shown
    assert 'format = "json"  # $HOLDFAST_LOG_FORMAT' in shown
    assert 'port = "off"  # --port' in shown
    (tmp_path / "b.toml").write_text(shown)
    assert load(tmp_path / "b.toml").config == dataclasses.replace(
        load(tmp_path / "a.toml", {"HOLDFAST_LOG_FORMAT": "json"}).config,
        listen=Listen(port=None),
    )


def test_print_config_checks_the_files_that_it_names(tmp_path: Path, holdfast: Command) -> None:
    secret = ("--set", "authentication.methods=token", "--set", "authentication.token.secret_file=nosuch")
    shown, told = holdfast("--print-config", *secret, status=2)
    assert "secret_file" in shown
    assert "nosuch" in told
    certificate = ("--tls-port", "0", "--set", "tls.certificate=nosuch.pem", "--set", "tls.key=nosuch.key")
    assert "nosuch.pem" in holdfast("--print-config", *certificate, status=2)[1]
    (tmp_path / "file").write_text("")
    wrongs = (
        (tmp_path / "file", "file is not a directory"),
        (tmp_path / "file/data/new", "file is not a directory"),
        (tmp_path, "holds other files (file)"),
    )
    for wrong, words in wrongs:
        assert words in holdfast("--print-config", "--data", f"{wrong}", status=1)[1]
    _, told = holdfast("--print-config", "--data", f"{tmp_path}/new")
    assert (told, (tmp_path / "new").exists()) == ("", False)


def test_the_file_can_be_named_by_a_variable(tmp_path: Path, holdfast: Command) -> None:
    (tmp_path / "a.toml").write_text("[listen]\nprot = 1\n")
    _, told = holdfast("--print-config", status=2, HOLDFAST_CONFIG=f"{tmp_path}/a.toml")
    assert "a.toml:2: listen.prot" in told


def test_wrong_arguments_have_their_status(tmp_path: Path, holdfast: Command) -> None:
    assert "no data directory given" in holdfast(status=2)[1]
    assert "write KEY=VALUE" in holdfast("--set", "listen.port", status=2)[1]
    assert "--port: listen.port: 'x' is not a port" in holdfast("--port", "x", status=2)[1]
    variables = {"HOLDFAST_AUTHENTICATION_METHODS": "token", "HOLDFAST_AUTHENTICATION_TOKEN_SECRET": "short"}
    _, told = holdfast("--data", f"{tmp_path}/d", status=2, **variables)
    assert "a secret of 5 bytes can be guessed" in told
    assert not (tmp_path / "d").exists()


def test_tokens_know_one_key(tmp_path: Path) -> None:
    config = Config(
        authentication=dataclasses.replace(
            Config().authentication,
            methods=("token",),
            token=Tokens(secret_file=Path("a"), public_key_file=Path("b")),
        )
    )
    [(key, why)] = conflicts(config)
    assert (key, why) == (
        "authentication.token.public_key_file",
        "authentication.token.secret_file is set, too; keep one of them",
    )


def test_the_pages_have_every_setting() -> None:
    """The table of settings on the page: tests/repo/test_docs.py."""
    example = config_pages.EXAMPLE.read_text()
    assert example == config_pages.renewed(example), "run python -m tests.kit.server.config_pages"


def test_the_example_is_what_it_says(tmp_path: Path) -> None:
    """Commented lines are the defaults; uncommented, the file is valid."""
    text = (ROOT / "deploy/holdfast.toml").read_text()
    live = config_pages.uncommented(text)
    (tmp_path / "a.toml").write_text(live)
    found = load(tmp_path / "a.toml")
    unset = {key for key, leaf in leaves().items() if leaf.default is None and not key.endswith("port")}
    assert set(found.origins) >= set(leaves()) - unset - {*TABLES, "taps"}
    assert dataclasses.replace(found.config, data=None) == Config()


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_no_key_takes_a_port_that_is_none(port: str) -> None:
    """A server that finds it out when it listens ends with a traceback."""
    ports = [key for key in leaves() if key.endswith("port")]
    assert {"cluster.unreplicated_port", "flight.port", "listen.port"} <= {*ports}
    for key in ports:
        with pytest.raises(BadConfiguration, match="is not a port"):
            load(flags=[("--set", key, port)])
