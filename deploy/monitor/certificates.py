"""The probe `certificates`: when those of the MQTT broker and of Kafka end, asked rarely."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from deploy.monitor.certificate_end import certificate_end
from deploy.settings import Settings
from monitoring.metrics.families import Samples
from monitoring.poll import IncompleteError

__all__ = ["CertificateProbe", "tls_servers"]

ASK_SECONDS: Final = 3600.0
ASK_AGAIN_SECONDS: Final = 60.0
KAFKA_PORT: Final = 9092

Address = tuple[str, int]


def tls_servers(settings: Settings) -> dict[str, tuple[Address, ...]]:
    """Addresses of the servers that are reached by TLS, by `server` label; empty where none is."""
    servers: dict[str, tuple[Address, ...]] = {}
    if settings.mqtt.tls:
        servers["mqtt"] = ((settings.mqtt.host, settings.mqtt.port),)
    if settings.kafka.security_protocol.endswith("SSL"):
        texts = settings.kafka.bootstrap_servers.split(",")
        servers["kafka"] = tuple(_address(text) for text in texts if text.strip())
    return servers


def _address(text: str) -> Address:
    """`host`, `host:port`, `[v6]:port`, each perhaps with `SSL://` before it, as the Kafka client reads them."""
    host, _, port = text.strip().rpartition("://")[2].rpartition(":")
    if not port.isdecimal():
        host, port = f"{host}:{port}" if host else port, str(KAFKA_PORT)
    return host.strip("[]"), int(port)


class CertificateProbe:
    """May look as often as it likes: each server is asked once an hour, and after a failure once a minute."""

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
        """When each server's certificate ends: the first to end of its addresses. No sample where none could be reached.

        Raises:
            IncompleteError: one cannot be seen. At every look until it can: alerts count looks that failed.
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
                faults.append(f"the certificate of {server} at {host}:{port} cannot be seen: {error}")
        self._ends.pop(server, None)
        self._faults.pop(server, None)
        if ends:
            self._ends[server] = min(ends)
        if faults:
            self._faults[server] = "; ".join(faults)
        self._due[server] = self._clock() + (ASK_AGAIN_SECONDS if faults else ASK_SECONDS)
