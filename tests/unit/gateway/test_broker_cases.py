"""`make conformance` says how many cases of each broker passed."""

from tests.support.brokers import case_lines

SUITE = "tests/contract/test_gateway_brokers.py::test_"


def test_each_broker_that_took_part_has_a_line_with_its_outcomes() -> None:
    found = {
        "passed": [f"{SUITE}{name}[{case}]" for name in "ab" for case in ("hivemq-5", "mosquitto-3.1.1", "artemis-5")],
        "failed": [f"{SUITE}c[artemis-5]"],
        "skipped": [f"{SUITE}d[mosquitto-5]", "tests/unit/test_other.py::test_d[artemis-5]"],
        "error": [],
    }
    assert [" ".join(line.split()) for line in case_lines(found)] == [
        "mosquitto MQTT 3.1.1: 2 passed MQTT 5: 1 skipped",
        "artemis MQTT 3.1.1: no case MQTT 5: 2 passed, 1 failed",
        "hivemq MQTT 3.1.1: no case MQTT 5: 2 passed",
    ]


def test_a_run_without_fetched_brokers_has_no_lines() -> None:
    assert case_lines({"passed": [f"{SUITE}a[mosquitto-5]", f"{SUITE}a[iotcore-5]"]}) == []
