"""From dead letter to row in the whole pipeline: refused, explained, redriven after the fix, once however often."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from gateway.devtools.publisher import Publisher

pytestmark = pytest.mark.promise("P5")

ROOT = Path(__file__).parents[2]
KILLED_BEFORE_THE_JOURNAL = """
import os, signal, sys
from deploy.cli import run
from deploy.dlq.journal import RedriveJournal
RedriveJournal.append = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
run(sys.argv[1:])
"""


def test_dead_letters_are_redriven_once_whatever_happens(
    pipeline: Any, unique_name: str, tmp_path: Path, wait_until: Callable[..., Any]
) -> None:
    topics, device = f"late-{unique_name}", f"{unique_name}-device"
    large = b'"' + b"x" * 300_000 + b'"'
    publisher = Publisher(pipeline.settings.mqtt.with_login("devices"), client_id=f"{unique_name}-dlq")
    publisher.connect()
    for number in range(3):
        publisher.publish(f"{topics}/temperature", str(20 + number).encode())
    publisher.publish(f"{topics}/own", b"7", message_id="mine")
    publisher.publish(f"{topics}/text", large)
    broken = b'{"values": {"temp": {"unit": "V"}, "hum": 50}}'
    publisher.publish(f"tidegate/v1/{device}/readings", broken)
    assert publisher.drain()
    publisher.close()

    ours = f"mqtt_topic like '{topics}/%' or device = '{device}'"
    found = wait_until(lambda: all_letters(pipeline, ours, 6), seconds=60, what="six dead letters in the table")
    (partial,) = [row for row in found if row["device"] == device]
    shown = pipeline.json("dlq", "show", partial["id"])
    assert (shown["reason"], shown["path"], shown["partial"]) == ("missing_field", "$.values.temp.value", True)
    assert "Add the field" in shown["next"]
    assert pipeline.json("dlq", "ls")

    # Whole up to the limit; else the first 64 KiB, the length and the hash.
    (text,) = [row for row in found if row["mqtt_topic"] == f"{topics}/text"]
    kept = DeltaTable(f"{pipeline.settings.lake.root}/dead_letters").to_pyarrow_dataset().to_table().to_pylist()
    (cut,) = [row for row in kept if row["mqtt_topic"] == text["mqtt_topic"]]
    assert (cut["payload"], cut["payload_bytes"]) == (large[: 64 * 1024], len(large))
    assert cut["payload_sha256"] == hashlib.sha256(large).hexdigest()
    assert [row["payload"] for row in kept if row["device"] == device] == [broken]

    # The fix: a route. Tried before it is used, then used.
    fixed = tmp_path / "fixed.toml"
    config = (pipeline.data / "config.toml").read_text("utf-8")
    route = f'[[routes]]\nfilter = "{topics}/#"\ndecoder = "plain"\n'
    fixed.write_text(f"{config}\n{route}", encoding="utf-8")
    tried = pipeline.json("dlq", "redrive", "--where", ours, "--try", str(fixed))
    assert (tried["dry_run"], tried["accepted"]) == (True, 4)
    assert (list(tried["refused"]), sum(tried["skipped"].values())) == (["missing_field"], 1)

    # Killed when Kafka has everything and the journal nothing; then again; then once more, though it is done.
    redrive = ["dlq", "redrive", "--where", ours, "--config", str(fixed)]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_BEFORE_THE_JOURNAL, *redrive],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert pipeline.json(*redrive)["accepted"] == 4
    assert pipeline.json(*redrive)["accepted"] == 0
    assert pipeline.json(*redrive, "--again")["accepted"] == 4

    report = pipeline.audit()
    assert (report["unaccounted"], report["duplicate_rows"], report["order_violations"]) == (0, 0, 0), report
    assert report["duplicate"] >= 8
    rows = pipeline.json(
        "sql", f"select * from readings where mqtt_topic like '{topics}/%' order by message_number, value"
    )
    assert [(row["metric"], row["value"]) for row in rows] == [
        ("temperature", 20.0), ("temperature", 21.0), ("temperature", 22.0), ("own", 7.0),
    ]  # fmt: skip
    assert rows[3]["message_id"] == "mp:mine"
    assert all("redriven" in row["flags"] and row["gateway"] == "redrive" for row in rows)
    received = {row["id"]: row["received_at"] for row in found}
    lineage = {
        json.loads(row["tags"])["dead_letter"] if isinstance(row["tags"], str) else row["tags"]["dead_letter"]
        for row in rows
    }
    assert {received[letter] for letter in lineage} == {row["received_at"] for row in rows}
    stored = pipeline.json("sql", f"select metric from readings where device = '{device}'")
    assert [row["metric"] for row in stored] == ["hum"]
    ends = {row["id"]: row["redriven_as"] for row in all_letters(pipeline, ours, 6)}
    assert ends[partial["id"]] == "refused"
    assert ends[text["id"]] is None
    assert sorted(str(end) for end in ends.values()) == ["None", *["accepted"] * 4, "refused"]


def all_letters(pipeline: Any, where: str, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pipeline.json("dlq", "ls", "--where", where, "--limit", "50")
    return found if len(found) == count else []
