"""Settings of the exporters, of the monitor with its ops page, and of the objectives that alerts hold the pipeline to."""

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from monitoring.addresses import parse_address
from monitoring.metrics.buckets import LATENCY_BUCKETS

__all__ = ["MonitoringSettings", "Part"]

LEAST_AUDIT_SECONDS: Final = 30.0
MOST_GROUPS: Final = 20
"""Each has a client of its own in the monitor, and series per partition."""
LONGEST_GROUP: Final = 255


Part = Literal["gateway", "stream", "canary", "monitor", "kafka", "spark"]
"""Who has `/metrics`."""


class MonitoringSettings(BaseModel):
    """Where each process serves `/metrics` and `/healthz`, and what the monitor watches.

    Port 0 takes a free one, which nobody else knows: such a part is not watched, and nothing alarms about it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="Address to bind for the page; loopback unless the network is trusted.")
    metrics_host: str = Field(
        "127.0.0.1",
        description="Address to bind for /metrics and /healthz of the parts and the JVM agents, apart from the page's.",
    )
    page_port: int = Field(9470, ge=0, le=65535, description="The ops page, and the monitor's own /metrics.")
    gateway_port: int = Field(9471, ge=0, le=65535, description="Of the gateway's /metrics; 0 = not watched.")
    stream_port: int = Field(9472, ge=0, le=65535, description="Of the stream's /metrics; 0 = not watched.")
    canary_port: int = Field(
        9473, ge=0, le=65535, description="Of the canary's /metrics; 0 = not watched, for who runs no canary."
    )
    kafka_jmx_port: int = Field(
        0, ge=0, le=65535, description="Of the JMX agent in Kafka on this host; 0 = none. An embedded run sets it."
    )
    spark_jmx_port: int = Field(
        0, ge=0, le=65535, description="Of the JMX agent in Spark's driver; 0 = no agent. An embedded run sets it."
    )
    bench_port: int = Field(
        0, ge=0, le=65535, description="Of `bench run --metrics-port` on this host, for Prometheus; 0 = not asked."
    )
    targets: dict[Part, tuple[str, ...]] = Field(
        default_factory=dict,
        description="Addresses (host:port or URL) of the parts that are not at the ports above; [] = not watched.",
    )
    page_hosts: tuple[str, ...] = Field(
        (), description="Host names under which browsers may open the page, besides loopback and `host`."
    )
    page_token_file: str | None = Field(
        None, description="File whose first line allows redrives from the page; without it the page only shows."
    )
    # The upper bounds keep what is judged whole: rates need two answers within 10 s, alerts several within their windows.
    look_seconds: float = Field(2.0, ge=0.5, le=5, description="How often the monitor looks at the parts.")
    jmx_seconds: float = Field(
        10.0, ge=1, le=60, description="How often it looks at the JVMs: their answer costs more."
    )
    tables_seconds: float = Field(
        15.0, ge=1, le=300, description="How often it asks the tables for devices and totals."
    )
    audit_seconds: float = Field(
        600.0, ge=0, le=7200, description="How often it proves the balance of what came in, 30 or more; 0 never."
    )
    consumer_groups: tuple[str, ...] = Field(
        (),
        max_length=MOST_GROUPS,
        description="Kafka groups of your own programs, whose lag in Tidegate's topics is watched once they committed offsets.",
    )
    freshness_seconds: float = Field(
        2.5, gt=0, description="A canary reading is in time when it is queryable this long after it was published."
    )
    freshness_objective: float = Field(0.99, gt=0, lt=1, description="Share of canary readings that are in time.")
    validity_objective: float = Field(0.98, gt=0, lt=1, description="Share of messages that are not refused.")
    prometheus_url: str | None = Field(None, description="Prometheus whose alerts the page shows beside its own.")
    alertmanager_url: str | None = Field(
        None, description="For silences on the page, and whom an exported Prometheus tells."
    )
    runbook_base_url: str | None = Field(
        None, description="Where the runbooks are read from alerts; by default the page itself (/runbooks)."
    )

    @field_validator("targets")
    @classmethod
    def _are_addresses(cls, targets: dict[Part, tuple[str, ...]]) -> dict[Part, tuple[str, ...]]:
        """Told when settings are read, and not when the first look fails."""
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
                msg = "it begins with http:// or https://"
                raise ValueError(msg)
            parse_address(url)
        return url

    @field_validator("consumer_groups")
    @classmethod
    def _are_groups(cls, groups: tuple[str, ...]) -> tuple[str, ...]:
        """Names go into labels and to Kafka as they stand; a blank too many names a group that nobody has."""
        for name in groups:
            if not 0 < len(name) <= LONGEST_GROUP or name != name.strip() or not name.isprintable():
                msg = f"{name!r} is no name of a consumer group; write the `group.id` of the program as it stands there"
                raise ValueError(msg)
        return groups

    @field_validator("audit_seconds")
    @classmethod
    def _is_a_pause(cls, seconds: float) -> float:
        if 0 < seconds < LEAST_AUDIT_SECONDS:
            msg = f"{seconds:g} s is too often for an audit; use {LEAST_AUDIT_SECONDS:g} or more, or 0 for none"
            raise ValueError(msg)
        return seconds

    @field_validator("freshness_seconds")
    @classmethod
    def _is_a_bound(cls, seconds: float) -> float:
        """Only at a bound of the histogram is "in time" counted and not guessed."""
        if seconds not in LATENCY_BUCKETS:
            bounds = ", ".join(f"{bound:g}" for bound in LATENCY_BUCKETS)
            msg = f"{seconds:g} s is no bound of the latency histogram; use one of {bounds}"
            raise ValueError(msg)
        return seconds
