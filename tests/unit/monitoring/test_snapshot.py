"""The snapshot: figures of the fleet without the canary, latency, objectives, stations; what is not known is not zero."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from monitoring.monitoring_settings import MonitoringSettings
from monitoring.sample_history import History
from monitoring.scrape import Scrape
from monitoring.snapshot.build import METRICS, build_snapshot
from monitoring.snapshot.snapshot_inputs import KafkaNames, SnapshotInputs

NAMES = KafkaNames(readings="telemetry.readings", group="tidegate-land")
START = 1_000_000.0
TARGETS = {f"tidegate-{part}": f"http://127.0.0.1:1/{part}" for part in ("gateway", "stream", "canary")}
Told = Mapping[Any, float]


def key(name: str, **labels: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    return name, tuple(sorted(labels.items()))


class Stage:
    """A memory that is told scripted scrapes, and the snapshot of it."""

    def __init__(self) -> None:
        self.history = History(METRICS)
        self.now = START
        self.side: dict[str, Any] = {"version": "1", "started_at": START, "targets": TARGETS}

    def tell(self, seconds: float, **told: Told | None) -> None:
        """Let time pass, then every part tells these samples; None for one that does not answer."""
        self.now += seconds
        for part, values in told.items():
            scrape = None if values is None else Scrape(self.now, dict(values))
            self.history.add(self.now, f"tidegate-{part}", scrape)

    def snapshot(self, **settings: Any) -> dict[str, Any]:
        found = build_snapshot(
            self.history, SnapshotInputs(**self.side), NAMES, MonitoringSettings(**settings), now=self.now
        )
        json.dumps(found, allow_nan=False)
        return found


@pytest.fixture
def stage() -> Stage:
    return Stage()


def gateway(received: float, *, connected: float = 1, rejected: Mapping[str, float] | None = None) -> Told:
    refused = sum((rejected or {}).values())
    return {
        key("tidegate_gateway_messages_received_total", qos="1"): received,
        key("tidegate_gateway_messages_received_total", qos="0"): 0.0,
        key("tidegate_gateway_messages_accepted_total"): received - refused,
        key("tidegate_gateway_messages_acknowledged_total"): received,
        key("tidegate_gateway_readings_total"): received - refused,
        key("tidegate_gateway_connected"): connected,
        **{key("tidegate_gateway_messages_rejected_total", reason=why): n for why, n in (rejected or {}).items()},
    }


def canary(
    published: float, seen: float, *, arrived: float | None = None, buckets: Mapping[str, float] | None = None
) -> Told:
    return {
        key("tidegate_canary_published_total"): published,
        key("tidegate_canary_acknowledged_total"): published if arrived is None else arrived,
        key("tidegate_canary_seen_total"): seen,
        key("tidegate_canary_last_seen_timestamp_seconds"): START - 4,
        **{key("tidegate_end_to_end_latency_seconds_bucket", le=le): n for le, n in (buckets or {}).items()},
    }


def stream(rows: float, **more: float) -> Told:
    return {
        key("tidegate_stream_rows_total", table="readings"): rows,
        key("tidegate_stream_rows_total", table="rollups_1m"): 10 * rows,
        **{key(name): value for name, value in more.items()},
    }


def test_the_fleet_is_told_without_the_canary(stage: Stage) -> None:
    stage.tell(0, gateway=gateway(100, rejected={"bad_json": 5}), canary=canary(50, 48), stream=stream(95))
    stage.tell(8, gateway=gateway(184, rejected={"bad_json": 13}), canary=canary(54, 52), stream=stream(171))
    rates = stage.snapshot()["rates"]
    assert rates == {
        "received": (84 - 4) / 8, "accepted": (76 - 4) / 8, "readings": (76 - 4) / 8, "dead_lettered": 1.0, "ignored": None,
        "acknowledged": (84 - 4) / 8, "rows": (76 - 4) / 8,
    }  # fmt: skip


def test_no_rate_is_negative_while_only_the_canary_counts(stage: Stage) -> None:
    for _ in range(2):
        stage.tell(8, gateway=gateway(100), canary=canary(stage.now, 0), stream=stream(0))
    assert stage.snapshot()["rates"]["received"] == 0


def test_a_thousand_messages_are_a_thousand(stage: Stage) -> None:
    """Published by devices, beside a canary: the totals behind every figure that counts them agree."""
    stage.tell(0, gateway=gateway(0), canary=canary(0, 0), stream=stream(0))
    for step in range(1, 6):
        stage.tell(2, gateway=gateway(200 * step + step), canary=canary(step, step), stream=stream(200 * step + step))
    found = stage.snapshot()
    for name in ("received", "accepted", "acknowledged", "rows"):
        assert found["rates"][name] * 10 == pytest.approx(1000), name
    assert found["flow"][2]["figures"][0]["value"] == found["rates"]["received"] == found["point"]["received"]


def test_canary_readings_that_never_left_are_not_taken_off_the_fleet(stage: Stage) -> None:
    """The canary's own way to the broker is shut, the devices' is not."""
    stage.tell(0, gateway=gateway(0), canary=canary(0, 0, arrived=0), stream=stream(0))
    for step in range(1, 6):
        told = gateway(2 * step)
        stage.tell(2, gateway=told, canary=canary(5 * step, 0, arrived=0), stream=stream(2 * step))
    rates = stage.snapshot()["rates"]
    assert {rates[name] for name in ("received", "accepted", "acknowledged")} == {1.0}


def test_the_canary_does_not_thin_out_what_a_small_fleet_is_refused(stage: Stage) -> None:
    stage.tell(0, gateway=gateway(0, rejected={"bad_json": 0}), canary=canary(0, 0))
    stage.tell(8, gateway=gateway(4 + 6, rejected={"bad_json": 3}), canary=canary(6, 6))
    assert stage.snapshot()["slo"]["validity"]["good_ratio"] == 0.25


def test_all_that_are_silent_are_counted_though_few_are_listed(stage: Stage) -> None:
    listed = [{"device": f"d{number}"} for number in range(20)]
    stage.side["devices"] = {"known": 500, "active": 300, "silent_count": 180, "silent": listed}
    devices = _station(stage, "devices")
    assert devices["detail"] == "180 silent"
    assert {each["name"]: each["value"] for each in devices["figures"]}["silent"] == 180


def test_nothing_running_at_all_is_said_station_by_station(stage: Stage) -> None:
    stage.tell(0, gateway=None, stream=None, canary=None, monitor={key("tidegate_kafka_reachable"): 0.0})
    found = stage.snapshot()
    states = {each["id"]: each["state"] for each in found["flow"]}
    assert states == {
        "devices": "unknown", "broker": "unknown", "gateway": "bad", "kafka": "bad", "stream": "bad",
        "tables": "unknown",
    }  # fmt: skip
    assert "does not answer" in found["flow"][2]["detail"]
    assert not found["ready"]
    assert found["parts"]["gateway"]["state"] == found["parts"]["kafka"]["state"] == "down"
    assert set(found["rates"].values()) == {None}
    assert set(found["latency_ms"].values()) == {None}


def test_before_the_first_answer_nothing_is_known(stage: Stage) -> None:
    assert {each["state"] for each in stage.snapshot()["flow"]} == {"unknown"}


def test_a_kafka_that_hangs_is_bad_though_its_process_is_there(stage: Stage) -> None:
    stage.side["parts"] = {"kafka": {"state": "ready", "since": START, "detail": "on 127.0.0.1:9092", "seconds": 4.0}}
    stage.tell(0, monitor={key("tidegate_kafka_reachable"): 1.0})
    assert _station(stage, "kafka")["state"] == "ok"
    stage.tell(2, monitor={key("tidegate_kafka_reachable"): 0.0})
    assert _station(stage, "kafka") | {"figures": []} == {
        "id": "kafka", "label": "Kafka", "state": "bad", "detail": "does not answer", "figures": [],
    }  # fmt: skip
    stage.tell(2, monitor={key("tidegate_kafka_reachable"): 1.0})
    assert _station(stage, "kafka")["state"] == "ok"


def test_who_does_not_answer_has_no_figures_of_before(stage: Stage) -> None:
    place = {"topic": NAMES.readings, "partition": "0"}

    def told(step: int) -> Told:
        return {
            key("tidegate_kafka_reachable"): 1.0,
            key("tidegate_broker_reachable"): 1.0,
            key("kafka_topic_partition_current_offset", **place): 100.0 * step,
            key("broker_publish_messages_received"): 100.0 * step,
            key("broker_clients_connected"): 4.0,
        }

    in_flight, batch = key("tidegate_gateway_inflight_messages"), "tidegate_stream_batch_duration_seconds_bucket"
    for step in range(4):
        batches = {key(batch, le=le): float(step) for le in ("1.0", "+Inf")}
        stage.tell(
            2, gateway={**gateway(100.0 * step), in_flight: 3.0}, stream={**stream(step), **batches}, monitor=told(step)
        )

    def figures() -> list[list[float | None]]:
        flow = {each["id"]: each["figures"] for each in stage.snapshot()["flow"]}
        return [[figure["value"] for figure in flow[name]] for name in ("broker", "gateway", "kafka", "stream")]

    assert all(found[0] is not None and found[0] > 0 for found in figures())
    away = {key("tidegate_kafka_reachable"): 0.0, key("tidegate_broker_reachable"): 0.0}
    stage.tell(2, gateway=None, stream=None, monitor=away)
    assert figures() == [[None] * 3, [None] * 3, [None] * 2, [None] * 2]
    found = stage.snapshot()
    assert set(found["rates"].values()) == {None}
    assert [each["per_second"] for each in found["kafka"]["partitions"]] == [None]


def _station(stage: Stage, name: str) -> dict[str, Any]:
    return next(each for each in stage.snapshot()["flow"] if each["id"] == name)


@pytest.mark.parametrize(
    ("state", "seconds", "wanted"),
    [("restarting", 4.0, "bad"), ("failed", None, "bad"), ("stopped", 4.0, "bad"), ("starting", None, "warn"),
     ("waiting", None, "warn"), ("starting", 4.0, "bad"), ("ready", 4.0, "ok")],
)  # fmt: skip
def test_a_part_that_its_supervisor_does_not_call_ready_is_shown_so(
    stage: Stage, state: str, seconds: float | None, wanted: str
) -> None:
    """A first start is no fault; a part that was ready and is not now is one."""
    part = {"state": state, "since": START, "detail": "exit code 1", "seconds": seconds, "pid": 7}
    stage.side["parts"], stage.side["ready"] = {"stream": part}, state == "ready"
    stage.tell(0, stream=stream(0))
    found = stage.snapshot()
    assert found["flow"][4]["state"] == wanted
    assert found["parts"]["stream"] == {"state": state, "since": START, "detail": "exit code 1"}
    assert found["ready"] == (state == "ready")


def test_a_gateway_without_a_session_is_bad(stage: Stage) -> None:
    stage.tell(0, gateway=gateway(1, connected=0))
    assert _station(stage, "gateway")["detail"] == "no MQTT session"
    assert _station(stage, "gateway")["state"] == "bad"


def test_one_of_several_that_is_silent_is_enough(stage: Stage) -> None:
    for instance, answers in (("a:1", True), ("b:1", True)):
        stage.history.add(
            START, "tidegate-gateway", Scrape(0, dict(gateway(5))) if answers else None, instance=instance
        )
    assert _station(stage, "gateway")["state"] == "ok"
    stage.history.add(START + 2, "tidegate-gateway", None, instance="b:1")
    assert _station(stage, "gateway")["state"] == "bad"
    assert _station(stage, "gateway")["detail"].startswith("1 of 2 do not answer at ")
    assert stage.snapshot()["parts"]["gateway"]["state"] == "down"
    stage.history.add(START + 4, "tidegate-gateway", Scrape(0, dict(gateway(5, connected=0))), instance="b:1")
    assert _station(stage, "gateway")["detail"] == "no MQTT session"


@pytest.mark.parametrize(
    ("pairs", "state", "detail"),
    [
        ({"a:1": (1, 0), "b:1": (0, 1)}, "ok", "a standby waits"),
        ({"a:1": (1, 0), "b:1": (1, 0), "c:1": (0, 1), "d:1": (0, 1)}, "ok", "2 standbys wait"),
        ({"a:1": (1, 0)}, "warn", "no standby waits"),
        ({"a:1": (0, 0)}, "ok", ""),
    ],
)
def test_a_pair_says_whether_a_standby_waits(
    stage: Stage, pairs: Mapping[str, tuple[float, float]], state: str, detail: str
) -> None:
    for instance, (works, waits) in pairs.items():
        part = {key("tidegate_gateway_lease_held"): works, key("tidegate_gateway_standby_waiting"): waits}
        stage.history.add(START, "tidegate-gateway", Scrape(0, {**gateway(5), **part}), instance=instance)
    found = _station(stage, "gateway")
    assert (found["state"], found["detail"]) == (state, detail)


@pytest.mark.parametrize(
    ("severity", "state", "wanted"),
    [("critical", "firing", "bad"), ("warning", "firing", "warn"), ("critical", "pending", "warn"),
     ("info", "firing", "ok"), ("critical", "resolved", "ok")],
)  # fmt: skip
def test_an_alert_colours_the_station_that_it_is_about(stage: Stage, severity: str, state: str, wanted: str) -> None:
    alert = {"name": "A", "severity": severity, "state": state, "part": "stream", "text": "Batches stand still."}
    stage.side["alerts"] = [alert]
    stage.tell(0, stream=stream(1), gateway=gateway(1))
    assert _station(stage, "stream")["state"] == wanted
    assert (_station(stage, "stream")["detail"] == "Batches stand still.") == (wanted != "ok")
    assert _station(stage, "gateway")["state"] == "ok"


def test_what_follows_from_another_fault_is_a_warning(stage: Stage) -> None:
    alert = {"name": "A", "severity": "critical", "state": "firing", "part": "stream", "text": "Batches stand still."}
    stage.tell(0, stream=stream(1))
    for explained, wanted in (([], "bad"), (["TidegateKafkaUnreachable"], "warn")):
        stage.side["alerts"] = [{**alert, "explained_by": explained}]
        assert _station(stage, "stream")["state"] == wanted


@pytest.mark.parametrize(
    ("lag_seconds", "reachable", "slow", "detail"),
    [
        (59.0, 1.0, False, ""),
        (61.0, 1.0, False, "the oldest record has waited for 61 s"),
        (61.0, 0.0, False, ""),
        (0.0, 1.0, True, "median latency is 3.8 s, objective 2.5 s"),
    ],
)
def test_a_stream_that_does_not_keep_up_is_not_well(
    stage: Stage, lag_seconds: float, reachable: float, slow: bool, detail: str
) -> None:
    lag = key("tidegate_kafka_lag_seconds", consumergroup=NAMES.group, topic=NAMES.readings)
    other = key("tidegate_kafka_lag_seconds", consumergroup="other", topic=NAMES.readings)
    told = {lag: lag_seconds, other: 999.0, key("tidegate_kafka_reachable"): reachable}
    for step in range(2):
        buckets = {"2.5": 0.0 if slow else 8.0 * step, "5.0": 8.0 * step, "+Inf": 8.0 * step}
        stage.tell(8, stream=stream(1), canary=canary(step, step, buckets=buckets), monitor=told)
    found = _station(stage, "stream")
    assert (found["state"], found["detail"]) == ("warn" if detail else "ok", detail)


def test_a_canary_that_is_missing_is_a_fault_of_the_end_of_the_way(stage: Stage) -> None:
    text = "None can be read from the table."
    stage.side["alerts"] = [
        {"name": "A", "severity": "critical", "state": "firing", "part": "canary", "text": text, "explained_by": []}
    ]
    stage.side["tables"] = [{"name": "readings", "version": 7, "committed_at": START - 3}]
    stage.tell(0, stream=stream(1))
    assert (_station(stage, "tables")["state"], _station(stage, "tables")["detail"]) == ("bad", text)


def test_latency_is_of_the_last_two_minutes(stage: Stage) -> None:
    slow = {"1.0": 0.0, "2.5": 0.0, "60.0": 40.0, "+Inf": 40.0}
    stage.tell(0, canary=canary(0, 0, buckets=dict.fromkeys(slow, 0.0)))
    stage.tell(10, canary=canary(40, 40, buckets=slow))
    stage.tell(300, canary=canary(50, 50, buckets=slow))
    stage.tell(10, canary=canary(60, 60, buckets={"1.0": 10.0, "2.5": 10.0, "60.0": 50.0, "+Inf": 50.0}))
    latency = stage.snapshot()["latency_ms"]
    assert latency["p50"] == pytest.approx(500)
    assert latency["p99"] <= 1000
    assert stage.snapshot()["point"]["latency_p95"] == latency["p95"]


def test_what_waits_is_told_beside_the_latency_of_what_came_back(stage: Stage) -> None:
    waits = key("tidegate_canary_oldest_wait_seconds")
    assert stage.snapshot()["canary"]["oldest_wait_seconds"] is None
    past = {"60.0": 0.0, "+Inf": 0.0}
    stage.tell(1, stream=stream(1), canary={**canary(0, 0, buckets=past), waits: 80.04})
    stage.tell(9, stream=stream(1), canary={**canary(9, 9, buckets={"60.0": 0.0, "+Inf": 9.0}), waits: 89.04})
    assert stage.snapshot()["canary"]["oldest_wait_seconds"] == 89
    assert _station(stage, "stream")["detail"] == "median latency is more than 60 s, objective 2.5 s"


def test_an_outage_burns_the_budget_of_freshness_though_no_row_is_late(stage: Stage) -> None:
    stage.tell(0, canary=canary(0, 0, buckets={"2.5": 0.0, "+Inf": 0.0}))
    stage.tell(60, canary=canary(100, 100, buckets={"2.5": 100.0, "+Inf": 100.0}))
    assert stage.snapshot()["slo"]["freshness"]["good_ratio"] == 1
    assert stage.snapshot()["slo"]["freshness"]["budget_left"] == 1
    stage.tell(60, canary=canary(200, 100, buckets={"2.5": 100.0, "+Inf": 100.0}))
    freshness = stage.snapshot()["slo"]["freshness"]
    assert freshness["good_ratio"] == 0.5
    assert freshness["budget_left"] == pytest.approx(-49)
    assert (freshness["window_seconds"], freshness["threshold_seconds"]) == (120, 2.5)


def test_validity_is_what_was_not_refused(stage: Stage) -> None:
    stage.tell(0, gateway=gateway(0, rejected={"bad_json": 0}))
    stage.tell(60, gateway=gateway(1000, rejected={"bad_json": 10}))
    validity = stage.snapshot(validity_objective=0.98)["slo"]["validity"]
    assert (validity["good_ratio"], validity["budget_left"]) == (0.99, pytest.approx(0.5))


def test_errors_are_those_that_happened_most_first(stage: Stage) -> None:
    rejected = {"bad_json": 3.0, "no_route": 7.0, "too_large": 0.0}
    more = {key("tidegate_gateway_parts_rejected_total", reason="wrong_type"): 2.0}
    stage.tell(0, gateway={**gateway(50, rejected=rejected), **more})
    found = [(each["reason"], each["total"], each["parts"]) for each in stage.snapshot()["errors"]]
    assert found == [("no_route", 7, 0), ("bad_json", 3, 0), ("wrong_type", 0, 2)]


def test_lag_is_what_kafka_says_so_that_it_grows_while_the_stream_is_down(stage: Stage) -> None:
    def lags(records: float) -> Told:
        place = {"consumergroup": "tidegate-land", "topic": "telemetry.readings"}
        end = {"topic": "telemetry.readings"}
        return {
            key("kafka_consumergroup_lag", partition="0", **place): records,
            key("kafka_consumergroup_lag", partition="1", **place): 1.0,
            key("kafka_consumergroup_current_offset", partition="0", **place): 10.0,
            key("kafka_topic_partition_current_offset", partition="0", **end): 10.0 + records,
            key("kafka_topic_partition_current_offset", partition="10", **end): 5.0,
            key("kafka_topic_partition_current_offset", partition="2", **end): 5.0,
            key("tidegate_kafka_lag_seconds", **place): 9.5,
            key("tidegate_kafka_time_to_data_loss_seconds", **place): float("inf"),
        }

    behind = {key("tidegate_stream_offsets_behind", query="land", topic="telemetry.readings"): 3.0}
    stage.tell(0, stream=behind)
    assert stage.snapshot()["lag"] == {"telemetry.readings": 3}
    stage.tell(2, stream=None, monitor=lags(100))
    stage.tell(10, stream=None, monitor=lags(150))
    found = stage.snapshot()
    assert found["lag"] == {"telemetry.readings": 151}
    assert found["point"]["lag"] == 151
    assert [each["partition"] for each in found["kafka"]["partitions"]] == [0, 2, 10]
    assert found["kafka"]["partitions"][0] == {
        "topic": "telemetry.readings", "partition": 0, "end": 160, "committed": 10, "lag": 150, "per_second": 5.0,
    }  # fmt: skip
    (group,) = found["kafka"]["groups"]
    assert (group["lag"], group["lag_seconds"], group["time_to_data_loss_seconds"]) == (151, 9.5, None)


def test_while_kafka_does_not_answer_no_lag_is_known(stage: Stage) -> None:
    behind = {key("tidegate_stream_offsets_behind", query="land", topic="telemetry.readings"): 0.0}
    stage.tell(0, stream=behind, monitor={key("tidegate_kafka_reachable"): 0.0})
    assert stage.snapshot()["lag"] == {}
    assert stage.snapshot()["point"]["lag"] is None


def test_shares_of_the_processors(stage: Stage) -> None:
    def cpu(idle: float, iowait: float, user: float) -> Told:
        modes = {"idle": idle, "iowait": iowait, "user": user}
        return {key("node_cpu_seconds_total", mode=mode): seconds for mode, seconds in modes.items()}

    stage.tell(0, monitor=cpu(0, 0, 0))
    stage.tell(10, monitor=cpu(10, 2, 8))
    assert stage.snapshot()["host"] | {"memory_available_bytes": 0, "memory_total_bytes": 0} == {
        "cpu_ratio": 0.4, "cpu_minute_ratio": 0.4, "iowait_ratio": 0.1, "memory_available_bytes": 0, "memory_total_bytes": 0,
    }  # fmt: skip


def test_tables_are_those_on_the_disk_with_what_the_stream_tells_of_them(stage: Stage) -> None:
    stage.side["tables"] = [{"name": "readings", "version": 7, "committed_at": START - 3}]
    files = {
        key("tidegate_table_files", table="readings"): 12.0,
        key("tidegate_table_last_commit_timestamp_seconds", table="readings"): START - 5,
        key("tidegate_table_last_commit_timestamp_seconds", table="ledger"): 0.0,
    }
    stage.tell(0, stream=files)
    assert stage.snapshot()["tables"] == [
        {"name": "readings", "version": 7, "files": 12.0, "small_files": None, "bytes": None,
         "last_commit_seconds_ago": 3.0},
    ]  # fmt: skip


def test_clocks_that_differ_are_stated(stage: Stage) -> None:
    skew = {
        key("tidegate_canary_clock_skew_seconds", hop="gateway_to_kafka"): 0.25,
        key("tidegate_canary_clock_skew_seconds", hop="kafka_to_read"): 0.0,
    }
    stage.tell(0, canary=skew)
    assert stage.snapshot()["clock_skew_ms"] == {"gateway_to_kafka": -250.0}
