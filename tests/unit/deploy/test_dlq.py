"""Dead letters found, explained and redriven over real tables and a log in memory."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.command_line import command_name
from deploy.dlq.dead_letter_query import find_dead_letters, list_newest_letters, show_letter, stored_parts, summarize
from deploy.dlq.explain import find_place, mark_payload
from deploy.dlq.journal import RedriveJournal, read_journal
from deploy.dlq.next_steps import NEXT_STEPS, next_step
from deploy.dlq.redrive import make_redrive_processor
from deploy.settings import Settings, load_settings
from gateway.device_registry import add_device
from gateway.message_processor import Message, MessageProcessor
from gateway.routes import compile_routes
from ingest.contract.dead_letter import decode_dead_letter
from ingest.contract.errors import RetryableError, TidegateError, UnavailableError
from ingest.contract.outcome import decode_outcome
from ingest.contract.reasons import Reason
from ingest.contract.topics import DEAD_LETTERS, OUTCOMES, READINGS
from ingest.kafka_settings import KafkaSettings
from tests.support.dead_letters import AT_US, EPOCH, LIMITS, Lake

ROOT = Path(__file__).parents[3]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "the tables")


def test_letters_are_counted_by_reason_device_and_topic_with_the_newest_of_each(lake: Lake) -> None:
    for text in (b"1", b"2", b"3"):
        lake.receive("site/attic/t", text)
    lake.receive("tidegate/v1/d1/readings", b'{"values": ')
    first, second = summarize(lake.root, None, 20).to_pylist()
    assert (first["letters"], first["reason"], first["mqtt_topic"], first["last_id"]) == (
        3,
        "no_route",
        "site/attic/t",
        "0-2",
    )
    assert (second["letters"], second["reason"], second["device"]) == (1, "bad_json", "d1")
    rows = list_newest_letters(lake.root, "reason = 'no_route'", 2).to_pylist()
    assert [row["id"] for row in rows] == ["0-2", "0-1"]
    with pytest.raises(TidegateError, match="reazon"):
        list_newest_letters(lake.root, "reazon = 'x'", 2)
    with pytest.raises(UnavailableError, match=r"no dead letter 0-99.*dlq ls"):
        show_letter(lake.root, "0-99'")


def test_every_reason_has_a_next_step() -> None:
    assert set(NEXT_STEPS) == set(Reason)
    assert all(text.endswith(".") for text in NEXT_STEPS.values())
    assert "release notes" in next_step("of_tomorrow")


def test_the_next_step_of_an_unknown_format_names_the_draft_for_its_topic() -> None:
    assert "`tidegate route suggest --from-dlq 'it/s mine'`" in next_step("no_route", "it/s mine")
    assert "`tidegate route suggest --from-dlq a/b`" in next_step("undecoded", "a/b")
    for topic in ("a`b", "--data", "a\x1bb", "", None):
        assert "`tidegate route suggest --from-dlq`" in next_step("no_route", topic)


def written(kafka: KafkaSettings) -> str:
    return f"[kafka]\nbootstrap_servers = {json.dumps(kafka.bootstrap_servers)}\n"


def test_dead_letters_become_the_draft_of_a_route(lake: Lake, tmp_path: Path, no_kafka: KafkaSettings) -> None:
    from deploy.cli import app
    from deploy.monitor.dead_letters import show_dead_letter

    lake.receive("plant/kiln-4/state", b'{"at": 1795820000000, "temp_c": 812.5}')
    lake.receive("plant/kiln-5/state", b'{"at": 1795820001000, "temp_c": 99}')
    lake.receive("plant/kiln-4/state", b'{"at": 1795820002000, "temp_c": 812.0}')
    lake.receive("other/x", b"21.5")
    config = tmp_path / "tidegate.toml"
    config.write_text(f"{written(no_kafka)}[lake]\nroot = {json.dumps(lake.root)}\n", encoding="utf-8")

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, [*arguments, "--config", str(config)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    assert f"route suggest --from-dlq plant/kiln-4/state --config {config}`" in run("dlq", "show", "0-0")
    shown, _, said = run("route", "suggest", "plant/kiln-4/state", "--from-dlq", "--yes", "--json").partition(
        "\n1 route"
    )
    [found] = json.loads(shown)
    assert "A gateway that runs with this file reads it within seconds." in said
    assert f"Then `{command_name()} dlq redrive --config {config}` stores" in said
    assert (found["route"]["filter"], found["route"]["device"]) == ("plant/{device}/state", "{device}")
    assert len(found["messages"]) == 3
    settings = load_settings(config)
    assert [route.filter for route in settings.routes] == ["plant/{device}/state"]
    dry = json.loads(run("dlq", "redrive", "--dry-run", "--json"))
    assert (dry["accepted"], dry["readings"], dry["refused"]) == (3, 3, {"no_route": 1})
    drafts = [show_dead_letter(lake.root, letter, Settings())["draft"] for letter in ("0-0", "0-3")]
    assert ['filter = "plant/{device}/state"' in drafts[0], 'filter = "other/{metric}"' in drafts[1]] == [True, True]
    assert show_dead_letter(lake.root, "0-0")["draft"] is None


@pytest.mark.parametrize(
    ("text", "path", "got", "marked"),
    [
        ('{"values": {"temp": "warm", "x": 1}}', "$.values.temp", '"warm"', '"warm"'),
        ('{"a": [1, {"b": NaN}]}', "$.a[1].b", "NaN", "NaN"),
        ('{"odd key": {"x": [ ]}}', '$["odd key"].x', None, "[ ]"),
        ('{"t": 1, "t": 2}', "$.t", None, "2"),
        ('{"values": {"temp": {"unit": "V"}}}', "$.values.temp.value", "an object", '{"unit": "V"}'),
        ('{"a": 1,, "b": 2}', None, "Expecting property name at character 8: , ", ","),
        ('{"a": tru}', "$.a", None, None),
        ("21.5 °C", "topic", "x", None),
        ("[" * 100_000, "$[0]", None, None),
    ],
)  # fmt: skip
def test_the_failing_place_is_found(text: str, path: str | None, got: str | None, marked: str | None) -> None:
    place = find_place(text, path, got)
    assert (None if place is None else text[slice(*place)]) == marked


def test_a_long_payload_is_shown_around_the_place_and_bytes_as_hex() -> None:
    text = '{"values": {' + ", ".join(f'"m{n}": {n}' for n in range(500)) + ', "bad": "?"}}'
    line, carets = mark_payload(text.encode(), "$.values.bad", None)
    assert len(line) < 130
    assert line.startswith("…")
    assert line[carets.index("^") :].startswith('"?"')
    lines = mark_payload(b'{"t": "21.5 \xb0C"}', None, "byte 0xb0 at position 12")
    assert lines[0].startswith("00000000  7b 22 74")
    assert lines[0].endswith("<- here: 0xb0 at 12")
    assert mark_payload(b"ok", "topic", "byte 0xb0 at position 1 of the topic") == ["ok"]
    wide = '\ufeff{"a": 1}'.encode("utf-16-le")
    lines = mark_payload(wide, None, "byte 0x00 at position 3, as in UTF-16 or UTF-32")
    assert lines[0].startswith("00000000  ff fe 7b 00")
    assert lines[0].endswith("<- here: 0x00 at 3")
    assert mark_payload(b"", None, None) == ["(no bytes)"]
    assert "\x1b" not in "".join(mark_payload(b'{"\x1b[2J": 1}', "$", None))


def test_a_redriven_message_counts_its_other_devices_as_shared(lake: Lake) -> None:
    lake.receive("v1/gateway/telemetry", b'{"a": [{"t": 1}], "b": [{"t": 2}], "c": [{"t": 3}]}')
    report = lake.redrive(gate=MessageProcessor(compile_routes((), LIMITS), LIMITS))
    assert (report.accepted, len(lake.records())) == (1, 3)
    (outcome,) = [decode_outcome(record.value or b"") for record in lake.log.records(OUTCOMES)]
    counted = {count.device: (count.received, count.accepted, count.shared) for count in outcome.counts}
    assert counted == {"a": (1, 1, 0), "b": (0, 0, 1), "c": (0, 0, 1)}


def test_redriving_stores_what_passes_now_and_says_what_does_not(lake: Lake) -> None:
    lake.receive("site/attic/t", b"21.5")
    lake.receive("tidegate/v1/d1/readings", b'{"values": ')
    lake.receive("nowhere/x", b"1")
    lake.receive("site/attic/state", b"null")
    dry = lake.redrive("site/#", dry=True)
    assert (dry.dry_run, dry.accepted, dict(dry.refused)) == (True, 1, {"bad_json": 1, "no_route": 1})
    assert lake.log.records(READINGS) == []
    assert read_journal(lake.root).num_rows == 0

    report = lake.redrive("site/#", run=1)
    assert (report.letters, report.accepted, report.readings) == (4, 1, 1)
    assert dict(report.ignored) == {"no_value": 1}
    assert dict(report.refused) == {"bad_json": 1, "no_route": 1}
    assert [example["id"] for example in report.examples] == ["0-1", "0-2"]
    (record,) = lake.records()
    assert (record.gateway, record.epoch, record.number, record.received_us) == ("redrive", 1, 1, AT_US + 1)
    (outcome,) = [decode_outcome(record.value or b"") for record in lake.log.records(OUTCOMES)]
    assert (outcome.gateway, outcome.first, outcome.upto) == ("redrive", 1, 2)
    counted = [(count.received, count.accepted, sum(count.ignored.values())) for count in outcome.counts]
    assert [sum(column) for column in zip(*counted, strict=True)] == [2, 1, 1]

    rows = {row["id"]: row for row in list_newest_letters(lake.root, "true", 9).to_pylist()}
    ends = [rows[f"0-{n}"]["redriven_as"] for n in range(4)]
    assert ends == ["accepted", "refused", "refused", "ignored"]
    assert show_letter(lake.root, "0-0")["attempt"] == 1
    assert show_letter(lake.root, "0-1")["redriven_at"] is None
    # Refused ones are tried again each time, an accepted one only when asked for.
    assert lake.redrive("site/#", run=2).letters == 2
    assert show_letter(lake.root, "0-1")["attempt"] == 2
    assert lake.redrive("site/#", run=3, again=True).accepted == 1
    assert {record.message_id for record in lake.records()} == {f"dl:gw-1:{EPOCH}:1"}


@pytest.mark.parametrize("since_us", [None, 0, AT_US - 3_600_000_000])
def test_a_redrive_keeps_what_the_letter_says_of_the_wait(lake: Lake, since_us: int | None) -> None:
    lake.receive("site/attic/t", b"1.5", waited_since_us=since_us)
    lake.receive("site/attic/u", b"1.5", retain=True)
    lake.redrive("site/#")
    waited, replayed = lake.records()
    assert (waited.waited_since_us, waited.readings[0].flags) == (
        since_us or None,
        None if since_us is None else ["may_have_waited"],
    )
    assert (replayed.retain, "retained" in replayed.flags, waited.retain) == (True, True, False)


def test_letters_come_in_pages_in_order_and_each_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deploy.dlq.dead_letter_query.PAGE_LETTERS", 3)
    for number in range(7):
        lake.receive("tidegate/v1/d1/readings", b'{"values": {"a": {}, "b": {}}}' if number == 2 else b"{")

    def found(limit: int | None = None) -> list[list[str]]:
        return [[letter.id for letter in page] for page in find_dead_letters(lake.root, None, limit)]

    assert found() == [["0-0", "0-1", "0-2"], ["0-3", "0-4", "0-5"], ["0-6"]]
    assert found(4) == [["0-0", "0-1", "0-2"], ["0-3"]]
    assert found(3) == [["0-0", "0-1", "0-2"]]


def test_a_partial_letter_adds_only_what_the_table_lacks(lake: Lake) -> None:
    lake.receive("tidegate/v1/d1/readings", b'{"values": {"a": 1, "b": {"unit": "V"}, "c": 3}}')
    ((letter,),) = find_dead_letters(lake.root, None, None)
    assert stored_parts(lake.root, [letter]) == {f"gw-1:{EPOCH}:1": {("d1", "a", 0), ("d1", "c", 0)}}
    report = lake.redrive()
    assert (dict(report.refused), report.readings, lake.log.records(READINGS)) == ({"missing_field": 1}, 0, [])


def test_what_another_delivery_or_redrive_stored_long_ago_is_not_stored_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, payload = "tidegate/v1/d1/readings", b'{"boot": 1, "seq": 2, "values": {"a": 1, "b": {}, "c": 3}}'
    first = lake.receive(topic, payload)
    # Spark dropped the readings of the second delivery; its letter for `b` stands beside that of the first.
    second = MessageProcessor(compile_routes(()), LIMITS).decide(
        Message(99, EPOCH, AT_US + 9_000_000, topic.encode(), payload)
    )
    assert (first.accepted, second.accepted) == (True, True)
    (letter,) = [decode_dead_letter(record.value) for record in second.records if record.topic == DEAD_LETTERS]
    lake._land_letter(letter, payload)
    monkeypatch.setattr("deploy.dlq.redrive.YOUNG_US", 0)
    report = lake.redrive(run=1)
    assert (dict(report.refused), report.accepted, lake.records()) == ({"missing_field": 2}, 0, [])

    lake.receive("site/attic/t", b"1")
    assert lake.redrive("site/#", run=2, where="reason = 'no_route'").accepted == 1
    (record,) = lake.records()
    lake.land_readings(record)
    again = lake.redrive("site/#", run=3, where="reason = 'no_route'", again=True)
    assert (again.accepted, again.stored, len(lake.records())) == (0, 1, 1)


class Died(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("step", ["after the records", "before the journal"])
def test_a_redrive_that_dies_in_the_middle_is_done_again_under_the_same_identities(
    lake: Lake, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        lake.receive("site/attic/t", str(number).encode())

    def die(*arguments: Any) -> None:
        raise Died

    where = ("deploy.dlq.redrive.encode_outcome", die) if step == "after the records" else (RedriveJournal.append, die)
    with monkeypatch.context() as patch, pytest.raises(Died):
        if isinstance(where[0], str):
            patch.setattr(*where)
        else:
            patch.setattr(RedriveJournal, "append", die)
        lake.redrive("site/#", run=1)
    assert len(lake.records()) == 5
    assert len(lake.log.records(OUTCOMES)) == (0 if step == "after the records" else 1)
    report = lake.redrive("site/#", run=2)
    assert report.accepted == 5
    ids = [record.message_id for record in lake.records()]
    assert (len(ids), len(set(ids))) == (10, 5)
    assert lake.redrive("site/#", run=3).letters == 0


def test_kafka_that_fails_is_said_and_what_was_done_before_is_kept(lake: Lake) -> None:
    for number in range(3):
        lake.receive("site/attic/t", str(number).encode())
    lake.log.fail_next("retriable", "scripted failure")
    with pytest.raises(RetryableError, match=r"scripted failure.*nothing is stored twice"):
        lake.redrive("site/#", run=1)
    assert read_journal(lake.root).num_rows == 0
    assert lake.redrive("site/#", run=2).accepted == 3


def test_a_record_that_kafka_would_refuse_is_reported_and_its_neighbours_go_on(lake: Lake) -> None:
    lake.receive("site/attic/t", json.dumps("x" * 2000).encode())
    lake.receive("site/attic/t", b"1")
    lake.log.max_record_bytes = 1500
    report = lake.redrive("site/#")
    assert (report.accepted, dict(report.refused)) == (1, {"kafka_too_large": 1})
    assert "is above the limit" in report.examples[0]["why"]


def test_a_mended_profile_lets_the_refused_metric_in_and_a_registered_device_all(lake: Lake, tmp_path: Path) -> None:
    profiles, registry = tmp_path / "profiles", tmp_path / "devices.jsonl"
    profiles.mkdir()

    def settings(limit: int) -> Settings:
        (profiles / "room.toml").write_text(
            f'name = "room"\nversion = {limit}\ndevices = ["d1"]\n[metrics.t]\nmax = {limit}\n', encoding="utf-8"
        )
        limits = {"profiles": str(profiles), "device_registry": str(registry), "unregistered": "quarantine"}
        return Settings.model_validate({"gateway": limits | {"device_rate": 0.001, "device_burst": 1}})

    add_device(registry, "d1")
    strict = make_redrive_processor(settings(10))
    lake.receive("tidegate/v1/d1/readings", b'{"values": {"t": 21, "u": 1}}', gate=strict)
    lake.receive("tidegate/v1/d2/readings", b'{"values": {"t": 5}}', gate=strict)
    (letters,) = find_dead_letters(lake.root, None, None)
    assert [(letter.reason, letter.device, letter.partial) for letter in letters] == [
        ("out_of_range", "d1", True),
        ("unknown_device", "d2", False),
    ]
    add_device(registry, "d2")
    report = lake.redrive(gate=make_redrive_processor(settings(30)))
    assert (report.accepted, report.readings) == (2, 2)
    assert [(r.device, [x.metric for x in r.readings]) for r in lake.records()] == [("d1", ["t"]), ("d2", ["t"])]


def test_the_commands_answer_people_and_programs(lake: Lake, tmp_path: Path, no_kafka: KafkaSettings) -> None:
    from deploy.cli import app

    lake.receive("site/attic/t", b"21.5")
    lake.receive("tidegate/v1/d1/readings", b'{"values": {"temp": {"unit": "V"}}}')
    config = tmp_path / "tidegate.toml"
    config.write_text(
        f'{written(no_kafka)}[lake]\nroot = {json.dumps(lake.root)}\n[[routes]]\nfilter = "site/#"\n', encoding="utf-8"
    )

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["dlq", *arguments, "--config", str(config)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.output

    assert "no_route" in run("ls")
    assert f"dlq show 0-0 --config {config}`" in run("ls", "--reason", "no_route")
    assert json.loads(run("ls", "--device", "d1", "--where", "reason <> 'x' OR true", "--json"))[0]["id"] == "0-1"
    assert run("ls", "--reason", "it's", "--json") == "[]\n"
    assert json.loads(run("ls", "--where", "reason = 'no_route'", "--json"))[0]["id"] == "0-0"
    shown = run("show", "0-1")
    assert "reason    missing_field" in shown
    assert "^^^^^^^^^^^^^" in shown
    assert NEXT_STEPS[Reason.MISSING_FIELD] in shown
    assert json.loads(run("show", "0-1", "--json"))["path"] == "$.values.temp.value"
    dry = run("redrive", "--dry-run")
    assert "would be accepted: 1 readings\n  site/attic: t = 21.5" in dry
    assert f"dlq redrive --config {config}` with the same conditions" in dry
    told = json.loads(run("redrive", "--dry-run", "--json", "--where", "device = 'd1'"))
    assert (told["dry_run"], told["refused"]) == (True, {"missing_field": 1})
    other = tmp_path / "other.toml"
    other.write_text('[[routes]]\nfilter = "other/#"\n', encoding="utf-8")
    assert json.loads(run("redrive", "--try", str(other), "--json"))["accepted"] == 0
    assert f"copy the changes of {config}" in run("redrive", "--try", str(config))


def test_settings_and_an_embedded_run_at_once_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from deploy.cli import run

    config = tmp_path / "tidegate.toml"
    config.write_text("")
    assert run(["dlq", "ls", "--config", str(config), "--data", str(tmp_path)]) == 78
    assert "may name two pipelines. Give one of them" in capsys.readouterr().err
