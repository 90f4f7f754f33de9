"""Kill everything around the sink at every step: the account is exact (I141 to I144)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StringType, StructField, StructType

from holdfast import NotFound
from holdfast.pipeline.sink.writer import BatchWriter
from tests.kit.spark.sink_hooks import MUTANTS
from tests.kit.spark.sink_kill import BROKEN, STRIKES, Arm, Broker, published, sequence
from tests.kit.spark.sink_sim import Simulation

pytestmark = pytest.mark.timeout(600)

PUBLISHED = (Arm("published", "driver"),)
NOTICED: dict[str, list[tuple[Arm, ...]]] = {
    "every commit has a key of its own": [PUBLISHED],
    "the key is the run's": [PUBLISHED],
    "stages are named after attempts": [(Arm("commit", "driver"),)],
    "the batch's number is ignored": [],
    "a commit for each stage": [],
    "a stage is committed by its task": [],
    "abort publishes what is left": [(Arm("commit", "fail"),)],
    "the broker does not look at the key": [PUBLISHED],
    "abort drops what is published": [(Arm("published", "fail"),)],
    "stages can be seen": [],
}
"""Targets that must be hit for a mistake to show."""


@pytest.fixture(scope="module")
def simulation() -> Iterator[Simulation]:
    made = Simulation()
    yield made
    made.close()


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "batches"])
def test_every_step_is_struck(
    tmp_path: Path, simulation: Simulation, stream: bool, counts: Callable[[str], None]
) -> None:
    """I141, I142, I143, I144: kills in turn, on one stream, and on batches."""
    simulation.stream = stream
    try:
        account = sequence(tmp_path, simulation, STRIKES)
    finally:
        simulation.stream = True
    assert not account.faults, account.faults
    assert account.lives == len(STRIKES) + 1
    assert account.restarts == sum(arm.target == "broker" for arms in STRIKES for arm in arms)
    counts(account.words())


def test_two_drivers_and_an_abort_at_the_wrong_time(tmp_path: Path) -> None:
    """I143, I144: the first commit publishes; after a drop, no commit is possible."""
    broker = Broker(tmp_path)
    try:
        given = {"service.url": broker.url, "topic": "t", "sinkName": "s"}
        schema = StructType([StructField("value", StringType())])

        def driver(batch: int, *values: str) -> tuple[BatchWriter, list[WriterCommitMessage | None]]:
            writer = BatchWriter({**given, "batchId": str(batch)}, schema, False)
            return writer, [writer.write(iter([pa.RecordBatch.from_pydict({"value": list(values)})]))]

        (first, its), (second, others) = driver(1, "a", "b"), driver(1, "b", "a")
        second.commit(others)
        first.commit(its)
        first.abort(its)
        second.abort(others)
        assert [line for line, _ in published(broker.url, "t")] == ["b", "a"]

        third, dropped = driver(2, "c")
        third.abort(dropped)
        with pytest.raises(NotFound, match="stage the batch again"):
            third.commit(dropped)
        third, again = driver(2, "c")
        third.commit(again)
        assert [line for line, _ in published(broker.url, "t")] == ["b", "a", "c"]
    finally:
        broker.close()


def test_every_mutant_has_its_strike() -> None:
    assert set(NOTICED) == {*MUTANTS, *BROKEN}


@pytest.mark.parametrize("mutant", NOTICED)
def test_it_is_noticed(mutant: str, tmp_path: Path, simulation: Simulation) -> None:
    account = sequence(tmp_path, simulation, NOTICED[mutant], mutant)
    assert account.faults, f"{mutant!r} was not noticed: {account.words()}"
    assert not any("was not reached" in fault for fault in account.faults), account.faults
