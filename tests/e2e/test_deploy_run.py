"""The embedded run as a person meets it: ready, what it prints, what status, sql, tables and metrics say."""

import json
from typing import Any

import pyarrow.compute as pc
from deltalake import DeltaTable

from ingest.contract.reasons import IgnoredReason, Reason
from lakehouse.derived_tables import ALL_TABLES
from monitoring.scrape import healthz, scrape

PARTS = {"broker", "kafka", "topics", "gateway", "stream", "fleet", "canary", "monitor"}
WATCHERS = {"prometheus", "alertmanager"}


def test_a_reading_went_all_the_way_before_it_said_ready(pipeline: Any, wait_until: Any) -> None:
    table = DeltaTable(f"{pipeline.settings.lake.root}/readings").to_pyarrow_dataset()
    assert table.count_rows(filter=pc.field("device") == "tidegate-canary") > 0

    def words() -> str:
        """Empty while readings come back late, as behind the load of the tests before."""
        healthy, said = healthz(pipeline.url("canary", "healthz"), timeout_seconds=30)
        return said if healthy else ""

    assert "was read back after" in wait_until(words, seconds=300, what="a canary that is well")


def test_status_has_the_agreed_shape(pipeline: Any, wait_until: Any) -> None:
    wait_until(lambda: pipeline.status()["rates"].get("received"), seconds=120, what="a rate")
    status = pipeline.status()
    assert {"ready", "parts", "rates", "latency_ms", "lag", "alerts"} <= set(status)
    assert {"page", "slo", "devices", "hops", "lag_seconds", "audit"} <= set(status)
    assert PARTS <= set(status["parts"]) <= PARTS | WATCHERS
    assert all({"state", "since", "detail"} <= set(part) for part in status["parts"].values())
    assert set(status["latency_ms"]) == {"p50", "p95", "p99"}
    assert status["lag"].keys() <= {"telemetry.readings", "telemetry.dead-letters"}
    text = pipeline.tidegate("status", ok=(0, 1)).stdout
    assert all(part in text for part in PARTS)


def test_the_four_things_are_kept_private_and_hold_true(pipeline: Any) -> None:
    credentials = pipeline.data / "credentials.json"
    assert credentials.stat().st_mode & 0o077 == 0
    assert (pipeline.data / "config.toml").stat().st_mode & 0o077 == 0
    secret = json.loads(credentials.read_text())["password"]
    shown = pipeline.tidegate("config", "show", "--config", str(pipeline.data / "config.toml")).stdout
    assert secret not in shown
    assert "**********" in shown


def test_every_label_set_is_there_from_the_start(pipeline: Any) -> None:
    gateway, stream, canary = (
        scrape(pipeline.url(part), timeout_seconds=30) for part in ("gateway", "stream", "canary")
    )
    assert gateway is not None
    assert stream is not None
    assert canary is not None
    assert set(gateway.by_label("tidegate_gateway_messages_rejected_total", "reason")) == set(map(str, Reason))
    assert set(gateway.by_label("tidegate_gateway_messages_ignored_total", "reason")) == set(map(str, IgnoredReason))
    assert set(stream.by_label("tidegate_stream_rows_total", "table")) == {*ALL_TABLES}
    assert canary.total("tidegate_canary_seen_total") > 0
    # No device ever becomes a label, so the series count does not grow with the fleet.
    assert not any(
        "sim-" in value for scraped in (gateway, stream) for _, labels in scraped.values for _, value in labels
    )


def test_sql_and_tables_answer_from_the_running_pipeline(pipeline: Any) -> None:
    query = "select device, metric, value, event_time from readings order by landed_at desc limit 5"
    rows = pipeline.json("sql", query)
    assert len(rows) == 5
    assert set(rows[0]) == {"device", "metric", "value", "event_time"}
    assert "(5 rows)" in pipeline.tidegate("sql", query).stdout
    assert pipeline.tidegate("sql", query, "--format", "csv").stdout.count("\n") == 6
    assert pipeline.json("sql", "select count(*) as n from readings", "--version", "0") == [{"n": 0}]
    assert "Did you mean" in pipeline.tidegate("sql", "select cont(*) from readings", ok=(1,)).stderr
    names = {table["name"] for table in pipeline.json("tables", "ls")}
    assert names >= {"readings", "dead_letters", "rollups_1m", "latest", "ledger", "devices"}
    assert all(column["comment"] for column in pipeline.json("tables", "show", "readings"))
    assert pipeline.json("tables", "history", "readings", "--limit", "1")[0]["version"] > 0


def test_logs_name_their_part_and_unknown_parts_are_refused(pipeline: Any) -> None:
    assert "gateway" in pipeline.tidegate("logs", "--lines", "5").stdout
    refused = pipeline.tidegate("logs", "nothing", ok=(69,))
    assert "There is no log of nothing" in refused.stderr


def test_a_malformed_configuration_is_refused_with_78(pipeline: Any) -> None:
    bad = pipeline.data.parent / "bad.toml"
    bad.write_text("[mqtt]\nprot = 1\n")
    for command in (["up"], ["gateway"], ["stream"], ["config", "validate"], ["doctor"]):
        refused = pipeline.tidegate(*command, "--config", str(bad), ok=(78,))
        assert "bad.toml:2: unknown key mqtt.prot. Did you mean mqtt.port?" in refused.stderr
        assert refused.stdout == ""
