"""The end of a certificate read from its bytes, and how seldom servers are asked for it."""

from typing import Any

import pytest

from deploy.monitor.certificate_probe import CertificateProbe, not_after, tls_servers
from deploy.settings import Settings
from monitoring.periodic_query import IncompleteError

NAME = "tidegate_certificate_expiry_timestamp_seconds"


def element(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([0x82]) + size.to_bytes(2, "big")
    return bytes([tag]) + length + content


def certificate(end: bytes, *, version: bool = True, issuer_bytes: int = 10) -> bytes:
    head = element(0xA0, element(2, b"\x02")) if version else b""
    begin = element(0x17, b"200101000000Z")
    fields = element(2, b"\x01") + element(0x30, b"") + element(0x30, b"x" * issuer_bytes) + element(0x30, begin + end)
    return element(0x30, element(0x30, head + fields + element(0x30, b"subject")) + element(0x30, b"signature"))


@pytest.mark.parametrize(
    ("end", "seconds"),
    [
        (element(0x17, b"210102030405Z"), 1_609_556_645.0),
        (element(0x17, b"491231235959Z"), 2_524_607_999.0),
        (element(0x17, b"700101000000Z"), 0.0),
        (element(0x18, b"20810101000000Z"), 3_502_915_200.0),
        (element(0x18, b"99991231235959Z"), 253_402_300_799.0),
    ],
)
def test_both_forms_of_time_are_read(end: bytes, seconds: float) -> None:
    for version in (True, False):
        assert not_after(certificate(end, version=version, issuer_bytes=500)) == seconds


def test_what_is_no_certificate_is_an_error_and_nothing_else() -> None:
    good = certificate(element(0x17, b"210102030405Z"))
    cut = [good[:size] for size in range(len(good) - 15)]
    odd = [
        b"\x30\xff" + b"\xff" * 10,
        b"\x30\x84\xff\xff\xff\xff",
        b"hello",
        certificate(element(0x04, b"210102030405Z")),
    ]
    bad_time = [certificate(element(0x17, text)) for text in (b"", b"2101020304Z", b"219902030405Z", b"\xff" * 13)]
    for data in cut + odd + bad_time:
        with pytest.raises(ValueError):
            not_after(data)


def test_only_servers_that_are_reached_by_tls_are_asked() -> None:
    def servers(**more: Any) -> dict[str, Any]:
        return tls_servers(Settings.model_validate(more))

    assert servers() == {}
    assert servers(mqtt={"host": "broker", "port": 8883, "tls": True}) == {"mqtt": (("broker", 8883),)}
    kafka = {"bootstrap_servers": "a:9093, SSL://b:9094,[::1]:9095,c", "security_protocol": "SSL"}
    assert servers(kafka=kafka) == {"kafka": (("a", 9093), ("b", 9094), ("::1", 9095), ("c", 9092))}


class Servers:
    """Ends of certificates by host; one that is not here does not answer."""

    def __init__(self, **ends: float) -> None:
        self.ends, self.asked, self.now = ends, 0, 0.0

    def end_of(self, host: str, _port: int) -> float:
        self.asked += 1
        if host not in self.ends:
            raise ConnectionRefusedError(host)
        return self.ends[host]

    def probe(self, *hosts: str) -> CertificateProbe:
        servers = {"kafka": [(host, 1) for host in hosts]}
        return CertificateProbe(servers, end_of=self.end_of, clock=lambda: self.now)


def test_the_first_to_end_counts_and_is_asked_once_an_hour() -> None:
    servers = Servers(a=200.0, b=100.0)
    probe = servers.probe("a", "b")
    for servers.now in (0.0, 60.0, 3599.0):
        assert probe.look() == {NAME: [(("kafka",), 100.0)]}
    assert servers.asked == 2
    servers.ends["b"], servers.now = 900.0, 3600.0
    assert probe.look() == {NAME: [(("kafka",), 200.0)]}


def test_one_that_does_not_answer_has_no_sample_and_is_asked_again_sooner() -> None:
    servers = Servers(a=200.0, b=300.0)
    probe = servers.probe("a", "b")
    assert probe.look() == {NAME: [(("kafka",), 200.0)]}
    servers.ends, servers.now = {}, 3600.0
    assert seen(probe) == []
    servers.ends, servers.now = {"a": 50.0, "b": 70.0}, 3659.0
    assert seen(probe) == []
    servers.now = 3660.0
    assert probe.look() == {NAME: [(("kafka",), 50.0)]}


def seen(probe: CertificateProbe) -> object:
    """What a look that counts as failed has seen."""
    with pytest.raises(IncompleteError, match="kafka at b:1 cannot be read: b") as told:
        probe.look()
    return told.value.answer[NAME]


def test_a_certificate_that_cannot_be_seen_is_a_fault_at_every_look_and_takes_no_other_along() -> None:
    servers = Servers(a=200.0)
    kafka = [("a", 1), ("b", 1)]
    probe = CertificateProbe({"kafka": kafka, "mqtt": [("a", 1)]}, end_of=servers.end_of, clock=lambda: servers.now)
    for servers.now in (0.0, 15.0, 30.0):
        assert seen(probe) == [(("kafka",), 200.0), (("mqtt",), 200.0)]
    assert servers.asked == 3, "counted at each look, asked once a minute"
    servers.ends["b"], servers.now = 100.0, 60.0
    assert probe.look() == {NAME: [(("kafka",), 100.0), (("mqtt",), 200.0)]}
