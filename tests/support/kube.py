"""A real Kubernetes API server with etcd on loopback: it checks, admits, authorizes and keeps manifests, and runs no pod.

TIDEGATE_KUBE names the folder with both programs; `make kube` builds them. Without the variable the tests are skipped.
"""

import json
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import pytest
import yaml

from deploy.local.ports import choose_port
from deploy.settings_file import write_private
from deploy.testbed.server_process import ServerProcess
from tests.support.authority import Authority
from tests.support.helm import Document
from tests.support.kube_programs import PROGRAMS

__all__ = ["Answer", "KubeServer"]

VARIABLE: Final = "TIDEGATE_KUBE"
CRDS: Final = "TIDEGATE_KUBE_CRDS"
"""A folder with CustomResourceDefinitions that replace the small ones of this module, such as those of the operators."""
READY_SECONDS: Final = 120.0
ADMIN: Final = "admin-token-of-a-test"
_ANY: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "object", "additionalProperties": _TEXT}


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_RELABELING: Final = _object(targetLabel=_TEXT, replacement=_TEXT, sourceLabels=_list(_TEXT))
_ENDPOINT: Final = _object(port=_TEXT, path=_TEXT, interval=_TEXT, relabelings=_list(_RELABELING))
_RULE: Final = _object(
    ("expr",), alert=_TEXT, record=_TEXT, expr=_TEXT, labels=_TEXTS, annotations=_TEXTS,
    **{"for": _TEXT, "keep_firing_for": _TEXT},
)  # fmt: skip
_RESOURCE: Final = _object(
    ("type",),
    type={"type": "string", "enum": ["topic", "group", "cluster", "transactionalId"]},
    name=_TEXT,
    patternType={"type": "string", "enum": ["literal", "prefix"]},
)
_ACL: Final = _object(("resource", "operations"), resource=_RESOURCE, operations=_list(_TEXT), host=_TEXT, type=_TEXT)
_SPECS: Final[Mapping[tuple[str, str], dict[str, Any]]] = {
    ("monitoring.coreos.com", "ServiceMonitor"): _object(
        ("selector", "endpoints"), selector=_object(matchLabels=_TEXTS), endpoints=_list(_ENDPOINT)
    ),
    ("monitoring.coreos.com", "PrometheusRule"): _object(
        groups=_list(_object(("name",), name=_TEXT, interval=_TEXT, rules=_list(_RULE)))
    ),
    ("kafka.strimzi.io", "KafkaTopic"): _object(
        partitions={"type": "integer"}, replicas={"type": "integer"}, config=_ANY, topicName=_TEXT
    ),
    ("kafka.strimzi.io", "KafkaUser"): _object(
        authentication=_object(("type",), type={"type": "string", "enum": ["tls", "tls-external", "scram-sha-512"]}),
        authorization=_object(("type", "acls"), type=_TEXT, acls=_list(_ACL)),
    ),
}
"""The fields that the chart writes; the server refuses any other one."""


class Answer(NamedTuple):
    """What the server says to one request."""

    status: int
    body: Document
    warnings: tuple[str, ...]


class KubeServer:
    """The running server. `kubeconfig` is a file for helm, whose user may do everything."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._folder = folder
        self._etcd, self._server = ServerProcess(folder / "etcd.log"), ServerProcess(folder / "server.log")
        self.audit_log = folder / "audit.log"
        (etcd_port, _), (peer_port, _), (port, _) = choose_port(0), choose_port(0), choose_port(0)
        self.url = f"https://127.0.0.1:{port}"
        authority = Authority(folder / "certificates")
        self.authority_file = authority.file
        self._context = ssl.create_default_context(cafile=str(authority.file))
        self.kubeconfig = self.write_kubeconfig("admin", ADMIN)
        self._paths: dict[tuple[str, str], tuple[str, bool]] = {}
        etcd, peer = f"http://127.0.0.1:{etcd_port}", f"http://127.0.0.1:{peer_port}"
        self._etcd.spawn(
            [
                str(programs / "etcd"), f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync",
                f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}",
                f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
            ]
        )  # fmt: skip
        self._server.spawn([str(programs / "kube-apiserver"), *self._flags(authority, etcd, port)])

    def _flags(self, authority: Authority, etcd: str, port: int) -> list[str]:
        server, accounts = authority.issue("kube-apiserver"), authority.issue("service-accounts")
        tokens = self._folder / "tokens.csv"
        write_private(tokens, f'{ADMIN},admin,admin,"system:masters"\n')
        policy = self._folder / "audit.yaml"
        policy.write_text(
            yaml.safe_dump({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]})
        )
        return [
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1", f"--secure-port={port}", "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/16",
            f"--cert-dir={self._folder}",
            f"--tls-cert-file={server.certificate}", f"--tls-private-key-file={server.key}",
            "--anonymous-auth=false", f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={accounts.certificate}",
            f"--service-account-signing-key-file={accounts.key}",
            f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}",
        ]  # fmt: skip

    def await_ready(self) -> None:
        """Wait until the server answers, with its own roles in place."""
        end, last = time.monotonic() + READY_SECONDS, ""
        while time.monotonic() < end:
            for name, process in (("etcd", self._etcd), ("kube-apiserver", self._server)):
                assert process.alive, f"{name} ended: {process.log()[-2000:]}"
            try:
                with self._open(urllib.request.Request(f"{self.url}/readyz"), ADMIN) as answer:  # noqa: S310
                    if answer.status == 200:
                        return
            except urllib.error.HTTPError as fault:
                last = fault.read().decode()
            except OSError as fault:
                last = str(fault)
            time.sleep(0.1)
        pytest.fail(f"kube-apiserver was not ready in {READY_SECONDS:g} s: {last}")

    def stop(self) -> None:
        """End both."""
        self._server.end(0)
        self._etcd.end(0)

    def write_kubeconfig(self, name: str, token: str) -> Path:
        """A file with which a client is this user."""
        file = self._folder / f"{name}.kubeconfig"
        cluster = {"server": self.url, "certificate-authority": str(self.authority_file)}
        write_private(
            file,
            json.dumps(
                {
                    "apiVersion": "v1", "kind": "Config", "current-context": name,
                    "clusters": [{"name": "test", "cluster": cluster}],
                    "users": [{"name": name, "user": {"token": token}}],
                    "contexts": [{"name": name, "context": {"cluster": "test", "user": name}}],
                }
            ),
        )  # fmt: skip
        return file

    def ask(
        self, method: str, path: str, body: Document | None = None, *, token: str = ADMIN, kind: str = "", **query: str
    ) -> Answer:
        """One request; a refusal is an answer too."""
        address = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address, data=data, method=method)  # noqa: S310
        request.add_header("Content-Type", kind or "application/json")
        try:
            with self._open(request, token) as answer:
                return _answer(answer.status, answer.read(), answer.headers.get_all("Warning"))
        except urllib.error.HTTPError as fault:
            return _answer(fault.code, fault.read(), fault.headers.get_all("Warning"))

    def create(self, document: Document, namespace: str = "plant", *, token: str = ADMIN, **query: str) -> Answer:
        """Create an object; the server refuses fields that it does not know."""
        return self.ask(
            "POST", self.path(document, namespace), document, token=token, **{"fieldValidation": "Strict", **query}
        )

    def apply(self, document: Document, namespace: str = "plant", *, token: str = ADMIN, **query: str) -> Answer:
        """Apply an object on the server's side, as `kubectl apply --server-side` does."""
        path = f"{self.path(document, namespace)}/{quote(document['metadata']['name'])}"
        query = {"fieldValidation": "Strict", "fieldManager": "test", **query}
        return self.ask("PATCH", path, document, token=token, kind="application/apply-patch+yaml", **query)

    def read(self, document: Document, namespace: str = "plant") -> Answer:
        """The object of this kind and name that the server has."""
        return self.ask("GET", f"{self.path(document, namespace)}/{quote(document['metadata']['name'])}")

    def path(self, document: Document, namespace: str) -> str:
        """Where objects of this kind are."""
        version, kind = document["apiVersion"], document["kind"]
        base = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        if (version, kind) not in self._paths:
            for each in self.ask("GET", base).body.get("resources", ()):
                if "/" not in each["name"]:
                    self._paths[version, each["kind"]] = (each["name"], each["namespaced"])
        name, namespaced = self._paths[version, kind]
        return f"{base}/namespaces/{namespace}/{name}" if namespaced else f"{base}/{name}"

    def objects(self, namespace: str) -> dict[tuple[str, str], Document]:
        """All objects of a namespace that are not about to go, by kind and name."""
        found = {}
        groups = [each["versions"][0]["groupVersion"] for each in self.ask("GET", "/apis").body["groups"]]
        for version in ("v1", *groups):
            base = f"/api/{version}" if version == "v1" else f"/apis/{version}"
            for each in self.ask("GET", base).body.get("resources", ()):
                if "/" in each["name"] or not each["namespaced"] or "list" not in each["verbs"]:
                    continue
                listed = self.ask("GET", f"{base}/namespaces/{namespace}/{each['name']}").body
                for one in listed.get("items", ()):
                    if "deletionTimestamp" not in one["metadata"]:
                        found[each["kind"], one["metadata"]["name"]] = {
                            "apiVersion": version,
                            "kind": each["kind"],
                            **one,
                        }
        return found

    def make_namespace(self, name: str) -> None:
        """A namespace that admits only pods of the restricted standard, with the account that a controller would make."""
        labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
        made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        assert self.create(made).status == 201
        assert self.create(account, name).status == 201

    def may(self, account: str, verb: str, resource: str, namespace: str) -> bool:
        """Ask the server's authorizer about a service account of this namespace.

        Args:
            account: its name.
            verb: what it would do.
            resource: `PLURAL`, `GROUP/PLURAL` or `PLURAL:SUBRESOURCE`.
            namespace: of the object; the account is in "plant".
        """
        group, _, plural = resource.rpartition("/")
        plural, _, part = plural.partition(":")
        asked = {"verb": verb, "group": group, "resource": plural, "subresource": part, "namespace": namespace}
        spec = {
            "user": f"system:serviceaccount:plant:{account}",
            "groups": ["system:serviceaccounts", "system:serviceaccounts:plant", "system:authenticated"],
            "resourceAttributes": asked,
        }
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        return bool(self.create(review).body["status"]["allowed"])

    def token_of(self, account: str, namespace: str = "plant") -> str:
        """A token of a service account, as a pod gets it."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        return str(self.ask("POST", path, asked).body["status"]["token"])

    def _open(self, request: urllib.request.Request, token: str) -> Any:
        request.add_header("Authorization", f"Bearer {token}")
        return urllib.request.urlopen(request, timeout=60, context=self._context)  # noqa: S310


def _answer(status: int, text: bytes, warnings: list[str] | None) -> Answer:
    try:
        body = json.loads(text)
    except ValueError:
        body = {"message": text.decode(errors="replace")}
    return Answer(status, body, tuple(warnings or ()))


def _definitions() -> Iterator[Document]:
    """CustomResourceDefinitions of Strimzi and Prometheus Operator."""
    if folder := os.environ.get(CRDS):
        for file in sorted(Path(folder).glob("*.yaml")):
            yield yaml.load(file.read_text("utf-8"), Loader=yaml.CSafeLoader)
        return
    for (group, kind), spec in _SPECS.items():
        plural = f"{kind.lower()}s"
        schema = _object(("spec",), spec=spec)
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
        yield {
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [version]},
        }  # fmt: skip


@pytest.fixture(scope="session")
def kube(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeServer]:
    """See `KubeServer`."""
    named = os.environ.get(VARIABLE)
    if not named:
        pytest.skip(f"{VARIABLE} names no folder with {' and '.join(PROGRAMS)}: `make kube` builds them and runs this")
    away = [name for name in PROGRAMS if not (Path(named) / name).is_file()]
    if away:
        pytest.fail(f"{VARIABLE} is {named}, which lacks {' and '.join(away)}")
    server = KubeServer(Path(named), tmp_path_factory.mktemp("kube"))
    try:
        server.await_ready()
        for each in _definitions():
            assert server.create(each).status == 201
            path = f"{server.path(each, '')}/{each['metadata']['name']}"
            _await_served(server, path)
        yield server
    finally:
        server.stop()


def _await_served(server: KubeServer, path: str) -> None:
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        conditions = server.ask("GET", path).body.get("status", {}).get("conditions") or ()
        if any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
            return
        time.sleep(0.1)
    pytest.fail(f"{path} was not served in {READY_SECONDS:g} s")
