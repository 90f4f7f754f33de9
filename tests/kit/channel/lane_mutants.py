"""Mutants of lanes and loops in bindings, holds and Python; and their tests.

`NATIVE_MUTANTS` are compiled into one extension with those of `binding_mutants.py`. Mutants of
`PYTHON_MUTANTS` replace a line of the package. Each names the test that must fail.
"""

from __future__ import annotations

from pathlib import Path

from tests.kit import ROOT
from tests.kit.native import Mutant, patched

LANES, MISUSE, LOOP = (f"tests/unit/channel/test_{each}.py" for each in ("lanes", "lane_misuse", "loop"))
INJECTED, PROCESSES = (f"tests/process/channel/test_lane_{each}.py" for each in ("injection", "processes"))

NATIVE_MUTANTS = (
    Mutant(
        "lowest-first",
        "a pop looks at the lowest priority first",
        "holdfast/channel/lanes.hpp",
        "const Handover found = look(at, plan_.lane_of(producer, priority), mark, laps, out);",
        "const Handover found = look(at, plan_.lane_of(producer, MUTANT ? plan_.priorities - 1 - priority : "
        "priority), mark, laps, out);",
        f"{LANES}::test_the_highest_priority_comes_first",
    ),
    Mutant(
        "first-producer-first",
        "a pop begins with producer 0 each time",
        "holdfast/channel/lanes.hpp",
        "const u32 producer = (at.turns[priority] + i) % plan_.producers;",
        "const u32 producer = (MUTANT ? i : at.turns[priority] + i) % plan_.producers;",
        f"{LANES}::test_no_producer_waits_for_more_than_one_datum_of_each_other",
    ),
    Mutant(
        "clears-one-lane",
        "buffers of a dead consumer come back in the first lane alone",
        "holdfast/channel/lanes.hpp",
        "for (Ring& lane : lanes_) cleared += lane.clear_owner(slot);",
        "for (Ring& lane : lanes_) {\n"
        "if (!MUTANT || &lane == &lanes_[0]) cleared += lane.clear_owner(slot); }",
        f"{INJECTED}::test_death_in_a_pop_among_lanes[pop_taken]",
    ),
    Mutant(
        "role-of-the-dead-stays",
        "the role of a dead producer is not cleared when its slot is used again",
        "holdfast/channel/roles.hpp",
        "resign_role(memory, lanes.producer_word(producer), slot);",
        "if (!MUTANT) resign_role(memory, lanes.producer_word(producer), slot);",
        f"{PROCESSES}::test_the_number_of_a_dead_producer_is_free",
    ),
    Mutant(
        "only-the-first-number",
        "a producer without a number tries number 0 alone",
        "holdfast/channel/attachment.hpp",
        "const u32 end = any ? plan().producers : producer_ + 1;",
        "const u32 end = any && !MUTANT ? plan().producers : producer_ + 1;",
        f"{LANES}::test_a_producer_gets_the_first_free_number",
    ),
    Mutant(
        "one-lane-read-only",
        "the consumer can write into the data of all lanes but the first",
        "holdfast/channel/attachment.hpp",
        "const u64 begin = plan().offset(lane, kStateStride);",
        "const u64 begin = plan().offset(MUTANT ? 0 : lane, kStateStride);",
        f"{PROCESSES}::test_a_consumer_maps_the_data_of_all_lanes_read_only",
    ),
    Mutant(
        "lends-of-the-lowest",
        "a loan with a priority is a buffer of priority 0",
        "holdfast/channel/attachment.hpp",
        "buffer = priority * plan().lane.pool() + index;",
        "buffer = (MUTANT ? 0 : priority) * plan().lane.pool() + index;",
        f"{LANES}::test_a_push_of_a_loan_has_the_priority_of_the_loan",
    ),
    Mutant(
        "closed-consumer-sends-back",
        "a closed consumer pushes back, beside its successor",
        "holdfast/channel/attachment.hpp",
        "if (resigned() || !lanes_.send_back(cursors_, index_of(buffer)))",
        "if ((resigned() && !MUTANT) || !lanes_.send_back(cursors_, index_of(buffer)))",
        f"{LOOP}::test_a_closed_consumer_does_not_push_back",
    ),
    Mutant(
        "cleared-and-sent-back",
        "a buffer without an owner is free, although it is on its way back",
        "holdfast/channel/shelf.hpp",
        "if (back) cleared.push_back(index);",
        "if (back && !MUTANT) cleared.push_back(index);",
        "tests/process/channel/test_loop_injection.py::test_death_of_a_successor_that_takes_back[pop_claimed-1]",
    ),
    Mutant(
        "stray-believed",
        "a buffer that comes back is believed, although the consumer did not have it",
        "holdfast/channel/shelf.hpp",
        "if (where_[index] != Where::out) return false;",
        "if (!MUTANT && where_[index] != Where::out) return false;",
        f"{LOOP}::test_damage_of_the_way_back[stray]",
    ),
    Mutant(
        "cancel-without-priority",
        "cancel looks at priority 0",
        "bindings/channel/producer.cpp",
        "self->producer->cancel(plan.priority_of(handle->lane), handle->position)",
        "self->producer->cancel(MUTANT ? 0 : plan.priority_of(handle->lane), handle->position)",
        f"{LANES}::test_a_successor_cancels_and_continues",
    ),
    Mutant(
        "handle-of-any-producer",
        "cancel takes the handle of another producer",
        "bindings/channel/producer.cpp",
        "if (producer != self->hold->producer()) {",
        "if (!MUTANT && producer != self->hold->producer()) {",
        f"{MISUSE}::test_a_handle_of_another_producer",
    ),
    Mutant(
        "loan-of-any-priority",
        "the priority of a loan is not compared",
        "bindings/channel/producer.cpp",
        "if (wanted == own) [[likely]]",
        "if (MUTANT || wanted == own) [[likely]]",
        f"{MISUSE}::test_a_loan_of_another_priority",
    ),
    Mutant(
        "bool-is-a-priority",
        "True is priority 1",
        "bindings/channel/producer.cpp",
        "if (PyBool_Check(given) || !PyIndex_Check(given)) {",
        "if ((!MUTANT && PyBool_Check(given)) || !PyIndex_Check(given)) {",
        f"{MISUSE}::test_a_priority_that_does_not_exist[push-bool]",
    ),
    Mutant(
        "producer-is-the-lane",
        "an item tells its lane instead of its producer",
        "bindings/channel/buffers.cpp",
        "return PyLong_FromUnsignedLong(buffer(self)->role->hold->plan().producer_of(buffer(self)->lane));",
        "return PyLong_FromUnsignedLong(MUTANT ? buffer(self)->lane : "
        "buffer(self)->role->hold->plan().producer_of(buffer(self)->lane));",
        f"{LANES}::test_an_overflow_displaces_only_data_of_its_own",
    ),
)

PYTHON_MUTANTS = (
    Mutant(
        "any-number",
        "a number that no producer has is passed on",
        "memory/channel.py",
        'if 0 <= checked_whole("number", number) < producers:',
        'if producers and checked_whole("number", number) < producers:',
        f"{MISUSE}::test_a_number_that_no_producer_has[-1]",
    ),
    Mutant(
        "priority-dropped",
        "apush forgets the priority",
        "memory/channel.py",
        "lambda: self.push(data, 0, priority)",
        "lambda: self.push(data, 0)",
        f"{LANES}::test_any_producer_wakes_the_consumer[0-1]",
    ),
    Mutant(
        "loop-opens-anything",
        "Loop.open takes a plain channel",
        "memory/channel.py",
        'if self._loop and not self._params["loop"]:',
        'if self._loop and "loop" not in self._params:',
        f"{LOOP}::test_a_loop_is_not_a_channel",
    ),
    Mutant(
        "pickled-as-channel",
        "a loop comes out of a pickle as a channel",
        "memory/channel.py",
        "return kind.open(name, directory=directory)",
        "return Channel.open(name, directory=directory)",
        f"{LOOP}::test_a_loop_is_pickled_and_opened_by_its_name",
    ),
    Mutant(
        "returning-is-held",
        "stats count a buffer on its way back as held",
        "memory/channel_stats.py",
        'lanes, held, returning = channel["lanes"], channel["held"], channel["returning"]',
        'lanes, held, returning = channel["lanes"], channel["held"] + channel["returning"], 0',
        f"{LOOP}::test_a_released_buffer_is_on_its_way_back",
    ),
    Mutant(
        "buffers-of-one-lane",
        "stats count the buffers of one lane",
        "memory/channel_stats.py",
        '(params["slots"] + params["loans"] + params["holds"]) * len(lanes)',
        '(params["slots"] + params["loans"] + params["holds"])',
        f"{LANES}::test_a_number_selects_a_row_of_stats",
    ),
    Mutant(
        "counts-unchecked",
        "a loop with several producers is left to the core, whose error names no argument",
        "memory/channel.py",
        'if not 1 <= wanted[key] <= (1 if wanted["loop"] else most):',
        "if not 1 <= wanted[key] <= most:",
        f"{LOOP}::test_a_loop_has_one_producer_and_one_priority[producers]",
    ),
)


def rewritten(mutant: Mutant, directory: Path) -> Path:
    """Make a package with one of `PYTHON_MUTANTS`; return its parent folder."""
    package = directory / "package" / "holdfast"
    package.mkdir(parents=True)
    for each in (*(ROOT / "src/holdfast").iterdir(), next(ROOT.glob("build/*/_core.*.so"))):
        (package / each.name).symlink_to(each)
    source = ROOT / "src/holdfast" / mutant.file
    folder = package / source.parent.name
    folder.unlink()
    folder.mkdir()
    for each in source.parent.iterdir():
        if each.name != source.name:
            (folder / each.name).symlink_to(each)
    (folder / source.name).write_text(patched(source.read_text(), mutant))
    return package.parent
