"""A plain server on a directory, for tests: `python -m holdfast.server DIR --port 0` prints its address."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal

from holdfast.broker import Broker
from holdfast.server.pulsar.listener import Server
from holdfast.server.pulsar.options import ServerOptions


async def serve(directory: str, broker_options: dict[str, object], options: ServerOptions) -> None:
    """Until SIGTERM or SIGINT."""
    given = {"require_namespaces": True, **broker_options}
    async with Broker.open(directory, **given) as broker, Server(broker, options) as server:
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        print(server.url, flush=True)
        await ended.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m holdfast.server", description=__doc__)
    parser.add_argument("directory")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=6650)
    parser.add_argument("--broker", type=json.loads, default={}, help="options of the broker, as JSON")
    parser.add_argument("--server", type=json.loads, default={}, help="and of the server")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    options = ServerOptions(host=arguments.host, port=arguments.port, **arguments.server)
    asyncio.run(serve(arguments.directory, arguments.broker, options))


if __name__ == "__main__":
    main()
