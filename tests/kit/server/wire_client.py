"""The official client in its own process, which runs programs of tests one after another.

The client has threads and does not survive a fork, so it must not run in the process of the tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import importlib
import inspect
import json
import os
import sys
import traceback
from typing import Any

from tests.kit.server.wire_server import Admin

OPERATION_S = 20


def options(url: str) -> dict[str, Any]:
    import pulsar  # type: ignore[import-untyped, unused-ignore]

    level = pulsar.LoggerLevel.Debug if os.environ.get("WIRE_DEBUG") else pulsar.LoggerLevel.Warn
    return {
        "service_url": url,
        "operation_timeout_seconds": OPERATION_S,
        "logger": pulsar.ConsoleLogger(level),
    }


def run_sync(program: Any, wanted: dict[str, Any], url: str) -> None:
    import pulsar

    clients: list[Any] = []

    def connect(**more: Any) -> Any:
        clients.append(pulsar.Client(**{**options(url), **more}))
        return clients[-1]

    given = {**wanted, "connect": connect}
    if "client" in inspect.signature(program).parameters:
        given["client"] = connect()
    try:
        program(**{name: given[name] for name in inspect.signature(program).parameters})
    finally:
        for client in clients:
            with contextlib.suppress(Exception):  # the program has closed it; shutdown() may wait for itself
                client.close()


async def run_async(program: Any, wanted: dict[str, Any], url: str) -> None:
    import pulsar.asyncio  # type: ignore[import-untyped, unused-ignore]

    client = pulsar.asyncio.Client(**options(url))
    given = {**wanted, "client": client}
    try:
        await program(**{name: given[name] for name in inspect.signature(program).parameters})
    finally:
        await client.close()


def run(job: dict[str, Any]) -> None:
    module = importlib.import_module(job["module"])
    program = getattr(module, job["function"]).program
    wanted = {
        "topic": job["topic"],
        "url": job["url"],
        "admin": Admin(job["door"]),
    }
    faulthandler.dump_traceback_later(job["timeout_s"], exit=True)
    try:
        if inspect.iscoroutinefunction(program):
            asyncio.run(run_async(program, wanted, job["url"]))
        else:
            run_sync(program, wanted, job["url"])
    finally:
        faulthandler.cancel_dump_traceback_later()


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the client logs to its standard output
    for line in sys.stdin:
        fault = ""
        try:
            run(json.loads(line))
        except BaseException:
            fault = traceback.format_exc()
        answers.write(json.dumps(fault) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
