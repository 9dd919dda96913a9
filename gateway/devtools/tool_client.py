"""MQTT client of the tools that act as a device or listen: paho with its own loop thread, and words for a failed connection."""

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode

from gateway.gateway_settings import MqttSettings
from gateway.mqtt.paho_client import authenticate, set_user
from gateway.mqtt.tls import fault_text, pending_alert
from gateway.safe_text import show_text

__all__ = ["ToolClient", "advice"]


class ToolClient(paho.Client):
    """Client with the address, user and certificates of the settings.

    Attributes:
        fault: why the last attempt to connect failed, for people; empty if none did. paho itself does not keep it.
    """

    def __init__(self, settings: MqttSettings, client_id: str) -> None:
        """Prepare a client; `client_id` must be unique at the broker.

        Raises:
            ConfigError: a certificate or key of `[mqtt]` cannot be used.
        """
        protocol = paho.MQTTv5 if settings.protocol == "5" else paho.MQTTv311
        super().__init__(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=protocol)
        self.fault = ""
        self._settings = settings
        self.reconnect_delay_set(1, 5)
        authenticate(self, settings)

    def begin(self) -> None:
        """Connect in the background, and again after each loss."""
        self.connect_async(self._settings.host, self._settings.port, self._settings.keepalive_seconds)
        self.loop_start()

    def reconnect(self) -> MQTTErrorCode:
        """Connect; paho's loop calls it for each attempt and forgets why one failed."""
        set_user(self, self._settings)
        try:
            return super().reconnect()
        except OSError as error:
            self._note(error)
            raise

    def _sock_recv(self, bufsize: int) -> bytes:
        try:
            return super()._sock_recv(bufsize)
        except BlockingIOError:
            raise
        except OSError as error:
            self._note(error)
            raise

    def _sock_send(self, buf: bytes | bytearray) -> int:
        try:
            return super()._sock_send(buf)
        except BlockingIOError:
            raise
        except OSError as error:
            self._note(pending_alert(self.socket()) or error)
            raise

    def _note(self, error: OSError) -> None:
        self.fault = show_text(fault_text(error, presents_certificate=self._settings.cert_file is not None))


def advice(settings: MqttSettings) -> str:
    """Return the next step after a refused or failed connection, as a sentence."""
    certificate = ", and that its certificates are valid" if settings.tls else ""
    return f"Check that it runs and that [mqtt] has the right user and password{certificate}."
