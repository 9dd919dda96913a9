"""After an erasure and its date no byte under the tables' root names the device, in quiet tables too; neighbours keep theirs."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyarrow.parquet import ParquetFile

from lakehouse import maintenance_vacuum
from lakehouse.lake_settings import LakeSettings
from lakehouse.requests import Request, run_pending, submit_request
from streaming.background_tasks import handle_request
from streaming.derive.deriver import Deriver, derivations
from streaming.history.naming_letters import CUT
from streaming.history.row_correction import RowCorrection
from streaming.landing_offsets import newest_mark
from streaming.maintain.table_maintainer import MaintenanceLimits, TableMaintainer
from streaming.stream_settings import StreamSettings
from streaming.writer_context import WriterContext

GONE = "patient-Bq7z"
KEPT = "patient-Bq7z2"


def naming(root: str, word: str = GONE) -> list[str]:
    """Every file under the root that names the device, but for its neighbour's name."""
    files = [path for path in Path(root).rglob("*") if path.is_file()]
    return [str(path.relative_to(root)) for path in files if word in _content(path).replace(KEPT, "")]


def _content(path: Path) -> str:
    raw = path.read_bytes()
    values = str(ParquetFile(path).read().to_pylist()) if raw[:4] == b"PAR1" else ""
    return raw.decode("latin-1") + values + str(path)


def test_no_byte_names_the_device_after_its_date(
    lander: Any, record: Any, dead_letter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.derive.deriver.ARRIVAL_SECONDS", 0.0)  # a quick machine is back within it
    both = json.dumps({"A": [{"ts": 9e15}], GONE: [{"ts": 1, "values": {"pulse": 71}}]}).encode()
    letters = [dead_letter(10, both), dead_letter(11, b"x" + base64.b64encode(GONE.encode())), dead_letter(12)]
    letters[0].device, letters[0].got = "A", f"{GONE} and A"
    neighbour = dead_letter(13, f'{{"{KEPT}": 1'.encode())
    readings = [record(n, seq=n, device=device) for n in (1, 2) for device in (GONE, KEPT, "A")]
    lander.land(*readings, *letters, neighbour)
    settings, lake = StreamSettings(checkpoint=str(lander.checkpoint)), LakeSettings(root=lander.root)
    writer = WriterContext(lander.lake.spark, lander.kafka, settings, lake, lander.metrics, lander.topics)
    derive = writer.background_tasks["derive"] = Deriver(derivations(writer)).run_pass
    derive()
    arguments = {"device": GONE, "metric": "temperature", **RowCorrection(offset=1.0).arguments()}
    for request in (
        Request("correct", arguments, reason=f"{GONE} lied"),
        Request("correct", arguments | {"device": KEPT}, reason=f"as of {GONE}"),
    ):
        submit_request(lander.root, request)
    run_pending(lander.root, lambda each: handle_request(writer, each))
    derive()
    root = Path(lander.root)
    copy = root / "_repair" / "20261128T000000000000"
    (copy / "latest").mkdir(parents=True)
    (copy / "report.json").write_text(json.dumps({"findings": [{"what": f"of {GONE}"}]}))
    data = next(path for path in root.glob("latest/*.parquet"))
    (copy / "latest" / data.name).write_bytes(data.read_bytes())
    (root / "_redrive").mkdir()
    (root / "_redrive" / "1-000000.jsonl").write_text(json.dumps({"offset": 1, "why": f"{GONE} is refused"}) + "\n")
    marks = {name: newest_mark(lander.root, name) for name in ("readings", "dead_letters")}
    stored = {name: _rows(lander.root, name, (KEPT, "A")) for name in ("readings", "rollups_1h", "latest", "devices")}
    assert len(naming(lander.root)) > 10

    erasure = Request("erase", {"device": GONE}, reason=f"{GONE} asked", private=True)
    submit_request(lander.root, erasure)
    assert run_pending(lander.root, lambda each: handle_request(writer, each)) == 1
    receipt = json.loads((root / "_erasures" / f"{erasure.id}.json").read_text())
    assert (receipt["letters_cut"], receipt["beside_tables"]["repair_copies_deleted"]) == (2, 1)

    # As if the time had passed: nothing more lands, and what is old by then is old now.
    monkeypatch.setattr(maintenance_vacuum, "LEAST_HOURS", 0)
    keeper = TableMaintainer(writer, MaintenanceLimits(readers_seconds=0.0, every_seconds=0.0))
    for name in receipt["tables"]:
        keeper.run_all(name, full=False, keep_hours=0.0)
    assert naming(lander.root) == []
    assert naming(lander.root, base64.b64encode(GONE.encode()).decode()) == []

    assert {name: _rows(lander.root, name, (KEPT, "A")) for name in stored} == stored
    found = {row["message_number"]: row for row in lander.rows("dead_letters")}
    assert [found[n]["payload"] for n in (10, 11, 12, 13)] == [b"", b"", b"{", neighbour_payload(neighbour)]
    assert (found[10]["got"], found[10]["payload_bytes"], found[10]["device"]) == (CUT, len(both), "A")
    again = {name: newest_mark(lander.root, name) for name in marks}
    assert again == marks
    assert [each.at_ms for each in again.values() if each] == [each.at_ms for each in marks.values() if each]
    # The landing and what is derived go on.
    lander.land(record(3, seq=3, device="A"), record(1, seq=1, device="A"))
    derive()
    assert len([row for row in lander.rows() if row["device"] == "A"]) == 6


def neighbour_payload(letter: Any) -> bytes:
    return base64.b64decode(letter.payload_base64)


def _rows(root: str, name: str, devices: tuple[str, ...]) -> list[str]:
    rows = DeltaTable(f"{root}/{name}").to_pyarrow_table().to_pylist()
    volatile = ("landed_at", "updated_at")
    return sorted(
        str({key: value for key, value in row.items() if key not in volatile})
        for row in rows
        if row["device"] in devices
    )
