"""`tidegate device watch`: receipts from the broker and stored readings from the table, as they come."""

import json
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from deploy.dlq.next_steps import next_step
from gateway.devtools.listeners import ReceiptListener
from gateway.gateway_settings import MqttSettings
from gateway.safe_text import show_text

__all__ = ["show_line", "watch_device"]

_LOOK_SECONDS: Final = 0.2
_COLUMNS: Final = (
    "metric", "value", "text", "unit", "event_time", "received_at", "boot", "seq", "message_id", "flags", "mqtt_topic",
)  # fmt: skip


def watch_device(
    mqtt: MqttSettings, device: str, *, root: str | None, stop: threading.Event, seconds: float | None = None
) -> Iterator[dict[str, Any]]:
    """Yield receipts and rows of a device until `stop` is set.

    Each is `{"kind": "refused", …receipt, "next"}`, `{"kind": "stored", …row}`, or, where the gateway sends positive
    receipts, `{"kind": "confirmed", …receipt}`.

    Args:
        mqtt: the broker that gateways publish receipts to.
        device: its id.
        root: of the tables, to see what is stored; None to see refusals only.
        stop: ends it.
        seconds: ends it after this long.

    Raises:
        UnavailableError: the broker does not let us listen.
    """
    follower = None
    if root is not None:
        from lakehouse.table_follower import TableFollower

        follower = TableFollower(root, "readings", columns=_COLUMNS, device=device)
    listener = ReceiptListener(mqtt, device, client_id=f"tidegate-watch-{uuid.uuid4().hex[:8]}")
    listener.open()
    until = None if seconds is None else time.monotonic() + seconds
    try:
        while not stop.is_set() and (until is None or time.monotonic() < until):
            told = listener.next(_LOOK_SECONDS)
            while told is not None:
                yield _receipt(told)
                told = listener.next(0)
            for commit in follower.poll() if follower is not None else ():
                yield from ({"kind": "stored", **row} for row in commit.rows.to_pylist())
    finally:
        listener.close()


def _receipt(told: dict[str, Any]) -> dict[str, Any]:
    if "stored" in told:
        return {"kind": "confirmed", **told}
    return {"kind": "refused", **told, "next": next_step(str(told.get("reason")), _topic(told))}


def _topic(told: dict[str, Any]) -> str | None:
    topic = told.get("topic")
    # A long one is cut in the receipt.
    return topic if isinstance(topic, str) and not topic.endswith("…") else None


def show_line(seen: dict[str, Any], *, as_json: bool) -> str:
    """One line for a program, or one or two for a person."""
    if as_json:
        return json.dumps(seen, ensure_ascii=False, default=_plain)
    now = f"{datetime.now(UTC):%H:%M:%S}"
    return f"{now}  {_KINDS[seen['kind']](seen)}"


def _confirmed(seen: dict[str, Any]) -> str:
    upto = f"up to [{seen['last']}], " if seen.get("last") else ""
    return f"stored   {seen['stored']} messages, {upto}partition {seen.get('partition')} offset {seen.get('offset')}"


def _refused(seen: dict[str, Any]) -> str:
    where = f" at {seen['path']}" if seen.get("path") else ""
    got = f": got {seen['got']}" if seen.get("got") else ""
    wanted = f"; wanted {seen['wanted']}" if seen.get("wanted") else ""
    count = seen.get("count")
    more = f"  (and {count - 1} more parts)" if isinstance(count, int) and count > 1 else ""
    held = f"  ({seen['held_back']} earlier ones like it were not shown)" if seen.get("held_back") else ""
    message = f"  [{seen['message_id']}]" if seen.get("message_id") else ""
    return f"rejected {seen.get('reason')}{where}{got}{wanted}{more}{held}{message}\n{'':10}next     {seen['next']}"


def _stored(seen: dict[str, Any]) -> str:
    value = seen["text"] if seen["text"] is not None else f"{seen['value']:g}"
    unit = f" {show_text(seen['unit'])}" if seen["unit"] else ""
    number = f"  [{show_text(seen['message_id'])}]" if seen["message_id"] else ""
    flags = f"  {', '.join(seen['flags'])}" if seen["flags"] else ""
    at = f"{seen['event_time']:%Y-%m-%dT%H:%M:%S.%f}"[:-3]
    return f"stored   {show_text(seen['metric'])} = {show_text(value)}{unit}  at {at}Z{number}{flags}"


def _plain(value: object) -> str:
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else str(value)


_KINDS: Final = {"stored": _stored, "refused": _refused, "confirmed": _confirmed}
