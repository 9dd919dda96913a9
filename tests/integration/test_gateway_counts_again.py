"""A device that starts again with the same boot and number is warned on its receipts, and counted."""

import json
from collections.abc import Callable
from typing import Any

from gateway.gateway_settings import ReceiptSettings
from gateway.replies.receipts import DeviceReceipts

PUBLISH = 3
TOPIC = b"tidegate/v1/dev-1/readings"


def test_a_device_that_counts_again_is_told(scripted_broker: Any, new_gateway: Callable[..., Any]) -> None:
    rig = new_gateway()
    rig.service._replies._receipts = DeviceReceipts(ReceiptSettings(), rig.service._accounts._metrics)
    link = scripted_broker.accept()
    link.handshake()
    for mid, seq in enumerate([*range(8), 0, 1, 2], start=1):
        link.publish(TOPIC, json.dumps({"boot": 7, "seq": seq, "values": {"t": 20}}).encode(), mid)
    body = next(packet for packet in iter(link.packet, None) if packet.kind == PUBLISH).body
    told = json.loads(body[body.index(b"{") :])
    assert body[2:].startswith(b"tidegate/receipts/dev-1")
    assert told["warning"] == "sequence_restarted"
    assert told["got"] == "boot 7 counts again from 0, after it had reached 7"
    assert "a new `boot` at each start" in told["wanted"]
    rig.until(lambda: rig.metric("tidegate_gateway_sequence_restarts_total") == 1)
    rig.until(lambda: rig.metric("tidegate_gateway_memory_fill_ratio", memory="sequence") == 1e-5)
