"""What real helm renders from the exported chart: valid manifests, settings that load, and pods without rights."""

import copy
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.helm.chart_values import dump_values
from deploy.settings import Settings, load_settings
from monitoring.grafana.export_files import grafana_files
from monitoring.monitoring_settings import MonitoringSettings
from monitoring.prometheus.export_files import prometheus_files
from tests.support.helm import Document, HelmFault, Render
from tests.support.helm_values import CUSTOM, IN_STORE, SETS, SMALL, WHOLE, pods


def files(documents: list[Document], component: str) -> dict[str, str]:
    """Settings files of a component."""
    (found,) = (
        each["data"]
        for each in documents
        if each["kind"] == "ConfigMap" and each["metadata"]["labels"].get("app.kubernetes.io/component") == component
    )
    return dict(found)


def loaded(documents: list[Document], folder: Path) -> dict[str, Settings]:
    """Settings by file name, each with the variables of its pod: what the parts start with."""
    found = {}
    for component, pod in pods(documents):
        (container,) = pod["containers"]
        environ = {each["name"]: each.get("value", "of a secret") for each in container["env"]}
        for name, text in files(documents, component).items():
            if not name.endswith(".toml"):
                continue
            file = folder / f"{component}-{name}"
            file.write_text(text, encoding="utf-8")
            found[name if component == "gateway" else component] = load_settings(file, environ=environ)
    return found


@pytest.mark.parametrize("name", SETS)
def test_every_manifest_is_one_of_kubernetes(name: str, render: Render) -> None:
    check = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed: make test installs it"
    )
    documents = render(SETS[name])
    for version in ("1.29", "1.37"):
        for each in documents:
            if each["kind"] not in CUSTOM:
                check.validate(each, version, strict=True)
    names = [each["metadata"]["name"] for each in documents]
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", each) for each in names), names
    assert len({(each["kind"], each["metadata"]["name"]) for each in documents}) == len(documents)


@pytest.mark.parametrize("name", SETS)
def test_helm_lint_finds_nothing(name: str, helm: Callable[..., str], chart: Path, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(dump_values(SETS[name]), encoding="utf-8")
    said = helm("lint", str(chart), "--values", str(values), "--strict")
    assert "[ERROR]" not in said
    assert "[WARNING]" not in said


@pytest.mark.parametrize("name", SETS)
def test_pods_have_no_rights(name: str, render: Render) -> None:
    documents = render(SETS[name])
    components = dict(pods(documents))
    assert {"gateway", "stream"} <= set(components)
    for component, pod in components.items():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is (component == "stream" and name == "in an object store")
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("name", SETS)
def test_probes_services_and_volumes_fit_the_pods(name: str, render: Render) -> None:
    documents = render(SETS[name])
    services = {each["metadata"]["name"]: each["spec"] for each in documents if each["kind"] == "Service"}
    for component, pod in pods(documents):
        (container,) = pod["containers"]
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["port"] in ports
        assert container["readinessProbe"]["httpGet"]["path"] == "/healthz"
        assert (container["livenessProbe"]["httpGet"]["path"] == "/livez") is (component != "monitor")
        (service,) = (spec for key, spec in services.items() if key.endswith(f"-{component}"))
        assert {each["targetPort"] for each in service["ports"]} <= set(ports.values())
        assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
        paths = [each["mountPath"] for each in container["volumeMounts"]]
        assert len(set(paths)) == len(paths)


def test_each_gateway_has_its_own_settings(render: Render, tmp_path: Path) -> None:
    documents = render(WHOLE)
    (workload,) = (each for each in documents if each["kind"] == "StatefulSet")
    assert workload["spec"]["replicas"] == 2
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["gateway", "--config", "/etc/tidegate/settings/$(POD_NAME).toml"]
    settings = loaded(documents, tmp_path)
    east, west = settings["tidegate-gateway-0.toml"], settings["tidegate-gateway-1.toml"]
    assert workload["metadata"]["name"] == "tidegate-gateway", "pods are named after it, and files after pods"
    assert (east.gateway.gateway_id, east.mqtt.client_id, east.mqtt.subscriptions) == (
        "east", "tidegate-east", ("site/east/#",),
    )  # fmt: skip
    assert (west.gateway.gateway_id, west.mqtt.subscriptions) == ("west", ("site/west/#", "hall/#"))
    assert (east.gateway.window_messages, west.gateway.window_messages) == (1000, 20)
    assert east.routes[0].tags == {"site": "{site}"}
    assert east.kafka.retention_bytes == 10_737_418_240
    assert (east.mqtt.tls, east.mqtt.ca_file) == (True, "/etc/tidegate/secrets/mqtt/ca_file/ca.crt")
    assert (east.kafka.sasl_username, settings["stream"].kafka.sasl_username) == ("tidegate-gateway", "tidegate")


def test_the_monitor_finds_every_part(render: Render, tmp_path: Path) -> None:
    documents = render(WHOLE)
    settings = loaded(documents, tmp_path)["monitor"].monitoring
    assert settings.targets["gateway"] == (
        "tidegate-gateway-0.tidegate-gateway:9471",
        "tidegate-gateway-1.tidegate-gateway:9471",
    )
    services = {each["metadata"]["name"]: each["spec"] for each in documents if each["kind"] == "Service"}
    for part, target in {**settings.targets, "kafka": ()}.items():
        for address in target:
            host, port = address.split(":")
            assert int(port) in {each["port"] for each in services[host.split(".")[-1]]["ports"]}, part
    assert settings.targets["kafka"] == ("kafka-1.example.org:9404",)
    assert settings.page_token_file == "/etc/tidegate/secrets/monitoring/page_token_file/token"
    # Without a canary, nobody waits for its metrics.
    small = copy.deepcopy(SMALL) | {"monitor": {"enabled": True}}
    assert loaded(render(small), tmp_path)["monitor"].monitoring.targets["canary"] == ()


def test_a_part_gets_only_the_secrets_that_it_needs(render: Render) -> None:
    found = {}
    for component, pod in pods(render(WHOLE)):
        (container,) = pod["containers"]
        references = [each.get("valueFrom", {}).get("secretKeyRef") for each in container["env"]]
        named = {each["name"] for each in references if each is not None}
        found[component] = named | {each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
    # The page asks for a token by default, since other pods reach it: tidegate-monitoring.
    assert found == {
        "gateway": {"mqtt-login", "mqtt-ca", "tidegate-gateway", "kafka-ca"},
        "stream": {"kafka-login", "kafka-ca"},
        "monitor": {"mqtt-login", "mqtt-ca", "kafka-login", "kafka-ca", "page", "tidegate-monitoring"},
        "canary": {"mqtt-login", "mqtt-ca"},
    }


def test_a_gateway_restarts_for_cold_settings_only(render: Render) -> None:
    def hashes(change: Callable[[dict[str, Any]], object]) -> dict[str, str]:
        values = copy.deepcopy(WHOLE)
        change(values)
        return {
            each["metadata"]["labels"]["app.kubernetes.io/component"]: each["spec"]["template"]["metadata"][
                "annotations"
            ]["checksum/settings"]
            for each in render(values)
            if each["kind"] in ("StatefulSet", "Deployment")
        }

    before = hashes(lambda values: None)
    hot = hashes(lambda values: values["settings"]["routes"][0].update(decoder="plain"))
    assert {name for name in before if before[name] != hot[name]} == {"monitor"}
    cold = hashes(lambda values: values["settings"]["kafka"].update(linger_ms=5))
    assert {name for name in before if before[name] != cold[name]} == set(before)


def test_rules_and_dashboards_are_rendered_unchanged(render: Render) -> None:
    documents = render(WHOLE)
    (rule,) = (each for each in documents if each["kind"] == "PrometheusRule")
    exported = prometheus_files(MonitoringSettings())["tidegate-rules.yml"]
    assert rule["spec"] == yaml.load(exported, Loader=yaml.CSafeLoader)
    wanted = {
        name.removeprefix("dashboards/"): json.loads(text)
        for name, text in grafana_files(MonitoringSettings()).items()
        if name.endswith(".json")
    }
    found = {
        name: json.loads(text)
        for each in documents
        if each["kind"] == "ConfigMap" and "grafana_dashboard" in each["metadata"]["labels"]
        for name, text in each["data"].items()
    }
    assert found == wanted


def test_a_scrape_has_the_jobs_that_rules_read(render: Render) -> None:
    jobs = {}
    for each in render(WHOLE):
        if each["kind"] == "ServiceMonitor":
            for endpoint in each["spec"]["endpoints"]:
                labels = {rule["targetLabel"]: rule.get("replacement") for rule in endpoint["relabelings"]}
                assert labels["cluster"] == "plant-a"
                jobs[labels["job"]] = endpoint["port"]
    assert jobs == {
        "tidegate-gateway": "metrics", "tidegate-stream": "metrics", "tidegate-canary": "metrics",
        "tidegate-monitor": "page", "tidegate-spark": "jmx",
    }  # fmt: skip


def test_executors_in_pods_need_an_object_store_and_an_image(render: Render, tmp_path: Path) -> None:
    settings = loaded(render(IN_STORE), tmp_path)["stream"].stream
    assert settings.extra["spark.kubernetes.container.image"] == "spark:4.2.0"
    assert settings.extra["spark.driver.host"] == "$(POD_IP)"
    assert settings.extra["spark.executor.cores"] == "2", "the settings win"
    assert settings.extra["spark.kubernetes.executor.podTemplateFile"] == "/etc/tidegate/settings/executor.yaml"
    pod = yaml.safe_load(files(render(IN_STORE), "stream")["executor.yaml"])["spec"]
    assert (pod["automountServiceAccountToken"], pod["securityContext"]["runAsUser"]) == (False, 185)
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "executor.yaml" not in files(render(WHOLE), "stream")
    kinds = {each["kind"] for each in render(IN_STORE)}
    assert {"Role", "RoleBinding"} <= kinds
    assert "PersistentVolumeClaim" not in kinds
    for section, change, words in (
        (
            "settings",
            {"stream": {"master": "k8s://x", "checkpoint": "s3a://b/c"}},
            "needs lake.root and stream.checkpoint",
        ),
        ("stream", {"executors": {"image": ""}}, "needs stream.executors.image"),
    ):
        with pytest.raises(HelmFault, match=words):
            render(IN_STORE | {section: change})


def test_one_node_mounts_a_volume_of_one_writer(render: Render) -> None:
    def near(values: dict[str, Any]) -> set[str]:
        return {component for component, pod in pods(render(values)) if "podAffinity" in pod.get("affinity", {})}

    assert near({}) == {"monitor", "canary"}
    assert near(WHOLE) == {"monitor", "canary"}
    assert near({"storage": {"accessMode": "ReadWriteMany"}}) == set()
    assert near(IN_STORE) == set()


def test_a_policy_lets_out_what_the_settings_name(render: Render) -> None:
    found = {
        each["metadata"]["labels"]["app.kubernetes.io/component"]: {
            port["port"] for rule in each["spec"]["egress"] for port in rule.get("ports", ())
        }
        for each in render(WHOLE)
        if each["kind"] == "NetworkPolicy"
    }
    assert found == {
        "gateway": {53, 443, 8883, 9093, 9094},
        "stream": {53, 443, 9093, 9094},
        "monitor": {53, 443, 8883, 9093, 9094},
        "canary": {53, 443, 8883},
    }


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"settings": {"kafka": {"sasl_password": "hush"}}}, "sasl_password"),
        ({"settings": {"kafka": {"bootstrap_server": "kafka:9092"}}}, "bootstrap_server"),
        ({"gateway": {"replicas": 3}}, "replicas"),
        ({"strimzi": {"topics": {"enabled": True}}}, "strimzi.cluster"),
    ],
)
def test_helm_rejects_values_that_would_not_run(values: dict[str, Any], words: str, render: Render) -> None:
    with pytest.raises(HelmFault, match=words):
        render(values)


def test_notes_name_the_secrets_and_the_next_commands(helm: Callable[..., str], chart: Path, tmp_path: Path) -> None:
    """Without a cluster helm shows no notes, so a copy of the chart has them in a manifest."""
    copied = tmp_path / "tidegate"
    shutil.copytree(chart, copied)
    text = (copied / "templates" / "NOTES.txt").read_text("utf-8")
    (copied / "templates" / "_notes.tpl").write_text('{{- define "notes" -}}' + text + "{{- end -}}", encoding="utf-8")
    (copied / "templates" / "notes.yaml").write_text('notes: {{ include "notes" . | toJson }}\n', encoding="utf-8")
    (tmp_path / "values.yaml").write_text(dump_values(WHOLE), encoding="utf-8")

    def notes(*flags: str) -> str:
        said = helm(
            "template", "tidegate", str(copied), "--namespace", "plant", "--show-only", "templates/notes.yaml", *flags
        )
        return str(yaml.safe_load(said)["notes"])

    whole = notes("--values", str(tmp_path / "values.yaml"))
    assert "kubectl -n plant create secret generic kafka-ca --from-file=ca.crt=FILE\n" in whole
    assert "port-forward service/tidegate-monitor 9470:9470" in whole
    assert "WARNING" not in whole
    assert "WARNING: settings.mqtt.host" in notes()


def test_the_source_of_the_chart_says_how_to_get_the_rest(helm: Callable[..., str]) -> None:
    from deploy.helm.chart_files import CHART

    assert "StatefulSet" in helm("template", "x", str(CHART))
    for part in ("prometheusRule", "dashboards"):
        with pytest.raises(HelmFault, match="tidegate export helm DIR"):
            helm("template", "x", str(CHART), "--set", f"{part}.enabled=true")
