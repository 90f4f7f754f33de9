"""Test the demo with Spark, in the shared session and with its own Java."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.client import Client
from holdfast.demo import closing, job
from holdfast.demo.closing import Account
from holdfast.demo.records import Record
from holdfast.demo.settings import TOPIC, Places
from holdfast.pipeline.numbered import encode_json
from tests.kit.command import COMMAND
from tests.kit.served import served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_its_job_goes_on_when_the_broker_was_killed(spark: SparkSession, tmp_path: Path) -> None:
    """The whole job of the demo: stream, archive, figures, audits and account.

    One of the two producers was killed before it knew of its last message.
    """
    places = Places(tmp_path)
    places.records.mkdir()
    sent = [("sensor-1.1", 20, 20), ("sensor-2.1", 15, 14)]
    for producer, _, confirmed in sent:
        Record(places.records, producer).confirmed(confirmed - 1)
    for number, (producer, count, _) in enumerate(sent):
        with served(places.data) as server:
            with Client(server.url) as client:
                stage = client.stage()
                values = [encode_json(producer, n, f"k{n % 3}", value=float(n)) for n in range(count)]
                stage.append(TOPIC, values)
                client.sink_commit("rig", number, [stage.close()])
            query = job.stream(spark, places, server.url).trigger(availableNow=True).start()
            query.awaitTermination()
            server.end(signal.SIGKILL)
    with served(places.data):
        pass  # which shows what there is
    closing.close(spark, places)
    account = Account(**json.loads(places.account.read_text()))
    assert account == Account(34, 1, 35, 35, 70, 0, 0, 0, 0)
    assert account.balanced
    assert "<svg" in places.report.read_text()
    assert len(places.said.read_text().splitlines()) == 3


# In `make test`: tests/process/demo/test_rig.py kills the same parts, with a stand-in for Spark's job; the
# test above runs that job over a killed broker.
@pytest.mark.nightly
@pytest.mark.timeout(1500)
def test_everything_is_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    """Runs until the broker and Spark were killed, too.

    Usually that is the first run; on a busy machine it may end before.
    """
    killed = dict[str, int]()
    for number in range(4):
        told = demonstrated(tmp_path / str(number))
        killed = {kind: killed.get(kind, 0) + count for kind, count in told["killed"].items()}
        if killed["broker"] and killed["spark"] and sum(killed.values()) >= 5:
            return
    pytest.fail(f"in four runs these were killed: {killed}")


def demonstrated(tmp_path: Path) -> dict[str, Any]:
    """A run in which nothing was lost."""
    tmp_path.mkdir()
    done = subprocess.run(
        [COMMAND, "demo", "--minutes", "0.12", "--rate", "1000", "--json", "--to", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=580,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    assert told["good"] is True
    assert told["faults"] == []
    assert [told[name] for name in ("lost", "duplicated", "out_of_order", "strange")] == [0, 0, 0, 0]
    assert told["confirmed"] > 1000
    assert told["stored"] == told["confirmed"] + told["unconfirmed"] == told["calibrated"]
    assert told["archived"] == told["stored"] + told["calibrated"]
    frames = told["frames"]
    ends = sum(frames[end] for end in ("analysed", "displaced", "left", "lost"))
    assert frames["acquired"] == ends > 1000
    assert frames["lost"] <= frames["lost_max"]
    assert [frames[name] for name in ("twice", "out_of_order", "strange", "leaked")] == [0, 0, 0, 0]
    levels = told["levels"]
    assert levels["sent"] == levels["stored"] + levels["missed"] + levels["away"] > 0
    assert levels["stored"] > 0
    assert levels["twice"] == 0
    assert levels["gaps"] <= levels["gaps_max"]
    page = Path(told["report"]).read_text()
    assert "<svg" in page or "data:image" in page
    assert sorted(path.name for path in Path(told["report"]).parent.iterdir()) == [
        "account.json",
        "report.html",
    ]
    return told
