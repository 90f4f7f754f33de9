"""Run in a network namespace: the official client is redirected to another listener.

Only loopback exists here, so a client that dials the advertised address cannot reach any other host.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
from pathlib import Path

import pulsar

from tests.kit.served import served

SIOCSIFFLAGS, IFF_UP = 0x8914, 1
OUTSIDE = "127.8.8.8"
ESTABLISHED = "01"


def bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def listener(name: str) -> str:
    """Return the address that a client which asks for this listener is connected to."""
    client = pulsar.Client("pulsar://127.0.0.1:6650", listener_name=name)
    consumer = client.subscribe(f"orders-{name}", "s")
    client.create_producer(f"orders-{name}").send(b"through this listener")
    assert consumer.receive(10_000).data() == b"through this listener"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    open_to = {remote for _, _, remote, state, *_ in rows if state == ESTABLISHED}
    client.close()
    there = "".join(f"{byte:02X}" for byte in reversed(socket.inet_aton(OUTSIDE)))
    return OUTSIDE if any(each.startswith(there) for each in open_to) else "127.0.0.1"


def main(directory: Path) -> None:
    assert [name for _, name in socket.if_nameindex()] == ["lo"]
    bring_loopback_up()
    addresses = {"inside": "127.0.0.1", "outside": OUTSIDE}
    config = directory / "holdfast.toml"
    advertised = "".join(
        f"[[advertised]]\nname = '{name}'\nurl = 'pulsar://{address}:6650'\n"
        for name, address in addresses.items()
    )
    config.write_text(f"[listen]\nhost = '0.0.0.0'\n{advertised}")
    with served(directory / "data", "--config", str(config), "--port", "6650"):
        print({name: listener(name) for name in addresses} == addresses)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
