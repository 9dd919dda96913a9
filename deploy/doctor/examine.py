"""All findings of `tidegate doctor --config`: each server is asked once, and a check that cannot run is a finding too."""

import time
from collections.abc import Callable, Container, Iterator
from typing import Final

from deploy.doctor.certificate_checks import check_certificate_files, check_server_certificates
from deploy.doctor.client_checks import check_clients, filters_of_others
from deploy.doctor.clock_checks import check_broker_clock, check_kafka_clock
from deploy.doctor.kafka_checks import check_topics, read_facts
from deploy.doctor.mqtt_checks import check_broker, check_filters
from deploy.doctor.place_checks import check_places, check_spark
from deploy.local.preflight import PreflightCheck
from deploy.settings import Settings
from gateway.memory.known_gateways import is_gateway_record, known_gateways
from gateway.memory.restart_state import SessionRecord
from gateway.mqtt.broker_check import ask_broker
from ingest.contract.errors import FatalError, MissingRightError, TidegateError
from ingest.gateway_state import read_state
from streaming.sql.applied_streams import applied_names

__all__ = ["examine_production"]

STALL_SECONDS: Final = 5.0
"""Time without records after which reading the gateways' state fails."""


def examine_production(
    settings: Settings, answering: Container[str], *, outage_seconds: float, timeout_seconds: float
) -> Iterator[PreflightCheck]:
    """Yield the findings about places, certificates, broker, Kafka and clocks.

    Args:
        settings: of the pipeline.
        answering: `mqtt` if the broker's port answers, and `kafka` if one of Kafka does. Others are not asked again.
        outage_seconds: longest outage of the stream that must lose nothing.
        timeout_seconds: patience for each answer.
    """
    yield from check_places(settings)
    yield from check_spark(settings, timeout_seconds=timeout_seconds)
    yield from check_certificate_files(settings)
    yield from check_server_certificates(settings)
    if "mqtt" in answering:
        yield from _tried("mqtt login", lambda: _broker(settings, timeout_seconds))
    now_ms = time.time_ns() // 1_000_000
    gateways: dict[str, SessionRecord] = {}
    if "kafka" in answering:
        yield from _tried("topics", lambda: _topics(settings, outage_seconds))
        yield from _tried("client id", lambda: _clients(settings, gateways, now_ms))
        yield from _tried("clock", lambda: check_kafka_clock(settings.kafka))
    yield from check_filters(settings, filters_of_others(settings, gateways, now_ms=now_ms))


def _broker(settings: Settings, timeout_seconds: float) -> Iterator[PreflightCheck]:
    answer = ask_broker(settings.mqtt, timeout_seconds=timeout_seconds)
    yield from check_broker(settings, answer)
    yield from check_broker_clock(answer.clock)


def _topics(settings: Settings, outage_seconds: float) -> Iterator[PreflightCheck]:
    facts = read_facts(settings.kafka, applied_names(settings.lake.root))
    yield from check_topics(facts, outage_seconds=outage_seconds)


def _clients(settings: Settings, gateways: dict[str, SessionRecord], now_ms: int) -> Iterator[PreflightCheck]:
    """Yield the findings about names, and fill in the gateways for the check of the filters."""
    try:
        found = read_state(settings.kafka, wanted=is_gateway_record, stall_seconds=STALL_SECONDS)
    except MissingRightError as error:
        text = "other gateways are unknown: this user may not read what gateways write about themselves"
        yield PreflightCheck("client id", "warn", text, f"{error}.")
        return
    except FatalError:
        # The topic does not exist, so no gateway has run yet.
        found = []
    gateways |= known_gateways(found)
    yield from check_clients(settings, gateways, now_ms=now_ms)


def _tried(name: str, ask: Callable[[], Iterator[PreflightCheck]]) -> Iterator[PreflightCheck]:
    try:
        yield from ask()
    except TidegateError as error:
        text, _, fix = str(error).partition(". ")
        yield PreflightCheck(name, "fail", text, fix or "Look at the servers' logs, and run the command again.")
