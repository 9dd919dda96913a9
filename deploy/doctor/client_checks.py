"""Findings about names: whether another client uses this gateway's MQTT session or its gateway id.

The broker cannot be asked: connecting with the gateway's client id would end a running gateway. So these checks read what the
gateways write to Kafka about themselves.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from deploy.local.preflight import PreflightCheck
from deploy.settings import Settings
from gateway.memory.known_gateways import is_alive
from gateway.memory.restart_state import SessionRecord
from gateway.mqtt.session_text import session_name

__all__ = ["check_clients", "filters_of_others"]

_OWN_IDS: Final = ("tidegate-canary",)
"""Client ids of other parts of Tidegate."""


def check_clients(
    settings: Settings, gateways: Mapping[str, SessionRecord], *, now_ms: int
) -> Iterator[PreflightCheck]:
    """Yield the findings about the client id and the gateway id.

    Args:
        settings: of this gateway.
        gateways: records of all gateways, by id.
        now_ms: of this machine's clock.
    """
    client_id, gateway_id = settings.mqtt.client_id, settings.gateway.gateway_id
    session = session_name(settings.mqtt)
    alive = {name: record for name, record in gateways.items() if is_alive(record, now_ms)}
    found = [*_same_session(session, gateway_id, alive), *_same_id(session, gateway_id, alive)]
    if client_id in _OWN_IDS:
        text = f"mqtt.client_id {client_id} is the client id of another part of Tidegate"
        found.append(PreflightCheck("client id", "fail", text, "Set another mqtt.client_id."))
    found += _session_file(settings, session)
    yield from found
    if not found:
        running = alive.get(gateway_id)
        state = f"used by this gateway, which runs as {running.process}" if running else "not used by a running gateway"
        yield PreflightCheck("client id", "ok", f"{client_id}: {state}")


def filters_of_others(
    settings: Settings, gateways: Mapping[str, SessionRecord], *, now_ms: int
) -> dict[str, tuple[str, ...]]:
    """Return the filters of the other running gateways at the same broker."""
    place = session_name(settings.mqtt).partition("@")[2]
    return {
        name: record.filters
        for name, record in gateways.items()
        if name != settings.gateway.gateway_id
        and record.filters
        and is_alive(record, now_ms)
        and record.session.partition("@")[2] == place
    }


def _same_session(session: str, gateway_id: str, alive: Mapping[str, SessionRecord]) -> Iterator[PreflightCheck]:
    for name, record in alive.items():
        if name != gateway_id and record.session == session:
            text = f"the running gateway {name} uses the MQTT session {session} too: the broker would disconnect one of the two"
            yield PreflightCheck("client id", "fail", text, "Give each gateway its own mqtt.client_id.")


def _same_id(session: str, gateway_id: str, alive: Mapping[str, SessionRecord]) -> Iterator[PreflightCheck]:
    record = alive.get(gateway_id)
    if record is not None and record.session != session:
        text = f"another gateway with gateway.gateway_id {gateway_id} runs ({record.process}, MQTT session {record.session})"
        yield PreflightCheck(
            "client id", "fail", text, "Give each gateway its own gateway.gateway_id, or stop the other one."
        )


def _session_file(settings: Settings, session: str) -> Iterator[PreflightCheck]:
    if settings.mqtt.session_file is None:
        return
    try:
        kept = json.loads(Path(settings.mqtt.session_file).read_text("utf-8"))["session"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if kept != session:
        text = f"mqtt.session_file {settings.mqtt.session_file} belongs to the MQTT session {kept}"
        yield PreflightCheck("client id", "warn", text, "Give each gateway a file of its own.")
