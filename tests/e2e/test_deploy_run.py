"""The embedded run as a person meets it: ready, what it prints, what status, sql, tables and metrics say."""

import json
import os
import stat
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import psutil
import pyarrow.compute as pc
from deltalake import DeltaTable

from deploy.local.guard import find_marked_processes
from deploy.local.monitor_client import page_token
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
    status = pipeline.json("status", ok=(0, 1))
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
    token = page_token(pipeline.settings.monitoring)
    assert token
    public = [file.read_text("utf-8", "replace") for file in (pipeline.data / "logs").iterdir()]
    for process in find_marked_processes(pipeline.run.run_id):
        with suppress(psutil.NoSuchProcess):  # a step that has just ended
            public += [*process.cmdline(), *process.environ().values()]
    assert any("deploy.cli" in text for text in public)
    assert [text[:200] for text in public if secret in text or token in text] == []


def test_no_file_of_a_run_is_readable_by_others(pipeline: Any) -> None:
    """Whoever wrote it: Python, Kafka, Spark, the broker or Prometheus."""
    assert pipeline.data.stat().st_mode & 0o777 == 0o700
    seen = 0
    open_to_others: list[str] = []
    for folder, _, names in os.walk(pipeline.data):
        for path in (Path(folder), *(Path(folder) / name for name in names)):
            with suppress(FileNotFoundError):  # a file that has just been replaced
                seen += 1
                mode = path.lstat().st_mode
                if not stat.S_ISLNK(mode) and mode & 0o077:
                    open_to_others.append(f"{stat.filemode(mode)} {path.relative_to(pipeline.data)}")
    assert seen > 100
    assert open_to_others == []


def test_only_declared_ports_are_open_and_all_on_loopback(pipeline: Any) -> None:
    """Besides them only what Spark's driver and Python need between each other, which ask for a secret."""
    declared = set(pipeline.run.ports.values())
    own: list[str] = []
    for process in find_marked_processes(pipeline.run.run_id):
        for each in process.net_connections("tcp"):
            if each.status == psutil.CONN_LISTEN:
                assert ip_address(each.laddr.ip.removeprefix("::ffff:")).is_loopback, (each.laddr, process.cmdline())
                own += [" ".join(process.cmdline())] * (each.laddr.port not in declared)
    assert [command for command in own if "SparkSubmit" not in command and "deploy.cli stream" not in command] == []
    # JVM: RPC, blocks and py4j. Python: answers to py4j, and accumulators.
    assert len(own) <= 5


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
