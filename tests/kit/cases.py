"""Faults, and the mutants that restore each; docs/testing.md has the table.

`tests/repo/test_cases.py` compares the two, and checks that every name in here exists.
"""

from __future__ import annotations

from dataclasses import dataclass

CORE = "tests/kit/native_mutants.py"
CORE_QUEUE = "tests/kit/queue/native_mutants.py"
EXPLORED = "tests/kit/queue/mutants.py"
SANITISED = "tests/process/core/test_bindings_sanitised.py"
COST = "tests/mutants/test_cost.py"
WAYS = "tests/mutants/test_ways.py"
INTERFERENCE = "tests/mutants/test_interference.py"
LIMITS = "tests/mutants/test_limits.py"
NATIVE_LIMITS = "tests/kit/native_limit_mutants.py"


@dataclass(frozen=True)
class Row:
    """Mutants of one fault: where they are planted, and what notices them."""

    case: str
    fault: str
    mutants: tuple[str, ...]
    planted: str
    caught: tuple[str, ...]
    """Files of tests, and functions in them."""

    def line(self) -> str:
        names = ", ".join(f"`{each}`" for each in self.mutants)
        tests = ", ".join(f"`{each.removeprefix('tests/')}`" for each in self.caught)
        return f"| {self.case} | {self.fault} | {names} | {tests} |"


ROWS = (
    Row(
        "1",
        "marks keep a few bits of the lap: the queue dies after 65,536 laps",
        ("lap-of-8-bits", "lap-of-16-bits", "lap-of-32-bits", "lap-of-48-bits"),
        EXPLORED,
        ("tests/mutants/test_queue.py::test_mutant_is_caught",),
    ),
    Row(
        "2",
        "the result of a get is in memory that threads share (nightly: the compiler)",
        ("got-shared",),
        "tests/kit/queue/binding_mutants.py",
        ("tests/process/queue/test_threads_buried.py::test_each_message_once",),
    ),
    Row(
        "2",
        "the same, one layer below (nightly)",
        ("taken-shared",),
        SANITISED,
        ("tests/unit/queue/test_points_threads.py::test_the_same_object",),
    ),
    Row(
        "3",
        "a lock is believed through a number that is another file's",
        ("lock-believed", "no-signature", "strangers-closed"),
        CORE_QUEUE,
        ("native/tests/shm/test_participants.cpp",),
    ),
    Row(
        "4",
        "a stopped recoverer, or joiner, keeps what the dead left",
        ("recoverer-alone", "joiner-alone"),
        CORE_QUEUE,
        ("native/tests/shm/test_participants.cpp",),
    ),
    Row(
        "5",
        "redelivery counts that are too low",
        ("count-not-kept", "count-aba", "count-given-back"),
        EXPLORED,
        ("tests/mutants/test_queue.py::test_mutant_is_caught",),
    ),
    Row(
        "5",
        "recovery raises a count before the exchange that may fail",
        ("count-before-the-swap",),
        CORE_QUEUE,
        ("native/tests/queue/test_queue_life.cpp",),
    ),
    Row(
        "6",
        "a change of the layout that the fingerprint misses",
        ("states-swapped", "mark-without-known", "lap-moved", "side-swapped", "params-moved"),
        "tests/kit/queue/layout_mutants.py",
        ("tests/mutants/test_queue_layout.py::test_a_change_of_the_layout_changes_the_fingerprint",),
    ),
    Row(
        "6",
        "contention is called damage, and damage contention",
        ("contention-is-damage", "damage-is-contention"),
        CORE_QUEUE,
        ("native/tests/queue/test_queue_life.cpp",),
    ),
    Row(
        "6",
        "a stall limit below the time of a copy",
        ("limit-not-doubled", "limit-forgotten", "fences-are-deliveries"),
        CORE_QUEUE,
        ("native/tests/queue/test_queue_life.cpp",),
    ),
    Row(
        "7",
        "a restart lets an old acknowledgement undo a reset",
        ("reset_known_in_memory_alone",),
        "tests/kit/broker/mutants.py",
        ("tests/mutants/test_broker.py::test_the_model_notices",),
    ),
    Row(
        "8",
        "later sends pass earlier ones that wait for the disk",
        ("room_that_lets_newcomers_pass", "wake_all", "Open"),
        "tests/unit/broker/test_back_pressure.py",
        ("tests/unit/broker/test_back_pressure.py::test_the_faults_are_noticed",),
    ),
    Row(
        "9",
        "frames have the time of the wall clock",
        ("test_without_the_bound_it_is_noticed",),
        "tests/simulation/test_clocks.py",
        ("tests/simulation/test_clocks.py::test_a_frame_of_a_clock_a_year_ahead_stops_nothing",),
    ),
    Row(
        "9",
        "at a step: frames have the wall clock, recovery gives new times, the broker waits for its clock",
        ("wall clock", "redo now", "each time is another"),
        "tests/kit/broker/clock_steps.py",
        ("tests/mutants/test_clock.py::test_a_broken_broker_is_noticed_at_a_step",),
    ),
    Row(
        "9",
        "the age of an open chunked message is the driver's time, or stands still with an idle topic",
        ("the_drivers_clock", "the_newest_entry_is_now"),
        "tests/mutants/test_source.py",
        ("tests/mutants/test_source.py::test_mutants_are_noticed",),
    ),
    Row(
        "9",
        "log time that ran ahead is not reported, not set back, or stays in the ledgers",
        ("doctor_without_a_clock", "repair_of_nothing", "ledgers_of_the_future"),
        "tests/mutants/test_repair_time.py",
        (
            "tests/mutants/test_repair_time.py::test_it_is_noticed",
            "tests/unit/cli/test_repair_time.py::test_log_time_is_set_back",
        ),
    ),
    Row(
        "10",
        "a consumer that failed to open leaves a ghost",
        ("open_without_undoing", "add_without_undoing"),
        "tests/unit/broker/test_opening.py",
        ("tests/unit/broker/test_opening.py::test_a_failure_behind_the_join_leaves_no_ghost",),
    ),
    Row(
        "11",
        "log time moves with frames that the journal does not keep",
        ("time-of-every-frame",),
        CORE,
        ("native/tests/log/test_log.cpp",),
    ),
    Row(
        "11",
        "names are judged by tables of the Python version",
        ("Printable",),
        "tests/unit/broker/test_apply_alone.py",
        ("tests/unit/broker/test_apply_alone.py::test_names_are_judged_the_same_by_every_python",),
    ),
    Row(
        "12",
        "consumers wait at a damaged entry without an error, or the error does not name it",
        ("silent", "nameless"),
        "tests/unit/broker/test_damage.py",
        ("tests/unit/broker/test_damage.py::test_a_consumer_gets_the_error",),
    ),
    Row(
        "12",
        "a skip that is not counted, or keeps the cursor",
        ("skip_uncounted", "skip_that_stays"),
        "tests/unit/broker/test_damage.py",
        ("tests/unit/broker/test_damage.py::test_by_choice_it_is_left_out_and_counted",),
    ),
    Row(
        "12",
        "an index that a batch does not have is believed",
        ("test_a_broker_that_believes_an_index_is_noticed",),
        "tests/unit/broker/test_clear_errors.py",
        ("tests/unit/broker/test_clear_errors.py::test_an_index_that_a_batch_does_not_have",),
    ),
    Row(
        "12",
        "a state transfer that fails without an error",
        ("fail_without_a_word",),
        "tests/mutants/test_joining.py",
        ("tests/simulation/test_members.py::test_a_copy_that_fails_says_why",),
    ),
    Row(
        "12",
        "half of a surrogate pair raises an error of Python (nightly: the compiler)",
        ("half-a-pair-as-python-says",),
        "tests/kit/queue/binding_mutants.py",
        ("tests/unit/broker/test_clear_errors.py::test_text_that_is_none",),
    ),
    Row(
        "12",
        "names of producers stay for ever",
        ("test_names_that_stay_are_noticed",),
        "tests/simulation/test_growth.py",
        ("tests/simulation/test_growth.py::test_names_of_producers_are_forgotten_by_age",),
    ),
    Row(
        "12",
        "each acknowledgement looks at all subscriptions",
        ("test_a_look_at_all_subscriptions_is_noticed",),
        "tests/simulation/test_growth.py",
        (
            "tests/simulation/test_growth.py::test_an_acknowledgement_costs_the_same_beside_idle_subscriptions",
        ),
    ),
    Row(
        "13",
        "the simulated writer has an order of its own",
        ("test_a_writer_of_another_order_is_noticed",),
        "tests/conformance/test_write_order.py",
        ("tests/conformance/test_write_order.py::test_both_writers_leave_the_same",),
    ),
    Row(
        "14",
        "requests run at once, and look at everything",
        ("all_at_once", "lists_of_old", "readers_are_looked_for", "in_one_go"),
        COST,
        (f"{COST}::test_it_is_noticed",),
    ),
    Row(
        "14",
        "half frames of closed connections stay",
        ("half_frames_stay", "nobody_counts"),
        COST,
        (f"{COST}::test_it_is_noticed",),
    ),
    Row(
        "14",
        "half frames have no limit, and all the time",
        ("nobody_is_refused", "any_pace_will_do"),
        "tests/kit/server/cost_mutants.py",
        (f"{COST}::test_it_is_noticed",),
    ),
    Row(
        "14",
        "stats walk through all consumers, refusals are not logged",
        ("stats_of_all", "refusals_are_silent"),
        "tests/kit/server/cost_mutants.py",
        (f"{COST}::test_it_is_noticed",),
    ),
    Row(
        "14",
        "idle readers cost megabytes each",
        ("large_reads",),
        COST,
        (f"{COST}::test_it_is_noticed",),
    ),
    Row(
        "14",
        "durable state has no quota, and masks are believed",
        ("no_quota", "masks_are_believed", "any_number_of_parts"),
        COST,
        (f"{COST}::test_it_is_noticed",),
    ),
    Row(
        "14",
        "a page of metrics for each, bodies that take all places",
        ("a_page_each", "a_page_in_one_go", "bodies_take_places", "health_waits_in_line"),
        "tests/mutants/test_http_cost.py",
        ("tests/mutants/test_http_cost.py::test_it_is_noticed",),
    ),
    Row(
        "15",
        "a command that costs more than its bytes allow",
        ("parts_one_by_one", "stats_look_for_readers", "reasons_repeat_names"),
        "tests/mutants/test_asymmetry.py",
        ("tests/mutants/test_asymmetry.py::test_it_is_noticed",),
    ),
    Row(
        "16",
        "offline consumers are called stuck",
        ("offline_is_stuck", "nothing_is_stuck"),
        "tests/mutants/test_stuck.py",
        ("tests/mutants/test_stuck.py::test_it_is_noticed",),
    ),
    Row(
        "17",
        "latency by the producer's clock, clamped",
        ("producers_clock", "clamped", "unsaid"),
        "tests/spark/test_latency_mutants.py",
        ("tests/spark/test_latency_mutants.py::test_each_is_noticed",),
    ),
    Row(
        "18",
        "payloads that repeat; options of tables; workers too small; ids that are not unique",
        ("payloads_repeat", "properties_are_options", "never_a_word", "ids_of_entries"),
        WAYS,
        (f"{WAYS}::test_each_is_noticed",),
    ),
    Row(
        "18",
        "settings of `--conf` are lost, or weaker than holdfast's; an error recommends `update`",
        ("conf_is_lost", "conf_is_weaker", "update_is_recommended"),
        WAYS,
        (f"{WAYS}::test_each_is_noticed", "tests/unit/pipeline/test_cli.py::test_settings_of_spark_reach_it"),
    ),
    Row(
        "18",
        "each side takes one scheme of addresses",
        ("test_a_source_that_takes_one_scheme_is_noticed", "test_a_sink_that_takes_one_scheme_is_noticed"),
        WAYS,
        ("tests/kit/spark/ways.py::check_one_address",),
    ),
    Row(
        "18",
        "positions are counted as messages",
        ("test_positions_counted_as_messages_are_noticed",),
        "tests/spark/test_compact_counts.py",
        ("tests/spark/test_compact_counts.py::test_messages_of_batches_are_counted",),
    ),
    Row(
        "cancelled",
        "a cancelled `close()` is not done to its end",
        ("test_a_close_that_ends_with_its_caller_is_noticed",),
        "tests/unit/broker/test_opening.py",
        ("tests/unit/broker/test_opening.py::test_a_close_that_is_cancelled_goes_on",),
    ),
    Row(
        "cancelled",
        "a cancelled open keeps files, and a close whose loop ends keeps the directory locked",
        ("answers_that_are_lost", "files_of_the_cancelled", "a_close_that_ends_with_its_loop"),
        "tests/mutants/test_cancelled.py",
        ("tests/mutants/test_cancelled.py::test_what_the_cancelled_leave_is_noticed",),
    ),
    Row(
        "cancelled",
        "a closed broker keeps its files until Python collects its objects",
        ("a_writer_for_the_collector", "a_reader_for_the_collector"),
        "tests/mutants/test_cancelled.py",
        ("tests/mutants/test_cancelled.py::test_what_the_closed_leave_is_noticed",),
    ),
    Row(
        "cancelled",
        "a cancelled append to a stage is published in the place of the next",
        ("test_an_append_that_is_known_by_its_count_is_noticed",),
        "tests/unit/broker/test_clear_errors.py",
        ("tests/unit/broker/test_clear_errors.py::test_an_append_after_one_that_was_cancelled",),
    ),
    Row(
        "ends",
        "fields that end, or wrap",
        ("positions-without-end", "returns-in-order"),
        EXPLORED,
        ("tests/mutants/test_queue.py::test_mutant_is_caught",),
    ),
    Row(
        "files",
        "a lock that `rm` takes away, or that is believed",
        ("a_lock_of_its_file_alone", "a_lock_is_believed", "a_path_is_believed"),
        INTERFERENCE,
        ("tests/unit/broker/test_interference.py",),
    ),
    Row(
        "files",
        "a journal that is gone is written to",
        ("a_journal_is_believed", "no_snapshot_follows", "the_old_place_is_kept", "names_are_believed"),
        INTERFERENCE,
        ("tests/unit/broker/test_interference.py",),
    ),
    Row(
        "files",
        "a journal file that is named before it exists: `close()` directly after `open()` fails",
        ("test_a_journal_file_that_is_named_before_it_is_there",),
        "tests/mutants/test_store.py",
        ("tests/conformance/test_store.py::test_closed_at_every_step_of_its_start",),
    ),
    Row(
        "files",
        "a ledger that is gone",
        ("nothing_is_rescued", "what_is_gone_is_not_told"),
        INTERFERENCE,
        ("tests/unit/broker/test_interference.py",),
    ),
    Row(
        "files",
        "the core's writer does not notice removed files",
        ("removed-unseen", "number-believed"),
        CORE,
        ("native/tests/log/test_writer.cpp",),
    ),
    Row(
        "files",
        "local ingest does not notice removed files",
        (
            "test_a_broker_that_does_not_look_after_its_queues_is_noticed",
            "test_a_broker_that_is_not_found_is_noticed",
        ),
        "tests/process/ingest/test_interference.py",
        ("tests/process/ingest/test_interference.py::test_ingest_goes_on",),
    ),
    Row(
        "forks",
        "a child shares the mapping, or uses its parent's writer",
        ("child-shares", "thread-in-child"),
        CORE,
        ("native/tests/shm/test_participants.cpp", "native/tests/log/test_writer_ledgers.cpp"),
    ),
    Row(
        "stops",
        "the shared lock of recoverers is exclusive: a stopped one stops the others",
        ("locks-exclusive",),
        "tests/mutants/test_queue_points.py",
        ("tests/process/queue/test_stopped.py::test_a_stopped_recoverer_stops_nobody",),
    ),
    Row(
        "forks",
        "the child of a fork in the middle of an operation writes into the queue",
        ("child-keeps-the-mapping",),
        "tests/mutants/test_queue_points.py",
        ("tests/process/queue/test_forked.py::test_a_child_of_the_middle",),
    ),
    Row(
        "threads",
        "an order that is too weak",
        ("commit-relaxed", "settle-relaxed"),
        "tests/process/core/test_thread_sanitizer.py",
        ("tests/process/core/test_thread_sanitizer.py::test_a_weakened_order_is_seen",),
    ),
    Row(
        "threads",
        "a plain access, the GIL or a lock forgotten (nightly: the compiler)",
        ("spin-plain", "put-without-gil", "push-unlocked", "poll-unlocked"),
        SANITISED,
        (f"{SANITISED}::test_a_race_is_seen",),
    ),
    Row(
        "limits",
        "a batch beyond the last sequence number stops the broker",
        ("batch-over-the-end", "written-and-not-read"),
        NATIVE_LIMITS,
        (
            "native/tests/wire/test_wire.cpp",
            "tests/unit/server/test_limits.py::test_the_last_sequence_of_a_batch",
        ),
    ),
    Row(
        "limits",
        "counts of deliveries, delays and back-offs wrap, or are not numbers",
        ("redeliveries-wrap", "due-wraps", "nothing-times-infinity"),
        NATIVE_LIMITS,
        ("native/tests/dispatch/test_dispatch.cpp",),
    ),
    Row(
        "limits",
        "numbers of a topic's view, of events and of positions have no end",
        ("views-by-size", "events-without-end", "ordinals-without-end"),
        NATIVE_LIMITS,
        ("native/tests/log/test_publication.cpp", "native/tests/log/test_log.cpp"),
    ),
    Row(
        "limits",
        "ids, acknowledgements, clocks, delays and options of a broker have no end, or another",
        ("endless_ids", "narrow_acks", "endless_clock", "any_delay", "any_option", "unlooked_options"),
        LIMITS,
        (f"{LIMITS}::test_a_number_without_an_end_is_noticed",),
    ),
    Row(
        "limits",
        "versions of a topic's table have no end, or the largest counts for the last",
        ("endless_versions", "largest_version"),
        LIMITS,
        (
            f"{LIMITS}::test_a_number_without_an_end_is_noticed",
            "tests/unit/ledger/test_limits.py::test_versions_of_a_topics_table_come_round",
        ),
    ),
    Row(
        "limits",
        "an epoch of 64 bits, a time beyond all years, a digit more in a name",
        ("narrow_epoch", "any_date", "test_runs_ordered_by_name_are_noticed"),
        LIMITS,
        (f"{LIMITS}::test_a_server_that_takes_fewer_bits_is_noticed", "tests/unit/pipeline/test_limits.py"),
    ),
)


def table() -> str:
    """Return the rows as docs/testing.md has them."""
    head = ["| case | the fault | mutants that bring it back | caught by |", "|---|---|---|---|"]
    return "\n".join([*head, *(row.line() for row in ROWS)])
