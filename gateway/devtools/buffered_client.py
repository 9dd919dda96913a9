"""paho with a read buffer: one large receive instead of three small ones for every packet.

Each receive is a system call that releases the interpreter's lock. These calls cost more than the packets.
"""

from typing import Final

import paho.mqtt.client as paho
from paho.mqtt.enums import MQTTErrorCode

__all__ = ["BufferedClient", "DrainingClient"]

CHUNK_BYTES: Final = 64 * 1024


class BufferedClient(paho.Client):
    """Client for an owner that drives `loop_read` itself. The owner reads on while `buffered`, because the socket looks empty."""

    _held = b""
    _at = 0

    @property
    def buffered(self) -> bool:
        """Return whether bytes were received that do not make a packet yet."""
        return self._at < len(self._held)

    def _sock_recv(self, bufsize: int) -> bytes:
        if self._at >= len(self._held):
            self._held, self._at = super()._sock_recv(CHUNK_BYTES), 0
        chunk = self._held[self._at : self._at + bufsize]
        self._at += len(chunk)
        return chunk

    def _sock_close(self) -> None:
        # Bytes of an old connection must not be read as the beginning of the next one.
        self._held, self._at = b"", 0
        super()._sock_close()


class DrainingClient(BufferedClient):
    """Client for paho's own loop thread, which looks only at the socket."""

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        """Read one packet, then everything that is buffered."""
        answer = super().loop_read(max_packets)
        while answer == MQTTErrorCode.MQTT_ERR_SUCCESS and self.buffered:
            answer = super().loop_read(max_packets)
        return answer
