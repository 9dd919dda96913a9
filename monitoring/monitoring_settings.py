"""Settings of the exporters, of the monitor with its ops page, and of the objectives that the alerts watch."""

import re
from ipaddress import ip_network
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from monitoring.addresses import parse_address
from monitoring.metrics.buckets import LATENCY_BUCKETS

__all__ = ["MonitoringSettings", "Part"]

LEAST_AUDIT_SECONDS: Final = 30.0
MOST_GROUPS: Final = 20
"""Each group needs its own client in the monitor, and has series per partition."""
LONGEST_GROUP: Final = 255
_HEADER: Final = re.compile("[A-Za-z][A-Za-z0-9-]*")

Part = Literal["gateway", "stream", "canary", "monitor", "kafka", "spark"]
"""Parts that serve `/metrics`."""


class MonitoringSettings(BaseModel):
    """Addresses of `/metrics` and `/healthz`, the monitor's intervals, and the objectives.

    A part whose port is 0 takes a free port that no other part knows. The monitor does not watch such a part and raises no
    alert about it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field(
        "127.0.0.1",
        description="Address on which the ops page listens. Any other address than loopback needs a login: read_token_file, "
        "or proxy_user_header with proxy_addresses.",
    )
    metrics_host: str = Field(
        "127.0.0.1",
        description="Address on which the parts and the JVM agents serve /metrics and /healthz. It is independent of the "
        "page's address.",
    )
    page_port: int = Field(9470, ge=0, le=65535, description="Port of the ops page and of the monitor's own /metrics.")
    gateway_port: int = Field(9471, ge=0, le=65535, description="Port of the gateway's /metrics. 0: not watched.")
    stream_port: int = Field(9472, ge=0, le=65535, description="Port of the stream's /metrics. 0: not watched.")
    canary_port: int = Field(
        9473,
        ge=0,
        le=65535,
        description="Port of the canary's /metrics. Set 0 (not watched) if you do not run a canary.",
    )
    kafka_jmx_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="Port of the JMX agent in a Kafka on this host. 0: no agent. An embedded run sets it.",
    )
    spark_jmx_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="Port of the JMX agent in Spark's driver. 0: no agent. An embedded run sets it.",
    )
    bench_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="Port of `bench run --metrics-port` on this host, for the exported Prometheus configuration. 0: not "
        "scraped.",
    )
    targets: dict[Part, tuple[str, ...]] = Field(
        default_factory=dict,
        description="Addresses (host:port or URL) of parts that are not at the ports above. []: not watched.",
    )
    page_hosts: tuple[str, ...] = Field(
        (), description="Host names under which browsers may open the page, in addition to loopback and `host`."
    )
    page_token_file: str | None = Field(
        None,
        description="File whose first line is the token that allows to read the page and to redrive from it. Without it the "
        "page only shows.",
    )
    read_token_file: str | None = Field(
        None,
        description="File whose first line is the token that allows to read the page, and no more. With it, reading needs a "
        "login.",
    )
    proxy_user_header: str | None = Field(
        None,
        description="Header in which a proxy with a login of its own names the user, such as X-Forwarded-User. With it, "
        "reading needs a login. It counts only from proxy_addresses.",
    )
    proxy_addresses: tuple[str, ...] = Field(
        (), description="Addresses or networks of the proxies whose proxy_user_header is trusted, such as 10.0.0.5."
    )
    proxy_write_users: tuple[str, ...] = Field(
        (), description="Users in proxy_user_header who may redrive from the page. All others only read."
    )
    # The upper bounds keep what is judged whole: rates need two answers within 10 s, alerts several within their windows.
    look_seconds: float = Field(2.0, ge=0.5, le=5, description="Seconds between two scrapes of the parts.")
    jmx_seconds: float = Field(
        10.0, ge=1, le=60, description="Seconds between two scrapes of the JVM agents, whose answers cost more."
    )
    tables_seconds: float = Field(
        15.0, ge=1, le=300, description="Seconds between two queries of the tables for devices and totals."
    )
    audit_seconds: float = Field(
        600.0, ge=0, le=7200, description="Seconds between two audits by the monitor: 30 or more, or 0 for none."
    )
    state_dir: str | None = Field(
        None,
        description="Folder in which the monitor keeps the finding of its audit. Default: the folder of the settings file.",
    )
    consumer_groups: tuple[str, ...] = Field(
        (),
        max_length=MOST_GROUPS,
        description="Kafka consumer groups of your own programs, at most 20. Their lag in Tidegate's topics is watched as soon "
        "as they have committed offsets.",
    )
    freshness_seconds: float = Field(
        2.5,
        gt=0,
        description="Seconds within which a published canary reading must be queryable to be in time. It must be a bound of "
        "the latency histogram.",
    )
    freshness_objective: float = Field(
        0.99, gt=0, lt=1, description="Share of canary readings that must be in time. Alerts watch it."
    )
    validity_objective: float = Field(
        0.98, gt=0, lt=1, description="Share of devices' messages that must not be rejected. Alerts watch it."
    )
    prometheus_url: str | None = Field(
        None, description="URL of a Prometheus. The page shows its alerts next to its own."
    )
    alertmanager_url: str | None = Field(
        None,
        description="URL of an Alertmanager. Alerts on the page link to its form for a new silence, and an exported Prometheus "
        "sends its alerts there.",
    )
    runbook_base_url: str | None = Field(
        None,
        description="URL under which alerts link to the runbooks. Default: the page itself (/runbooks).",
    )

    @field_validator("targets")
    @classmethod
    def _are_addresses(cls, targets: dict[Part, tuple[str, ...]]) -> dict[Part, tuple[str, ...]]:
        """Reject a wrong address when settings are read, not at the first scrape."""
        for part, given in targets.items():
            for text in given:
                try:
                    parse_address(text)
                except ValueError as error:
                    msg = f"{part}: {error}"
                    raise ValueError(msg) from None
        return targets

    @field_validator("prometheus_url", "alertmanager_url")
    @classmethod
    def _is_a_url(cls, url: str | None) -> str | None:
        if url is not None:
            if "://" not in url:
                msg = "wanted a URL that begins with http:// or https://"
                raise ValueError(msg)
            parse_address(url)
        return url

    @field_validator("proxy_user_header")
    @classmethod
    def _is_a_header(cls, name: str | None) -> str | None:
        if name is not None and (not _HEADER.fullmatch(name) or name.lower() in ("authorization", "cookie", "host")):
            msg = f"{name!r} cannot name the user; use the header that the proxy sets, such as X-Forwarded-User"
            raise ValueError(msg)
        return name

    @field_validator("proxy_addresses")
    @classmethod
    def _are_networks(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        for text in addresses:
            try:
                ip_network(text, strict=False)
            except ValueError:
                msg = f"{text!r} is not an address or a network; use a form such as 10.0.0.5 or 10.0.0.0/24"
                raise ValueError(msg) from None
        return addresses

    @model_validator(mode="after")
    def _is_a_whole_proxy(self) -> Self:
        """Reject a header that anybody could send, and users whom no header can name."""
        if (self.proxy_user_header is None) != (not self.proxy_addresses):
            msg = "set proxy_user_header and proxy_addresses together: the header is trusted only from these addresses"
            raise ValueError(msg)
        if self.proxy_write_users and self.proxy_user_header is None:
            msg = "proxy_write_users needs proxy_user_header and proxy_addresses"
            raise ValueError(msg)
        return self

    @field_validator("consumer_groups")
    @classmethod
    def _are_groups(cls, groups: tuple[str, ...]) -> tuple[str, ...]:
        """Reject names that cannot be a group's: they become labels and go to Kafka unchanged."""
        for name in groups:
            if not 0 < len(name) <= LONGEST_GROUP or name != name.strip() or not name.isprintable():
                msg = f"{name!r} is not a name of a consumer group; write the `group.id` of the program exactly"
                raise ValueError(msg)
        return groups

    @field_validator("audit_seconds")
    @classmethod
    def _is_a_pause(cls, seconds: float) -> float:
        if 0 < seconds < LEAST_AUDIT_SECONDS:
            msg = f"{seconds:g} s between audits is too short; use {LEAST_AUDIT_SECONDS:g} or more, or 0 for none"
            raise ValueError(msg)
        return seconds

    @field_validator("freshness_seconds")
    @classmethod
    def _is_a_bound(cls, seconds: float) -> float:
        """Require a bound of the histogram: only there can readings in time be counted exactly."""
        if seconds not in LATENCY_BUCKETS:
            bounds = ", ".join(f"{bound:g}" for bound in LATENCY_BUCKETS)
            msg = f"{seconds:g} s is not a bound of the latency histogram; use one of {bounds}"
            raise ValueError(msg)
        return seconds
