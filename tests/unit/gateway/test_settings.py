"""Settings of the gateway that a type alone does not check."""

import pytest
from pydantic import ValidationError

from gateway.gateway_settings import MqttSettings


@pytest.mark.parametrize(
    ("subscriptions", "wanted"),
    [((), "at least 1 item"), (("#", ""), "at least one character"), (("a/#", "a#"), "'a#' mixes text")],
)
def test_a_subscription_that_no_broker_would_grant_is_refused(subscriptions: tuple[str, ...], wanted: str) -> None:
    with pytest.raises(ValidationError, match=wanted):
        MqttSettings(subscriptions=subscriptions)


def test_subscriptions_may_be_shared_name_segments_and_reach_system_topics() -> None:
    filters = ("$share/gateways/site/#", "site/{site}/+", "$aws/#")
    assert MqttSettings(subscriptions=filters).subscriptions == filters
