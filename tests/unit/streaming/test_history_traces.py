"""Where a device's id is found outside of a column, what is written in its place, and the dates of a receipt."""

import base64
import gzip
import json
import os
import zlib
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.commit_metadata import CommitMetadata, encode_metadata
from lakehouse.create import create_table
from lakehouse.derived_tables import LATEST
from lakehouse.requests import DONE, Request, run_pending, submit_request
from lakehouse.tables import DEAD_LETTERS, READINGS
from streaming.derive.reading_changes import _named_range
from streaming.derive.shared_arrivals import erased_device_hash, request_device_hash
from streaming.derive.windows import ChangedRange
from streaming.history.device_names import DeviceNames
from streaming.history.log_forgetting import erasure_waits
from streaming.history.receipt import SPARE_SECONDS, ErasureReceipt, table_forgets
from streaming.history.traces import forget_traces
from streaming.landing_offsets import parse_mark
from streaming.maintain.retention_holds import LONGEST_SECONDS
from streaming.maintain.table_maintainer import drop_old_copies
from streaming.sql.sent_records import SentFile, UnmatchedRecords

NOW = datetime(2026, 5, 1, tzinfo=UTC)
GONE = "patient-B"


@pytest.mark.parametrize(
    "content",
    [
        b'{"patient-B": 1}', b"v1/patient-B/temp", b"patient-B_temp", b"\xff\x00patient-B\x00",
        gzip.compress(b'{"patient-B": 1}'), b'{"payload_base64": "' + base64.b64encode(b'{"patient-B": 1}'),
        *(base64.b64encode(b"x" * n + b"patient-B" + b"y" * n) for n in range(4)),
        b"\xa1\x69patient-B\x01", b"\xa2\x62id\x69patient-B\x64temp\x01", b"\x82\xa2id\xa9patient-Babc\x01",
        b"\x0a\x09patient-B1\x10\x01", zlib.compress(b'{"patient-B": 1}'), base64.b64encode(gzip.compress(b'{"patient-B": 1}')),
        base64.urlsafe_b64encode(zlib.compress(b'[{"patient-B": 1}]')).rstrip(b"="),
        b"cmd=" + b"patient-B".hex().upper().encode() + b"00",
        '{"patient-B": 1}'.encode("utf-16"), b"\0" + "patient-B".encode("utf-16-be"),
    ],
)  # fmt: skip
def test_an_id_is_found_in_a_payload(content: bytes) -> None:
    assert DeviceNames(GONE).in_bytes(content)


@pytest.mark.parametrize(
    "content",
    [
        b'{"patient-B2": 1}',
        b"xpatient-B",
        b"ipatient-B",
        b"\xa1\x6apatient-B2\x01",
        b"patient-C",
        b"",
        None,
        b"\x1f\x8bno gzip",
    ],
)
def test_another_id_is_not_found(content: bytes | None) -> None:
    assert not DeviceNames(GONE).in_bytes(content)


@pytest.mark.parametrize("device", ["1", "7", "t", "ab"])
def test_a_very_short_id_is_no_number_and_no_word(device: str) -> None:
    names = DeviceNames(device)
    assert not names.in_bytes(b'{"ts": 1, "values": [7, 1], "x": "t ab"} 1 7 t ab')
    for text in (f'{{"{device}": 5}}', f"v1/{device}/temp", f"v1/{device}", device, f'{{\\"id\\": \\"{device}\\"}}'):
        assert names.in_text(text), text


@given(device=st.text(min_size=1, max_size=12), ascii_only=st.booleans())
def test_any_id_is_found_as_json_writes_it(device: str, ascii_only: bool) -> None:
    written = json.dumps({device: 1}, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    names = DeviceNames(device)
    assert names.in_bytes(written)
    assert names.in_bytes(written.replace(b"/", b"\\/"))
    assert names.in_row({"payload": [{"path": device}]})
    assert names.in_text(f"/v1/{quote(device.encode('utf-8', 'surrogatepass'), safe='')}/x")
    if len(raw := device.encode("utf-8", "surrogatepass")) < 24:
        assert names.in_bytes(b"\xa1" + bytes([0x60 + len(raw)]) + raw + b"\x61b\x01"), "CBOR"


def test_an_id_is_replaced_in_texts_of_any_depth(tmp_path: Path) -> None:
    hidden = DeviceNames(GONE).hidden({"reason": f"of {GONE}.", "rows": [{GONE: 1}], "other": "patient-B2"})
    assert GONE not in json.dumps(hidden).replace("patient-B2", "")
    assert (hidden["rows"][0].popitem()[0][:7], hidden["other"]) == ("sha256:", "patient-B2")
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"device": ["x", GONE], "payload": [b"1", b"2"]}), file, compression="zstd")
    assert DeviceNames(GONE).in_file(file)
    assert not DeviceNames("patient-C").in_file(file)
    file.write_bytes(b"PAR1 torn")
    assert DeviceNames("patient-C").in_file(file), "nobody can tell"


def test_a_private_request_is_named_by_its_hash_alone(tmp_path: Path) -> None:
    request = Request("erase", {"device": GONE}, reason=f"{GONE} asked", private=True)
    mark = encode_metadata({"request": request.mark()})
    assert GONE not in mark
    assert erased_device_hash(CommitMetadata.parse(mark)) == request_device_hash(GONE)
    assert _named_range(request.mark()["arguments"]) == ChangedRange(
        request_device_hash(GONE), -(2**60), 2**60, hashed=True
    )
    submit_request(str(tmp_path), request)

    def crash(_: Request) -> dict[str, Any]:
        message = f"cannot read {GONE}"
        raise OSError(message)

    for _ in range(5):
        with pytest.raises(OSError, match=GONE):
            run_pending(str(tmp_path), crash)
    assert GONE not in (tmp_path / "_requests" / DONE / f"{request.id}.json").read_text()


def test_dates_cover_the_longest_hold(tmp_path: Path) -> None:
    for table, held in ((READINGS, True), (DEAD_LETTERS, True), (LATEST, False)):
        create_table(str(tmp_path), table, log_retention_hours=24)
        at = datetime.fromisoformat(table_forgets(str(tmp_path), table.name, NOW))
        longest = LONGEST_SECONDS if held else 24 * 3600
        assert at - NOW == timedelta(seconds=longest + SPARE_SECONDS)
    create_table(str(tmp_path), READINGS, log_retention_hours=1000)
    at = datetime.fromisoformat(table_forgets(str(tmp_path), "readings", NOW))
    assert at - NOW == timedelta(hours=1000, seconds=SPARE_SECONDS)


def test_an_erasure_waits_until_its_log_is_gone(tmp_path: Path) -> None:
    root = str(tmp_path)
    create_table(root, READINGS, log_retention_hours=24)
    assert not erasure_waits(root, "readings")
    receipt = ErasureReceipt(root, "1")
    receipt.tables["readings"] = {"checkpoint": 1}
    receipt.save(state="done")
    assert erasure_waits(root, "readings")
    assert not erasure_waits(root, "dead_letters")
    (tmp_path / "readings" / "_delta_log" / f"{0:020d}.json").unlink()
    assert not erasure_waits(root, "readings")


def test_a_mark_that_is_repeated_keeps_its_time() -> None:
    told: dict[str, Any] = {"app": "a", "batch": 3, "starts": {"t": {"0": 1}}, "offsets": {"t": {"0": 2}}}
    first = parse_mark(json.dumps(told))
    again = parse_mark(json.dumps(told | {"at_ms": 77, "request": {"kind": "erase"}}))
    assert first == again
    assert again is not None
    assert again.at_ms == 77


def test_journals_answers_and_copies_forget_a_device(tmp_path: Path) -> None:
    writer: Any = SimpleNamespace(root=str(tmp_path), seen=None, spark=None)
    files = {
        "_redrive/1-000000.jsonl": f'{{"why": "{GONE} is refused"}}\n{{"why": "another"}}\n',
        f"_requests/{DONE}/1.json": json.dumps({"ok": True, "result": {}, "request": {"reason": f"as of {GONE}"}}),
        f"_requests/{DONE}/2.json": json.dumps({"ok": True, "result": {}, "request": {"reason": "patient-B2"}}),
        "_repair/20260101T000000000000/report.json": json.dumps({"findings": [f"of {GONE}"]}),
        "_repair/20260101T000000000000/latest/1.json": f'{{"d": "{GONE}"}}',
        "_repair/20260102T000000000000/latest/1.json": "{}",
        "_corrections.jsonl": json.dumps({"id": "1", "device": "A", "reason": f"as of {GONE}"}) + "\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = forget_traces(writer, GONE)
    assert [found[key] for key in sorted(found) if key != "identities"] == [1, 1, 1, 1]
    left = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert GONE not in str(left).replace("patient-B2", "")
    assert "_repair/20260102T000000000000/latest/1.json" in left
    assert "another" in left["_redrive/1-000000.jsonl"]


def test_what_a_stream_compares_with_its_topic_forgets_a_device(tmp_path: Path) -> None:
    writer: Any = SimpleNamespace(root=str(tmp_path), seen=None, spark=None)
    device = 'patient-"B"'
    records: Any = Counter(
        {("k", json.dumps({"device": device})): 2, (device, None): 1, ("k", '{"device":"patient-C"}'): 3}
    )
    kept = SentFile(str(tmp_path), "s", "i")
    kept.write(
        7,
        newest=8,
        until={"a": {0: 5}},
        before=UnmatchedRecords(records, {0: 1}),
        after=UnmatchedRecords(Counter(), {0: 2}),
    )
    assert forget_traces(writer, device)["sent_records_forgotten"] == 2
    left = (UnmatchedRecords(Counter({("k", '{"device":"patient-C"}'): 3}), {0: 1}), 8, {"a": {0: 5}})
    assert kept.read(7) == left
    assert "sent_records_forgotten" not in forget_traces(writer, device)


def test_what_a_repair_set_aside_is_kept_as_long_as_dead_letters(tmp_path: Path) -> None:
    for name in ("20260101T000000000000", "20260430T000000000000", "notes-of-Tom"):
        (tmp_path / "_repair" / name).mkdir(parents=True)
    (tmp_path / "_repair" / "next_start.json").write_text("{}")
    assert drop_old_copies(str(tmp_path), now=NOW.timestamp(), keep_days=0) == 0
    assert drop_old_copies(str(tmp_path), now=NOW.timestamp(), keep_days=90) == 1
    assert sorted(os.listdir(tmp_path / "_repair")) == ["20260430T000000000000", "next_start.json", "notes-of-Tom"]
