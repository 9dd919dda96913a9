"""The schema of the chart's values takes every export, and rejects what would not run."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from deploy.helm.chart_files import chart_files
from deploy.settings import Settings, load_settings

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: make test installs it")

CHART = chart_files(Settings()).files
SCHEMA = json.loads(CHART["values.schema.json"])
CHECK = jsonschema.Draft7Validator(SCHEMA)
VALUES = yaml.safe_load(CHART["values.yaml"])


def faults(change: Callable[[dict[str, Any]], object]) -> list[str]:
    values = copy.deepcopy(VALUES)
    change(values)
    return [error.message for error in CHECK.iter_errors(values)]


def test_the_schema_is_one_and_takes_the_values() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert list(CHECK.iter_errors(VALUES)) == []


def test_it_takes_the_export_of_many_settings() -> None:
    environ = {
        "TIDEGATE_MQTT__HOST": "mqtt.example.org",
        "TIDEGATE_MQTT__TLS": "true",
        "TIDEGATE_MQTT__CA_FILE": "/ca.pem",
        "TIDEGATE_MQTT__PASSWORD": "hush",
        "TIDEGATE_KAFKA__EXTRA": '{"socket.timeout.ms": "60000"}',
        "TIDEGATE_MONITORING__TARGETS": '{"kafka": ["kafka-1:9404"], "gateway": ["gone:1"]}',
        "TIDEGATE_MONITORING__CANARY_PORT": "0",
        "TIDEGATE_EMBEDDED__CANARY_SECONDS": "5",
        "TIDEGATE_EMBEDDED__FLEET_DEVICES": "5",
    }
    values = yaml.safe_load(chart_files(load_settings(environ=environ)).files["values.yaml"])
    assert list(CHECK.iter_errors(values)) == []
    assert values["settings"]["monitoring"] == {"targets": {"kafka": ["kafka-1:9404"]}}
    assert values["settings"]["embedded"] == {"canary_seconds": 5.0}
    assert values["canary"]["enabled"] is False


@pytest.mark.parametrize(
    ("where", "settings"),
    [
        ("settings", {"kafka": {"bootstrap_server": "kafka:9092"}}),
        ("settings", {"kafka": {"sasl_password": "hush"}}),
        ("settings", {"mqtt": {"password": "hush"}}),
        ("settings", {"mqtt": {"client_id": "mine"}}),
        ("settings", {"gateway": {"gateway_id": "mine"}}),
        ("settings", {"stream": {"extra": {"spark.hadoop.fs.s3a.Secret.key": "hush"}}}),
        ("settings", {"monitoring": {"gateway_port": 0}}),
        ("settings", {"routes": [{"decoder": "json"}]}),
        ("secrets", {"kafka": {"sasl_password": "hush"}}),
        ("secrets", {"kafka": {"bootstrap_servers": {"name": "a", "key": "b"}}}),
    ],
)
def test_a_setting_that_would_not_run_is_rejected_everywhere(where: str, settings: dict[str, Any]) -> None:
    assert faults(lambda values: values[where].update(settings))
    for part in ("gateway", "stream", "monitor", "canary"):
        assert faults(lambda values, part=part: values[part][where].update(settings))


@pytest.mark.parametrize(
    "change",
    [
        lambda values: values["gateway"].update(members=[]),
        lambda values: values["gateway"].update(terminationGracePeriodSeconds=5),
        lambda values: values["podSecurityContext"].update(runAsUser=0),
        lambda values: values["stream"].update(replicas=2),
        lambda values: values["stream"]["resources"]["limits"].update(memory="3 GB"),
        lambda values: values["canary"].update(extraEnv=[{"name": "TIDEGATE_MQTT__PASSWORD", "value": "hush"}]),
        lambda values: values.update(setings={}),
    ],
)
def test_a_value_that_would_break_a_promise_is_rejected(change: Callable[[dict[str, Any]], object]) -> None:
    assert faults(change)


def test_a_secret_by_reference_is_taken() -> None:
    reference = {"valueFrom": {"secretKeyRef": {"name": "aws", "key": "secret"}}}
    environment = [{"name": "AWS_SECRET_ACCESS_KEY", **reference}, {"name": "AWS_REGION", "value": "eu-1"}]
    assert faults(lambda values: values["stream"].update(extraEnv=environment)) == []
