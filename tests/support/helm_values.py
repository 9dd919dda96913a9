"""Values of the Helm chart that tests render and install: the default ones, all options, an object store, and a small release."""

from collections.abc import Iterator
from typing import Any

from tests.support.helm import Document

__all__ = ["CUSTOM", "IN_STORE", "SETS", "SMALL", "WHOLE", "pods"]

SECRET = {"name": "kafka-login", "key": "password"}
WHOLE: dict[str, Any] = {
    "settings": {
        "mqtt": {"host": "mqtt.example.org", "port": 8883, "tls": True, "username": "tidegate"},
        "kafka": {
            "bootstrap_servers": "kafka-1.example.org:9093,kafka-2.example.org:9094",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": "tidegate",
            "retention_bytes": 10_737_418_240,
        },
        "monitoring": {"spark_jmx_port": 9475, "targets": {"kafka": ["kafka-1.example.org:9404"]}},
        "routes": [{"filter": "site/{site}/{device}", "device": "{device}", "tags": {"site": "{site}"}, "decoder": "json"}],
    },
    "secrets": {
        "mqtt": {"password": {"name": "mqtt-login", "key": "password"}, "ca_file": {"name": "mqtt-ca", "key": "ca.crt"}},
        "kafka": {"sasl_password": SECRET, "ssl_ca_file": {"name": "kafka-ca", "key": "ca.crt"}},
        "monitoring": {"page_token_file": {"name": "page", "key": "token"}},
    },
    "gateway": {
        "members": [
            {"id": "east", "clientId": "tidegate-east", "subscriptions": ["site/east/#"]},
            {
                "id": "west", "clientId": "tidegate-west", "subscriptions": ["site/west/#", "hall/#"],
                "settings": {"gateway": {"window_messages": 20}},
            },
        ],
        "settings": {"kafka": {"sasl_username": "tidegate-gateway"}},
        "secrets": {"kafka": {"sasl_password": {"name": "tidegate-gateway", "key": "password"}}},
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
        "extraVolumes": [{"name": "profiles", "configMap": {"name": "profiles"}}],
        "extraVolumeMounts": [{"name": "profiles", "mountPath": "/etc/tidegate/profiles"}],
        "podLabels": {"team": "plant"},
        "podAnnotations": {"example.org/note": "x"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "plant", "operator": "Exists"}],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
        ],
        "priorityClassName": "high",
    },
    "monitor": {"persistence": {"enabled": True}, "affinity": {"nodeAffinity": {}}},
    "image": {"pullSecrets": ["registry"], "digest": "sha256:" + "0" * 64},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "cluster": "plant-a"},
    "prometheusRule": {"enabled": True},
    "dashboards": {"enabled": True},
    "networkPolicy": {
        "enabled": True,
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "restrictEgress": True,
        "extraEgress": [{"ports": [{"protocol": "TCP", "port": 443}]}],
    },
    "strimzi": {"cluster": "plant", "topics": {"enabled": True}, "users": {"enabled": True}},
}  # fmt: skip
IN_STORE: dict[str, Any] = {
    "settings": {
        "lake": {"root": "s3a://lake/tables"},
        "stream": {
            "checkpoint": "s3a://lake/points",
            "master": "k8s://https://kubernetes.default.svc",
            "extra": {"spark.executor.cores": "2"},
        },
    },
    "stream": {"executors": {"image": "spark:4.2.0"}},
    "networkPolicy": {"enabled": True},
}  # fmt: skip
SMALL: dict[str, Any] = {
    "monitor": {"enabled": False},
    "canary": {"enabled": False},
    "serviceAccount": {"create": False, "name": "plant"},
    "storage": {"existingClaim": "lake"},
    "fullnameOverride": "tg",
}
SETS = {"default": {}, "whole": WHOLE, "in an object store": IN_STORE, "small": SMALL}
CUSTOM = {"ServiceMonitor", "PrometheusRule", "KafkaTopic", "KafkaUser"}


def pods(documents: list[Document]) -> Iterator[tuple[str, Document]]:
    """Component and pod specification of each workload."""
    for each in documents:
        if each["kind"] in ("StatefulSet", "Deployment"):
            yield each["metadata"]["labels"]["app.kubernetes.io/component"], each["spec"]["template"]["spec"]
