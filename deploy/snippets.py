"""Publishers to paste: for one broker and one device, ready to run. Pure."""

import json
import shlex
from collections.abc import Mapping
from string import Template
from typing import Final, NamedTuple

from gateway.replies.receipts import receipt_topic
from gateway.topic_filters import id_fault
from ingest.contract.errors import ConfigError

__all__ = ["LANGUAGES", "PublishTarget", "check_device", "render_snippet"]


class PublishTarget(NamedTuple):
    """Address where a device publishes. `password` None: the snippet reads MQTT_PASSWORD; `where` says where that is found."""

    host: str
    port: int
    username: str | None
    password: str | None
    tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    where: str = ""
    ca_text: str = ""
    """Content of `ca_file` in PEM, which a device on another machine needs in its code."""


def check_device(device: str) -> None:
    """Check that a snippet can be written for this device.

    Raises:
        ConfigError: the id fits into no native topic.
    """
    fault = id_fault(device, 256)
    if fault is not None or any(char in device for char in "/+#"):
        wanted = fault or "one segment of a topic, without / + #"
        message = f"{device!r} cannot be the device of a native topic: wanted {wanted}."
        raise ConfigError(message)


def render_snippet(language: str, device: str, target: PublishTarget) -> str:
    """The text of a publisher in this language.

    Raises:
        ConfigError: the device id fits into no native topic.
    """
    check_device(device)
    return LANGUAGES[language](device, target)


def _python(device: str, target: PublishTarget) -> str:
    secret = 'os.environ["MQTT_PASSWORD"]' if target.password is None else _quoted(target.password)
    login = f"client.username_pw_set({_quoted(target.username)}, {secret})\n" if target.username else ""
    more = {"ssl": "import ssl\n" if target.ca_text else "", "tls": _python_tls(target) if target.tls else ""}
    return _fill(_PYTHON, target, _topics(device), login=login, device=_quoted(device), **more)


def _python_tls(target: PublishTarget) -> str:
    files = {"certfile": target.cert_file, "keyfile": target.key_file}
    pair = [f"{name}={_quoted(file)}" for name, file in files.items() if file]
    if not target.ca_text:
        return f"client.tls_set({', '.join([*([_quoted(target.ca_file)] if target.ca_file else []), *pair])})\n"
    load = f"context.load_cert_chain({', '.join(pair)})\n" if pair else ""
    authority = f'"""\\\n{target.ca_text}"""'
    return f"context = ssl.create_default_context(cadata={authority})\n{load}client.tls_set_context(context)\n"


def _mosquitto(device: str, target: PublishTarget) -> str:
    options = f"-h {shlex.quote(target.host)} -p {target.port}"
    if target.username:
        secret = '"$MQTT_PASSWORD"' if target.password is None else shlex.quote(target.password)
        options += f" -u {shlex.quote(target.username)} -P {secret}"
    authority = f"cat > tidegate-ca.pem <<'END'\n{target.ca_text}END\n" if target.tls and target.ca_text else ""
    if target.tls:
        ca_file = "tidegate-ca.pem" if authority else target.ca_file
        options += f" --cafile {shlex.quote(ca_file)}" if ca_file else " --capath /etc/ssl/certs"
    if target.tls and target.cert_file and target.key_file:
        options += f" --cert {shlex.quote(target.cert_file)} --key {shlex.quote(target.key_file)}"
    topics = {name: shlex.quote(topic) for name, topic in _topics(device).items()}
    return Template(_MOSQUITTO).substitute(options=options, where=_where(target), authority=authority, **topics)


def _arduino(device: str, target: PublishTarget) -> str:
    login = f", {_quoted(target.username)}, MQTT_PASSWORD" if target.username else ""
    secret = _quoted(target.password or "put it here")
    local = (
        "// This broker listens on this machine only. Set embedded.mqtt_listen, or give the board the address of a broker that "
        "it can reach.\n"
    )
    return _fill(
        _ARDUINO,
        target,
        _topics(device),
        comment="//",
        login=login,
        secret=secret,
        device=_quoted(device),
        local=local if target.host in ("127.0.0.1", "localhost", "::1") else "",
        net="WiFiClientSecure" if target.tls else "WiFiClient",
        **_arduino_tls(target),
    )


def _arduino_tls(target: PublishTarget) -> dict[str, str]:
    """Return the certificates as texts of the code, because a board has no files, and the calls that use them."""
    if not target.tls:
        return {"certificates": "", "tls": ""}
    texts = {"CA": target.ca_text or "the certificate of the broker's authority, in PEM\n"}
    calls = {"CA": "setCACert"}
    if target.cert_file:
        texts |= {"CERTIFICATE": "the board's certificate, in PEM\n", "KEY": "its private key, in PEM\n"}
        calls |= {"CERTIFICATE": "setCertificate", "KEY": "setPrivateKey"}
    return {
        "certificates": "".join(f'const char {name}[] = R"(\n{text})";\n' for name, text in texts.items()),
        "tls": "".join(f"  net.{call}({name});\n" for name, call in calls.items()),
    }


def _fill(text: str, target: PublishTarget, topics: Mapping[str, str], *, comment: str = "#", **more: str) -> str:
    quoted = {name: _quoted(topic) for name, topic in topics.items()}
    return Template(text).substitute(
        host=_quoted(target.host), port=target.port, where=_where(target, comment), **quoted, **more
    )


def _topics(device: str) -> Mapping[str, str]:
    return {"topic": f"tidegate/v1/{device}/readings", "receipts": receipt_topic(device)}


def _where(target: PublishTarget, comment: str = "#") -> str:
    return "" if target.password is not None or not target.where else f"{comment} {target.where}\n"


def _quoted(text: str | None) -> str:
    """A string literal of Python and of C; `$` needs no care, since values are not filled in again."""
    return json.dumps(text or "", ensure_ascii=False)


_PYTHON: Final = """\
# Sends three readings and prints rejections. Needs: pip install "paho-mqtt>=2"
${where}import json
import os
import secrets
${ssl}import time

import paho.mqtt.client as mqtt

DEVICE = $device
BOOT = secrets.randbits(53)  # a new number for each start; boot and seq identify a message


def connected(client, userdata, flags, reason, properties):
    print("connected:", reason)
    client.subscribe($receipts, qos=1)


def rejected(client, userdata, message):
    print("rejected:", message.payload.decode())


client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=DEVICE)
${login}${tls}client.on_connect, client.on_message = connected, rejected
client.connect($host, $port)
client.loop_start()
for seq in range(1, 4):
    reading = {
        "ts": int(time.time() * 1000),  # epoch milliseconds; leave it out until the clock is set
        "boot": BOOT,
        "seq": seq,
        "values": {"temperature": {"value": 20.0 + seq, "unit": "°C"}, "door": False},
    }
    client.publish($topic, json.dumps(reading), qos=1).wait_for_publish(10)
    print("published:", json.dumps(reading))
    time.sleep(1)
client.disconnect()
client.loop_stop()
"""

_MOSQUITTO: Final = """\
${where}${authority}# A new number for each start; boot and seq identify a message, so that it is not stored twice.
boot=$$(od -An -N6 -tu8 /dev/urandom | tr -d ' ')
mosquitto_pub $options -q 1 \\
  -t $topic \\
  -m '{"boot": '"$$boot"', "seq": 1, "values": {"temperature": {"value": 21.5, "unit": "°C"}, "door": false}}'
# To see rejections, run in another terminal:
# mosquitto_sub $options -v -t $receipts
"""

_ARDUINO: Final = """\
// ESP32; library "MQTT" by Joel Gaehwiler (it publishes at QoS 1).
${where}${local}#include <MQTT.h>
#include <WiFi.h>
#include <WiFiClientSecure.h>

#define MQTT_PASSWORD $secret
${certificates}$net net;
MQTTClient client(512);
unsigned long long boot = 0, seq = 0;  // together they identify a message, so that it is not stored twice

void rejected(String &topic, String &payload) { Serial.println("rejected: " + payload); }

void connect() {
  while (!client.connect($device$login)) delay(1000);
  client.subscribe($receipts, 1);
}

void setup() {
  Serial.begin(115200);
  WiFi.begin("your network", "its password");
  while (WiFi.status() != WL_CONNECTED) delay(500);
  // A new number for each start. It is random (truly random once the radio is on), because a counter in flash can be erased.
  boot = (unsigned long long)(esp_random() & 0x1FFFFF) << 32 | esp_random();
${tls}  client.begin($host, $port, net);
  client.onMessage(rejected);
  connect();
}

void loop() {
  client.loop();
  if (!client.connected()) connect();
  char payload[256];
  snprintf(payload, sizeof payload,
           "{\\"boot\\": %llu, \\"seq\\": %llu, \\"values\\": {\\"temperature\\": {\\"value\\": %.2f, \\"unit\\": \\"°C\\"}}}",
           boot, ++seq, temperatureRead());
  client.publish($topic, payload, false, 1);
  delay(5000);
}
"""

LANGUAGES: Final = {"python": _python, "arduino": _arduino, "mosquitto": _mosquitto}
