"""Settings: order of sources, faults as sentences, secrets masked, the file that parts are started with."""

import stat
import tempfile
from pathlib import Path

import pytest

from deploy.settings import Settings, child_environment, fault_folder, load_settings, masked_settings
from deploy.settings_file import MAX_FILE_BYTES, to_toml, write_private
from ingest.contract.errors import ConfigError


def written(folder: Path, text: str | bytes) -> Path:
    file = folder / "tide gate.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def test_flag_wins_over_environment_over_file_over_default(tmp_path: Path) -> None:
    file = written(tmp_path, '[mqtt]\nport = 1001\nhost = "file"\nkeepalive_seconds = 11\n')
    environ = {"TIDEGATE_MQTT__PORT": "1002", "TIDEGATE_MQTT__HOST": "env", "TIDEGATE_DATA": "/ignored", "HOME": "/x"}
    settings = load_settings(file, environ=environ, overrides={"mqtt.port": 1003})
    assert (settings.mqtt.port, settings.mqtt.host, settings.mqtt.keepalive_seconds) == (1003, "env", 11)
    assert settings.mqtt.client_id == "tidegate-gateway"


def test_environment_takes_lists_and_tables_as_json() -> None:
    environ = {"TIDEGATE_MQTT__SUBSCRIPTIONS": '["a/#", "b/#"]', "TIDEGATE_KAFKA__EXTRA": '{"linger.ms": "1"}'}
    settings = load_settings(environ=environ)
    assert settings.mqtt.subscriptions == ("a/#", "b/#")
    assert settings.kafka.extra == {"linger.ms": "1"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("[mqtt]\nprot = 1883\n", ["tide gate.toml:2", "unknown key mqtt.prot", "Did you mean mqtt.port?"]),
        ("[mqttt]\nport = 1883\n", ["tide gate.toml:1", "unknown key mqttt", "Did you mean mqtt?"]),
        ("[mqtt]\nhost='a'\nport = 70000\n", ["tide gate.toml:3", "mqtt.port", "less than or equal to 65535"]),
        ("[mqtt]\nlinger_ms = 3\n", ["belongs to [kafka]"]),
        ("[[routes]]\nfilter='a'\n[[routes]]\nfilter='b'\ndecodr='json'\n", ["toml:5", "routes.1.decoder?"]),
        ("[[routes]]\ndecoder='json'\n", ["routes.0.filter is missing"]),
        ("[mqtt]\nport = 1\nport = 2\n", ["given twice", "line 3"]),
        ("[mqtt\nport = 1\n", ["not valid TOML", "line 1"]),
        (b"[mqtt]\nhost = '\xff'\n", ["not UTF-8"]),
        pytest.param(f"x = {'[' * 5000}", ["not valid TOML"], id="deep"),
        pytest.param(f"[mqtt]\nport = {'9' * 6000}\n", ["not valid TOML"], id="digits"),
        pytest.param(b"#" * (MAX_FILE_BYTES + 1), [f"more than {MAX_FILE_BYTES} bytes"], id="large"),
        ("mqtt = 5\n", ["mqtt"]),
        (
            '[[routes]]\nfilter = "a"\nmapping = { formt = "json" }\n',
            ["unknown key routes.0.mapping.formt. Did you mean"],
        ),
        ('[[routes]]\nfilter = "a"\nmapping = { format = "rows" }\n', [": routes.0.mapping.format: rows need either"]),
        ('[mappings.m]\ntime = [{ path = "t", format = "x" }]\n', [": mappings.m.time.0.format: "]),
        (
            '[mappings.m]\nformat = "json"\nunit = {}\n',
            ["toml:3: unknown key mappings.m.unit. Did you mean mappings.m.units?"],
        ),
        (
            "[mappings.a]\n[mappings.m.numbers]\nv = { scle = 1 }\n",
            ["toml:3: unknown key mappings.m.numbers.v.scle. Did you"],
        ),
        ("[mappings.m]\nskip = true\n", [": mappings.m.skip: wanted a list."]),
        ("[mappings.m.units]\nt = 5\n", [": mappings.m.units.t: wanted text in quotes."]),
        ('[mappings.m]\nformat = "csv"\n', [": mappings.m.format.kind: wanted 'json', 'ndjson',"]),
        (
            '[[routes]]\nfilter = "a"\nmapping = { extends = "rtl433" }\n',
            ["extends 'rtl433', but no mapping has that name; did you mean 'rtl_433'?"],
        ),
        ('[mappings.m.numbers]\nv = { scale = "x" }\n', [": mappings.m.numbers.v.scale: 'x' is not a factor"]),
        (
            '[mappings.a]\nextends = "b"\n[mappings.b]\nextends = "a"\n[[routes]]\nfilter = "x"\nmapping = "a"\n',
            [": routes: mappings extend each other: a -> b -> a"],
        ),
    ],
)
def test_a_fault_names_file_key_and_suggestion(tmp_path: Path, text: str | bytes, wanted: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(written(tmp_path, text), environ={})
    assert caught.value.exit_code == 78
    for part in wanted:
        assert part in str(caught.value)


def test_all_faults_are_told_at_once_and_no_value_is_repeated(tmp_path: Path) -> None:
    file = written(tmp_path, "[mqtt]\nport = 0\npassword = ['hunter2']\n[kafka]\nbootstrap = 'x'\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(file, environ={"TIDEGATE_LAKE__ROTO": "x"})
    text = str(caught.value)
    assert "4 settings are wrong" in text
    assert "environment TIDEGATE_LAKE__ROTO: unknown key lake.roto. Did you mean lake.root?" in text
    assert "hunter2" not in text


def test_byte_order_mark_and_crlf_are_fine(tmp_path: Path) -> None:
    settings = load_settings(written(tmp_path, b"\xef\xbb\xbf[mqtt]\r\nport = 1884\r\n"), environ={})
    assert settings.mqtt.port == 1884


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_settings(tmp_path / "none.toml", environ={})
    with pytest.raises(ConfigError, match="is a folder"):
        load_settings(tmp_path, environ={})


def test_secrets_are_masked_for_people_and_kept_for_parts(tmp_path: Path) -> None:
    settings = load_settings(environ={"TIDEGATE_MQTT__PASSWORD": "hunter2", "TIDEGATE_KAFKA__SASL_PASSWORD": 'q"\\'})
    assert "hunter2" not in repr(settings)
    assert masked_settings(settings)["mqtt"]["password"] == "**********"
    file = tmp_path / "config.toml"
    write_private(file, to_toml(settings))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert load_settings(file, environ={}) == settings


def test_the_written_file_reads_back_as_the_same_settings(tmp_path: Path) -> None:
    routes = [
        {"filter": 'si"te/#', "zone": "Europe/Berlin", "units": {"a.b": "°C", "x y": "\\"}, "device": "me\x7f\n"},
        {"filter": "b/#"},
    ]
    file = written(tmp_path, "")
    settings = load_settings(file, environ={}, overrides={"routes": routes, "kafka.extra": {"a.b": "1"}})
    write_private(file, to_toml(settings))
    assert load_settings(file, environ={}) == settings


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().mqtt = Settings().mqtt  # type: ignore[misc]


def test_parts_do_not_inherit_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEGATE_MQTT__PORT", "1")
    environment = child_environment("run-1")
    assert "TIDEGATE_MQTT__PORT" not in environment
    assert environment["TIDEGATE_RUN_ID"] == "run-1"


def test_secrets_among_passed_through_options_are_masked_for_people_only() -> None:
    options = {"spark.hadoop.fs.s3a.SECRET.key": "hunter2", "spark.sql.shuffle.partitions": "4"}
    kafka = {"ssl.key.password": "hunter3", "oauth.token": "hunter4", "linger.ms": "7"}
    settings = load_settings(environ={}, overrides={"stream.extra": options, "kafka.extra": kafka})
    for shown in (to_toml(settings, mask_secrets=True), str(masked_settings(settings))):
        assert "hunter" not in shown
        assert "spark.sql.shuffle.partitions" in shown
        assert "7" in shown
    assert to_toml(settings).count("hunter") == 3


def test_parts_keep_their_temporary_files_and_faults_in_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = child_environment("run-1", tmp_path)
    assert environment["TMPDIR"] == str(tmp_path / "tmp")
    (tmp_path / "logs").mkdir()
    monkeypatch.delenv("TIDEGATE_LOGS", raising=False)
    monkeypatch.chdir(tmp_path)
    assert fault_folder(["up"]) == Path(tempfile.gettempdir())
    assert fault_folder(["up", "--data", str(tmp_path)]) == tmp_path / "logs"
    assert fault_folder([f"--data={tmp_path}", "up"]) == tmp_path / "logs"
    monkeypatch.setenv("TIDEGATE_LOGS", environment["TIDEGATE_LOGS"])
    assert fault_folder(["gateway", "--config", "x"]) == tmp_path / "logs"
