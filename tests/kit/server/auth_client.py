"""The official client with credentials, in its own process: jobs as JSON in, outcomes out.

The client has threads and does not survive a fork, so it must not run in the process of the tests. Jobs run
side by side: a refused one takes as long as the client retries.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

from tests.kit import module_command


def credentials(job: dict[str, Any]) -> dict[str, Any]:
    import pulsar  # type: ignore[import-untyped, unused-ignore]

    given: dict[str, Any] = {}
    if "token" in job:
        given["authentication"] = pulsar.AuthenticationToken(job["token"])
    if "user" in job:
        given["authentication"] = pulsar.AuthenticationBasic(*job["user"])
    if "certificate" in job:
        given["authentication"] = pulsar.AuthenticationTLS(*job["certificate"])
    if "trust" in job:
        given |= {"tls_trust_certs_file_path": job["trust"], "tls_validate_hostname": True}
    return given


def attempt(job: dict[str, Any]) -> str:
    """Return "ok", or the name of the client's error."""
    import pulsar

    client = pulsar.Client(
        job["url"],
        operation_timeout_seconds=job.get("timeout_s", 20),
        connection_timeout_ms=10_000,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        **credentials(job),
    )
    try:
        if job["do"] == "produce":
            client.create_producer(job["topic"]).send(b"x")
        elif job["do"] == "consume":
            client.subscribe(job["topic"], "s", consumer_type=pulsar.ConsumerType.Shared).close()
        else:
            reader = client.create_reader(job["topic"], pulsar.MessageId.earliest)
            reader.close()
    except pulsar.PulsarException as error:
        return type(error).__name__
    finally:
        client.close()
    return "ok"


async def attempt_async(job: dict[str, Any]) -> str:
    """Like `attempt`, with the client for asyncio."""
    import pulsar
    import pulsar.asyncio  # type: ignore[import-untyped, unused-ignore]

    client = pulsar.asyncio.Client(
        job["url"],
        operation_timeout_seconds=job.get("timeout_s", 20),
        connection_timeout_ms=10_000,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        **credentials(job),
    )
    try:
        producer = await client.create_producer(job["topic"])
        await producer.send(b"x")
    except (pulsar.PulsarException, pulsar.asyncio.PulsarException) as error:
        return str(error).split()[1].rstrip(":")  # the text is number, name, and the server's words
    finally:
        await client.close()
    return "ok"


def renew(job: dict[str, Any]) -> dict[str, Any]:
    """Send with short-lived tokens until `wanted` were requested; return their number, and errors."""
    import jwt
    import pulsar

    asked: list[float] = []

    def supply() -> str:
        asked.append(time.monotonic())
        lasts = job["lasts_s"] if len(asked) <= job.get("good", 1000) else -10.0
        return jwt.encode({"sub": job["role"], "exp": time.time() + lasts}, job["secret"], algorithm="HS256")

    client = pulsar.Client(
        job["url"],
        authentication=pulsar.AuthenticationToken(supply),
        operation_timeout_seconds=2,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    sent, fault = 0, ""
    try:
        producer = client.create_producer(job["topic"], send_timeout_millis=1500)
        end = time.monotonic() + job["seconds"]
        while time.monotonic() < end and len(asked) < job.get("asked", 1000):
            producer.send(b"x")
            sent += 1
            time.sleep(0.02)
        producer.send(b"behind")
    except pulsar.PulsarException as error:
        fault = type(error).__name__
    finally:
        client.close()
    return {"asked": len(asked), "sent": sent, "fault": fault}


class AuthClient:
    """The process, as the tests use it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            module_command(__file__), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, jobs: list[dict[str, Any]]) -> list[Any]:
        """Run jobs; return their outcomes, in order."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(jobs) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the client ended with status {self._process.wait()}"
        outcomes: list[Any] = json.loads(line)
        return outcomes

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(20)
        self._process.stdout.close()


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the client logs to its standard output
    for line in sys.stdin:
        jobs = json.loads(line)
        outcomes: list[Any] = [None] * len(jobs)

        def work(number: int, job: dict[str, Any], outcomes: list[Any] = outcomes) -> None:
            try:
                if job["do"] == "produce, asyncio":
                    outcomes[number] = asyncio.run(attempt_async(job))
                else:
                    outcomes[number] = renew(job) if job["do"] == "renew" else attempt(job)
            except BaseException as error:
                outcomes[number] = repr(error)

        threads = [threading.Thread(target=work, args=each) for each in enumerate(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        answers.write(json.dumps(outcomes) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
