"""The probe `certificates`: expiry of the certificates of the MQTT broker and of Kafka, checked rarely."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from deploy.monitor.certificate_end import certificate_end
from deploy.settings import Settings
from monitoring.metrics.families import Samples
from monitoring.periodic_query import IncompleteError

__all__ = ["CertificateProbe", "tls_servers"]

ASK_SECONDS: Final = 3600.0
ASK_AGAIN_SECONDS: Final = 60.0
KAFKA_PORT: Final = 9092

Address = tuple[str, int]


def tls_servers(settings: Settings) -> dict[str, tuple[Address, ...]]:
    """Return the addresses of servers reached over TLS, by `server` label; empty without any."""
    servers: dict[str, tuple[Address, ...]] = {}
    if settings.mqtt.tls:
        servers["mqtt"] = ((settings.mqtt.host, settings.mqtt.port),)
    if settings.kafka.security_protocol.endswith("SSL"):
        texts = settings.kafka.bootstrap_servers.split(",")
        servers["kafka"] = tuple(_address(text) for text in texts if text.strip())
    return servers


def _address(text: str) -> Address:
    """Parse `host`, `host:port` or `[v6]:port`, each with or without `SSL://`, like the Kafka client."""
    host, _, port = text.strip().rpartition("://")[2].rpartition(":")
    if not port.isdecimal():
        host, port = f"{host}:{port}" if host else port, str(KAFKA_PORT)
    return host.strip("[]"), int(port)


class CertificateProbe:
    """Probe that checks each server once an hour, and after a failure once a minute, however often `look` is called."""

    def __init__(
        self,
        servers: Mapping[str, Sequence[Address]],
        *,
        end_of: Callable[[str, int], float] = certificate_end,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._servers, self._end_of, self._clock = servers, end_of, clock
        self._due: dict[str, float] = {}
        self._ends: dict[str, float] = {}
        self._faults: dict[str, str] = {}

    def look(self) -> Samples:
        """Return the earliest expiry over the addresses of each server; no sample for a server that could not be reached.

        Raises:
            IncompleteError: a certificate cannot be read. Every look raises it until then, since alerts count failed looks.
        """
        for server, addresses in self._servers.items():
            if self._clock() >= self._due.get(server, 0.0):
                self._ask(server, addresses)
        series: list[tuple[tuple[str, ...], float]] = [((server,), end) for server, end in sorted(self._ends.items())]
        samples: Samples = {"tidegate_certificate_expiry_timestamp_seconds": series}
        if self._faults:
            raise IncompleteError("; ".join(fault for _, fault in sorted(self._faults.items())), samples)
        return samples

    def _ask(self, server: str, addresses: Sequence[Address]) -> None:
        ends, faults = [], []
        for host, port in addresses:
            try:
                ends.append(self._end_of(host, port))
            except (OSError, ValueError) as error:
                faults.append(f"the certificate of {server} at {host}:{port} cannot be read: {error}")
        self._ends.pop(server, None)
        self._faults.pop(server, None)
        if ends:
            self._ends[server] = min(ends)
        if faults:
            self._faults[server] = "; ".join(faults)
        self._due[server] = self._clock() + (ASK_AGAIN_SECONDS if faults else ASK_SECONDS)
