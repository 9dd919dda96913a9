"""The end of a certificate read from its bytes, and how seldom servers are asked for it."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from deploy.monitor.certificate_probe import CertificateProbe, not_after, tls_servers
from deploy.settings import Settings
from monitoring.periodic_query import IncompleteError

NAME = "tidegate_certificate_expiry_timestamp_seconds"


def certificate(end: datetime) -> bytes:
    """In the form of today; long enough that each length takes two bytes."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x" * 64)])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    made = made.not_valid_before(datetime(2020, 1, 1, tzinfo=UTC)).not_valid_after(end)
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


VERSION = b"\xa0\x03\x02\x01\x02"


def as_version_1(der: bytes) -> bytes:
    """The oldest form, which does not name its version. Its signature is wrong, but nobody checks it."""
    head, lengths = bytes([0x30, 0x82]), (int.from_bytes(der[2:4]) - 5, int.from_bytes(der[6:8]) - 5)
    assert der[:2] == der[4:6] == head and der[8:13] == VERSION
    return head + lengths[0].to_bytes(2) + head + lengths[1].to_bytes(2) + der[13:]


GOOD = certificate(datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC))


@pytest.mark.parametrize(
    ("end", "seconds"),
    [
        (datetime(2021, 1, 2, 3, 4, 5, tzinfo=UTC), 1_609_556_645.0),
        (datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC), 2_524_607_999.0),
        (datetime(2050, 1, 1, tzinfo=UTC), 2_524_608_000.0),
        (datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC), 253_402_300_799.0),
    ],
)
def test_both_forms_of_time_are_read(end: datetime, seconds: float) -> None:
    der = certificate(end)
    assert not_after(der) == not_after(as_version_1(der)) == seconds


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", b"\x30\xff" + b"\xff" * 10, b"\x30\x84\xff\xff\xff\xff", GOOD[:-1], GOOD[:100], GOOD + b"x",
     GOOD.replace(VERSION, VERSION[:-1] + b"\x07"), GOOD.replace(b"491231235959Z", b"4912312359599"),
     GOOD.replace(b"491231235959Z", b"499931235959Z")],
)  # fmt: skip
def test_what_is_no_certificate_is_an_error_and_nothing_else(data: bytes) -> None:
    with pytest.raises(ValueError):
        not_after(data)


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
@given(at=st.integers(0, len(GOOD) - 1), byte=st.integers(0, 255))
def test_no_wrong_byte_is_another_error(at: int, byte: int) -> None:
    with suppress(ValueError):
        assert isinstance(not_after(GOOD[:at] + bytes([byte]) + GOOD[at + 1 :]), float)


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
