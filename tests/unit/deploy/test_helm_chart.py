"""The exported chart holds what the settings say and no secret, and names only what the product has."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, SecretStr

from deploy.cli import run
from deploy.helm.chart_files import CHART, chart_files
from deploy.helm.chart_values import MANAGED, chart_values, dump_values, fill_values, part_logins
from deploy.settings import Settings, load_settings
from gateway.service import DRAIN_SECONDS, SAVE_SECONDS
from ingest.contract.topics import topic_specs
from lakehouse.jvm import STOP_SECONDS
from monitoring.grafana.export_files import grafana_files
from monitoring.monitoring_settings import MonitoringSettings
from monitoring.prometheus.export_files import prometheus_files

TEMPLATES = {file.name: file.read_text("utf-8") for file in (CHART / "templates").iterdir()}
SHIPPED = (CHART / "values.yaml").read_text("utf-8")
SECRETS = {
    "TIDEGATE_MQTT__USERNAME": "tidegate",
    "TIDEGATE_MQTT__PASSWORD": "hush-mqtt",
    "TIDEGATE_MQTT__TLS": "true",
    "TIDEGATE_MQTT__CA_FILE": "/etc/ssl/ca.pem",
    "TIDEGATE_KAFKA__SASL_USERNAME": "tidegate",
    "TIDEGATE_KAFKA__SASL_PASSWORD": "hush-kafka",
    "TIDEGATE_STREAM__EXTRA": '{"spark.hadoop.fs.s3a.secret.key": "hush-spark", "spark.sql.shuffle.partitions": "4"}',
}


def exported(**environ: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The values and the notes of an export."""
    made = chart_values(load_settings(environ=environ), {})
    return yaml.safe_load(fill_values(SHIPPED, made.filled)), made.notes


def test_the_files_that_are_no_templates_parse() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))["name"] == "tidegate"
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    values = yaml.safe_load(SHIPPED)
    assert set(values) == set(schema["properties"]) - {"global"}


def test_the_shipped_values_are_those_of_the_default_settings() -> None:
    filled = chart_values(Settings(), {}).filled
    assert fill_values(SHIPPED, filled) == SHIPPED, "write these lines into deploy/helm/tidegate/values.yaml"


def test_rules_and_dashboards_are_those_of_the_other_exports() -> None:
    environ = {"TIDEGATE_MONITORING__FRESHNESS_SECONDS": "1.5"}
    monitoring = load_settings(environ=environ).monitoring
    files = chart_files(load_settings(environ=environ)).files
    assert files["files/tidegate-rules.yml"] == prometheus_files(monitoring)["tidegate-rules.yml"]
    wanted = {f"files/{name}": text for name, text in grafana_files(monitoring).items() if name.endswith(".json")}
    assert {name: text for name, text in files.items() if name.startswith("files/dashboards/")} == wanted
    assert not (CHART / "files").exists()
    assert all("tidegate-alerts" not in text and "summary" not in text for text in TEMPLATES.values())


def test_an_export_holds_references_and_no_secret() -> None:
    chart = chart_files(load_settings(environ=SECRETS))
    assert [name for name, text in chart.files.items() if "hush" in text] == []
    values, notes = exported(**SECRETS)
    assert chart.notes == notes
    assert values["secrets"] == {
        "mqtt": {
            "password": {"name": "tidegate-mqtt", "key": "password"},
            "ca_file": {"name": "tidegate-mqtt", "key": "ca_file"},
        },
        "kafka": {"sasl_password": {"name": "tidegate-kafka", "key": "sasl_password"}},
        "monitoring": {"read_token_file": {"name": "tidegate-monitoring", "key": "read_token_file"}},
    }
    assert values["settings"]["stream"]["extra"] == {"spark.sql.shuffle.partitions": "4"}
    assert any("spark.hadoop.fs.s3a.secret.key" in note for note in notes)
    assert "hush" not in " ".join(notes)


def test_a_user_without_a_password_needs_the_reference_too() -> None:
    values, _ = exported(TIDEGATE_MQTT__USERNAME="tidegate")
    assert set(values["secrets"]["mqtt"]) == {"password"}
    assert values["settings"]["mqtt"] == {"username": "tidegate"}


class Login(BaseModel):
    username: str | None = None
    password: SecretStr | None = None
    key_file: str | None = None


class Broker(BaseModel):
    canary: Login | None = None
    monitor: Login | None = None


def test_a_part_with_its_own_user_has_its_own_settings_and_secrets() -> None:
    broker = Broker(canary=Login(username="canary", password=SecretStr("hush"), key_file="/key.pem"))
    found = part_logins(broker)
    assert found == {
        "canary.settings": {"mqtt": {"username": "canary"}},
        "canary.secrets": {
            "mqtt": {
                "key_file": {"name": "tidegate-mqtt-canary", "key": "key_file"},
                "password": {"name": "tidegate-mqtt-canary", "key": "password"},
            }
        },
    }
    values = yaml.safe_load(fill_values(SHIPPED, found))
    assert values["canary"]["settings"] == {"mqtt": {"username": "canary"}}


def test_settings_of_a_gateway_become_its_member() -> None:
    values, _ = exported(
        TIDEGATE_GATEWAY__GATEWAY_ID="east",
        TIDEGATE_MQTT__CLIENT_ID="tidegate-east",
        TIDEGATE_MQTT__SUBSCRIPTIONS='["site/east/#"]',
        TIDEGATE_MQTT__SESSION_FILE="/var/lib/tidegate/session.json",
        TIDEGATE_MQTT__HOST="mqtt.example.org",
    )
    assert values["gateway"]["members"] == [
        {"id": "east", "clientId": "tidegate-east", "subscriptions": ["site/east/#"]}
    ]
    assert values["settings"]["mqtt"] == {"host": "mqtt.example.org"}


def test_tables_in_a_folder_go_to_the_volume_and_others_stay_where_they_are() -> None:
    values, _ = exported(TIDEGATE_LAKE__ROOT="/srv/tables", TIDEGATE_STREAM__CHECKPOINT="/var/lib/tidegate/points/land")
    assert values["settings"]["lake"]["root"] == "/var/lib/tidegate/tables"
    assert values["settings"]["stream"]["checkpoint"] == "/var/lib/tidegate/points/land"
    values, _ = exported(TIDEGATE_LAKE__ROOT="s3a://lake/tables")
    assert values["settings"]["lake"]["root"] == "s3a://lake/tables"


def test_memory_follows_the_settings() -> None:
    small, _ = exported()
    large, _ = exported(TIDEGATE_STREAM__DRIVER_MEMORY="4g", TIDEGATE_GATEWAY__WINDOW_BYTES=str(512 * 1024**2))

    def limit(values: dict[str, Any], part: str) -> int:
        resources = values[part]["resources"]
        request, most = (int(resources[each]["memory"].removesuffix("Mi")) for each in ("requests", "limits"))
        assert request < most
        return most

    assert limit(large, "stream") - limit(small, "stream") == 3 * 1024 * 1.25
    assert limit(large, "gateway") - limit(small, "gateway") == 2 * 448 * 1.25


def test_what_a_person_has_to_do_is_a_note() -> None:
    _, notes = exported(TIDEGATE_GATEWAY__PROFILES="/etc/tidegate/profiles", TIDEGATE_MQTT__HOST="mqtt.example.org")
    (profiles,) = (note for note in notes if "gateway.profiles" in note)
    assert "gateway.extraVolumes" in profiles
    assert [note.split()[0] for note in notes if "pod itself" in note] == ["kafka.bootstrap_servers"]


def test_routes_are_copied_as_they_are_written(tmp_path: Path) -> None:
    config = tmp_path / "tidegate.toml"
    config.write_text(
        "[mappings.mine]\ndevice = 'id'\n[[routes]]\nfilter = 'plant/{line}/#'\nmapping = 'mine'\n", encoding="utf-8"
    )
    assert run(["export", "helm", str(tmp_path / "chart"), "--config", str(config)]) == 0
    values = yaml.safe_load((tmp_path / "chart/values.yaml").read_text("utf-8"))
    assert values["settings"]["routes"] == [{"filter": "plant/{line}/#", "mapping": "mine"}]
    assert values["settings"]["mappings"] == {"mine": {"device": "id"}}


def test_comments_stay_in_filled_values() -> None:
    shipped = "# first\na:\n  # of b\n  b:\n    - old\n    # gone\n\n  c: 1\nd: {}\n"
    filled = fill_values(shipped, {"a.b": ["x", "z"], "d": {"e": True}})
    assert filled == "# first\na:\n  # of b\n  b:\n    - x\n    - z\n\n  c: 1\nd:\n  e: true\n"
    with pytest.raises(KeyError, match=r"a\.z"):
        fill_values(shipped, {"a.z": 1})


@pytest.mark.parametrize(
    "text", ["1e3", "y", "0o17", "12:30", "~", "#", "", "a: b", "true", "+1", ".5", "ä", "\u2028", "a\nb"]
)
def test_a_text_that_helm_could_take_for_another_value_is_in_quotes(text: str) -> None:
    """PyYAML reads 1e3 and y as texts and writes them bare; helm's reader takes them for a number and a boolean."""
    written = dump_values({"a": text, text: 1})
    assert written.count('"') + written.count("'") == 4
    assert yaml.safe_load(written) == {"a": text, text: 1}
    assert dump_values({"host": "mqtt.example.org"}) == "host: mqtt.example.org\n"


def test_every_setting_in_a_template_exists() -> None:
    sections = {name: field.annotation for name, field in Settings.model_fields.items()}
    fields = {field for model in sections.values() for field in getattr(model, "model_fields", ())}
    words = {(name, word) for name, text in TEMPLATES.items() for word in re.findall(r'"([a-z]+(?:_[a-z]+)+)"', text)}
    assert {(name, word) for name, word in words if word not in fields} == set()
    assert {"spark_jmx_port", "session_file", "bootstrap_servers"} <= {word for _, word in words}
    named = {section for text in TEMPLATES.values() for section in re.findall(r"\bsettings\.([a-z]+)\b", text)}
    assert named >= {"monitoring", "stream", "lake", "kafka", "mqtt"}
    assert named <= set(sections)


def test_the_chart_sets_what_the_schema_forbids_to_give() -> None:
    text = TEMPLATES["_settings.tpl"]
    assert {name for names in MANAGED.values() for name in names} <= set(re.findall(r'"(\w+)"', text))


def test_ports_in_a_template_are_the_defaults() -> None:
    given = MonitoringSettings()
    (text,) = re.findall(r"\$defaults := dict (.*) -}}", TEMPLATES["_settings.tpl"])
    ports = dict(re.findall(r'"(\w+)" (\d+)', text))
    assert ports == {
        "gateway": str(given.gateway_port),
        "stream": str(given.stream_port),
        "canary": str(given.canary_port),
        "monitor": str(given.page_port),
    }


def test_a_pod_has_more_time_to_stop_than_its_part_takes() -> None:
    values, _ = exported()
    assert values["gateway"]["terminationGracePeriodSeconds"] > 2 * (DRAIN_SECONDS + SAVE_SECONDS)
    # A batch of a stream that catches up, and then Spark's JVM.
    assert values["stream"]["terminationGracePeriodSeconds"] >= 60 + STOP_SECONDS


def test_strimzi_gets_the_topics_of_the_contract_and_users_with_their_own_rights() -> None:
    values, _ = exported(TIDEGATE_KAFKA__PARTITIONS="12", TIDEGATE_KAFKA__REPLICATION="5")
    topics = {topic["name"]: topic for topic in values["strimzi"]["topics"]["list"]}
    assert set(topics) == {
        spec.name for spec in topic_specs(partitions=1, max_record_bytes=1, retention_bytes=8 * 1024**2, retention_ms=1)
    }
    readings = topics["telemetry.readings"]
    assert (readings["partitions"], readings["replicas"], readings["config"]["min.insync.replicas"]) == (12, 5, "4")
    users = {
        user["name"]: {(acl["resource"]["name"], right) for acl in user["acls"] for right in acl["operations"]}
        for user in values["strimzi"]["users"]["list"]
    }
    assert set(users) == {"tidegate-gateway", "tidegate-stream", "tidegate-monitor"}
    assert {name for name, right in users["tidegate-gateway"] if right == "Write"} == set(topics)
    assert ("telemetry.readings", "Read") not in users["tidegate-gateway"]
    assert ("telemetry.readings", "Write") not in users["tidegate-stream"]
    assert {right for _, right in users["tidegate-monitor"]} == {"Read", "Describe", "DescribeConfigs"}


def test_the_command_says_where_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["export", "helm", str(tmp_path / "chart"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"Chart.yaml", "README.md", "templates/gateway.yaml", "files/tidegate-rules.yml"} <= set(found["written"])
    assert len(found["notes"]) == 2
    assert run(["export", "helm", str(tmp_path / "chart")]) == 0
    assert "Note: mqtt.host" in capsys.readouterr().err
