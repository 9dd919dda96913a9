"""Which test tries which fault: each has one that runs in `make test`, or a reason why it has none; no entry names a ghost.

A name is the beginning of a test: of the gateway's faults in tests/integration/test_gateway_*.py, of the stream's in
tests/spark, tests/unit and the other folders, whichever module it stands in.
"""

import re
from pathlib import Path

import pytest

from deploy.chaos.faults import FAULTS, SKIPPED

TESTS = Path(__file__).parents[1]
GATEWAY = {
    "F1 gateway killed": "kill_9_between_any_two_steps, kill_9_at_each_step",
    "F2 killed between Kafka's report and PUBACK": "kill_9_at_each_step, what_was_not_acknowledged",
    "F3 killed between receiving and producing": "kill_9_at_each_step",
    "F4 SIGTERM": "a_stop_amid_the_load, a_stop_acknowledges, a_stop_while_kafka_hangs",
    "F5 gateway held": "silence_from_any_cause",
    "F6 exception in a callback": "a_failing_callback, a_decoder_that_fails",
    "F7 broker killed": "a_broker_that_is_killed, a_broker_killed_and_restarted",
    "F8 session lost, packet identifiers reused": "a_broker_that_is_killed, a_late_report_never",
    "F9 broker hangs": "silence_from_any_cause, a_broker_that_says_nothing",
    "F10 half-open connection": "silence_from_any_cause",
    "F11 RST storm": "a_slow_a_late_and_a_breaking_link",
    "F12 slow link": "a_slow_a_late_and_a_breaking_link",
    "F13 late link": "a_slow_a_late_and_a_breaking_link",
    "F14 two gateways, one client id": "two_gateways_with_one_client_id, a_taken_over_session",
    "F15 queue overflow at the broker": "what_a_broker_drops",
    "F16 Kafka killed": "a_kafka_that_is_killed",
    "F17 Kafka hangs": "a_kafka_that_hangs, a_kafka_that_hangs",
    "F18 Kafka's disk full": "a_kafka_whose_disk_is_full",
    "F19 Kafka's disk read-only": "a_kafka_whose_disk_is_full_and_then_read_only",
    "F20 topic deleted": "a_topic_that_is_deleted",
    "F23 producer's queue full": "a_kafka_that_hangs, a_full_producer_queue",
    "F24 oversize record beside good ones": "a_topic_that_takes_less, a_record_too_large",
    "F42 memory limit": "memory_stays_within, a_gateway_without_memory",
    "F43 clock jumps": "a_clock_that_jumps",
    "F46 no file left to open": "no_file_left",
    "F47 no processor time": "silence_from_any_cause",
    "F48 certificate rotated": "a_certificate_that_is_rotated",
    "F50 stampede": "hundreds_of_devices",
    "F51 retained messages": "retained_messages_come_again",
}
STREAM = {
    "F20 topic deleted and made anew": "what_kafka_lost_is_passed_over_only_by_command, a_topic_of_another_id",
    "F21 partitions added live": "what_kafka_lost_is_passed_over_only_by_command, records_of_a_batch_are_counted_over_new",
    "F22 retention passes unread records": "what_kafka_lost_is_passed_over, lost_ranges",
    "F26 second driver": "kill_9_at_random_moments, a_second_writer_is_refused",
    "F27 driver killed": "kill_9_at_random_moments",
    "F28 killed between Delta's commit and commits/N": "a_batch_that_is_run_again, a_crash_between_the_two_tables, "
    "a_crash_between_the_tables_refuses_a_conflict_once",
    "F29 metadata missing": "a_damaged_checkpoint_is_refused, a_broken_checkpoint_is_refused_and_goes_back",
    "F30 offsets/N torn or missing": "a_broken_checkpoint_is_refused, an_old_gap_in_the_checkpoint, torn_logs_lost_files",
    "F32 checkpoint lost": "a_lost_checkpoint_neither_ignores_nor_doubles",
    "F33 newest Delta commit torn": "torn_logs_lost_files, a_torn_newest_commit, a_torn_commit_in_the_middle",
    "F34 Delta's checkpoint torn": "torn_logs_lost_files, a_torn_checkpoint_of_the_log",
    "F35 data file missing": "torn_logs_lost_files, missing_data_files_are_dropped_only",
    "F36 disk full": "a_full_disk_ends_the_batch",
    "F38 maintenance during the stream": "files_are_joined_while_rows_land",
    "F39 a second process": "a_second_writer_is_refused, a_running_writer_is_not_repaired_under",
    "F40 vacuum that keeps nothing": "a_vacuum_that_keeps_nothing_is_refused",
    "F41 memory limit": "a_backlog_is_landed_in_batches_of_bounded_size, a_fault_is_one_sentence_of_the_right_kind",
    "F52 scraper that hangs": "a_scraper_that_hangs",
    "F53 upgrade with a live checkpoint": "a_checkpoint_and_tables_of_the_version_before, a_snapshot_of_an_older_version, "
    "an_upgrade_under_load",
    "F54 poison record": "poison_becomes_dead_letters, readings_and_dead_letters_land",
}
NONE: dict[str, str] = {
    "F31": "the landing keeps no state in a state store: what it knows of identities is derived from the table",
    "F37": "neither Spark's checkpoint nor Delta's log calls fsync on a local disk, so none can fail; what a power cut tears "
    "is found at the next start (F33, F30)",
}


def names_in(pattern: str) -> list[str]:
    files = TESTS.glob(pattern)
    return [name for file in files for name in re.findall(r"^def test_(\w+)", file.read_text("utf-8"), re.M)]


@pytest.fixture(scope="module")
def of_gateway() -> list[str]:
    return names_in("integration/test_gateway_*.py")


@pytest.fixture(scope="module")
def of_all() -> list[str]:
    return names_in("**/test_*.py")


@pytest.mark.parametrize("fault", GATEWAY)
def test_a_fault_of_the_gateway_has_its_test(fault: str, of_gateway: list[str]) -> None:
    for start in GATEWAY[fault].split(", "):
        assert any(name.startswith(start) for name in of_gateway), f"{fault}: no test_{start}…"


@pytest.mark.parametrize("fault", STREAM)
def test_a_fault_of_the_stream_has_its_test(fault: str, of_all: list[str]) -> None:
    for start in STREAM[fault].split(", "):
        assert any(name.startswith(start) for name in of_all), f"{fault}: no test_{start}…"


def test_each_number_from_26_to_41_has_a_test_or_a_reason() -> None:
    told = {fault.split()[0] for fault in STREAM} | set(NONE)
    assert {f"F{number}" for number in (*range(26, 42), 52, 53, 54)} <= told
    assert not {fault.split()[0] for fault in STREAM} & set(NONE)


def test_the_table_and_the_command_know_the_same_faults() -> None:
    tried = {one.id for one in FAULTS} | {fault for fault, why in SKIPPED.items() if "Spark" not in why}
    assert tried == {fault.split()[0] for fault in GATEWAY}
