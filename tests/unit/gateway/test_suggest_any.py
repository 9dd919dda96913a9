"""Any message, however odd, gives a draft that the settings take, or none; never an exception."""

import json
import tomllib
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.gateway_settings import GatewaySettings, RouteSettings
from gateway.suggest.message_families import SampleMessage
from gateway.suggest.propose import propose_routes

LIMITS = GatewaySettings()
AT_US = 1_795_900_000_000_000
KEYS = st.sampled_from([
    "time", "ts", "id", "deviceId", "value", "unit", "name", "values", "a.b", 'q"t', "{x}", "*", "a[0]", "$t", "^u", "temp_c",
    "data", "n", "v", "seq", "state", "", "q", "quality", "start", "end", "date", "clock", "nodes", "columns", "rows",
    "hourly_units", "T [°C]", "last_boot", "A4:C1:38:11:22:33", "28-0316a2795eff", "epoch_min", "tagPath",
])  # fmt: skip
TEXTS = [
    "21,5 °C",
    "0044",
    "2950",
    "2026-11-28",
    "18:20:00",
    "20261128182000",
    "A4:C1:38:11:22:33",
    "OK",
    "21.5",
    "2026-11-28T18:20:00Z",
    "2026-11-28 18:20:00",
    '{"t": 1}',
    "eyJ0IjogMX0=",
    "°C",
    "on",
    "dev-1",
]
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=12), st.sampled_from(TEXTS),
    st.just(1_795_890_000),
)  # fmt: skip
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=4)
)
TOPICS = st.text(st.sampled_from("ab1/{}+#$-_ é\x00\x1b"), max_size=12)
PAYLOADS = (
    DOCUMENTS.map(lambda value: json.dumps(value).encode())
    | st.binary(max_size=40)
    | st.text(max_size=30).map(str.encode)
)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(TOPICS, PAYLOADS), max_size=4))
@example([("a/b", b'{"value": [false]}')])
def test_any_messages_give_drafts_that_the_settings_take(messages: list[tuple[str, bytes]]) -> None:
    samples = [SampleMessage(topic, payload, AT_US) for topic, payload in messages]
    for one in propose_routes(samples, (), LIMITS, zone="Europe/Berlin"):
        written: dict[str, Any] = tomllib.loads(one.toml)
        assert [RouteSettings.model_validate(route) for route in written["routes"]] == [one.route]
        assert all(sign.isprintable() or sign == "\n" for sign in one.toml)
        assert len(one.decoded) == len(one.samples)
