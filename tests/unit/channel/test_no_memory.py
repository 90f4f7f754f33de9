"""Calls in which an allocation of the interpreter fails."""

from __future__ import annotations

import pytest

from holdfast import Channel, Displaced

FAILURES = 40


@pytest.mark.parametrize("with_callback", [True, False])
def test_a_batch_without_memory_for_its_result(runtime_directory: object, with_callback: bool) -> None:
    testcapi = pytest.importorskip("_testcapi")
    items = [b"c", b"d"]

    def callback(_: Displaced) -> None:
        pass

    with Channel.create("c", slots=2, slot_size=8, loans=8) as channel:
        producer = channel.producer()
        given = callback if with_callback else None
        for number in range(1, FAILURES):
            producer.push_batch([b"a", b"b"])
            failed: BaseException | None = None
            try:
                testcapi.set_nomemory(number, number + 1)
                producer.push_batch(items, given)
            except BaseException as error:
                failed = error
            finally:
                testcapi.remove_mem_hooks()
            assert failed is None or type(failed) is MemoryError, number
            failed = None
            stats = channel.stats()
            assert (producer.loans, stats.free + stats.ready) == (0, stats.buffers)
