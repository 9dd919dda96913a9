"""Which test tries which fault of the gateway: each has one that runs in `make test`, and the table names no ghost.

A name is the beginning of a test in tests/integration/test_gateway_*.py, whichever module it stands in.
"""

import re
from pathlib import Path

import pytest

from deploy.chaos.faults import FAULTS, SKIPPED

INTEGRATION = Path(__file__).parents[1] / "integration"
MATRIX = {
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


@pytest.fixture(scope="module")
def tests() -> list[str]:
    files = INTEGRATION.glob("test_gateway_*.py")
    return [name for file in files for name in re.findall(r"^def test_(\w+)", file.read_text("utf-8"), re.M)]


@pytest.mark.parametrize("fault", MATRIX)
def test_a_fault_has_its_test(fault: str, tests: list[str]) -> None:
    for start in MATRIX[fault].split(", "):
        assert any(name.startswith(start) for name in tests), f"{fault}: no test_{start}…"


def test_the_table_and_the_command_know_the_same_faults() -> None:
    tried = {one.id for one in FAULTS} | {fault for fault, why in SKIPPED.items() if "Spark" not in why}
    assert tried == {fault.split()[0] for fault in MATRIX}
