"""Test `holdfast serve` from start to stop: output, signals, exit status, reloads."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import jwt
import pytest
from google.protobuf.message import DecodeError

from holdfast._core import frame_command
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.auth.passwords import Hash, write_users
from tests.kit.certificates import Authority
from tests.kit.command import COMMAND
from tests.kit.processes import Start, comes_to_rest, cpu_s, tell, until
from tests.kit.served import Served, served

HELLO = pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=pb.CommandConnect(client_version="test"))
PING = frame_command(pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing()).SerializeToString())


def hello(method: str = "", data: bytes = b"") -> bytes:
    command = pb.BaseCommand()
    command.CopyFrom(HELLO)
    command.connect.auth_method_name, command.connect.auth_data = method, data
    return bytes(frame_command(command.SerializeToString()))


def connect(server: Served, method: str = "", data: bytes = b"") -> socket.socket:
    """An authenticated connection."""
    channel = socket.create_connection(("127.0.0.1", server.ready["port"]), timeout=10)
    channel.sendall(hello(method, data))
    return channel


def answer(channel: socket.socket) -> pb.BaseCommand:
    data = channel.recv(65536)
    return pb.BaseCommand.FromString(data[8 : 8 + int.from_bytes(data[4:8], "big")])


def admitted(server: Served, method: str = "", data: bytes = b"") -> bool:
    with connect(server, method, data) as channel:
        return answer(channel).type == pb.BaseCommand.CONNECTED


def ports(data: Path) -> list[str]:
    return ["--data", str(data), "--port", "0", "--http-port", "off"]


def fails(*arguments: str, status: int = 1) -> str:
    done = subprocess.run(
        [COMMAND, "serve", *arguments], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == status, done
    assert not done.stdout
    assert "Traceback" not in done.stderr
    return done.stderr


# -- start and end ------------------------------------------------------------------------------------


def test_ready_then_an_orderly_end(tmp_path: Path) -> None:
    """The service manager is told, too."""
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(10)
        with served(tmp_path / "data", environment={"NOTIFY_SOCKET": address}) as server:
            assert manager.recv(100) == b"READY=1"
            assert server.ready["pid"] == server.process.pid
            assert server.ready["urls"] == [server.url]
            channel = connect(server)
            assert answer(channel).type == pb.BaseCommand.CONNECTED
            assert server.end() == 0
            assert manager.recv(100) == b"STOPPING=1"
            assert channel.recv(100) == b""  # it was closed, not cut
            channel.close()
            assert "stopping reason=SIGTERM" in server.logs()
            assert "stopped" in server.logs().splitlines()[-1]


def test_the_line_for_people_and_the_limit_of_open_files(tmp_path: Path) -> None:
    """Stopped from the keyboard; started with few files, and with the maximum soon after."""
    few = ["sh", "-c", 'ulimit -Sn 256 && exec "$@"', "sh"]
    process = subprocess.Popen(
        [*few, COMMAND, "serve", *ports(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("holdfast is ready: pulsar://127.0.0.1:")
    soft = Path(f"/proc/{process.pid}/limits").read_text().split("Max open files")[1].split()[0]
    assert int(soft) == resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=20)
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in errors


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """A client that reads nothing delays the orderly stop; a second signal does not wait."""
    with served(tmp_path / "data", "--set", "limits.shutdown_s=60") as server:
        channel = connect(server)
        assert answer(channel).type == pb.BaseCommand.CONNECTED
        channel.settimeout(0.3)
        with pytest.raises(TimeoutError):
            channel.sendall(PING * 3_000_000)
        server.process.send_signal(signal.SIGTERM)
        until(lambda: "stopping" in server.logs())
        assert server.end() == 128 + signal.SIGTERM  # 0 would be the orderly end, after a minute
        channel.close()
    with served(tmp_path / "data") as server:  # as after a crash
        assert server.end() == 0


def test_who_holds_the_directory_is_named(tmp_path: Path) -> None:
    with served(tmp_path / "data") as server:
        told = fails(*ports(tmp_path / "data"))
        assert f"is held by process {server.process.pid}" in told
        assert admitted(server)


def test_a_host_that_is_not_known(tmp_path: Path) -> None:
    told = fails("--data", str(tmp_path / "data"), "--host", "nothing.invalid", "--port", "0")
    assert "cannot listen on nothing.invalid:0: the host is not known" in told


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        told = fails("--data", str(tmp_path / "data"), "--port", port, "--http-port", "off")
        assert f"cannot listen on 127.0.0.1:{port}: address already in use; stop" in told
        assert "Errno" not in told
    with served(tmp_path / "data") as server:  # the directory was let go
        assert server.end() == 0


FAILING = """
import errno, sys
from holdfast import _core
from holdfast.cli import main
_core.arm_fault("journal_sync", 20, errno.EIO, 0)
sys.exit(main(sys.argv[1:]))
"""


def test_a_disk_that_fails_ends_it(tmp_path: Path) -> None:
    """Nothing can be confirmed any more: the supervisor must know."""
    process = subprocess.Popen(
        [sys.executable, "-c", FAILING, "serve", "--json", *ports(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    port = json.loads(process.stdout.readline())["port"]
    with socket.create_connection(("127.0.0.1", port), timeout=10) as channel:
        channel.sendall(hello())
        for number in range(100):
            try:
                answer(channel)
                channel.sendall(producer(number))
            except (OSError, DecodeError):
                break
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "error   server: the broker has failed" in errors
    assert "Traceback" not in errors


def producer(number: int) -> bytes:
    wanted = pb.CommandProducer(
        topic=f"persistent://public/default/t{number}", producer_id=number, request_id=number
    )
    command = pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=wanted)
    return bytes(frame_command(command.SerializeToString()))


def test_a_directory_that_cannot_be_served(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "file" in fails(*ports(tmp_path / "file"))


def test_files_that_the_settings_name(tmp_path: Path) -> None:
    """Looked at before anything is opened."""
    data, config = tmp_path / "data", tmp_path / "a.toml"
    config.write_text(
        "[authentication]\nmethods = ['basic']\n[authentication.basic]\nusers_file = 'nobody'\n"
    )
    told = fails("--data", str(data), "--config", str(config), status=2)
    assert f"{tmp_path}/nobody: the users cannot be read: No such file" in told
    assert not data.exists()


# -- what it logs -------------------------------------------------------------------------------------


def test_logs_for_machines(tmp_path: Path) -> None:
    with served(tmp_path / "data", "--log-format", "json", "--log-level", "debug") as server:
        assert admitted(server)
        server.end()
        lines = [json.loads(line) for line in server.logs().splitlines()]
    assert {"time", "level", "logger", "message"} <= set(lines[0])
    assert [line["message"] for line in lines if line["logger"] == "holdfast.server"] == [
        "starting",
        "ready",
        "stopping",
        "stopped",
    ]


def settled(server: Served) -> str:
    """Return the log up to the line that says ready; a thread reads it."""
    until(lambda: "server: ready" in server.logs())
    return server.logs()


def test_warnings_of_what_nobody_may_have_meant(tmp_path: Path) -> None:
    with served(tmp_path / "data", "--host", "0.0.0.0") as server:
        assert "clients need no authentication on this address host=0.0.0.0" in settled(server)
    secret = tmp_path / "secret"
    secret.write_text("x" * 40)
    secret.chmod(0o644)
    variables = {
        "HOLDFAST_AUTHENTICATION_METHODS": "token",
        "HOLDFAST_AUTHENTICATION_TOKEN_SECRET_FILE": str(secret),
    }
    with served(tmp_path / "data", "--host", "0.0.0.0", environment=variables) as server:
        logs = settled(server)
        assert "every user of this machine can read a secret key=authentication.token.secret_file" in logs
        assert "credentials cross the network unencrypted" in logs
        assert "every authenticated client may do everything" in logs
        assert "x" * 40 not in logs
    config = tmp_path / "holdfast.toml"
    grants = "[[authorization.grants]]\nroles = ['a']\non = 'public'\nallow = ['admin']\n"
    config.write_text(f"[authentication]\nmethods = ['token']\ntoken.secret = '{'x' * 40}'\n{grants}")
    config.chmod(0o644)
    with served(tmp_path / "data", "--config", str(config)) as server:
        logs = settled(server)
        assert (
            f"every user of this machine can read a secret key=authentication.token.secret file={config}"
            in logs
        )
        assert "grants have no effect" in logs
    config.chmod(0o600)
    with served(tmp_path / "data", "--config", str(config)) as server:
        assert "can read a secret" not in settled(server)


def test_nobody_who_reads_the_log_can_hold_it_up(tmp_path: Path) -> None:
    """Its standard error is a pipe that is full: it goes on serving."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    process = subprocess.Popen(
        [COMMAND, "serve", *ports(tmp_path / "data"), "--json", "--log-level", "debug"],
        stdout=subprocess.PIPE,
        stderr=write,
        text=True,
    )
    os.close(write)
    assert process.stdout is not None
    port = json.loads(process.stdout.readline())["port"]
    for _ in range(150):  # each is worth a line or two
        with socket.create_connection(("127.0.0.1", port), timeout=10) as channel:
            channel.sendall(b"\x00\x00\x00\x08\x00\x00\x00\x04\xff\xff\xff\xff")
            channel.recv(1000)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    process.stdout.close()
    os.close(read)


# -- what it reads anew -------------------------------------------------------------------------------


def test_users_keys_and_grants_are_read_anew(tmp_path: Path) -> None:
    config, users = tmp_path / "a.toml", tmp_path / "users"
    secret = "the secret of this test, long enough"

    def configure(text: str = "") -> None:
        config.write_text(
            "[authentication]\nmethods = ['basic', 'token']\n[authentication.basic]\nusers_file = 'users'\n"
            f"[authentication.token]\nsecret = '{secret}'\n{text}"
        )

    def hang_up(words: str) -> None:
        before = server.logs().count(words)
        server.process.send_signal(signal.SIGHUP)
        until(lambda: server.logs().count(words) > before)

    configure()
    write_users(users, {"anna": Hash.of("one", log_n=4)})
    with served(tmp_path / "data", "--config", str(config)) as server:
        assert admitted(server, "basic", b"anna:one")
        write_users(users, {"anna": Hash.of("two", log_n=4)})
        assert admitted(server, "basic", b"anna:one")
        hang_up("reloaded: certificates")
        assert not admitted(server, "basic", b"anna:one")
        assert admitted(server, "basic", b"anna:two")
        users.write_text("nonsense\n")
        hang_up("the settings were not reloaded")
        assert admitted(server, "basic", b"anna:two")  # as before
        config.write_text("[listen]\nprot = 1\n")
        hang_up("the settings were not reloaded")
        configure()
        assert admitted(server, "token", jwt.encode({"sub": "a"}, secret).encode())
        write_users(users, {})
        secret = secret[::-1]
        configure("[limits]\nconnections = 5\n")
        hang_up("restart to apply them sections=limits")
        assert not admitted(server, "basic", b"anna:two")
        assert admitted(server, "token", jwt.encode({"sub": "a"}, secret).encode())
        assert server.end() == 0
        assert secret not in server.logs()
        assert secret[::-1] not in server.logs()


def test_what_is_read_anew_is_warned_of(tmp_path: Path) -> None:
    """As at the start: from now on no client authenticates."""
    config = tmp_path / "a.toml"
    config.write_text(f"[authentication]\nmethods = ['token']\ntoken.secret = '{'x' * 40}'\n")
    with served(tmp_path / "data", "--host", "0.0.0.0", "--config", str(config)) as server:
        assert "clients need no authentication on this address" not in settled(server)
        config.write_text("")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: "clients need no authentication on this address host=0.0.0.0" in server.logs())


def test_settings_that_lose_their_certificate_are_not_read_anew(tmp_path: Path) -> None:
    """The port is open: what it has shown, it shows."""
    certificate, key = Authority(tmp_path / "pki").certify("server")
    config = tmp_path / "a.toml"
    config.write_text(f"[listen]\ntls_port = 0\n[tls]\ncertificate = '{certificate}'\nkey = '{key}'\n")
    with served(tmp_path / "data", "--config", str(config)) as server:
        config.write_text("")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: "the settings were not reloaded" in server.logs())
        assert "tls.certificate, tls.key: a TLS port is open, and needs both" in server.logs()
        assert "Traceback" not in server.logs()
        assert admitted(server, "", b"")


def test_a_certificate_is_renewed(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    certificate, key = authority.certify("server")
    arguments = ["--tls-port", "0", "--set", f"tls.certificate={certificate}", "--set", f"tls.key={key}"]
    with served(tmp_path / "data", *arguments) as server:

        def serial() -> int:
            context = ssl.create_default_context(cafile=str(authority.ca))
            with (
                socket.create_connection(("127.0.0.1", server.ready["tls_port"]), timeout=10) as channel,
                context.wrap_socket(channel, server_hostname="localhost") as secure,
            ):
                found = secure.getpeercert()
                assert found is not None
                return int(str(found["serialNumber"]), 16)

        first = serial()
        authority.certify("server")
        server.process.send_signal(signal.SIGHUP)
        until(lambda: "reloaded: certificates" in server.logs())
        assert serial() == first + 1


def test_old_versions_of_tls_are_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "pki")
    certificate, key = authority.certify("server")
    arguments = ["--tls-port", "0", "--set", f"tls.certificate={certificate}", "--set", f"tls.key={key}"]
    with served(tmp_path / "data", *arguments, "--set", "tls.version=1.3") as server:
        context = ssl.create_default_context(cafile=str(authority.ca))
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with (
            socket.create_connection(("127.0.0.1", server.ready["tls_port"]), timeout=10) as channel,
            pytest.raises(ssl.SSLError),
        ):
            context.wrap_socket(channel, server_hostname="localhost")


# -- what it costs ------------------------------------------------------------------------------------


def polls(pause_s: float) -> None:
    tell("ready")
    while True:
        time.sleep(pause_s) if pause_s else None


@pytest.mark.parametrize("pause_s", [0.0, 0.005], ids=["spins", "polls"])
def test_what_is_not_at_rest(pause_s: float, start: Start) -> None:
    """Run a process that spins, and one that polls: the test below finds both."""
    child = start(polls, pause_s)
    child.hear()
    assert not comes_to_rest(child.pid, 1.0, tries=1)


IMPORTS = "import aiohttp.web, google.protobuf.descriptor, jwt, holdfast.broker; print(time.process_time())"


def test_it_is_quick_and_small_and_quiet(tmp_path: Path) -> None:
    """It starts for little more than its libraries cost, and is idle without clients."""
    done = subprocess.run([sys.executable, "-c", f"import time; {IMPORTS}"], capture_output=True, check=True)
    with served(tmp_path / "data", http=True) as server:
        pid = server.process.pid
        started = cpu_s(pid)
        assert started < 4 * float(done.stdout)
        assert admitted(server)
        memory = Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]
        assert int(memory) < 80 << 10
        assert comes_to_rest(pid, started)
