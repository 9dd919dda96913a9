"""The chart on a real Kubernetes API server: what the server accepts, admits and authorizes, and a release over its life.

`make kube` builds the server and runs this. Without it, `make test` checks the manifests with schemas (test_deploy_helm.py).
"""

import copy
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.helm.chart_values import dump_values
from tests.support.helm import Document, HelmFault, Render
from tests.support.helm_values import IN_STORE, SETS
from tests.support.kube import KubeServer

Release = Callable[..., str]
ACCOUNT = "system:serviceaccount:plant:tidegate"
TEMPLATE = "/etc/tidegate/settings/executor.yaml"
DRIVER = """
import json, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder
for name, value in json.load(open(sys.argv[1])).items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
sys.stdin.read()
session.stop()
"""
"""A driver of Spark that runs until its standard input ends."""
FREE = {"clusterIP", "clusterIPs"}
"""Fields of a Service that the server chooses for each new one."""


@pytest.fixture
def plant(kube: KubeServer) -> Iterator[KubeServer]:
    """The server with the namespace `plant`, which is empty before and after a test."""
    if kube.ask("GET", "/api/v1/namespaces/plant").status == 404:
        kube.make_namespace("plant")
    yield kube
    for each in contents(kube).values():
        remove(kube, each)
    assert not contents(kube)


@pytest.fixture
def release(plant: KubeServer, helm: Callable[..., str], chart: Path, tmp_path: Path) -> Release:
    """`release("upgrade", values, *flags)` runs this command of helm for the release `tidegate`."""

    def run(command: str, values: dict[str, Any] | None = None, *flags: str) -> str:
        words = [command, "tidegate", *([] if values is None else [str(chart)]), *flags]
        if values is not None:
            file = tmp_path / "values.yaml"
            file.write_text(dump_values(values), encoding="utf-8")
            # An upgrade without a value would keep those of the release.
            words += ["--values", str(file), *(["--reset-values"] if command == "upgrade" else [])]
        return helm(*words, "--namespace", "plant", "--kubeconfig", str(plant.kubeconfig))

    return run


def contents(server: KubeServer) -> dict[tuple[str, str], Document]:
    """What is in the namespace, besides the account that each one has, and the server's own notes about its addresses."""
    found = server.objects("plant")
    return {key: each for key, each in found.items() if key != ("ServiceAccount", "default") and key[0] != "Event"}


def remove(server: KubeServer, document: Document) -> None:
    """Delete an object, and do the work of the controller that protects volume claims in use."""
    path = f"{server.path(document, 'plant')}/{document['metadata']['name']}"
    assert server.ask("DELETE", path).status in (200, 202)
    release_claims(server)


def release_claims(server: KubeServer) -> None:
    base = "/api/v1/namespaces/plant/persistentvolumeclaims"
    for each in server.ask("GET", base).body["items"]:
        if "deletionTimestamp" in each["metadata"]:
            freed = {"metadata": {"finalizers": None}}
            path = f"{base}/{each['metadata']['name']}"
            server.ask("PATCH", path, freed, kind="application/merge-patch+json")


def content(document: Document) -> Document:
    """An object without what the server keeps about its versions."""
    changing = ("resourceVersion", "managedFields")
    return document | {"metadata": {name: each for name, each in document["metadata"].items() if name not in changing}}


def essence(found: dict[tuple[str, str], Document]) -> dict[tuple[str, str], Document]:
    """The objects without what differs between two that were made from one manifest."""
    kept = {}
    for key, each in found.items():
        if key[0] in ("Secret", "PersistentVolumeClaim"):
            continue
        spec = {name: value for name, value in each.get("spec", {}).items() if name not in FREE}
        meta = {name: each["metadata"].get(name) for name in ("name", "labels", "annotations")}
        other = {name: each[name] for name in ("data", "rules", "roleRef", "subjects") if name in each}
        kept[key] = {"metadata": meta, "spec": spec, **other}
    return kept


def missing(wanted: Any, found: Any, where: str = "") -> Iterator[str]:
    """Fields of a manifest that the server did not keep."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for name, value in wanted.items():
            if value in (None, {}, []) and name not in found:
                continue
            yield from missing(value, found.get(name), f"{where}.{name}")
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for index, value in enumerate(wanted):
            yield from missing(value, found[index], f"{where}[{index}]")
    elif wanted != found and str(wanted) != str(found):
        yield f"{where}: {wanted!r} became {found!r}"


def ordered(documents: list[Document]) -> list[Document]:
    """Accounts before what uses them, as helm does it."""
    return sorted(documents, key=lambda each: each["kind"] != "ServiceAccount")


@pytest.mark.parametrize("name", SETS)
def test_the_server_accepts_every_manifest(name: str, plant: KubeServer, render: Render) -> None:
    for each in ordered(render(SETS[name])):
        title = f"{each['kind']} {each['metadata']['name']}"
        tried = plant.create(each, dryRun="All")
        assert (tried.status, tried.warnings) == (201, ()), (title, tried.body.get("message"))
        applied = plant.apply(each)
        assert (applied.status, applied.warnings) == (201, ()), (title, applied.body.get("message"))
        again = plant.apply(each)
        assert content(again.body) == content(applied.body), title
        assert not list(missing(each, plant.read(each).body)), title


@pytest.mark.parametrize("name", SETS)
def test_a_namespace_that_admits_only_restricted_pods_admits_all_of_them(
    name: str, plant: KubeServer, render: Render
) -> None:
    documents = render(SETS[name])
    accounts = [each for each in documents if each["kind"] == "ServiceAccount"]
    accounts += (
        [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "plant"}}] if name == "small" else []
    )
    classes = [
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    ]
    for each in [*accounts, *classes]:
        assert plant.create(each).status in (201, 409)
    workloads = [each for each in documents if each["kind"] in ("Deployment", "StatefulSet")]
    assert workloads
    for each in workloads:
        template = copy.deepcopy(each["spec"]["template"])
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        pod["metadata"]["name"] = f"{each['metadata']['name']}-0"
        made = plant.create(pod)
        assert (made.status, made.warnings) == (201, ()), made.body.get("message")
        mounts = {mount["mountPath"] for mount in made.body["spec"]["containers"][0]["volumeMounts"]}
        has_token = "/var/run/secrets/kubernetes.io/serviceaccount" in mounts
        assert has_token is (name == "in an object store" and each["metadata"]["name"].endswith("-stream"))
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    refused = plant.create(pod, dryRun="All")
    assert refused.status == 403
    assert "PodSecurity" in refused.body["message"]


def test_the_server_refuses_a_field_that_it_does_not_know(plant: KubeServer, render: Render) -> None:
    for kind in ("StatefulSet", "NetworkPolicy", "ServiceMonitor", "KafkaUser"):
        document = next(each for each in render(SETS["whole"]) if each["kind"] == kind)
        document["spec"]["polcyTypes"] = []
        refused = plant.create(document, dryRun="All")
        assert refused.status == 400
        assert "polcyTypes" in refused.body["message"]


def test_helm_installs_and_leaves_only_the_tables(release: Release, plant: KubeServer) -> None:
    assert "is installed as tidegate" in release("install", SETS["whole"], "--dry-run=server")
    assert not contents(plant)
    release("install", SETS["whole"])
    first = contents(plant)
    assert ("StatefulSet", "tidegate-gateway") in first
    release("uninstall")
    release_claims(plant)
    left = contents(plant)
    assert set(left) == {("PersistentVolumeClaim", "tidegate")}
    # A release of the same name takes the tables over.
    release("install", SETS["whole"])
    again = contents(plant)
    claim = ("PersistentVolumeClaim", "tidegate")
    assert again[claim]["metadata"]["uid"] == first[claim]["metadata"]["uid"]
    assert essence(again) == essence(first)
    release("uninstall")


def test_an_upgrade_gives_what_a_new_install_gives(release: Release, plant: KubeServer) -> None:
    fresh = {}
    for name, values in SETS.items():
        release("install", values)
        fresh[name] = essence(contents(plant))
        release("uninstall")
        release_claims(plant)
    default, whole, store, small = SETS
    # Each of the twelve ways from one to another.
    order = [default, whole, default, store, default, small, whole, store, whole, small, store, small, default]
    assert len(set(itertools.pairwise(order))) == 12
    release("install", SETS[order[0]])
    for before, after in itertools.pairwise(order):
        release("upgrade", SETS[after])
        release_claims(plant)
        assert essence(contents(plant)) == fresh[after], f"{before} -> {after}"
    revision = 9  # helm keeps ten
    release("rollback", None, str(revision))
    release_claims(plant)
    assert essence(contents(plant)) == fresh[order[revision - 1]]
    release("uninstall")


def test_a_new_version_of_the_chart_upgrades_in_place(
    release: Release, plant: KubeServer, chart: Path, tmp_path: Path
) -> None:
    release("install", SETS["whole"])
    before = contents(plant)
    file = chart / "Chart.yaml"
    text = file.read_text("utf-8")
    try:
        file.write_text(text.replace("0.1.0", "0.2.0"), encoding="utf-8")
        release("upgrade", SETS["whole"])
    finally:
        file.write_text(text, encoding="utf-8")
    after = contents(plant)
    for key, each in before.items():
        if key[0] != "Secret":
            assert after[key]["metadata"]["uid"] == each["metadata"]["uid"], key
    labels = after["StatefulSet", "tidegate-gateway"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/version"] == "0.2.0"
    release("uninstall")


def test_another_way_to_mount_the_tables_is_refused_as_a_whole(release: Release, plant: KubeServer) -> None:
    release("install", {})
    with pytest.raises(HelmFault, match="spec is immutable"):
        release("upgrade", {"storage": {"accessMode": "ReadWriteMany"}})
    release("rollback")
    release("uninstall")


def test_the_account_of_the_stream_may_do_what_spark_needs_and_nothing_else(
    release: Release, plant: KubeServer
) -> None:
    plant.ask("DELETE", "/api/v1/namespaces/other")
    release("install", IN_STORE)
    needed = {
        "pods": ("get", "list", "watch", "create", "delete", "deletecollection", "patch"),
        "configmaps": ("get", "list", "create", "delete", "deletecollection"),
        "services": ("get", "list", "delete", "deletecollection"),
        "persistentvolumeclaims": ("get", "list", "watch", "create", "patch", "delete", "deletecollection"),
    }
    for resource, verbs in needed.items():
        for verb in verbs:
            assert plant.may("tidegate", verb, resource, "plant"), (verb, resource)
            assert not plant.may("tidegate", verb, resource, "other"), (verb, resource)
    for verb, resource in (
        ("get", "secrets"), ("list", "secrets"), ("create", "pods:exec"), ("create", "pods:ephemeralcontainers"),
        ("update", "pods"), ("create", "services"),
        ("patch", "configmaps"), ("get", "serviceaccounts"), ("create", "serviceaccounts:token"),
        ("create", "rbac.authorization.k8s.io/rolebindings"), ("patch", "apps/statefulsets"), ("create", "apps/deployments"),
    ):  # fmt: skip
        assert not plant.may("tidegate", verb, resource, "plant"), (verb, resource)
    token = plant.token_of("tidegate")
    own = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "spark-exec"}, "data": {"a": "b"}}
    assert plant.create(own, token=token).status == 201
    assert plant.ask("GET", "/api/v1/namespaces/plant/secrets", token=token).status == 403
    assert plant.ask("GET", "/api/v1/namespaces/plant/pods", token=token).status == 200
    assert plant.ask("GET", "/api/v1/namespaces/plant/pods", token="nobody").status == 401
    release("upgrade", {})
    assert plant.ask("GET", "/api/v1/namespaces/plant/pods", token=token).status == 403
    release("uninstall")


def start_driver(plant: KubeServer, documents: list[Document], folder: Path) -> "subprocess.Popen[bytes]":
    """Start Spark's driver with the settings that the chart gives the stream, in the name of its pod."""
    (template,) = (
        each["spec"]["template"]
        for each in documents
        if each["kind"] == "Deployment" and each["metadata"]["name"] == "tidegate-stream"
    )
    pod = copy.deepcopy({"apiVersion": "v1", "kind": "Pod", **template})
    pod["metadata"]["name"] = "tidegate-stream-0"
    assert plant.create(pod).status == 201
    (container,) = pod["spec"]["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    text = (
        variables["TIDEGATE_STREAM__EXTRA"]
        .replace("$(POD_NAME)", "tidegate-stream-0")
        .replace("$(POD_IP)", "127.0.0.1")
    )
    (shape,) = (
        each["data"]["executor.yaml"]
        for each in documents
        if each["kind"] == "ConfigMap" and each["metadata"]["name"] == "tidegate-stream"
    )
    (folder / "executor.yaml").write_text(shape, encoding="utf-8")
    (folder / "token").write_text(plant.token_of("tidegate"), encoding="utf-8")
    spark = {
        **json.loads(text.replace(TEMPLATE, str(folder / "executor.yaml"))),
        "spark.master": f"k8s://{plant.url}",
        "spark.kubernetes.authenticate.caCertFile": str(plant.authority_file),
        "spark.kubernetes.authenticate.oauthTokenFile": str(folder / "token"),
        "spark.driver.port": "0", "spark.driver.blockManager.port": "0", "spark.ui.enabled": "false",
    }  # fmt: skip
    (folder / "spark.json").write_text(json.dumps(spark), encoding="utf-8")
    command = [sys.executable, "-c", DRIVER, str(folder / "spark.json")]
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}
    with (folder / "driver.log").open("wb") as log:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder, env=environment)


def executors(plant: KubeServer) -> list[Document]:
    path = "/api/v1/namespaces/plant/pods"
    return list(plant.ask("GET", path, labelSelector="spark-role=executor").body["items"])


def asked_by_spark(plant: KubeServer) -> list[Document]:
    """What the account of the stream asked of the server, by the server's own log."""
    lines = plant.audit_log.read_text("utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    return [
        each
        for each in events
        if each["user"].get("username") == ACCOUNT
        and each["stage"] == "ResponseComplete"
        and "kubernetes-client" in each.get("userAgent", "")
    ]


def test_spark_has_executors_in_a_namespace_that_admits_only_restricted_pods(
    release: Release, plant: KubeServer, render: Render, wait_until: Callable[..., Any], tmp_path: Path
) -> None:
    release("install", IN_STORE)
    process = start_driver(plant, render(IN_STORE), tmp_path)
    try:
        wait_until(
            lambda: len(executors(plant)) == 2 or process.poll() is not None or refusals(plant),
            seconds=120,
            what="two executors",
        )
        assert not refusals(plant)
        found = executors(plant)
        assert len(found) == 2, (tmp_path / "driver.log").read_text("utf-8")[-3000:]
        for each in found:
            (container,) = each["spec"]["containers"]
            assert container["image"] == "spark:4.2.0"
            assert not [one for one in container["volumeMounts"] if "serviceaccount" in one["mountPath"]]
            assert each["metadata"]["labels"]["app.kubernetes.io/instance"] == "tidegate"
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0, (tmp_path / "driver.log").read_text("utf-8")[-3000:]
    finally:
        process.kill()
        process.wait()
    assert not executors(plant)
    assert not refusals(plant)
    used = {(each["objectRef"]["resource"], each["verb"]) for each in asked_by_spark(plant)}
    assert {("pods", "create"), ("pods", "watch"), ("configmaps", "create")} <= used
    release("uninstall")


def refusals(plant: KubeServer) -> list[str]:
    return [
        f"{each['verb']} {each['objectRef']['resource']}: {each['responseStatus'].get('message', '')}"
        for each in asked_by_spark(plant)
        if each["responseStatus"]["code"] in (400, 401, 403, 422)
    ]
