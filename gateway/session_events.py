"""What the MQTT session tells its owner."""

import paho.mqtt.client as paho

__all__ = ["Received", "SessionEvents"]


class Received:
    """One PUBLISH as it came; `topic` in bytes, since it need not be UTF-8."""

    __slots__ = ("dup", "message_id", "mid", "payload", "qos", "retain", "topic", "trace")

    def __init__(self, message: paho.MQTTMessage) -> None:
        try:
            self.topic = message.topic.encode("utf-8")
        except UnicodeDecodeError as error:
            self.topic = bytes(error.object)
        self.payload, self.mid, self.qos = message.payload, message.mid, message.qos
        self.dup, self.retain = message.dup, message.retain
        self.message_id = self.trace = None
        if message.properties is not None:
            for name, value in getattr(message.properties, "UserProperty", ()):
                if name == "message-id":
                    self.message_id = value
                elif name == "traceparent":
                    self.trace = value


class SessionEvents:
    """What the owner hears of. All of it runs inside `MqttSession.loop`."""

    def connected(self, epoch: int, *, session_lost: bool) -> None:
        """A new connection is up; everything of the old epoch is void."""

    def disconnected(self, why: str) -> None:
        """The connection is gone."""

    def received(self, message: Received) -> None:
        """One PUBLISH of the current epoch."""

    def failed(self, stage: str) -> None:
        """A fault was survived."""
