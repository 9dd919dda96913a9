"""A subscription shared among gateways is granted, and costs the order of a device: it is asked for rightly and told."""

import logging
from typing import Any

import pytest
from paho.mqtt.subscribeoptions import SubscribeOptions

from gateway.gateway_settings import MqttSettings
from gateway.mqtt.paho_client import subscriptions
from gateway.mqtt.session import MqttSession
from gateway.mqtt.session_events import SessionEvents

FILTERS = ("$share/gateways/site/#", "site/#")


def no_local(options: Any) -> bool:
    assert isinstance(options, SubscribeOptions)
    return bool(options.noLocal)


def test_no_local_is_asked_for_only_where_it_is_no_protocol_error() -> None:
    asked = dict(subscriptions(MqttSettings(protocol="5"), FILTERS))
    assert {text: no_local(options) for text, options in asked.items()} == {FILTERS[0]: False, FILTERS[1]: True}
    assert subscriptions(MqttSettings(protocol="3.1.1"), FILTERS) == [(FILTERS[0], 1), (FILTERS[1], 1)]


@pytest.mark.parametrize(("filters", "told"), [(FILTERS, True), (FILTERS[1:], False)])
def test_that_the_order_may_be_lost_is_told_at_start(
    filters: tuple[str, ...], told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "tidegate.gateway"):
        MqttSession(MqttSettings(subscriptions=filters), window=10, events=SessionEvents())
    assert ("$share/gateways/site/# is shared with other gateways" in caplog.text) == told
