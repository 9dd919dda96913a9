"""A distribution that somebody else made brings a decoder: by an entry point alone, without a word in our settings."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.decoders import registry
from gateway.decoders.state import DecoderState
from gateway.devtools.decode_file import decode_lines
from gateway.gateway_settings import GatewaySettings, RouteSettings
from ingest.contract.errors import ConfigError

LIMITS = GatewaySettings()
GOOD = '''
from gateway.decoders.shape import Decoded
from gateway.decoders.values import read_value
from ingest.contract.dead_letter import Reject
from ingest.contract.reasons import Reason


def decode(payload, match, limits, received_us):
    """Two bytes: tenths of a degree."""
    if len(payload) != 2:
        return Reject(Reason.UNDECODED, got=f"{len(payload)} bytes", wanted="2 bytes")
    tenths = int.from_bytes(payload, "big", signed=True)
    return Decoded(match.device, [read_value("temperature", tenths / 10, "°C", "$")], message_id="acme:1")


def fail(payload, match, limits, received_us):
    raise RuntimeError("a bug of theirs")


number = 5
'''

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Put a distribution on the path: a module with its source, and what its entry points name."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(source: str, points: str) -> None:
        (tmp_path / "acme_decoders.py").write_text(source, "utf-8")
        info = tmp_path / "acme_decoders-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-decoders\nVersion: 1.0\n", "utf-8")
        (info / "entry_points.txt").write_text(f"[tidegate.decoders]\n{points}\n", "utf-8")
        registry._brought.cache_clear()

    yield install
    sys.modules.pop("acme_decoders", None)
    monkeypatch.undo()
    registry._brought.cache_clear()


def test_a_route_uses_it_like_one_of_ours(install: Install) -> None:
    install(GOOD, "acme-tenths = acme_decoders:decode")
    assert "acme-tenths" in registry.decoder_names()
    route = RouteSettings(filter="acme/{device}/t", device="{device}", decoder="acme-tenths")
    lines = ['{"topic": "acme/d7/t", "payload_base64": "/8Q="}', '{"topic": "acme/d7/t", "payload_base64": "AA=="}']
    good, bad = decode_lines(lines, (route,), LIMITS)
    [reading] = good["readings"]
    assert (reading["device"], reading["metric"], reading["value"], reading["unit"]) == (
        "d7",
        "temperature",
        -6.0,
        "°C",
    )
    assert "flags" not in reading  # its own identity is one
    assert (bad["outcome"], bad["reason"], bad["wanted"]) == ("dead_letter", "undecoded", "2 bytes")


def test_one_that_fails_costs_its_message(install: Install) -> None:
    install(GOOD, "acme-fail = acme_decoders:fail")
    [outcome] = decode_lines(
        ['{"topic": "acme/d7/t", "payload": "x"}'], (RouteSettings(filter="acme/#", decoder="acme-fail"),), LIMITS
    )
    assert (outcome["outcome"], outcome["reason"]) == ("dead_letter", "internal_error")
    assert outcome["got"] == "RuntimeError: a bug of theirs"


def test_ours_win_by_name(install: Install) -> None:
    install(GOOD, "plain = acme_decoders:fail")
    assert registry.make_decoders(DecoderState())["plain"] is not None
    [outcome] = decode_lines(
        ['{"topic": "acme/t", "payload": "5"}'], (RouteSettings(filter="acme/#", decoder="plain"),), LIMITS
    )
    assert outcome["readings"][0]["value"] == 5.0


@pytest.mark.parametrize(
    ("source", "point", "sentence"),
    [
        (
            "import no_such_module",
            "acme_decoders:decode",
            "decoder 'acme' (acme_decoders:decode) cannot be loaded: No module named 'no_such_module'; "
            "fix or remove its package",
        ),
        (
            GOOD,
            "acme_decoders:decod",
            "decoder 'acme' (acme_decoders:decod) cannot be loaded: module 'acme_decoders' has no attribute 'decod'; "
            "fix or remove its package",
        ),
        (
            GOOD,
            "acme_decoders:number",
            "decoder 'acme' (acme_decoders:number) is not a function (payload, match, limits, received_us)",
        ),
    ],
)
def test_a_broken_one_is_one_sentence(install: Install, source: str, point: str, sentence: str) -> None:
    install(source, f"acme = {point}")
    with pytest.raises(ConfigError) as told:
        registry.make_decoders(DecoderState())
    assert str(told.value) == sentence


def test_a_route_that_names_one_which_is_not_installed_is_told_the_names() -> None:
    with pytest.raises(ConfigError, match=r"decoder 'acme-tenths' is unknown .*known: .*kura.*senml"):
        list(decode_lines([], (RouteSettings(filter="acme/#", decoder="acme-tenths"),), LIMITS))
